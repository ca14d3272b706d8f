"""Digests of all that the tests of a file stand on: a file that passed with the same is left out as a whole.

That is the file and what it imports from this folder, and every other file of the tree but the other test files, byte by byte.
Documentation counts for files that name it. Shaders count that the tests read when the record was made: all of them for files
that start processes and name GPUs or devices. Without git nothing is left out.
"""

import functools
import hashlib
import re
import subprocess
from pathlib import Path

from source_digests import ROOT, digest

DOCUMENTATION = re.compile(r'"docs"|docs/|README|CHANGELOG|CONTRIBUTING|\.md\b')
# Fixtures give devices, so that a test may run on a GPU that it does not name.
GPUS = re.compile("webgpu|wgpu|dawn|shader|wgsl|device", re.IGNORECASE)
IMPORTS = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
# Modules that choose tests: what they name, tests do not read.
CHOOSING = {"selection", "source_digests", "file_selection"}
# Nobody sees what another process reads.
PROCESSES = "processes"


def part_of(name: str) -> str:
    """The part of the tree that a file belongs to; empty for files that concern no other test file."""
    if name.startswith("tests/green/") or re.match(r"tests/test_\w+\.py$", name):
        return ""
    if name.startswith("docs/") or name.endswith(".md"):
        return "documentation"
    return "shaders" if name.startswith("shaders/") else "rest"


@functools.cache
def parts(root: Path = ROOT) -> dict[str, str]:
    """The digest of each part of a tree, of shaders only their names; nothing without git."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=root, capture_output=True, check=False)
    names = sorted({name for name in done.stdout.decode().split("\0") if (root / name).is_file()})
    texts = {part: hashlib.sha256() for part in map(part_of, names) if part}
    for name in names:
        part = part_of(name)
        if part:
            raw = b"" if part == "shaders" else (root / name).read_bytes()
            texts[part].update(f"{name} {hashlib.sha256(raw).hexdigest()}\n".encode())
    return {part: text.hexdigest() for part, text in texts.items()}


def shader_of(path: str) -> str:
    """The name by which kernels and includes call the file of a shader."""
    folder, name = path.removesuffix(".wgsl").split("/")[-2:]
    return f"lib/{name}" if folder == "lib" else name


@functools.cache
def shaders(root: Path = ROOT) -> dict[str, str]:
    """The texts of all shaders."""
    paths = root.glob("shaders/**/*.wgsl")
    return {shader_of(path.as_posix()): path.read_text() for path in paths}


@functools.cache
def source(path: Path) -> str:
    """The text of a module of the tests."""
    return path.read_text()


def imported(path: Path, found: dict[Path, str]) -> dict[Path, str]:
    """Adds a test file, and what it imports from its folder, to the texts found so far."""
    found[path] = source(path)
    for name in sorted({*IMPORTS.findall(found[path])} - CHOOSING):
        other = path.with_name(f"{name}.py")
        if other not in found and other.exists():
            imported(other, found)
    return found


@functools.cache
def of_tests(path: Path, reads: tuple[str, ...], root: Path = ROOT) -> str:
    """A digest of what the tests of a file stand on, of which they read some shaders; empty where nobody knows."""
    tree, texts = parts(root), imported(path, {})
    if "rest" not in tree:
        return ""
    wanted = ["rest", "shaders"]  # of these the names
    if any(map(DOCUMENTATION.search, texts.values())):
        wanted.append("documentation")
    starts = PROCESSES in reads or any("multiprocessing" in text for text in texts.values())
    every = starts and any(map(GPUS.search, texts.values()))
    read = [(name, shaders(root).get(name)) for name in (sorted(shaders(root)) if every else reads)]
    named = [(name, tree.get(name)) for name in wanted]
    return digest(path.name, named, read, sorted((p.name, text) for p, text in texts.items()))

"""Selects the tests for a name: an operation, a source file, a test file. ``script/check`` runs them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlx.ir.opdef import REGISTRY
from rlx.ops.placeholders import LEAVES

# A change of anything else is at least tested with these.
ALWAYS = ("tests/test_tiny.py", "tests/test_contract.py")
ELEMENTWISE = "rlx.ops.elementwise.records"
DTYPE = re.compile(r"_(f32|f64|f16|bf16|i8|u8|i32|u32|i64|bool|b[1248])$")
OPS = {name: op for name, op in REGISTRY.items() if name not in (*LEAVES, "part")}


def changed_files(root: Path) -> list[str]:
    """Files that differ from the last commit, and those that git does not know yet; not deleted ones."""
    results = []
    for command in (
        ["git", "diff", "--name-only", "--diff-filter=d", "HEAD"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    ):
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        results += done.stdout.split()
    return results


def selected(names: Iterable[str], root: Path) -> list[str]:
    """Arguments of pytest: test files, and ``--op`` for each operation.

    Raises:
        SystemExit: A name is neither an operation nor a file.
    """
    ops: set[str] = set()
    files: set[str] = set()
    for name in names:
        if name in OPS:
            ops.add(name)
        elif (root / name).is_file():
            path = (root / name).resolve().relative_to(root)
            ops |= set(ops_of(path, root))
            files |= set(files_of(path, root))
        else:
            raise SystemExit(f"-- {name!r} is neither an operation nor a file of the repository")
    if ops:
        # Files with one test for each operation and device; ``--op`` chooses among those (tests/conftest.py).
        tests = sorted((root / "tests").glob("test_*.py"))
        per_op = [path for path in tests if "pytest.mark.per_op" in path.read_text()]
        files |= {path.relative_to(root).as_posix() for path in per_op}
    whole = ops == set(OPS)
    return [*sorted(files), *([] if whole else [f"--op={name}" for name in sorted(ops)])]


def ops_of(path: Path, root: Path) -> Iterator[str]:
    """The operations that a source file takes part in."""
    parts = path.parts
    if parts[0] == "cython_src" and path.suffix in (".h", ".c", ".pyx", ".pxd"):
        kernels = kernels_in((root / path).read_text())
        yield from (n for n, op in OPS.items() if op.cpu and kernels & set(op.cpu.names))
        if not kernels:  # a part of all kernels, or of many
            yield from OPS
    elif parts[0] == "shaders":
        shaders = including(path.name, root) if parts[1] == "lib" else {path.stem}
        yield from (n for n, op in OPS.items() if op.webgpu and shaders & set(op.webgpu.names))
        if path.stem in ("math", "point"):
            yield from (n for n, op in OPS.items() if op.reference.__module__ == ELEMENTWISE)
    elif parts[:2] in (("rlx", "ops"), ("rlx", "signal")):
        module = ".".join(path.with_suffix("").parts)
        yield from (n for n, op in OPS.items() if op.reference.__module__ == module)


def kernels_in(text: str) -> set[str]:
    """Names of the kernels that a C header defines, without their dtypes."""
    result = re.findall(r"\bkernel_(\w+?)(?:_?##\w+)?\s*\)?\s*\(", text)
    return {DTYPE.sub("", name).rstrip("_") for name in result}


def including(name: str, root: Path) -> set[str]:
    """The shaders that include a library file."""
    shaders = (root / "shaders").rglob("*.wgsl")
    return {path.stem for path in shaders if f"lib/{name}" in path.read_text()}


def files_of(path: Path, root: Path) -> Iterator[str]:
    """The test files for a source file."""
    parts = path.parts
    if parts[0] == "tests":
        if path.name.startswith("test_"):
            yield path.as_posix()
        else:  # what several test files share
            yield from importing([path.stem], root)
    elif parts[0] == "rlx" and path.suffix in (".py", ".pyi"):
        module = ".".join(path.with_suffix("").parts)
        parent, _, stem = module.rpartition(".")
        yield from importing([module, f"{parent} import"], root, stem)
        if (root / f"tests/test_{stem}.py").is_file():
            yield f"tests/test_{stem}.py"
        yield from ALWAYS
    elif parts[0] in ("cython_src", "shaders"):
        yield from ALWAYS
    elif parts[0] in ("docs", "examples") or path.name == "README.md":
        yield from ("tests/test_examples.py", "tests/test_docs.py")
    elif parts[0] == "benchmarks":
        yield from ("tests/test_benchmarks.py", "tests/test_cpu_benchmark.py")


def importing(texts: Iterable[str], root: Path, stem: str = "") -> Iterator[str]:
    """The test files whose imports name a module."""
    for test in sorted((root / "tests").glob("test_*.py")):
        lines = [line for line in test.read_text().splitlines() if "import" in line]
        for line in lines:
            whole, *loose = texts
            named = re.search(rf"\b{re.escape(whole)}\b", line)
            if named or any(text in line and re.search(rf"\b{stem}\b", line) for text in loose):
                yield test.relative_to(root).as_posix()
                break

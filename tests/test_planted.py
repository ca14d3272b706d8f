"""The planted faults are in order: each says what it is, names tests that exist, and still applies.

script/planted plants them; here nothing is changed and nothing is built.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PATCHES = sorted((ROOT / "tests/planted").glob("*.patch"))
LEAST = 30
NEEDED = ("Fault", "Kind", "Tests")
KINDS = {
    "lost sign", "missing -inf handling", "missing NaN handling", "missing check of a file", "missing barrier", "missing tail handling",
    "off-by-one bound", "pass that drops a guard", "stale cache key", "swapped operand", "wrong axis/stride",
    "wrong constant", "wrong dtype", "wrong rounding of casts", "wrong slot",
}  # fmt: skip


def headers(patch):
    lines = patch.read_text().partition("\n--- ")[0].splitlines()
    return {
        name: value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }


def checker():
    """The command that tries a patch without applying it, as script/planted applies it."""
    if shutil.which("git"):
        return ["git", "apply", "--check", "-C1"]
    if shutil.which("patch"):
        return ["patch", "--dry-run", "-p1", "-F3", "-s", "-f", "-i"]
    pytest.fail("neither git nor patch is installed; one of them has to read tests/planted")


def test_there_are_enough():
    assert len(PATCHES) >= LEAST
    assert {path.parts[0] for path in map(changed, PATCHES)} == {"cython_src", "shaders", "rlx"}


def changed(patch):
    """The one file that a fault is in."""
    (path,) = [line[6:] for line in patch.read_text().splitlines() if line.startswith("+++ b/")]
    return Path(path)


def test_each_says_what_it_is():
    for patch in PATCHES:
        said = headers(patch)
        missing = [name for name in NEEDED if not said.get(name)]
        assert not missing, f"{patch.name} lacks {missing}"
        assert set(said) <= {*NEEDED, "Known"}, patch.name
        assert said["Kind"] in KINDS, patch.name
        assert said.get("Known", "not found,").startswith("not found,"), patch.name


def test_each_is_small():
    for patch in PATCHES:
        diff = patch.read_text().partition("\n+++ ")[2].splitlines()[1:]
        lines = [line for line in diff if line[:1] in ("+", "-")]
        assert 1 <= len(lines) <= 6, f"{patch.name} changes {len(lines)} lines"
        assert (ROOT / changed(patch)).is_file(), patch.name


def test_each_names_tests_that_exist():
    """By files and names: an id would be another one as soon as a test gets another parameter."""
    for patch in PATCHES:
        words = shlex.split(headers(patch)["Tests"])
        files = words[: words.index("-k")] if "-k" in words else words
        assert files, f"{patch.name} names no file"
        assert words[len(files) :][::2] in ([], ["-k"]), f"{patch.name}: only files and -k"
        missing = [name for name in files if not (ROOT / name).is_file()]
        assert not missing, f"{patch.name} names {missing}, which are not there"


def test_the_record_is_of_these():
    """Each line of the record is a fault and a digest."""
    record = ROOT / "tests/green/planted.txt"
    lines = [line.split(" ") for line in record.read_text().splitlines()]
    assert lines == sorted(lines)
    assert {name for name, _ in lines} <= {patch.stem for patch in PATCHES}


def test_each_applies():
    # A repository above the tree is not asked.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(ROOT.parent)}
    command, stale = checker(), []
    for patch in PATCHES:
        done = subprocess.run(
            [*command, str(patch)], cwd=ROOT, env=env, capture_output=True, check=False
        )
        if done.returncode:
            stale.append(patch.name)
    assert not stale, (
        f"{stale} no longer apply; tests/planted/README.md says how to refresh a patch"
    )

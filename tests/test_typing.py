"""mypy and pyright on the examples and on ``tests/typing``, with the installed rlx, outside of the checkout.

``correct.py`` holds uses that both have to accept, ``errors.py`` mistakes that both have to find.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from python_process import run_python

import rlx

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("examples", "tests/typing")
# The folders that hold programs: what a program imports lies beside it.
PROGRAMS = ("examples/desktop", "examples/ray_serve", "examples", "typing")
MARK = re.compile(r"# error: (?P<mypy>[\w-]+), (?P<pyright>\w+)$")
MYPY = re.compile(r"(?P<path>[^:]+):(?P<line>\d+): error: .*  \[(?P<code>[\w-]+)\]$")
# Of tests/typing mypy is asked as much as of rlx itself; the examples are checked as a user's first programs are.
MYPY_INI = """
[mypy]
check_untyped_defs = true
mypy_path = typings
[mypy-pygfx.*,rendercanvas.*,wgpu.*]
ignore_missing_imports = true
[mypy-correct,errors]
disallow_any_generics = true
disallow_untyped_calls = true
disallow_untyped_decorators = true
disallow_untyped_defs = true
no_implicit_reexport = true
strict_equality = true
warn_return_any = true
warn_unused_ignores = true
"""
# Part of all public names below rlx whose types pyright finds stated, and not only inferred.
LEAST_SCORE = 0.95
# Libraries that examples may use, and that need not be there.
ABSENT_LIBRARIES = ("aiohttp", "ray", "sounddevice", "triton_python_backend_utils")
ABSENT = "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n"


@pytest.fixture
def outside(tmp_path):
    """A folder with copies of what is checked, and nothing else of the checkout."""
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / Path(folder).name, ignore=ignored)
    (tmp_path / "mypy.ini").write_text(MYPY_INI)
    (tmp_path / "typings").mkdir()
    for library in ABSENT_LIBRARIES:
        (tmp_path / f"typings/{library}.pyi").write_text(ABSENT)
    settings = {
        "include": [Path(folder).name for folder in FOLDERS],
        "executionEnvironments": [{"root": folder} for folder in PROGRAMS],
        # A loop of a program goes around at least once, and of absent libraries there are only stubs.
        "reportPossiblyUnboundVariable": False,
        "reportMissingModuleSource": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    return tmp_path


def expected(checker):
    """The marked errors: (line, code) of ``errors.py``."""
    lines = (ROOT / "tests/typing/errors.py").read_text().splitlines()
    marks = {line: MARK.search(text) for line, text in enumerate(lines, 1)}
    return {(line, mark[checker]) for line, mark in marks.items() if mark}


def compare(result, checker):
    """Fails with what is missing and what is too much."""
    wanted = {("typing/errors.py", *mark) for mark in expected(checker)}
    assert len(wanted) > 30
    missing = [
        f"not found: {path}:{line} {code}" for path, line, code in sorted(wanted - result.keys())
    ]
    more = [f"unexpected: {path}:{line} {code}: {result[path, line, code]}"
            for path, line, code in sorted(result.keys() - wanted)]  # fmt: skip
    assert not missing + more, "\n".join(missing + more)


def test_mypy(outside):
    options = ["--cache-dir", os.devnull]  # nobody reads a cache
    options += ["--no-pretty", "--show-error-codes", "--hide-error-context"]
    done = run_python("-m", "mypy", *options, "examples", "typing", cwd=outside, status=1)
    matches = filter(None, map(MYPY.match, done.stdout.splitlines()))
    compare({(m["path"], int(m["line"]), m["code"]): m[0] for m in matches}, "mypy")


def test_pyright(outside):
    options = ("--pythonpath", sys.executable, "--outputjson")
    done = run_python("-m", "pyright", *options, cwd=outside, status=1)
    said = json.loads(done.stdout)["generalDiagnostics"]
    results = {}
    for item in said:
        path = Path(item["file"]).relative_to(outside).as_posix()
        key = (path, item["range"]["start"]["line"] + 1, item.get("rule", ""))
        if item["severity"] in ("error", "warning"):
            results[key] = item["message"].splitlines()[0]
    compare(results, "pyright")


def exported():
    """The qualified names of what rlx and its modules export."""
    results = set()
    for module in (rlx, rlx.signal, rlx.onnx, rlx.ops, rlx.cost, rlx.gguf, rlx.safetensors):
        for name in getattr(module, "__all__", ()):
            single = getattr(module, name)
            results.add(
                f"{getattr(single, '__module__', '')}.{getattr(single, '__qualname__', name)}"
            )
    return results


@pytest.mark.slow
def test_what_rlx_exports_has_types(tmp_path):
    """pyright's own count of a package's types: nothing exported is unknown, and the score stays what it is."""
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--verifytypes",
        "rlx",
        "--ignoreexternal",
        "--outputjson",
    ]
    # There is no option for the interpreter here: pyright asks the first one on the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = {
        "cwd": tmp_path,
        "env": {**os.environ, "PATH": path},
        "capture_output": True,
        "text": True,
    }
    done = subprocess.run(command, check=False, **run)
    said = json.loads(done.stdout)["typeCompleteness"]
    assert Path(said["packageRootDirectory"]) == Path(rlx.__file__).parent
    names = exported()
    assert len(names) > 250
    unknown = [
        symbol["name"]
        for symbol in said["symbols"]
        if not symbol["isTypeKnown"]
        and not symbol["isTypeAmbiguous"]
        and any(symbol["name"] == name or symbol["name"].startswith(f"{name}.") for name in names)
    ]
    assert not unknown
    assert said["completenessScore"] >= LEAST_SCORE

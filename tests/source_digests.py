"""Digests of sources: a comment or a docstring changes none of them.

Plain Python. ``script/test`` runs this once, for all processes that it starts: ``RLX_TEST_SOURCES`` names the file.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = "rlx/ops/*/**/*.py"
KERNELS = ("cython_src/kernels/**/*", "rlx/backends/cpu/**/*.py")
# Folders that a digest of the program or of the source graph covers, or that no test with the marker reads.
COVERED = (
    FAMILIES, *KERNELS, "rlx/passes/**/*.py", "rlx/importers/**/*.py", "rlx/signal/**/*.py", "rlx/cli/**/*.py",
    "rlx/regress/**/*.py", "rlx/serving/**/*.py", "rlx/cost/**/*.py", "rlx/tune/**/*.py", "rlx/calibrate/**/*.py",
    "rlx/ray/**/*.py", "rlx/lm/**/*.py", "rlx/testing/**/*.py", "rlx/__pyinstaller/**/*.py", "tests/test_*.py",
)  # fmt: skip
FLOOR = ("rlx/**/*.py", "cython_src/**/*", "tests/*.py")


def digest(*parts: Any) -> str:
    """16 hexadecimal digits that say what the parts are."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def of_source(path: Path) -> str:
    """A digest of what a file means: of Python without comments, docstrings and blank lines."""
    raw = path.read_bytes()
    return of_python(raw) if path.suffix == ".py" else hashlib.sha256(raw).hexdigest()


@functools.cache
def of_python(raw: bytes) -> str:
    """A digest of a module's meaning. Many test files name the same folders."""
    tree = ast.parse(raw)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                del body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def files(patterns: Iterable[str], root: Path = ROOT) -> set[Path]:
    """The files that globs name."""
    results = {path for pattern in patterns for path in root.glob(pattern)}
    return {
        path for path in results if path.is_file() and path.suffix not in (".pyc", ".so", ".pyd")
    }


@functools.cache
def taken() -> dict[str, str]:
    """The digests that another process has taken."""
    file = os.environ.get("RLX_TEST_SOURCES")
    return json.loads(Path(file).read_text()) if file else {}


def of_sources(paths: Iterable[Path], root: Path = ROOT) -> str:
    """A digest of some files and their names."""
    known = taken()
    return digest(
        *(
            (path.relative_to(root).as_posix(), known.get(str(path)) or of_source(path))
            for path in sorted(paths)
        )
    )


def generated(root: Path) -> set[Path]:
    """Lists the files that a build writes beside the sources."""
    ignored = root / ".gitignore"
    lines = ignored.read_text().split() if ignored.exists() else []
    return {root / line[1:] for line in lines if line.startswith("/rlx/")}


def floor(root: Path = ROOT) -> dict[str, str]:
    """The digest of each folder of the floor."""
    folders: dict[str, list[Path]] = {}
    for path in files(FLOOR, root) - files(COVERED, root) - generated(root):
        parts = path.relative_to(root).parts
        folders.setdefault("/".join(parts[:2] if len(parts) > 2 else parts[:1]), []).append(path)
    return {name: of_sources(paths, root) for name, paths in sorted(folders.items())}


if __name__ == "__main__":
    paths = files((*FLOOR, "examples/**/*.py", "benchmarks/**/*.py"))
    digests = {str(path): of_source(path) for path in sorted(paths)}
    Path(sys.argv[1]).write_text(json.dumps(digests))

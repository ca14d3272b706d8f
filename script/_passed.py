"""Stages of ``script/test`` that passed before with the same sources: ``tests/green/stages.txt`` has their digests.

Plain Python. What a digest covers is a stage's sources, byte by byte, and the versions of all packages.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from _setup import ROOT, digest

PASSED = ROOT / "tests/green/stages.txt"
_VERSIONS = """
import sys
from importlib.metadata import distributions
print(sys.version, sorted({f"{item.name} {item.version}" for item in distributions()}))
"""


def digest_of(name: str, patterns: Sequence[str], python: Path) -> str:
    """The line of a stage.

    Args:
        name: The stage.
        patterns: The sources that it stands on.
        python: The interpreter whose packages it uses.
    """
    done = subprocess.run([str(python), "-c", _VERSIONS], capture_output=True, check=True)
    return f"{name} {digest((*patterns,), done.stdout.decode())}"


def _lines() -> list[str]:
    return PASSED.read_text().splitlines() if PASSED.exists() else []


def unless_passed(
    name: str, patterns: Sequence[str], python: Path, mode: str, check: Callable[[], bool]
) -> bool:
    """Runs a stage; not where it is known to pass.

    Args:
        name: The stage.
        patterns: The sources that it stands on.
        python: The interpreter whose packages it uses.
        mode: "" to run it, "record" to run it and keep that it passed, else it may be left out.
        check: Runs it, and returns whether it passed.

    Returns:
        Whether it ran.
    """
    line = digest_of(name, patterns, python)
    if mode not in ("", "record") and line in _lines():
        return False
    if check() and mode == "record":
        # Another stage may have kept its line meanwhile.
        others = [item for item in _lines() if item.partition(" ")[0] != name]
        PASSED.write_text("".join(f"{item}\n" for item in sorted([*others, line])))
    return True

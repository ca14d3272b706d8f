"""The one wheel for CPython 3.11 and later, on every such interpreter that is found here, and on the newest of Debian."""

import glob
import os
from pathlib import Path

from _setup import build_wheel, say

from _portable import units
from _portable.interpreters import ONNX, TESTING, environment, install_wheel, version_of
from _portable.sources import HOME
from _portable.suite import run_steps

# Versions that are looked for, in $PATH and then among those of pyenv.
MINORS = range(11, 20)


def interpreters() -> dict[str, Path]:
    """Each interpreter by its version, the first one found of each."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    folders += sorted(glob.glob(str(Path.home() / ".pyenv/versions/*/bin")))
    results: dict[str, Path] = {}
    for minor in MINORS:
        for folder in folders:
            python = Path(folder, f"python3.{minor}")
            version = version_of(str(python)) if python.is_file() else ""
            if version:  # pyenv has stand-ins for versions that are not in use
                results.setdefault(version, python)
                break
    return results


def check(steps: tuple[str, ...]) -> bool:
    """Returns whether all tests pass on each Python."""
    wheel, passed = build_wheel(), True
    result = interpreters()
    say(f"interpreters: {', '.join(result)}")
    for version, python in result.items():
        own = environment(HOME / "pythons" / version, python, (*TESTING, *ONNX))
        install_wheel(own, wheel)
        passed &= run_steps(f"Python {version}", [str(own)], {**os.environ}, steps)
    return units.run("Python of Debian sid", wheel, steps) and passed

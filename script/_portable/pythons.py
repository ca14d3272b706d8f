"""The one wheel for CPython 3.11 and later, on every such interpreter that is found here."""

import glob
import os
import subprocess
from pathlib import Path

from _setup import BIN, PIP, build_wheel, say

from _portable.sources import HOME
from _portable.suite import run_steps

# Versions that are looked for, in $PATH and then among those of pyenv.
MINORS = range(11, 20)
# What the steps of suite.py import, beside what rlx needs itself.
DEPENDENCIES = (
    "pytest>=8", "pytest-timeout", "pytest-xdist", "hypothesis", "scipy", "onnx==1.23.2", "onnxruntime", "msgspec",
    "psutil", "ruptures", "sympy", "ml_dtypes",
)  # fmt: skip
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


def interpreters() -> dict[str, Path]:
    """Each interpreter by its version, the first one found of each."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    folders += sorted(glob.glob(str(Path.home() / ".pyenv/versions/*/bin")))
    found: dict[str, Path] = {}
    for minor in MINORS:
        for folder in folders:
            python = Path(folder, f"python3.{minor}")
            if not python.is_file():
                continue
            asked = [str(python), "-c", VERSION]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.returncode == 0:  # pyenv has stand-ins for versions that are not in use
                found.setdefault(done.stdout.strip(), python)
                break
    return found


def check(steps: tuple[str, ...]) -> bool:
    """Whether all tests pass on each of them."""
    wheel, passed = build_wheel(), True
    found = interpreters()
    say(f"interpreters: {', '.join(found)}")
    for version, python in found.items():
        folder = HOME / "pythons" / version
        own = folder / BIN
        if not own.exists():
            subprocess.run([str(python), "-m", "venv", "--clear", str(folder)], check=True)
            subprocess.run([str(own), *PIP, "--only-binary=:all:", *DEPENDENCIES], check=True)
        subprocess.run([str(own), *PIP, "--force-reinstall", "--no-deps", str(wheel)], check=True)
        subprocess.run([str(own), *PIP, "--only-binary=:all:", str(wheel)], check=True)
        passed &= run_steps(f"Python {version}", [str(own)], {**os.environ}, steps)
    return passed

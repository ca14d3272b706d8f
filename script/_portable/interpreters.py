"""CPythons without the GIL, compiled from Debian's sources, and environments with a wheel of rlx."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from _setup import BIN, PIP, apt, say

from _portable.sources import HOME, python_sources

NEEDED = "libffi-dev libssl-dev zlib1g-dev libbz2-dev liblzma-dev libsqlite3-dev"
# Modules that a build leaves out without a word when it lacks a library of NEEDED.
IMPORTED = "import bz2, ctypes, lzma, sqlite3, ssl, zlib"
# The packages that the steps of suite.py import, beside rlx and its requirements.
TESTING = ("pytest>=8", "pytest-timeout", "pytest-xdist", "hypothesis", "scipy")
ONNX = ("onnx==1.23.2", "onnxruntime", "msgspec", "psutil", "ruptures", "sympy", "ml_dtypes")
_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


def version_of(*command: str) -> str:
    """The version of the Python that a command starts, such as 3.14.0; empty where it does not start."""
    asked = [*command, "-c", _VERSION]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def without_gil(version: str, suite: str) -> Path | None:
    """A CPython without the GIL, compiled when it is not there; None where what that needs can't be had.

    Args:
        version: Such as 3.14.
        suite: The Debian that has its sources.
    """
    folder = HOME / "interpreters" / f"{version}t"
    python = folder / f"bin/python{version}t"
    if not (folder / "complete").exists():
        if not apt(NEEDED):
            return None
        try:
            sources = python_sources(f"python{version}", suite)
        except subprocess.CalledProcessError:
            say(f"Debian's mirror does not give the sources of python{version} in {suite}")
            return None
        say(f"compiling CPython {version} without the GIL")
        shutil.rmtree(folder, ignore_errors=True)
        configure = [str(sources / "configure"), "-q", "--disable-gil", "--disable-test-modules"]
        configure += [f"--prefix={folder}"]
        make = ["make", "-s", f"-j{os.cpu_count()}", "install"]
        with tempfile.TemporaryDirectory(prefix="rlx-portable-") as place:
            for command in (configure, make, [str(python), "-c", IMPORTED]):
                done = subprocess.run(
                    command, cwd=place, check=False, capture_output=True, text=True
                )
                if done.returncode:
                    raise RuntimeError(f"{command[0]}: {done.stderr[-2000:]}")
        (folder / "complete").touch()
    return python


def environment(folder: Path, python: Path, packages: tuple[str, ...]) -> Path:
    """The Python of a virtual environment with packages that have wheels; it is made when it is not there.

    Args:
        folder: Where it is.
        python: The interpreter that it is of.
        packages: What is installed. Only wheels: a newer version may have none for that interpreter.
    """
    own, stamp = folder / BIN, folder / "packages.stamp"
    wanted = repr((version_of(str(python)), packages))
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([str(python), "-P", "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(own), *PIP, "--only-binary=:all:", *packages], check=True)
        stamp.write_text(wanted)
    return own


def install_wheel(python: Path, wheel: Path, needs: bool = True) -> None:
    """Installs a wheel in an environment, in place of the installed one.

    Args:
        python: The environment's Python.
        wheel: The wheel.
        needs: Whether the wheel's requirements are installed too.
    """
    subprocess.run([str(python), *PIP, "--force-reinstall", "--no-deps", str(wheel)], check=True)
    if needs:
        subprocess.run([str(python), *PIP, "--only-binary=:all:", str(wheel)], check=True)

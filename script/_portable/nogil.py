"""A CPython without the GIL, compiled from Debian's sources, and the tests of threads on it.

Debian has no such interpreter. NumPy and SciPy have wheels for it; cffi, and so wgpu, has none for this version, so that
tests of GPUs stay out.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from _setup import PIP, apt, digest, say

from _portable.sources import HOME, python_sources
from _portable.suite import run_steps
from _portable.wheel import SOURCES, copied

PACKAGE, SUITE, VERSION = "python3.13", "trixie", "3.13"
NEEDED = "libffi-dev libssl-dev zlib1g-dev libbz2-dev liblzma-dev libsqlite3-dev"
# What builds rlx, what it imports on the CPU, and what its tests import.
DEPENDENCIES = (
    "setuptools>=80", "cython>=3.3", "numpy>=2", "jinja2>=3.1,<3.2", "rich>=13", "platformdirs>=4", "scipy",
    "pytest>=8", "pytest-timeout", "pytest-xdist", "hypothesis",
)  # fmt: skip
LEFT_OUT = {"ONNX"}  # which has no wheel for it either
# Whether the GIL stays off when everything that is compiled has been imported and a graph has run.
ASKED = """
import sys, numpy as np, rlx
from rlx._ext import cpu, owner, program, webgpu_hot
g = rlx.Graph()
g.set_outputs([g.softmax(g.input("x", (64, 64)) @ g.constant(np.eye(64, dtype=np.float32)))])
for device in ("cpu", "reference"):
    rlx.compile(g, device).run({"x": np.ones((64, 64), np.float32)})
sys.exit(sys._is_gil_enabled())
"""


def interpreter() -> Path | None:
    """The interpreter, compiled when it is not there; None where what it needs can't be installed."""
    folder = HOME / "nogil/python"
    python = folder / f"bin/python{VERSION}t"
    if not (folder / "complete").exists():
        if not apt(NEEDED):
            return None
        sources = python_sources(PACKAGE, SUITE)
        say("compiling a CPython without the GIL")
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="rlx-portable-") as place:
            configure = [str(sources / "configure"), "-q", "--disable-gil", f"--prefix={folder}"]
            make = ["make", "-s", f"-j{os.cpu_count()}", "install"]
            for command in (configure, make):
                done = subprocess.run(
                    command, cwd=place, check=False, capture_output=True, text=True
                )
                if done.returncode:
                    raise RuntimeError(f"{command[0]}: {done.stderr[-2000:]}")
        # Newer versions may have no wheel for it, and take long to compile.
        subprocess.run([str(python), *PIP, "--only-binary=:all:", *DEPENDENCIES], check=True)
        (folder / "complete").touch()
    return python


def built(python: Path) -> Path:
    """A folder with rlx, whose modules are for that interpreter."""
    folder = HOME / "nogil/checkout"
    stamp, wanted = HOME / "nogil/sources.stamp", digest(SOURCES)
    if not stamp.exists() or stamp.read_text() != wanted:
        say("building for it")
        stamp.unlink(missing_ok=True)
        copied(folder)
        command = [str(python), "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=folder, check=True)
        stamp.write_text(wanted)
    return folder


def check(steps: tuple[str, ...]) -> bool:
    """Whether the GIL stays off, and all tests pass."""
    python = interpreter()
    if python is None:
        return False
    folder = built(python)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    env.pop("PYTHON_GIL", None)
    off = (
        subprocess.run([str(python), "-c", ASKED], cwd=folder, env=env, check=False).returncode == 0
    )
    say(f"without the GIL: it {'stays off' if off else 'is ON after importing and running'}")
    return (
        run_steps(
            "nogil", [str(python)], env, tuple(step for step in steps if step not in LEFT_OUT)
        )
        and off
    )

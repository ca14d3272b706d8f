"""CPythons without the GIL, compiled from Debian's sources, and tests of a wheel that is built and installed there.

Debian has no such interpreters. They have no limited API before 3.15, so that a wheel is for one version: pip builds it
from the sdist, as it does for users.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from _setup import DIST, build_wheel, say

from _portable.interpreters import (
    ONNX,
    TESTING,
    environment,
    install_wheel,
    version_of,
    without_gil,
)
from _portable.sources import HOME
from _portable.suite import run_steps


@dataclass(frozen=True)
class Free:
    """A version of CPython, without the GIL.

    Attributes:
        suite: The Debian that has its sources.
        devices: The devices that a graph runs on while the GIL has to stay off.
        packages: Packages that tests import and pip does not install with rlx.
        tools: Build tools, if pip can't install all requirements of the build; else pip installs them.
        left_out: Steps of the tests.
    """

    suite: str
    devices: tuple[str, ...]
    packages: tuple[str, ...]
    tools: tuple[str, ...] = ()
    left_out: frozenset[str] = frozenset()


VERSIONS = {
    # There is no cffi, and so no wgpu; and no wheel of ONNX.
    "3.13": Free(
        "trixie",
        ("cpu", "reference"),
        (*TESTING, "numpy>=2", "jinja2>=3.1", "rich>=13", "platformdirs>=4"),
        ("setuptools>=80", "cython>=3.3", "numpy>=2", "jinja2>=3.1,<3.2"),
        frozenset({"ONNX"}),
    ),
    "3.14": Free("sid", ("cpu", "reference", "webgpu"), (*TESTING, *ONNX)),
}
# Exits with 1 where the GIL is on after everything that is compiled was imported and graphs have run.
ASKED = """
import sys, numpy as np, rlx
from rlx._ext import cpu, owner, program, webgpu_hot
g = rlx.Graph()
g.set_outputs([g.softmax(g.input("x", (64, 64)) @ g.constant(np.eye(64, dtype=np.float32)))])
for device in sys.argv[1:]:
    rlx.compile(g, device).run({"x": np.ones((64, 64), np.float32)})
assert "webgpu" not in sys.argv or "wgpu" in sys.modules
sys.exit(sys._is_gil_enabled())
"""


def wheel_of(version: str, python: Path) -> Path:
    """The wheel that pip builds of the sdist for an interpreter."""
    build_wheel()  # and the sdist before it
    (sdist,) = DIST.glob("*.tar.gz")
    folder = HOME / "nogil" / version / "wheel"
    stamp = folder / "sources.stamp"
    wanted = f"{version_of(str(python))} {(DIST / 'sources.stamp').read_text()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"building a wheel for {version} without the GIL")
        shutil.rmtree(folder, ignore_errors=True)
        command = ["-P", "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
        tools = VERSIONS[version].tools
        if tools:
            python = environment(HOME / "nogil" / version / "tools", python, tools)
            command.append("--no-build-isolation")
        subprocess.run([str(python), *command, "-w", str(folder), str(sdist)], check=True)
        stamp.write_text(wanted)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_version(version: str, steps: tuple[str, ...]) -> bool:
    """Returns whether the GIL of a version stays off, and all tests pass."""
    free = VERSIONS[version]
    interpreter = without_gil(version, free.suite)
    if interpreter is None:
        return False
    wheel = wheel_of(version, interpreter)
    python = environment(HOME / "nogil" / version / "installed", interpreter, free.packages)
    install_wheel(python, wheel, needs=not free.tools)
    env = {key: value for key, value in os.environ.items() if key != "PYTHON_GIL"}
    name = f"Python {version_of(str(interpreter))} without the GIL"
    asked = [str(python), "-c", ASKED, *free.devices]
    off = subprocess.run(asked, cwd=HOME, env=env, check=False).returncode == 0
    say(
        f"{name}: it {'stays off' if off else 'is ON, or that failed,'} after runs on {free.devices}"
    )
    wanted = tuple(step for step in steps if step not in free.left_out)
    return run_steps(name, [str(python)], env, wanted) and off


def check(steps: tuple[str, ...]) -> bool:
    """Returns whether all checks pass on every version."""
    return all([check_version(version, steps) for version in VERSIONS])

"""Matrix units on a machine without a GPU: a Debian with Mesa 26, whose software adapter has them, and tests of a wheel in it.

Debian 12 has Mesa 22, which Dawn does not take, and SwiftShader has no such units.
"""

import os
import shutil
import subprocess
from pathlib import Path

from _setup import apt, build_wheel, say

from _portable.sources import HOME, mirror, mounted, place
from _portable.suite import run_steps
from _portable.windows import DEPENDENCIES

SUITE = "sid"
INCLUDED = "python3,mesa-vulkan-drivers,libvulkan1"
PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "any",
)
STEPS = ("matrix units",)
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:2])))"


def debian() -> Path:
    """The folder of a Debian of today with Python and Mesa, made when it is not there."""
    folder = HOME / "units/root"
    if not (folder / "complete").exists():
        say("making a Debian with Mesa 26")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = folder.parent / "root.tar"
        command = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={INCLUDED}"]
        # Mirrors may be older than the lists of packages are valid for.
        command += ["--aptopt=Acquire::Check-Valid-Until false", "--skip=chroot/mount/sys"]
        subprocess.run([*command, SUITE, str(archive), mirror()], check=True)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
        archive.unlink()
        (folder / "complete").touch()
    return folder


def installed(wheel: Path) -> Path:
    """Builds that Debian with a wheel, all packages that its tests import, and the tests."""
    folder = debian()
    asked = ["chroot", str(folder), "/usr/bin/python3", "-c", VERSION]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    place(
        folder,
        wheel,
        PLATFORMS,
        version,
        (*DEPENDENCIES, "tokenizers>=0.20", "wgpudawn>=0.32,<0.33"),
    )
    return folder


def run(name: str, wheel: Path, steps: tuple[str, ...], **env: str) -> bool:
    """Runs steps of the tests in that Debian; whether all passed.

    Args:
        name: What the file of counts is named after.
        wheel: The wheel.
        steps: Names of steps of ``suite.py``.
        env: More variables of the environment.
    """
    if shutil.which("mmdebstrap") is None and not apt("mmdebstrap"):
        return False
    folder = installed(wheel)
    with mounted(folder, "proc", "dev"):  # a driver reads there how many processors there are
        (folder / "tmp").mkdir(exist_ok=True)
        command = ["chroot", str(folder), "/usr/bin/python3"]
        own = {"PYTHONPATH": "/opt/site", "HOME": "/root", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp"}
        # The driver compiles a kernel of a few hundred products for minutes. Half of that is LLVM's optimising.
        own |= {"XDG_RUNTIME_DIR": "/tmp", "GALLIVM_PERF": "nopt", **env}
        return run_steps(name, command, {**os.environ, **own}, steps)


def check() -> bool:
    """Runs the tests of kernels for matrix units. Returns whether all ran and passed."""
    return run("units", build_wheel(), STEPS, RLX_REQUIRE_FRAGMENTS="1")

"""A Debian for 64-bit ARM that qemu runs instruction by instruction, and the tests of a wheel in it."""

import os
import shutil
import subprocess
from pathlib import Path

from _setup import apt, say

from _portable.sources import DEBIAN, HOME, mirror, mounted, place
from _portable.suite import run_steps
from _portable.targets import TARGETS
from _portable.windows import DEPENDENCIES

PACKAGES = "mmdebstrap qemu-user-static binfmt-support arch-test"
PROGRAMS = ("mmdebstrap", "qemu-aarch64-static", "update-binfmts", "arch-test")
FORMATS = Path("/proc/sys/fs/binfmt_misc")
INCLUDED = "python3,python3-venv"
# Wheels that are used as they are, of the Linux that Debian 12 has at least.
PLATFORMS = (
    *TARGETS["aarch64"].numpy,
    "manylinux_2_17_aarch64",
    "manylinux2014_aarch64",
    "manylinux_2_34_aarch64",
)


def emulated() -> bool:
    """Returns whether programs for ARM can be started here: the system hands them to qemu."""
    if not (FORMATS / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(FORMATS)], check=False)
    if not (FORMATS / "qemu-aarch64").exists():
        subprocess.run(["update-binfmts", "--enable", "qemu-aarch64"], check=False)
    return (FORMATS / "qemu-aarch64").exists()


def debian() -> Path:
    """The folder of a Debian 12 for ARM with Python, made when it is not there."""
    folder = HOME / "aarch64/root"
    if not (folder / "complete").exists():
        say("making a Debian for ARM")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = folder.parent / "root.tar"
        # As an archive: what mmdebstrap mounts while it works would stay mounted in a folder that is in use.
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--architectures=arm64"]
        command += ["--skip=chroot/mount/sys", f"--include={INCLUDED}"]
        command += [DEBIAN, str(archive), mirror()]
        subprocess.run(command, check=True)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
        archive.unlink()
        (folder / "complete").touch()
    return folder


def installed(wheel: Path) -> Path:
    """Builds that Debian with a wheel, all packages that its tests import, and the tests."""
    folder = debian()
    place(folder, wheel, PLATFORMS, "3.11", DEPENDENCIES)
    return folder


def test(wheel: Path, steps: tuple[str, ...]) -> bool:
    """Runs the tests in qemu; whether all passed."""
    if None in map(shutil.which, PROGRAMS) and not apt(PACKAGES):
        return False
    if not emulated():
        say("this system can't start programs for ARM: binfmt_misc is needed")
        return False
    folder = installed(wheel)
    command = ["chroot", str(folder), "/usr/bin/python3"]
    env = {**os.environ, "PYTHONPATH": "/opt/site", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    with mounted(folder, "proc"):
        return run_steps("aarch64", command, env, steps)

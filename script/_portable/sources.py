"""Downloads the parts that builds for other systems need: zig, wheels of other platforms, Python's sources.

Everything comes from PyPI and Debian, and stays in build/portable.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _setup import BIN, PIP, ROOT, make_venv, say

HOME = ROOT / "build/portable"
TOOLS = ("ziglang==0.17.1", "abi3audit>=0.0.26", "abi3info")
DEBIAN = "bookworm"
KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"


def tools() -> Path:
    """The Python of an environment with zig and what checks wheels; it is made when it is not there."""
    folder = HOME / "tools"
    python, stamp = folder / BIN, folder / "tools.stamp"
    if not stamp.exists() or stamp.read_text() != repr(TOOLS):
        make_venv(folder)
        subprocess.run([str(python), *PIP, *TOOLS], check=True)
        stamp.write_text(repr(TOOLS))
    return python


def zig(*command: str) -> list[str]:
    """A command of zig, its C compiler when none is named."""
    return [str(tools()), "-P", "-m", "ziglang", *(command or ("cc",))]


def zig_caches() -> dict[str, str]:
    """The environment in which zig keeps what it has compiled: unchanged files take a tenth of a second."""
    return {f"ZIG_{kind}_CACHE_DIR": str(HOME / "zig") for kind in ("GLOBAL", "LOCAL")}


def wheels(platforms: tuple[str, ...], python: str, *packages: str) -> list[Path]:
    """Wheels of packages for another platform, with no dependencies; downloaded once."""
    folder = HOME / "wheels" / f"{platforms[0]}-{python}"
    results = []
    for package in packages:
        name = package.partition("=")[0].partition("<")[0].partition(">")[0].replace("-", "_")
        there = sorted(folder.glob(f"{name}-*.whl"))
        if not there:
            say(f"downloading {package} for {platforms[0]}, Python {python}")
            command = [sys.executable, "-P", "-m", "pip", "download", "-q", "--no-deps"]
            command += [
                "--only-binary=:all:",
                "--python-version",
                python,
                "-d",
                str(folder),
                package,
            ]
            for platform in platforms:
                command += ["--platform", platform]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            there = sorted(folder.glob(f"{name}-*.whl"))
        results.append(there[-1])
    return results


def unpacked(wheel: Path, folder: Path) -> Path:
    """Unpacks a wheel into a folder. That equals installing a wheel without data files."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


# The project files that the tests of a wheel read, beside its modules.
_COPIED = ("tests", "examples", "benchmarks", "shaders")


def place(
    system: Path, wheel: Path, platforms: tuple[str, ...], python: str, packages: tuple[str, ...]
) -> None:
    """Puts a wheel, what its tests import, and the tests into a system that stands in a folder.

    Args:
        system: The folder; modules go to ``opt/site`` in it, and the tests where they are here.
        wheel: The wheel.
        platforms: Of the wheels of packages.
        python: Its version of Python, such as 3.11.
        packages: What is downloaded, once.
    """
    site, stamp = system / "opt/site", system / "installed"
    if not stamp.exists():
        shutil.rmtree(site, ignore_errors=True)
        for item in wheels(platforms, python, *packages):
            unpacked(item, site)
        stamp.touch()
    shutil.rmtree(site / "rlx", ignore_errors=True)
    unpacked(wheel, site)
    there = system / str(ROOT).lstrip("/")
    shutil.rmtree(there, ignore_errors=True)
    for part in _COPIED:
        shutil.copytree(ROOT / part, there / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", there)


@contextmanager
def mounted(system: Path, *names: str) -> Iterator[None]:
    """Has a system that stands in a folder see folders of this one, such as "proc", in which the kernel tells of processes."""
    for name in names:
        subprocess.run(["mount", "--rbind", f"/{name}", str(system / name)], check=True)
    try:
        yield
    finally:
        for name in names:
            subprocess.run(["umount", "-R", "-l", str(system / name)], check=False)


def numpy_headers(platforms: tuple[str, ...], python: str = "3.11") -> Path:
    """The folder of NumPy's headers for another platform."""
    folder = HOME / "headers" / platforms[0]
    headers = folder / "numpy/_core/include"
    if not headers.exists():
        unpacked(wheels(platforms, python, "numpy")[0], folder)
    return headers


def mirror() -> str:
    """Returns the server from which this machine gets Debian's packages."""
    asked = [
        "apt-get",
        "indextargets",
        "--format",
        "$(CODENAME) $(REPO_URI)",
        "Created-By: Packages",
    ]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    results = dict(line.split(maxsplit=1) for line in said.splitlines())
    if DEBIAN not in results:
        sys.exit(
            f"-- this needs a Debian ({DEBIAN}) whose lists of packages are there: apt-get update"
        )
    return results[DEBIAN]


def python_sources(package: str = "python3.11", suite: str = DEBIAN) -> Path:
    """The folder with Debian's sources of a CPython.

    Headers, library and the list of what Windows' DLLs export are those of every system.
    """
    folder = HOME / "cpython" / package
    if not (folder / "Include/Python.h").exists():
        say(f"downloading the sources of {package}")
        apt = HOME / "apt" / package
        (apt / "lists/partial").mkdir(parents=True, exist_ok=True)
        (apt / "sources.list").write_text(f"deb-src [signed-by={KEY}] {mirror()} {suite} main\n")
        options = ["-qq", "-o", f"Dir::Etc::sourcelist={apt / 'sources.list'}"]
        options += ["-o", "Dir::Etc::sourceparts=-", "-o", f"Dir::State::lists={apt / 'lists'}"]
        # Mirrors may be older than the lists of packages are valid for.
        options += ["-o", "Acquire::Check-Valid-Until=false"]
        env = {**os.environ, "LC_ALL": "C"}
        subprocess.run(["apt-get", *options, "update"], check=True, env=env)
        source = ["apt-get", *options, "source", "--download-only", package]
        subprocess.run(source, check=True, env=env, cwd=apt, stderr=subprocess.DEVNULL)
        (archive,) = [path for path in apt.glob("*.orig.tar.*") if path.suffix != ".asc"]
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            packed.extractall(apt / "unpacked", filter="data")
        (result,) = (apt / "unpacked").iterdir()
        result.rename(folder)
    return folder

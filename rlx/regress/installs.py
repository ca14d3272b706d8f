"""Installs of commits: wheels built once for each commit, and environments that have one of them each."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

from rlx.errors import InputError, RlxError
from rlx.files import is_private
from rlx.python_start import python
from rlx.regress.commits import Checkout, Commit

# The wheels that were used last are kept.
_MAX_WHEELS = 64
_NAME = re.compile(r"[\w-]+")
# The messages of a compiler or of Python; pip's own lines only say that something failed.
_CAUSE = re.compile(r": (fatal )?error: |^\w*(Error|Exception): ")
_BUILDING = "building-"
_BIN = "Scripts/python.exe" if os.name == "nt" else "bin/python"
# Imported names of build requirements that differ from their packages' names.
_MODULES = {"cython": "Cython"}


class BuildError(RlxError):
    """A commit could not be built or installed; the message ends with the builder's output."""


class Installs:
    """Installs of a checkout's commits.

    An environment has the commit's wheel, and every other package from the environment that runs this: nothing is
    downloaded where the build requirements are installed here.

    Args:
        checkout: The checkout that has the commits.
        scratch: A folder for the environments. The caller removes it.
        wheels: A cache folder for wheels. A folder that other users can write to is not used.
        say: A function called with a text before long steps.
    """

    def __init__(
        self, checkout: Checkout, scratch: Path, wheels: Path, say: Callable[[str], None]
    ) -> None:
        self._checkout, self._say = checkout, say
        self._scratch = scratch
        self._wheels = wheels if is_private(wheels) else scratch / "wheels"
        self._pythons: dict[str, Path] = {}

    def python(self, commit: Commit) -> Path:
        """The Python of an environment with that commit.

        Raises:
            BuildError: The commit can't be built or installed.
        """
        if commit.digest not in self._pythons:
            self._pythons[commit.digest] = self._install(commit, self.wheel(commit))
        return self._pythons[commit.digest]

    def wheel(self, commit: Commit) -> Path:
        """The commit's wheel; it is built where it was not kept.

        Raises:
            BuildError: It can't be built.
        """
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        cached = self._wheels / f"{commit.digest}-{sys.implementation.cache_tag}-{platform}"
        result = next(cached.glob("*.whl"), None)
        if result is None:
            self._say(f"building {commit}")
            result = self._build(commit, cached)
        os.utime(cached)
        return result

    def _build(self, commit: Commit, retained: Path) -> Path:
        self._wheels.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            tempfile.TemporaryDirectory(prefix=_BUILDING, dir=self._wheels) as folder,
            self._checkout.files(commit) as tree,
        ):
            isolation = () if _needs_download(tree) else ("--no-build-isolation",)
            out = Path(folder) / "out"
            pip("wheel", "--no-deps", *isolation, "--wheel-dir", str(out), str(tree))
            if next(out.glob("*.whl"), None) is None:
                raise BuildError("the build made no wheel", where=commit)
            _make_room(self._wheels)
            # A folder appears whole or not at all. Another process may have been faster.
            if not retained.exists():
                out.rename(retained)
        return next(retained.glob("*.whl"))

    def _install(self, commit: Commit, wheel: Path) -> Path:
        folder = self._scratch / commit.digest
        venv.create(folder, symlinks=os.name != "nt")
        names = {"base": str(folder), "platbase": str(folder)}
        site = sysconfig.get_path("purelib", "venv", names)
        pip("install", "--no-deps", "--no-index", "--target", site, str(wheel))
        packages = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
        # They come after the commit's own package on the path, and .pth files in them are not read: an editable
        # install here does not hide it.
        Path(site, "dependencies.pth").write_text("\n".join(packages) + "\n", encoding="utf-8")
        return folder / _BIN


def pip(*arguments: str) -> None:
    """Runs pip of this environment.

    Raises:
        BuildError: It failed.
        InputError: There is no pip.
    """
    if importlib.util.find_spec("pip") is None:
        raise InputError("pip is not installed here", got=sys.prefix, hint="python -m ensurepip")
    command = python("-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        said = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        causes = [line for line in said if _CAUSE.search(line)]
        errors = [line for line in said if "error" in line.lower()]
        told = (
            causes[:1] or errors[-1:] or said[-1:] or [f"pip ended with status {done.returncode}"]
        )
        raise BuildError(told[0][:300])


def _needs_download(tree: Path) -> bool:
    """Returns whether a build requirement of a project is missing here; pip then downloads all of them."""
    try:
        with open(tree / "pyproject.toml", "rb") as file:
            wanted = tomllib.load(file).get("build-system", {}).get("requires", ["setuptools"])
    except (OSError, tomllib.TOMLDecodeError):
        return False
    names = [match[0].lower() for item in wanted if (match := _NAME.match(str(item)))]
    modules = [_MODULES.get(name, name.replace("-", "_")) for name in names]
    return any(importlib.util.find_spec(module) is None for module in modules)


def _make_room(folder: Path) -> None:
    """Removes wheels that were not used for the longest time."""
    remaining = [path for path in folder.iterdir() if not path.name.startswith(_BUILDING)]
    for path in sorted(remaining, key=lambda item: item.stat().st_mtime)[: 1 - _MAX_WHEELS]:
        shutil.rmtree(path, ignore_errors=True)

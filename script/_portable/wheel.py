"""Builds a wheel for another system with zig, in a copy of the checkout, and looks at what was made."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from _setup import PYTHON, ROOT, digest, say

from _portable.sources import HOME, numpy_headers, python_sources, tools, zig, zig_caches
from _portable.targets import TARGETS, PortableTarget

COPIED = ("rlx", "shaders", "cython_src", "script")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
SOURCES = (
    "setup.py",
    "script/stubs",
    "pyproject.toml",
    "cython_src/**/*",
    "shaders/**/*",
    "rlx/**/*",
)
MODULES = ("cpu", "locks", "program", "webgpu_hot")


def exported() -> list[tuple[str, bool]]:
    """``(name, whether it is data)`` of what python3.dll has for modules that use the limited API."""
    text = (python_sources() / "PC/python3dll.c").read_text()
    result = re.findall(r"^EXPORT_(FUNC|DATA)\((\w+)\)", text, re.MULTILINE)
    return [(name, kind == "DATA") for kind, name in result]


def import_library(target: PortableTarget) -> Path:
    """The folder of the library that Windows' modules are linked with in place of Python's."""
    folder = HOME / "lib" / target.platform
    library = folder / "libpython3.a"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"  {name}{' DATA' if data else ''}" for name, data in exported()]
        (folder / "python3.def").write_text(
            "\n".join(["LIBRARY python3.dll", "EXPORTS", *lines, ""])
        )
        command = [*zig("dlltool"), "-m", target.machine, "-d", str(folder / "python3.def")]
        subprocess.run([*command, "-l", str(library)], check=True)
    return folder


def python_headers(target: PortableTarget) -> Path:
    """The folder of Python's headers for a system. ``pyconfig.h`` is Windows' own, or this machine's."""
    folder = HOME / "headers/python" / target.platform
    if not (folder / "pyconfig.h").exists():
        sources = python_sources()
        shutil.copytree(sources / "Include", folder, dirs_exist_ok=True)
        config = sources / "PC/pyconfig.h"
        if not target.platform.startswith("win"):
            asked = "import sysconfig; print(sysconfig.get_config_h_filename())"
            done = subprocess.run(
                [str(PYTHON), "-c", asked], capture_output=True, text=True, check=True
            )
            config = Path(done.stdout.strip())
        shutil.copy(config, folder / "pyconfig.h")
    return folder


def environment(target: PortableTarget) -> dict[str, str]:
    """Returns the environment variables that tell setup.py about another system."""
    compiler = " ".join([*zig(), "-target", target.zig])
    link = " ".join([compiler, *target.link])
    if target.platform.startswith("win"):
        link += f" -L{import_library(target)}"
    return {
        **os.environ,
        **zig_caches(),
        "CC": f"{compiler} -I{python_headers(target)}",
        "LDSHARED": link,
        "RLX_BUILD_NUMPY": str(numpy_headers(target.numpy)),
        "_PYTHON_HOST_PLATFORM": target.platform,
    }


def copied(folder: Path) -> Path:
    """A folder with all that a build needs, and nothing of an earlier build."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    for part in COPIED:
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for file in FILES:
        shutil.copy(ROOT / file, folder)
    return folder


def build(name: str) -> Path:
    """Builds the wheel for a target; returns the existing wheel if the sources are the same."""
    target = TARGETS[name]
    folder = HOME / "made" / name
    stamp, wanted = folder / "sources.stamp", digest(SOURCES, repr(target))
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"building a wheel for {target.tag}")
        copy = copied(HOME / "copy" / name)
        shutil.rmtree(folder, ignore_errors=True)
        command = [str(PYTHON), "setup.py", "-q", "bdist_wheel", "--plat-name", target.tag]
        env = environment(target)
        subprocess.run([*command, "-d", str(folder)], cwd=copy, env=env, check=True)
        stamp.write_text(wanted)
    (wheel,) = folder.glob("*.whl")
    return wheel


def audited(wheel: Path) -> bool:
    """Returns whether the modules of a wheel use the limited API alone."""
    python = tools()
    command = [str(python), "-P", "-m", "abi3audit", "--strict", "--summary", str(wheel)]
    return subprocess.run(command, check=False).returncode == 0

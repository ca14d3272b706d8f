"""A CPython for Windows that runs in wine, made of files from PyPI and Debian, and the tests of a wheel in it.

PyPI's panda3d has python.org's DLLs, Debian's sources of CPython have the library, and zig compiles ``python.exe``.
Wine 8 lacks a few functions that NumPy and wgpu call; they are compiled here as well. It fails for real paths of long
paths; a module stands in for that. Nothing else is a substitute.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from _setup import apt, say

from _portable.sources import HOME, python_sources, unpacked, wheels, zig, zig_caches
from _portable.suite import run_steps
from _portable.wheel import exported

TARGET = "x86_64-windows-gnu"
PLATFORM = ("win_amd64",)
HERE = Path(__file__).parent
PACKAGES = "wine wine64 xvfb xauth"
PROGRAMS = ("wine", "xvfb-run", "xauth")
# The packages that the tests import, beside rlx. Those without compiled code are wheels of any platform.
DEPENDENCIES = (
    "numpy<2.5", "wgpu>=0.32,<0.33", "cffi", "pycparser", "sniffio", "jinja2", "markupsafe",
    "rich", "markdown-it-py", "mdurl", "pygments", "platformdirs", "scipy", "onnx==1.23.2", "protobuf",
    "ml_dtypes", "typing_extensions", "pytest>=8", "pytest-timeout", "pytest-xdist", "execnet", "iniconfig",
    "packaging", "pluggy", "colorama", "hypothesis", "sortedcontainers", "attrs", "msgspec", "psutil", "sympy",
    "mpmath", "ruptures",
)  # fmt: skip
MATH = "api-ms-win-crt-math-l1-1-0.dll"
SUBSTITUTE = "rlx-maths-of-a-c-library-1.dll"
COMPLEX = re.compile(r"(?P<base>c(abs|arg|imag|real|exp|pow|(cos|sin|tan)h?))(?P<type>[fl]?)")


def python_folder() -> Path:
    """The folder of python.exe, made when it is not there."""
    folder = HOME / "windows/python"
    if not (folder / "complete").exists():
        say("making a Python for Windows")
        shutil.rmtree(folder, ignore_errors=True)
        packed = HOME / "windows/panda3d"
        unpacked(wheels(PLATFORM, "3.11", "panda3d==1.10.16")[0], packed)
        shutil.copytree(
            packed / "deploy_libs", folder, ignore=shutil.ignore_patterns("api-ms-*", "t*86t.dll")
        )
        shutil.rmtree(packed)
        for module in folder.glob("*.pyd"):
            (folder / "DLLs").mkdir(exist_ok=True)
            module.rename(folder / "DLLs" / module.name)
        shutil.copytree(
            python_sources() / "Lib", folder / "Lib", ignore=shutil.ignore_patterns("test")
        )
        compiled(
            folder / "python.exe",
            HERE / "windows_python.c",
            str(folder / "python311.dll"),
            "-municode",
        )
        compiled(
            folder / "bcryptprimitives.dll", HERE / "windows_random.c", "-shared", "-ladvapi32"
        )
        forwarding = "".join(f" -export:{name}=python311.{name}" for name, _ in exported())
        compiled(folder / "python3.dll", exporting(folder / "python3.c", forwarding), "-shared")
        (folder / "complete").touch()
    return folder


def exporting(file: Path, options: str, before: str = "") -> Path:
    """A C file with options for the linker, which make a library export functions, also those of others."""
    lines = "".join(f'    ".ascii \\" {option}\\"\\n"\n' for option in options.split())
    file.write_text(f'{before}__asm__(".section .drectve,\\"yn\\"\\n"\n{lines}    ".text");\n')
    return file


def compiled(target: Path, source: Path, *more: str) -> None:
    """Compiles and links one file for Windows."""
    command = [
        *zig(),
        "-target",
        TARGET,
        "-O2",
        "-s",
        f"-I{HERE}",
        "-o",
        str(target),
        str(source),
        *more,
    ]
    subprocess.run(command, check=True, env={**os.environ, **zig_caches()})


def imported(module: Path) -> set[str]:
    """Names of the mathematical functions that a DLL takes from the C library."""
    said = subprocess.run(
        ["objdump", "-p", str(module)], capture_output=True, text=True, check=True
    )
    result, inside = set(), False
    for line in said.stdout.splitlines():
        if "DLL Name:" in line:
            inside = line.split()[-1] == MATH
        elif inside and (named := re.match(r"\t[0-9a-f]+\t\s*\d+\s+(\w+)", line)):
            result.add(named[1])
    return result


def mend_numpy(python: Path, site: Path) -> None:
    """Has NumPy's modules call complex functions that wine does have."""
    modules = [path for path in site.rglob("*") if path.suffix in (".pyd", ".dll")]
    modules = [path for path in modules if MATH.encode() in path.read_bytes()]
    names = sorted(set().union(*map(imported, modules)))

    def option(name: str) -> str:
        own = COMPLEX.fullmatch(name)
        # Microsoft's long double is a double.
        place = (
            f"rlx_{own['base']}{'f' if own['type'] == 'f' else ''}" if own else f"ucrtbase.{name}"
        )
        return f" -export:{name}={place}"

    source = exporting(
        python / "math.c", "".join(map(option, names)), '#include "windows_math.c"\n'
    )
    compiled(python / SUBSTITUTE, source, "-shared")
    for path in modules:
        path.write_bytes(path.read_bytes().replace(MATH.encode(), SUBSTITUTE.encode()))


def installed(wheel: Path) -> Path:
    """Python for Windows with a wheel and all that its tests import; gives the path of python.exe."""
    python = python_folder()
    site = python / "Lib/site-packages"
    stamp = python / "installed"
    if not stamp.exists():
        shutil.rmtree(site, ignore_errors=True)
        for item in wheels(PLATFORM, "3.11", *DEPENDENCIES):
            unpacked(item, site)
        mend_numpy(python, site)
        stamp.touch()
    shutil.copy(HERE / "windows_paths.py", site / "sitecustomize.py")
    shutil.rmtree(site / "rlx", ignore_errors=True)
    unpacked(wheel, site)
    return python / "python.exe"


def test(wheel: Path, steps: tuple[str, ...]) -> bool:
    """Runs the tests in wine; whether all passed."""
    if None in map(shutil.which, PROGRAMS) and not apt(PACKAGES):
        return False
    python = installed(wheel)
    env = {
        **os.environ,
        "WINEPREFIX": str(HOME / "windows/prefix"),
        "WINEDEBUG": "-all",
        # No pages of help, no .NET, and GPUs through Vulkan: wine's Direct3D 12 has no compute.
        "WINEDLLOVERRIDES": "mscoree,mshtml,d3d12=",
    }
    command = ["xvfb-run", "-a", "wine", str(python)]
    return run_steps("windows", command, env, steps, root="Z:")

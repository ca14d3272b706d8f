"""The shared parts of the scripts: the virtual environments, the build of the package, and a Vulkan driver.

Plain Python, no dependencies: this runs before anything is installed.

There are two environments. ``.venv`` has rlx as an editable install, for work on it. ``build/installed`` has the
wheel that users would install, made from the sdist: the test suite runs there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = "Scripts/python.exe" if os.name == "nt" else "bin/python"
VENV = ROOT / ".venv"
PYTHON = VENV / BIN
DIST = ROOT / "build/dist"
INSTALLED = ROOT / "build/installed"
DRIVERS = "mesa-vulkan-drivers libvulkan1"
# A change of these files means that the compiled modules, or the wheel, have to be built again.
COMPILED = ("setup.py", "cython_src/**/*", "rlx/abi/**/*.py", "rlx/ops/elementwise/table.py")
PACKAGED = (
    *COMPILED,
    "script/stubs",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "shaders/**/*",
    "rlx/**/*",
)
NOT_PACKAGED = {".so", ".pyd", ".pyc"}
# Files that script/stubs writes.
MADE = {
    "rlx/importers/onnx/operator_index.py",
    "rlx/ir/builders.pyi",
    "rlx/ops/__init__.pyi",
    "rlx/ir/op_index.py",
    "rlx/signal/__init__.pyi",
}
# OpenGL does not count: it lacks much of WebGPU, and wgpu offers it wherever Mesa's libraries are.
FIND_ADAPTER = """
import wgpu, sys
sys.exit(all(one.info["backend_type"] == "OpenGL" for one in wgpu.gpu.enumerate_adapters_sync()))
"""
# Python compiles a module when it is first imported; pip would compile all of some hundred packages. Python has to keep
# what it compiles then, or each of the many processes that the tests start would compile its modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
PIP = ("-P", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile")
# Copies: tests may write into an environment, and uv's cache would share the files of links.
UV = {"UV_LINK_MODE": "copy"}


def say(text: str) -> None:
    """One line of progress, shown at once."""
    print(f"-- {text}", flush=True)


def show(text: str) -> None:
    """Progress of a long step: in a terminal one line that is rewritten, else a line."""
    end, start = ("", "\r\033[K") if sys.stdout.isatty() else ("\n", "")
    print(f"{start}-- {text}", end=end, flush=True)


@contextmanager
def building() -> Iterator[dict[str, str]]:
    """Shows the progress of a build that an installer runs, which hides what the build writes.

    Gives the environment of the installer. ``setup.py`` adds a line to a file for each source file that it compiles.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-progress-") as folder:
        path, done = Path(folder) / "progress", threading.Event()
        path.touch()

        def follow() -> None:
            with path.open() as file:
                over = False
                while not over:
                    over = done.wait(0.2)
                    for line in file:
                        show(line.strip())

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield {"RLX_BUILD_PROGRESS": str(path)}
        finally:
            done.set()
            thread.join()
            if path.stat().st_size and sys.stdout.isatty():
                print(flush=True)  # ends the line that was rewritten


def apt(packages: str) -> bool:
    """Installs Debian packages where this is Debian and root; else says the line that does it."""
    line = f"apt-get install -y --no-install-recommends {packages}"
    if shutil.which("apt-get") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        say(f"please install by hand: sudo {line}")
        return False
    say(line)
    quiet = {
        "stdout": subprocess.DEVNULL,
        "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    }
    subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
    return subprocess.run(line.split(), check=False, **quiet).returncode == 0


def digest(patterns: tuple[str, ...], *more: str) -> str:
    """A digest of the files that the patterns name."""
    result = hashlib.sha256("\0".join(more).encode())
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and path.suffix not in NOT_PACKAGED and name not in MADE:
                result.update(f"{name}\0".encode())
                result.update(path.read_bytes())
    return result.hexdigest()


def make_venv(folder: Path) -> None:
    """Makes an empty virtual environment; where Python lacks the module and it may, installs that first."""
    result = subprocess.run(
        [sys.executable, "-P", "-m", "venv", "--clear", str(folder)], check=False
    )
    if result.returncode and apt("python3-venv python3-dev gcc"):
        subprocess.run([sys.executable, "-P", "-m", "venv", "--clear", str(folder)], check=True)


def ensure_venv() -> None:
    """Makes .venv where there is none, with uv in it."""
    if not PYTHON.exists():
        say("making .venv")
        make_venv(VENV)
        subprocess.run([str(PYTHON), *PIP, "uv"], check=False)


def uv_works() -> bool:
    """Returns whether .venv has uv; this system and this network may not have it."""
    asked = [str(PYTHON), "-P", "-m", "uv", "--version"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def install(python: Path, *what: str, **env: str) -> bool:
    """Installs packages for an interpreter, by uv in seconds.

    pip takes minutes. It is asked where uv fails: it may know of another index, and its messages are the known ones.

    Args:
        python: The interpreter.
        what: Requirements and options, in words that both understand.
        env: More variables of the environment.
    """
    everything = {**os.environ, **UV, **env}
    with building() as progress:
        return _install(python, what, {**everything, **progress})


def _install(python: Path, what: tuple[str, ...], everything: dict[str, str]) -> bool:
    if uv_works():
        command = [
            str(PYTHON),
            "-P",
            "-m",
            "uv",
            "pip",
            "install",
            "-q",
            "--python",
            str(python),
            *what,
        ]
        if subprocess.run(command, cwd=ROOT, env=everything, check=False).returncode == 0:
            return True
        say("uv could not install that; trying pip")
    command = [str(python), *PIP, *what]
    return subprocess.run(command, cwd=ROOT, env=everything, check=False).returncode == 0


def make_environment(extras: str, wheel: Path | None = None) -> None:
    """Makes .venv with rlx as an editable install; what is up to date is left alone.

    Args:
        extras: What is installed beside it.
        wheel: A wheel of these sources, whose modules need not be compiled again.
    """
    ensure_venv()
    forget_metadata()
    env = {"RLX_BUILD_FROM": str(wheel)} if wheel else {}
    stamp = VENV / f"rlx-{extras.replace(',', '-')}.stamp"
    built = VENV / "rlx-compiled.stamp"
    wanted, modules = digest(("pyproject.toml",), extras), digest(COMPILED)
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"installing rlx and its dependencies ({extras}) into .venv")
        if not install(PYTHON, "-e", f".[{extras}]", **env):
            sys.exit("-- rlx can't be installed; what pip says stands above")
        stamp.write_text(wanted)
        built.write_text(modules)
    elif not built.exists() or built.read_text() != modules:
        say("building the compiled modules")
        if not install(PYTHON, "--no-deps", "-e", ".", **env):
            sys.exit("-- the compiled modules can't be built; what the compiler says stands above")
        built.write_text(modules)
    # In half a second: operations may have changed since the last build.
    subprocess.run([str(PYTHON), str(ROOT / "script/stubs")], check=True)


def forget_metadata() -> None:
    """Removes what setuptools leaves beside the sources. An editable install would find it there, old as it may be."""
    shutil.rmtree(ROOT / "rlx.egg-info", ignore_errors=True)


def install_ahead(python: Path, extras: str) -> None:
    """Installs the dependencies of rlx while it is built. Whatever fails here is tried again, and told, afterwards."""
    if uv_works():
        command = [str(PYTHON), "-P", "-m", "uv", "pip", "install", "-q", "--python", str(python)]
        command += ["-r", "pyproject.toml", *(f"--extra={name}" for name in extras.split(","))]
        env = {**os.environ, **UV}
        subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False)


def build_wheel(beside: Callable[[], None] = lambda: None) -> Path:
    """Makes the sdist, and the wheel from the sdist; gives the wheel, which may be there already.

    Args:
        beside: Runs while the compiler does, which at its end leaves a processor idle.
    """
    stamp, wanted = DIST / "sources.stamp", digest(PACKAGED)
    ensure_venv()
    if not stamp.exists() or stamp.read_text() != wanted:
        if not install(PYTHON, "build"):
            sys.exit("-- what builds wheels can't be installed; what pip says stands above")
        say("building the sdist, and the wheel from it")
        shutil.rmtree(DIST, ignore_errors=True)
        installer = ["--installer", "uv"] if uv_works() else []
        command = [str(PYTHON), "-P", "-m", "build", *installer, "--outdir", str(DIST), str(ROOT)]
        with building() as progress, ThreadPoolExecutor(1) as other:
            other.submit(beside)
            env = {**os.environ, **UV, **progress}
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        forget_metadata()
        if done.returncode:
            print(done.stdout, done.stderr)
            sys.exit("-- the wheel can't be built")
        stamp.write_text(wanted)
    return next(DIST.glob("*.whl"))


def make_installed(extras: str) -> None:
    """Makes a fresh environment for the wheel, with its dependencies."""
    make_venv(INSTALLED)
    install_ahead(INSTALLED / BIN, extras)
    (INSTALLED / "rlx.fresh").touch()


def install_wheel(wheel: Path, extras: str) -> Path:
    """Makes a fresh environment with nothing but the wheel and its dependencies; gives its Python."""
    python = INSTALLED / BIN
    stamp, fresh = INSTALLED / "rlx.stamp", INSTALLED / "rlx.fresh"
    wanted = hashlib.sha256(extras.encode() + wheel.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"installing the wheel ({extras}) into build/installed")
        if not fresh.exists():
            make_venv(INSTALLED)
        fresh.unlink(missing_ok=True)
        if not install(python, f"{wheel}[{extras}]"):
            sys.exit("-- the wheel can't be installed; what pip says stands above")
        stamp.write_text(wanted)
    return python


def ensure_vulkan() -> None:
    """Installs software Vulkan when there is no adapter and it may."""
    if "XDG_RUNTIME_DIR" not in os.environ:
        os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="rlx-runtime-")

    def adapter() -> bool:
        result = subprocess.run([str(PYTHON), "-c", FIND_ADAPTER], capture_output=True, check=False)
        return result.returncode == 0

    if not adapter() and not (apt(DRIVERS) and adapter()):
        say("no WebGPU adapter: rlx runs on the CPU only")


def prepare(extras: str, wheel: Path | None = None) -> None:
    """Everything before the first use of .venv; the arguments are those of ``make_environment``."""
    make_environment(extras, wheel)
    ensure_vulkan()

"""What script/demo and script/test share: the virtual environment, and a Vulkan driver.

Plain Python, no dependencies: this runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
DRIVERS = "mesa-vulkan-drivers libvulkan1"
# What a change of means that the package has to be built again.
SOURCES = ("pyproject.toml", "setup.py", "cython_src/**/*", "rlx/ops/elementwise_table.py")
FIND_ADAPTER = "import wgpu, sys; sys.exit(not wgpu.gpu.enumerate_adapters_sync())"


def say(text: str) -> None:
    """One line of progress, shown at once."""
    print(f"-- {text}", flush=True)


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


def make_environment(extras: str) -> None:
    """Makes .venv with rlx built into it; one that is up to date is left alone."""
    if not PYTHON.exists():
        say("making .venv")
        made = subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=False)
        if made.returncode and apt("python3-venv python3-dev gcc"):
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    digest = hashlib.sha256(extras.encode())
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                digest.update(path.read_bytes())
    stamp = VENV / f"rlx-{extras.replace(',', '-')}.stamp"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    say(f"installing rlx and its dependencies ({extras}) into .venv")
    pip = [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", f".[{extras}]"], cwd=ROOT, check=True)
    stamp.write_text(digest.hexdigest())


def ensure_vulkan() -> None:
    """Installs software Vulkan when there is no adapter and it may."""
    if "XDG_RUNTIME_DIR" not in os.environ:
        os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="rlx-runtime-")

    def adapter() -> bool:
        found = subprocess.run([str(PYTHON), "-c", FIND_ADAPTER], capture_output=True, check=False)
        return found.returncode == 0

    if not adapter() and not (apt(DRIVERS) and adapter()):
        say("no WebGPU adapter: rlx runs on the CPU only")


def prepare(extras: str) -> None:
    """Everything before the first use."""
    make_environment(extras)
    ensure_vulkan()

"""Describes the machine in a recording: versions, processor, devices and their drivers.

It has no names of users or paths.
"""

from __future__ import annotations

import datetime
import hashlib
import platform
import secrets
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil

import rlx
from rlx._ext import cpu
from rlx.backends.base import DeviceInfo
from rlx.build_digest import build_digest
from rlx.device.names import info_of
from rlx.flags import CPU_ISA
from rlx.regress import system_load
from rlx.regress.record_schema import VERSION, DeviceLine, Run
from rlx.threads import processors, thread_count

# A driver that does not say its version; the contents of its library, which has the same name, stand for it.
_SILENT = "swiftshader"


def header(suites: Sequence[str], processes: int, quick: bool) -> Run:
    """The header of a new recording."""
    return Run(
        schema=VERSION,
        run=secrets.token_hex(8),
        began=now(),
        # The path of a model's file is nobody's business.
        suites=[Path(suite).name for suite in suites],
        processes=processes,
        quick=quick,
        rlx=rlx.__version__,
        commit=_commit(),
        build=build_digest() or "",
        versions=_versions(),
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        cpu=info_of(rlx.Device.parse("cpu")).adapter,
        isa=cpu.isas()[0] if CPU_ISA.get() == "auto" else CPU_ISA.get(),
        cores=len(processors()),
        threads=thread_count(None),
        memory=psutil.virtual_memory().total,
        load=system_load.load(),
    )


def now() -> str:
    """Date and time, UTC, ISO 8601, in seconds."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()


def device_line(run: str, device: str) -> DeviceLine:
    """A device of a recording.

    Raises:
        DeviceUnavailableError: It is not on this machine.
    """
    info = info_of(rlx.Device.parse(device))
    return DeviceLine(
        run=run,
        device=device,
        adapter=info.adapter,
        vendor_id=info.vendor_id,
        device_id=info.device_id,
        api=info.api,
        driver=info.driver or _driver(info),
        software=info.software,
        limits={name: int(limit) for name, limit in sorted(info.limits.items())},
        features=sorted(info.features),
    )


def _driver(info: DeviceInfo) -> str:
    """A driver that says nothing of itself, by the contents of its library."""
    if _SILENT in info.adapter.lower():
        for path in map(Path, _mapped()):
            if _SILENT in path.name.lower():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                return f"{path.name} of contents {digest[:12]}"
    return ""


def _mapped() -> list[str]:
    """The files that this process has in its memory; none where the system does not tell."""
    try:
        return [item.path for item in psutil.Process().memory_maps()]
    except (AttributeError, psutil.Error, OSError):
        return []


def _commit() -> str:
    """The commit of the checkout that rlx runs from, marked where it has changes; empty for a wheel."""
    root = Path(rlx.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+changes" if _git(root, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *args: str) -> str:
    command = ["git", "-C", str(root), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    results = {"python": platform.python_version()}
    for name in ("numpy", "wgpu"):
        try:
            results[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return results

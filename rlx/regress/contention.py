"""How busy the machine is, and how much of it other processes take."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import deque
from typing import Any, NamedTuple

import psutil

from rlx.regress.record_schema import Load

# The system counts time in steps of a hundredth of a second; shorter spans tell nothing.
_SPAN_S = 0.3
_LOOK_S = 0.5


class _Reading(NamedTuple):
    at: float
    used: float
    own: float


class Watch:
    """Tells what share of the processor other processes took lately."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        # What runs on cores that this process may not use is no contention.
        allowed = self._own.cpu_affinity() if hasattr(self._own, "cpu_affinity") else []
        self._allowed = allowed or list(range(psutil.cpu_count() or 1))
        self._readings = deque([self._read()])

    def _read(self) -> _Reading:
        cores = psutil.cpu_times(percpu=True)
        used = sum(_used(cores[at]) for at in self._allowed if at < len(cores))
        own = self._own.cpu_times()
        return _Reading(time.monotonic(), used, own.user + own.system)

    def contention(self) -> float | None:
        """The share of the cores it may use that others took since a while before; None in the first moments."""
        now = self._read()
        while len(self._readings) > 1 and now.at - self._readings[1].at >= _SPAN_S:
            self._readings.popleft()
        before = self._readings[0]
        self._readings.append(now)
        if now.at - before.at < _SPAN_S:
            return None
        others = (now.used - before.used) - (now.own - before.own)
        return min(1.0, max(0.0, others / ((now.at - before.at) * len(self._allowed))))


def _used(times: Any) -> float:
    """Seconds that a core was in use. What a hypervisor gave to others counts, too."""
    found = sum(times) - times.idle - getattr(times, "iowait", 0.0)
    # What a guest uses is counted as user time already.
    return float(found - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))


def load() -> Load:
    """How busy the machine is now; takes half a second."""
    busy = psutil.cpu_percent(_LOOK_S) / 100
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    clock = frequency.current if frequency and frequency.current > 0 else None
    return Load(min(1.0, max(0.0, busy)), clock, _gpu_clock())


def _gpu_clock() -> float | None:
    """The clock of an NVIDIA GPU in MHz; None where no tool tells."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True, env={**os.environ}
        )
        return float(done.stdout.split()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None

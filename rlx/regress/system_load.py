"""Measures the load of the machine, and the share of it that other processes take."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import psutil

from rlx.regress.record_schema import Load

# The system counts time in steps of a hundredth of a second; shorter spans tell nothing.
_SPAN_S = 0.3
_LOOK_S = 0.5


class _Reading(NamedTuple):
    """Seconds: of the clock, of use of the cores, and of use by this process and those beside it."""

    at: float
    used: float
    own: float


class LoadWatch:
    """Measures the share of the processor that other processes took while cases were measured."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._beside: list[psutil.Process] = []
        # Load on cores that this process may not use is no contention.
        allowed = self._own.cpu_affinity() if hasattr(self._own, "cpu_affinity") else []
        self._allowed = allowed or list(range(psutil.cpu_count() or 1))
        self._began = self._read()
        self._spans: deque[_Reading] = deque()

    def _read(self) -> _Reading:
        cores = psutil.cpu_times(percpu=True)
        used = sum(_used(cores[i]) for i in self._allowed if i < len(cores))
        own = 0.0
        for process in (self._own, *self._beside):
            with suppress(psutil.Error):  # one beside may end
                spent = process.cpu_times()
                own += spent.user + spent.system
        return _Reading(time.monotonic(), used, own)

    def begin(self, beside: Iterable[int] = ()) -> None:
        """Begins a case: the time between cases does not count.

        Args:
            beside: Processes that take turns with this one, which are no contention either.
        """
        with suppress(psutil.Error):  # one may have ended
            self._beside = [psutil.Process(item) for item in beside]
        self._began = self._read()

    def contention(self) -> float | None:
        """The share of the cores it may use that others took in this case and those just before.

        None in the first moments: the system's clock is too coarse for them.
        """
        now, before = self._read(), self._began
        span = _Reading(*(x - y for x, y in zip(now, before, strict=True)))
        self._spans.append(span)
        seconds = sum(span.at for span in self._spans)
        while seconds - self._spans[0].at >= _SPAN_S:
            seconds -= self._spans.popleft().at
        if seconds < _SPAN_S:
            return None
        others = sum(span.used - span.own for span in self._spans)
        return min(1.0, max(0.0, others / (seconds * len(self._allowed))))


def _used(times: Any) -> float:
    """Returns the seconds that a core was in use. The time that a hypervisor gave to others counts, too."""
    result = sum(times) - times.idle - getattr(times, "iowait", 0.0)
    # The time of guests is already part of the user time.
    return float(result - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))


def load() -> Load:
    """Measures the load of the machine now; takes half a second."""
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

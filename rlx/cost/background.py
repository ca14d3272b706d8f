"""Measures devices in a background thread, so that a program that chooses between them does not wait."""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from rlx import flags
from rlx.cost import store
from rlx.errors import RlxError
from rlx.locks import Lock
from rlx.resource_limits import during

_log = logging.getLogger(__name__)
# Seconds that the end of the process waits for a measurement, which looks between figures whether it should stop.
_STOP_S = 2.0

_waits: ContextVar[bool] = ContextVar("rlx_waits_for_figures", default=False)


def waiting_for_figures() -> AbstractContextManager[None]:
    """Has devices measured before one is chosen, for the calls inside it: commands that end at once."""
    return during(_waits, True)


def waits() -> bool:
    """Returns whether a choice waits for measurements of the devices: here, or by ``RLX_CALIBRATION=measure``."""
    return _waits.get() or flags.CALIBRATION.get() == "measure"


class StoppedError(RlxError):
    """The process ends; a measurement in the background is given up."""


class _Measuring:
    """A thread that measures one device after the other, and ends when none is left."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wanted: deque[Any] = deque()
        # Asked for once: one that can't be measured is not tried again and again.
        self._known: set[Any] = set()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def want(self, devices: Iterable[Any]) -> None:
        """Has devices measured that were not asked for before."""
        with self._lock:
            new = [device for device in devices if device not in self._known]
            self._known.update(new)
            self._wanted.extend(new)
            if not new or self._stopping.is_set():
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rlx-figures", daemon=True)
                self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until everything that was asked for is measured; whether it is."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return self._thread is None

    def stop(self) -> None:
        """Abandons the measurement. The process ends."""
        self._stopping.set()
        self.wait(_STOP_S)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._wanted or self._stopping.is_set():
                    self._thread = None
                    return
                device = self._wanted.popleft()
            try:
                store.load_or_measure(device, self._progress)
            except StoppedError:
                _log.debug("the measurement of %s is given up: the process ends", device)
            except Exception as error:  # a driver may raise anything, and defaults serve
                _log.warning("%s could not be measured: %s", device, error)

    def _progress(self, part: float, what: str) -> None:
        if self._stopping.is_set():
            raise StoppedError("the process ends")
        _log.debug("measuring in the background: %s, %.0f %%", what, part * 100)


_measuring = _Measuring()
atexit.register(_measuring.stop)


def measure_later(devices: Iterable[Any]) -> None:
    """Has devices measured in the background, those that were not asked for before in this process.

    Args:
        devices: Devices whose figures are missing.
    """
    _measuring.want(devices)


def wait_for_figures(seconds: float | None = None) -> bool:
    """Waits until the devices that ``measure_later`` was given are measured.

    Args:
        seconds: At most so long; None without end.

    Returns:
        Whether they are.
    """
    return _measuring.wait(seconds)

"""Measures how long the event loop of the window was held up."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Qt, QTimer

EVERY_MS = 10


class Heartbeat(QObject):
    """A timer that asks to be called every 10 ms and keeps the longest time that it was late.

    Attributes:
        worst_ms: The longest pause so far, in milliseconds.
    """

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.worst_ms = 0.0
        self._last: float | None = None  # from the first event on
        timer = QTimer(self, timerType=Qt.TimerType.PreciseTimer, interval=EVERY_MS)
        timer.timeout.connect(self._beat)
        timer.start()

    def _beat(self) -> None:
        now = time.perf_counter()
        if self._last is not None:
            self.worst_ms = max(self.worst_ms, (now - self._last) * 1e3 - EVERY_MS)
        self._last = now

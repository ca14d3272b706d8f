"""The thread that compiles and computes. What it finds reaches the window as Qt signals."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from audio import AudioSource
from PySide6.QtCore import QObject, Signal

if TYPE_CHECKING:
    import rlx  # the worker thread imports it

TOLD_EVERY_S = 0.03  # progress, at most
CLOSE_S = 1.5  # for all threads to end


@dataclass(frozen=True)
class ChunkResult:
    """The results of a chunk: levels in dB ``[columns, bands]``, activity ``[columns]``, and the time it took."""

    start: int
    levels: np.ndarray
    activity: np.ndarray
    milliseconds: float


@dataclass(frozen=True)
class Ready:
    """A device is compiled for: its name, why it was taken, seconds since the start, and the bands' Hz."""

    device: str
    reason: str
    seconds: float
    band_hz: np.ndarray


class Engine(QObject):
    """Owns the source and the worker thread.

    Args:
        device: A device, or "auto".
        source: See ``audio.AudioSource``.
        model: A voice activity model, or None.
    """

    # A sentence, and the part that is done, below 0 where it is not known.
    progressed = Signal(str, float)
    ready = Signal(object)
    block = Signal(object)
    devices = Signal(object)
    failed = Signal(str)

    def __init__(self, device: str, source: str, model: Path | None) -> None:
        super().__init__()
        self.device, self._model = device, model
        self._token: rlx.CancelToken | None = None
        self._changed, self._end = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._told = 0.0
        self._threads: list[threading.Thread] = []
        self.source = AudioSource(source, self.failed.emit)

    def start(self) -> None:
        """Begins to listen and to compile. Whoever wants to hear of it has connected to the signals before."""
        self.source.start()
        self._start(self._work, "compute")

    def select_device(self, device: str) -> None:
        """Goes on on another device. A compile that runs is cancelled."""
        with self._lock:
            self.device = device
            self._interrupt()

    def select_source(self, kind: str) -> None:
        """Goes on with another source."""
        self.source.close()
        self.source = AudioSource(kind, self.failed.emit)
        self.source.start()

    def close(self) -> None:
        """Cancels what runs and joins the threads; gives up on a driver that takes longer than 1.5 s."""
        until = time.monotonic() + CLOSE_S
        with self._lock:
            self._end.set()
            self._interrupt()
        self.source.close()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _start(self, work, name: str, *arguments) -> None:
        # A daemon: a driver that hangs doesn't keep the program alive.
        thread = threading.Thread(
            target=self._guarded, name=name, args=(work, *arguments), daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _guarded(self, work, *arguments) -> None:
        """Does a thread's work. A fault that nobody expected is shown, or the window would wait for results for good."""
        try:
            work(*arguments)
        except Exception as error:
            traceback.print_exc()
            self.failed.emit(f"{type(error).__name__}: {error}")

    def _interrupt(self) -> None:
        self._changed.set()
        if self._token is not None:
            self._token.cancel()

    def _work(self) -> None:
        self.progressed.emit("Loading rlx", -1.0)
        try:
            import processing  # imports rlx, which the window doesn't wait for

            import rlx
        except ImportError as error:  # a package is missing, or was frozen without a part of it
            self.failed.emit(str(error))
            return

        while not self._end.is_set():
            with self._lock:
                self._changed.clear()
                device, token = self.device, rlx.CancelToken()
                self._token = token
                if self._end.is_set():
                    return
            began, self._told = time.perf_counter(), 0.0
            try:
                listener = processing.Listener(device, self._model, self._tell, token)
            except rlx.CancelledError:
                continue
            except (rlx.RlxError, OSError) as error:  # OSError: the model's file
                self.failed.emit(str(error))
                self._changed.wait()  # for another device, or the end
                continue
            seconds = time.perf_counter() - began
            self.ready.emit(Ready(listener.device, listener.reason, seconds, processing.band_hz()))
            try:
                self._compute(listener)
            except rlx.RlxError as error:  # the device was lost, for one
                self.failed.emit(str(error))
                self._changed.wait()
            finally:
                listener.close()

    def _tell(self, progress) -> None:
        now = time.perf_counter()
        if now - self._told >= TOLD_EVERY_S:
            self._told = now
            part = -1.0 if progress.part is None else progress.part
            self.progressed.emit(f"Compiling: {progress.phase}", part)

    def _compute(self, listener) -> None:
        """Runs chunk after chunk until something else is wanted."""
        source = self.source
        source.flush()
        while not self._changed.is_set():
            if source is not self.source:
                source = self.source
                listener.reset()
            try:
                start, samples = source.chunks.get(timeout=0.05)
            except queue.Empty:
                continue
            began = time.perf_counter()
            levels, activity = listener(samples)
            took = (time.perf_counter() - began) * 1e3
            self.block.emit(ChunkResult(start, levels, activity, took))
            if (
                len(self._threads) == 1
            ):  # after the first result: to look for adapters takes a while
                self._start(self._list_devices, "devices", listener)

    def _list_devices(self, listener) -> None:
        self.devices.emit(listener.candidates())

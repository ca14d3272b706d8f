"""A window that listens: spectrogram, voice activity and latency, computed live by rlx.

usage: python app.py [sound.wav] [--source generated|microphone] [--device auto] [--model silero_vad.onnx]
                     [--theme system|light|dark] [--seconds S] [--screenshot FILE]

Without a file it takes the microphone, and where there is none a generated signal. ``--seconds`` ends the program
after as many seconds of results; it then prints what it measured as JSON. See README.md.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time

BEGAN = time.perf_counter()
if __name__ == "__main__":
    # Until the window takes it, Ctrl-C ends the program. Python would raise KeyboardInterrupt, and if that happens in a
    # call from Qt, Qt prints it and goes on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from pathlib import Path
from typing import Any

import numpy as np
from audio import TONE_HZ, is_voice, microphone_problem
from engine import ChunkResult, Engine
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from theme import THEMES, chosen, palette, style_sheet
from window import MainWindow

# A thread that computes in Python gives way to the window after this long. Every call into Qt may have to wait for it,
# so that Python's own 5 ms add up.
SWITCH_S = 0.0002


class Record:
    """The measurements of a run with ``--seconds``.

    Args:
        window: The window, shown already.
        seconds: How long to go on after the first result.
        screenshot: Where a picture of the window goes, or None.
    """

    def __init__(self, window: MainWindow, seconds: float, screenshot: Path | None) -> None:
        self.found: dict[str, Any] = {"activity": [], "voice": []}
        self.found["window_s"] = time.perf_counter() - BEGAN
        self.failures: list[str] = []
        self._window, self._seconds, self._screenshot = window, seconds, screenshot
        self._latency: list[float] = []
        window.engine.ready.connect(self._on_ready)
        window.engine.block.connect(self._on_block)
        window.engine.failed.connect(self._on_failed)

    def _on_ready(self, ready) -> None:
        self.found |= {"device": ready.device, "reason": ready.reason, "compile_s": ready.seconds}

    def _on_block(self, block: ChunkResult) -> None:
        if not self._latency:
            self.found["first_result_s"] = time.perf_counter() - BEGAN
            QTimer.singleShot(int(self._seconds * 1e3), self._end)
        self._latency.append(block.milliseconds)
        # The middle of the newest column's samples.
        self.found["voice"].append(is_voice((block.start + 256) / 16000))
        self.found["activity"].append(round(float(block.activity[-1]), 3))

    def _on_failed(self, text: str) -> None:
        self.failures.append(text)
        self._window.close()

    def _end(self) -> None:
        window = self._window
        self.found["worst_gap_ms"] = window.heart.worst_ms
        if self._screenshot is not None and not window.grab().save(str(self._screenshot)):
            self.failures.append(f"{self._screenshot} can't be written")
        bands, levels = window.spectrogram.band_hz, window.spectrogram.levels
        heard = levels[:, -2 * len(self._latency) :].mean(1)
        high = bands > 2600  # above the voice's formants
        self.found["band_hz"] = bands.tolist()
        self.found["tone_hz"] = float(bands[high][heard[high].argmax()])
        self.found["expected_tone_hz"] = TONE_HZ
        began = time.perf_counter()
        window.close()
        self.found["close_s"] = time.perf_counter() - began

    def as_json(self) -> str:
        """Everything that was measured."""
        p50, p99 = np.percentile(self._latency or [0.0], (50, 99))
        left = [
            item.name
            for item in threading.enumerate()
            if item.name in ("audio", "compute", "devices")
        ]
        more: dict[str, Any] = {}
        more |= {"source": self._window.engine.source.kind, "latency_ms": {"p50": p50, "p99": p99}}
        more |= {"dropped": self._window.engine.source.dropped, "threads_left": left}
        return json.dumps(self.found | more | {"failures": self.failures})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wav", nargs="?", help="a WAV file, played again and again")
    parser.add_argument("--source", choices=("generated", "microphone"))
    parser.add_argument("--device", default="auto", help='"auto", "cpu", "webgpu", ...')
    parser.add_argument("--model", type=Path, help="Silero's voice activity model (ONNX, 16 kHz)")
    parser.add_argument("--theme", choices=("system", *THEMES), default="system")
    parser.add_argument("--seconds", type=float, help="end after this many seconds of results")
    parser.add_argument("--screenshot", type=Path, help="with --seconds: where a picture goes")
    result = parser.parse_args()
    if result.screenshot and not result.seconds:
        parser.error("--screenshot needs --seconds")
    return result


def source_of(args: argparse.Namespace) -> str:
    """Returns the source of the sound. A run that measures takes the generated signal unless told otherwise."""
    if args.wav or args.source:
        return args.wav or args.source
    return "generated" if args.seconds or microphone_problem() else "microphone"


def main() -> int:
    inputs = arguments()
    sys.setswitchinterval(SWITCH_S)
    application = QApplication(sys.argv[:1])
    application.setStyle("Fusion")
    theme = chosen(inputs.theme)
    application.setPalette(palette(theme))
    application.setStyleSheet(style_sheet(theme))
    engine = Engine(inputs.device, source_of(inputs), inputs.model)
    window = MainWindow(engine, theme)
    window.closed.connect(application.quit)
    signal.signal(signal.SIGINT, lambda *_: window.close())
    window.show()
    record = Record(window, inputs.seconds, inputs.screenshot) if inputs.seconds else None
    engine.start()
    application.exec()
    if record is None:
        return 0
    print(record.as_json())
    return int(bool(record.failures))


if __name__ == "__main__":
    sys.exit(main())

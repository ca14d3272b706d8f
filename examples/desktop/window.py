"""The window: what can be chosen above, the plots below, and what the device and the event loop do at the bottom."""

from __future__ import annotations

from pathlib import Path

from engine import ChunkResult, Engine, Ready
from heartbeat import Heartbeat
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QStandardItemModel
from PySide6.QtWidgets import (
    QComboBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QMainWindow,
    QProgressBar,
    QVBoxLayout,
    QWidget,
)
from theme import Theme
from widgets import Activity, Latency, Spectrogram

FRAME_MS = 33  # the plots are drawn this often
WAV = "wav"


def label(text: str, kind: str) -> QLabel:
    """A line of text; the style sheet knows it by its kind."""
    result = QLabel(text)
    result.setObjectName(kind)
    return result


class MainWindow(QMainWindow):
    """The program's window.

    Args:
        engine: What computes; the window closes it when it is closed.
        theme: Colours.
    """

    closed = Signal()

    def __init__(self, engine: Engine, theme: Theme) -> None:
        super().__init__()
        self.engine, self.heart, self._dirty = engine, Heartbeat(self), False
        self.setWindowTitle("Listen")
        self.resize(1000, 720)
        self.spectrogram, self.activity = Spectrogram(theme), Activity(theme)
        self.latency = Latency(theme, per_value=2)
        self._build()
        engine.progressed.connect(self._on_progress)
        engine.ready.connect(self._on_ready)
        engine.block.connect(self._on_block)
        engine.devices.connect(self._on_devices)
        engine.failed.connect(self._on_failed)
        timer = QTimer(self, interval=FRAME_MS)
        timer.timeout.connect(self._draw)
        timer.start()

    def _build(self) -> None:
        self.status, self.reason = label("Starting", "title"), label("", "faint")
        self.reason.setWordWrap(True)
        self.bar = QProgressBar(textVisible=False, maximum=0)
        self.device, self.source = QComboBox(), QComboBox()
        self.device.addItem("Choose for me", "auto")
        self.source.addItem("Generated signal", "generated")
        self.source.addItem("Microphone", "microphone")
        self.source.addItem("WAV file \u2026", WAV)
        kind = self.engine.source.kind
        if self.source.findData(kind) < 0:
            self.source.insertItem(0, Path(kind).name, kind)
        self.source.setCurrentIndex(self.source.findData(kind))
        self.device.activated.connect(self._device_chosen)
        self.source.activated.connect(self._source_chosen)
        self.pauses = label("", "faint")
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self.status)
        words.addWidget(self.reason)
        head = QHBoxLayout()
        head.setSpacing(10)
        head.addLayout(words, 1)
        for name, box in (("Sound", self.source), ("Device", self.device)):
            box.setMinimumContentsLength(18)
            box.setSizeAdjustPolicy(box.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.view().setMinimumWidth(280)  # the list has room for reasons
            head.addWidget(label(name, "faint"))
            head.addWidget(box)
        low = QHBoxLayout()
        low.setSpacing(12)
        low.addWidget(self.activity)
        low.addWidget(self.latency)
        middle = QWidget()
        column = QVBoxLayout(middle)
        column.setSpacing(12)
        column.setContentsMargins(16, 14, 16, 12)
        column.addLayout(head)
        column.addWidget(self.bar)
        column.addWidget(self.spectrogram, 3)
        column.addLayout(low, 2)
        column.addWidget(self.pauses)
        self.setCentralWidget(middle)

    def _on_progress(self, text: str, part: float) -> None:
        self.bar.setMaximum(0 if part < 0 else 100)
        self.bar.setValue(int(max(part, 0.0) * 100))
        self.bar.setVisible(True)
        self._say(text, "")

    def _on_ready(self, ready: Ready) -> None:
        self.bar.setVisible(False)
        reason = f"{ready.reason}. " if ready.reason else ""
        self._say(f"Listening on {ready.device}", f"{reason}Compiled in {ready.seconds:.2f} s")
        self.spectrogram.begin(ready.band_hz)

    def _on_block(self, block: ChunkResult) -> None:
        self.spectrogram.add(block.levels)
        self.activity.add(block.activity)
        self.latency.add(block.milliseconds)
        self._dirty = True

    def _on_devices(self, candidates) -> None:
        """Fills the list: what can't run the graph is shown with its reason, and can't be picked."""
        items = self.device.model()
        assert isinstance(items, QStandardItemModel), "what a combo box has"
        for candidate in candidates:
            name = str(candidate.device)
            if self.device.findData(name) >= 0:
                continue
            time = (
                ""
                if candidate.estimate_ns is None
                else f"{candidate.estimate_ns / 1e3:.0f} \u00b5s expected"
            )
            self.device.addItem(f"{name}: {candidate.blocker or time}", name)
            position = self.device.count() - 1
            advice = ", recommended" if candidate.recommended else ""
            self.device.setItemData(position, candidate.label + advice, Qt.ItemDataRole.ToolTipRole)
            items.item(position).setEnabled(candidate.blocker is None)
        self.device.setCurrentIndex(max(0, self.device.findData(self.engine.device)))

    def _on_failed(self, text: str) -> None:
        self.bar.setVisible(False)
        self._say("That did not work", text, "error")

    def _say(self, title: str, text: str, look: str = "faint") -> None:
        self.status.setText(title)
        self.reason.setText(text)
        if self.reason.objectName() != look:
            self.reason.setObjectName(look)
            self.reason.style().polish(self.reason)

    def _device_chosen(self) -> None:
        self.engine.select_device(self.device.currentData())

    def _source_chosen(self) -> None:
        kind = self.source.currentData()
        if kind == WAV:
            kind, _ = QFileDialog.getOpenFileName(self, "Open", "", "Sound (*.wav)")
            if kind:
                self.source.insertItem(0, Path(kind).name, kind)
        if kind:
            self.engine.select_source(kind)
        self.source.setCurrentIndex(self.source.findData(self.engine.source.kind))

    def _draw(self) -> None:
        if not self._dirty:
            return
        self._dirty = False
        for plot in (self.spectrogram, self.activity, self.latency):
            plot.update()
        dropped = self.engine.source.dropped
        lost = f"  \u00b7  {dropped} chunks dropped" if dropped else ""
        self.pauses.setText(f"Longest pause of this window: {self.heart.worst_ms:.0f} ms{lost}")

    def closeEvent(self, event) -> None:
        self.engine.close()
        self.closed.emit()
        event.accept()

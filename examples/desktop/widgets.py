"""The plots, drawn with QPainter: a frame with axes, and in it a spectrogram, the activity, or the latency."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFont, QImage, QPainter, QPen, QPixmap, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget
from theme import Theme, heat_table

COLUMNS, COLUMN_S = 400, 0.016  # what a plot shows: 6.4 s
LOUDEST_DB, SILENT_DB = 5.0, -65.0
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 26  # pixels around the data
SECONDS = (-6, -5, -4, -3, -2, -1, 0)


class Plot(QWidget):
    """A titled frame over the last seconds, with ticks on the left.

    Args:
        title: Above on the left.
        unit: After it, fainter.
        theme: Its colours.
        height: The least height in pixels.
    """

    def __init__(self, title: str, unit: str, theme: Theme, height: int) -> None:
        super().__init__()
        self.title, self.unit, self.theme = title, unit, theme
        self.remark = ""  # above on the right
        self._frame: tuple[object, QPixmap] | None = None
        self.setMinimumHeight(height)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def ticks(self) -> list[tuple[float, str]]:
        """Labels on the left, each at a height from 0 (bottom) to 1."""
        raise NotImplementedError

    def paint_data(self, painter: QPainter, area: QRectF) -> None:
        """Draws what the plot shows."""
        raise NotImplementedError

    def paintEvent(self, _event) -> None:
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._framed())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(self.theme.text))
        painter.drawText(
            self._head(), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, self.remark
        )
        area = self._area()
        painter.setClipRect(area)
        self.paint_data(painter, area)

    def _area(self) -> QRectF:
        """Returns the rectangle of the data."""
        return QRectF(LEFT, TOP, self.width() - LEFT - RIGHT, self.height() - TOP - BOTTOM)

    def _head(self) -> QRectF:
        """Returns the rectangle of the words above the data."""
        return QRectF(14, 0, self.width() - 14 - RIGHT, TOP)

    def _framed(self) -> QPixmap:
        """Draws static content only once, as a pixmap.

        Every call into Qt lets other threads have the interpreter. While one of them computes in Python, each call of
        a paint event may wait for it, so a frame should need few calls.
        """
        ratio = self.devicePixelRatioF()
        key = (self.width(), self.height(), ratio, self.font().key(), self.ticks())
        if self._frame is None or self._frame[0] != key:
            picture = QPixmap(self.size() * ratio)
            picture.setDevicePixelRatio(ratio)
            picture.fill(Qt.GlobalColor.transparent)
            painter = QPainter(picture)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(self.theme.line), 1))
            painter.setBrush(QColor(self.theme.panel))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 9, 9)
            self._paint_words(painter)
            self._paint_grid(painter, self._area())
            painter.end()
            self._frame = key, picture
        return self._frame[1]

    def _paint_words(self, painter: QPainter) -> None:
        bold = QFont(self.font())
        bold.setWeight(QFont.Weight.DemiBold)
        head, place = self._head(), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
        painter.setFont(bold)
        painter.setPen(QColor(self.theme.text))
        painter.drawText(head, place, self.title)
        used = painter.fontMetrics().horizontalAdvance(self.title) + 8
        painter.setFont(self.font())
        painter.setPen(QColor(self.theme.faint))
        painter.drawText(head.adjusted(used, 0, 0, 0), place, self.unit)

    def _paint_grid(self, painter: QPainter, area: QRectF) -> None:
        small = QFont(self.font())
        small.setPointSizeF(small.pointSizeF() * 0.88)
        painter.setFont(small)
        for height, label in self.ticks():
            y = area.bottom() - height * area.height()
            painter.setPen(QColor(self.theme.line))
            painter.drawLine(QPointF(area.left() - 4, y), QPointF(area.right(), y))
            painter.setPen(QColor(self.theme.faint))
            box, place = QRectF(0, y - 9, LEFT - 9, 18), Qt.AlignmentFlag.AlignRight
            painter.drawText(box, place | Qt.AlignmentFlag.AlignVCenter, label)
        for second in SECONDS:
            x = area.right() + second / (COLUMNS * COLUMN_S) * area.width()
            painter.setPen(QColor(self.theme.line))
            painter.drawLine(QPointF(x, area.bottom()), QPointF(x, area.bottom() + 4))
            painter.setPen(QColor(self.theme.faint))
            text = f"{second} s".replace("-", "\u2212") if second else "now"
            box, place = QRectF(x - 30, area.bottom() + 5, 60, 18), Qt.AlignmentFlag.AlignHCenter
            if not second:  # at the edge of the window
                box, place = box.translated(-30, 0), Qt.AlignmentFlag.AlignRight
            painter.drawText(box, place, text)


def curve(values: np.ndarray, area: QRectF) -> QPolygonF:
    """Points of values from 0 to 1, oldest first, the last one at the right edge."""
    x = area.left() + np.linspace(0, area.width(), len(values))
    y = area.bottom() - values * area.height()
    return QPolygonF([QPointF(*index) for index in zip(x.tolist(), y.tolist())])


class Spectrogram(Plot):
    """Levels in dB over time and frequency, as colours."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Spectrogram", "frequency in Hz, mel scale", theme, 220)
        self.band_hz = np.zeros(0)
        self.levels = np.full((0, COLUMNS), SILENT_DB, np.float32)  # bands, columns
        self._table = heat_table()

    def begin(self, band_hz: np.ndarray) -> None:
        """Empties the plot, for bands around these frequencies."""
        self.band_hz = band_hz
        self.levels = np.full((len(band_hz), COLUMNS), SILENT_DB, np.float32)

    def add(self, levels: np.ndarray) -> None:
        """Appends columns ``[columns, bands]``."""
        self.levels = np.concatenate((self.levels[:, len(levels) :], levels.T), 1)

    def ticks(self) -> list[tuple[float, str]]:
        if not len(self.band_hz):
            return []
        rows = (np.arange(len(self.band_hz)) + 0.5) / len(self.band_hz)
        marks = (200, 500, 1000, 2000, 4000, 7000)
        return [(float(np.interp(hz, self.band_hz, rows)), f"{hz}") for hz in marks]

    def paint_data(self, painter: QPainter, area: QRectF) -> None:
        painter.fillRect(area, QColor(self._table[0]))
        if not len(self.levels):
            return
        part = (self.levels[::-1] - SILENT_DB) / (LOUDEST_DB - SILENT_DB)
        pixels = np.ascontiguousarray(np.clip(part * 255, 0, 255).astype(np.uint8))
        height, width = pixels.shape
        image = QImage(pixels.data, width, height, width, QImage.Format.Format_Indexed8)
        image.setColorTable(self._table)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.drawImage(area, image.convertToFormat(QImage.Format.Format_RGB32))


class Activity(Plot):
    """A plot of the probability of voice in each column."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Voice activity", "probability", theme, 120)
        self.values = np.zeros(COLUMNS)

    def add(self, values: np.ndarray) -> None:
        """Appends values in 0 to 1."""
        self.values = np.concatenate((self.values[len(values) :], values))
        self.remark = "voice" if self.values[-1] >= 0.5 else "no voice"

    def ticks(self) -> list[tuple[float, str]]:
        return [(0.0, "0"), (0.5, "0.5"), (1.0, "1")]

    def paint_data(self, painter: QPainter, area: QRectF) -> None:
        line = curve(self.values, area)
        below = QPolygonF(line)
        below.append([area.bottomRight(), area.bottomLeft()])
        fill = QColor(self.theme.good)
        fill.setAlpha(70)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QBrush(fill))
        painter.drawPolygon(below)
        painter.setPen(QPen(QColor(self.theme.good), 1.8))
        painter.drawPolyline(line)


class Latency(Plot):
    """A plot of the time of each run, in milliseconds."""

    def __init__(self, theme: Theme, per_value: int) -> None:
        super().__init__("Latency", "ms per run", theme, 120)
        self.values = np.full(COLUMNS // per_value, np.nan)

    def add(self, milliseconds: float) -> None:
        """Appends one run."""
        self.values = np.append(self.values[1:], milliseconds)
        p50, p99 = np.nanpercentile(self.values, (50, 99))
        self.remark = f"median {p50:.2f} ms, 99 % below {p99:.2f} ms"

    def top(self) -> float:
        """The end of the scale: 1, 2 or 5 times a power of ten."""
        known = self.values[~np.isnan(self.values)]
        largest = max(0.1, float(known.max())) if len(known) else 1.0
        step = 10.0 ** np.floor(np.log10(largest))
        return next(float(k * step) for k in (1, 2, 5, 10) if largest <= k * step)

    def ticks(self) -> list[tuple[float, str]]:
        return [(part, f"{part * self.top():g}") for part in (0.0, 0.5, 1.0)]

    def paint_data(self, painter: QPainter, area: QRectF) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self.theme.accent))
        width, top = area.width() / len(self.values), self.top()
        for index, value in enumerate(self.values):
            if not np.isnan(value):
                height = max(1.0, value / top * area.height())
                left = area.left() + index * width
                painter.drawRect(QRectF(left, area.bottom() - height, width * 0.7, height))

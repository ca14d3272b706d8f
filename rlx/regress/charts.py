"""Computes the positions of marks in the report's charts, in percent of the width: the template draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rlx.dataclasses import dataclass
from rlx.regress.error_ledger import LedgerEntry
from rlx.regress.history import Series
from rlx.regress.statistics import Effect, ratio_of

_RATIOS = (
    0.01, 0.03, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100,
)  # fmt: skip
# Marks on an axis stand at least so far apart, in percent.
_APART = 9.0


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, in percent, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis.

    Attributes:
        low: Logarithm at the left end.
        high: Logarithm at the right end.
        ticks: Its marks.
    """

    low: float
    high: float
    ticks: tuple[Tick, ...]

    def at(self, log: float) -> float:
        """Returns the position of a logarithm in percent, clipped to the ends."""
        share = (log - self.low) / (self.high - self.low)
        return round(100 * min(max(share, 0.0), 1.0), 2)


@dataclass(frozen=True)
class Interval:
    """A ratio with its interval, in percent of the axis."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Dot:
    """An error of an adapter on the axis of errors.

    Attributes:
        at: Where, in percent.
        colour: Number of the adapter.
        text: Its text.
    """

    at: float
    colour: int
    text: str


@dataclass(frozen=True)
class Line:
    """A series of times as points in percent, the largest time on top.

    Attributes:
        points: Where each stands: from the left, from the top.
        levels: Start, end and height of each level.
        changes: Where levels change, from the left, with what changed.
        low: The smallest time, nanoseconds.
        high: The largest.
    """

    points: tuple[tuple[float, float], ...]
    levels: tuple[tuple[float, float, float], ...]
    changes: tuple[tuple[float, str], ...]
    low: float
    high: float


def ratio_axis(effects: Sequence[Effect]) -> Axis:
    """An axis of ratios that holds 1 in its middle and every interval up to a factor of 100."""
    ends = [abs(end) for effect in effects for end in (effect.low, effect.high)]
    limit = min(max([*ends, math.log(1.12)]), math.log(100))
    low, high = -1.05 * limit, 1.05 * limit
    axis = Axis(low, high, ())
    chosen: list[Tick] = []
    # 1 first, then outwards on both sides, as long as there is room.
    for ratio in sorted(_RATIOS, key=lambda item: abs(math.log(item))):
        log = math.log(ratio)
        pos = axis.at(log)
        if low <= log <= high and all(abs(pos - tick.at) >= _APART for tick in chosen):
            chosen.append(Tick(pos, f"{ratio:g}"))
    return Axis(low, high, tuple(chosen))


def interval(axis: Axis, effect: Effect) -> Interval:
    """A ratio on an axis."""
    return Interval(axis.at(effect.low), axis.at(effect.log_ratio), axis.at(effect.high))


def error_axis(entries: Sequence[LedgerEntry]) -> Axis:
    """An axis of errors in powers of ten; 0 stands at its left end."""
    logs = [
        min(max(math.log10(value), -18.0), 3.0)
        for entry in entries
        for value in (entry.relative, entry.tolerance)
        if value and math.isfinite(value)
    ] or [-8.0, -4.0]
    low, high = math.floor(min(logs)) - 0.5, math.ceil(max(logs)) + 0.5
    step = max(1, math.ceil((high - low) / 8))
    axis = Axis(low, high, ())
    powers = range(math.ceil(low), math.floor(high) + 1, step)
    return Axis(low, high, tuple(Tick(axis.at(power), f"1e{power}") for power in powers))


def error_at(axis: Axis, error: float) -> float:
    """Returns the position of an error: 0 at the left end, infinity at the right end."""
    return axis.at(math.log10(error) if error > 0 else -math.inf) if error != math.inf else 100.0


def line(series: Series) -> Line:
    """A series of times, drawn from the left to the right by date, at equal distances."""
    logs = [math.log(point.ns) for point in series.points]
    bottom, top = min(logs), max(logs)
    # Noise of a percent is not blown up to the whole height.
    room = max(top - bottom, math.log(1.2))
    middle = (top + bottom) / 2

    def height(log: float) -> float:
        return round(50 - 84 * (log - middle) / room, 2)

    def across(index: float) -> float:
        return round(3 + 94 * index / (len(logs) - 1), 2)

    edges = [0, *(change.at for change in series.changes), len(logs)]
    levels = []
    for start, end in pairwise(edges):
        part = sorted(logs[start:end])
        levels.append((across(start), across(end - 1), height(part[len(part) // 2])))
    changes = tuple(
        (
            across(change.at - 0.5),
            f"{100 * (change.ratio - 1):+.0f} %: {'; '.join(change.causes) or 'nothing known'}",
        )
        for change in series.changes
    )
    points = tuple((across(i), height(log)) for i, log in enumerate(logs))
    return Line(points, tuple(levels), changes, ratio_of(bottom), ratio_of(top))

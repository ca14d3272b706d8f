"""A cost that grows with the work: a few measured points, and a line through them on log scales."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from rlx.dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """Nanoseconds as a function of an amount of work (bytes, or operations).

    Between two points it is straight in log(work) and log(ns); outside of them the speed stays that
    of the nearest point, so that no work costs nothing. It is exact at the points and never falls.

    Args:
        points: ``(work, ns)`` pairs, both above zero, the work rising and the time never falling.

    Raises:
        ValueError: The points are not like that.

    Example:
        >>> curve = Curve(((100, 10.0), (10_000, 100.0)))
        >>> curve.ns(100), round(curve.ns(1_000), 1), curve.ns(20_000)
        (10.0, 31.6, 200.0)
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        values = [value for point in self.points for value in point]
        if not values or not all(math.isfinite(value) and value > 0 for value in values):
            raise ValueError("points above zero")
        if any(b[0] <= a[0] or b[1] < a[1] for a, b in pairwise(self.points)):
            raise ValueError("work that rises and time that never falls")

    @classmethod
    def through(cls, measured: Iterable[Sequence[float]]) -> Curve:
        """A curve through noisy points: where the time falls, noise is taken out of both of them.

        Neighbours out of order get their common (geometric) mean, as in isotonic regression.

        Args:
            measured: ``(work, ns)`` pairs in any order.
        """
        # Each block: works, and the sum of the logarithms of their times.
        blocks: list[tuple[list[float], float]] = []
        for work, ns in sorted((float(w), float(t)) for w, t in measured):
            blocks.append(([work], math.log(max(ns, 1e-3))))
            while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
                works, total = blocks.pop()
                before = blocks.pop()
                blocks.append((before[0] + works, before[1] + total))
        return cls(tuple((work, math.exp(_mean(block))) for block in blocks for work in block[0]))

    def ns(self, work: float) -> float:
        """Nanoseconds that so much work takes."""
        if work <= 0:
            return 0.0
        index = bisect_left(self.points, (work, 0.0))
        if index == 0 or index == len(self.points):
            x, ns = self.points[0 if index == 0 else -1]
            return ns * (work / x)
        (x0, y0), (x1, y1) = self.points[index - 1], self.points[index]
        if work == x1:
            return y1
        return float(y0 * (y1 / y0) ** (math.log(work / x0) / math.log(x1 / x0)))

    def per_ns(self, work: float) -> float:
        """Work per nanosecond at that amount of it: GB/s of bytes, GFLOP/s of operations."""
        return work / self.ns(work)

    @property
    def largest(self) -> float:
        """The most work that was measured."""
        return self.points[-1][0]


def _mean(block: tuple[list[float], float]) -> float:
    return block[1] / len(block[0])

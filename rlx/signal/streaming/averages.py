"""Averages over the segments of a stream that stay right for as long as it runs.

The host counts segments and writes small tables of weights before a run. The sums stay on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rlx.errors import InputError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.checks import integer, one_of

AVERAGES = ("mean", "exponential", "sliding")
# In f32 a sum is kept in levels: after so many additions to a level it is added to the next one.
_FAN = 32
_MEAN_LEVELS = 5  # the last one takes part in 1,000 additions of a billion
_SETTINGS = ("kept", "carried", "target", "shares")


class Average(Protocol):
    """A rule to average the powers of segments."""

    def build(self, power: Node) -> tuple[Node, dict[str, Node]]:
        """The average ``[..., bins]`` of powers ``[..., segments, bins]``, and the graph's states."""

    def plan(self, views: dict[str, Array], which: Sequence[int]) -> None:
        """Writes the settings of a run; ``which`` of its segments count."""

    def reset(self) -> None:
        """The next segment is the first one."""


class Sum:
    """The mean of all segments, or one in which older segments count less and less.

    A sum of many terms in f32 loses the small ones. It is kept in levels therefore, and no level takes
    part in more than 32 additions before it is added to the next one. In f64 there is one level.

    Args:
        dtype: The dtype of the sum.
        alpha: Weight of the newest segment, that of all earlier ones together is 1 - alpha; None for
            the mean.
    """

    def __init__(self, dtype: DType, alpha: float | None) -> None:
        self._dtype, self._alpha = dtype, alpha
        self._keep = 1.0 if alpha is None else 1.0 - alpha
        self._levels = 1 if dtype is DType.F64 else _MEAN_LEVELS if alpha is None else _depth(alpha)
        self.reset()

    def reset(self) -> None:
        """The next segment is the first one."""
        self._count = 0
        self._added = [0] * self._levels  # additions to each level since it was emptied
        self._until = [0] * self._levels  # the last segment that each level's weights refer to

    def build(self, power: Node) -> tuple[Node, dict[str, Node]]:
        """See ``Average``."""
        g, (*outer, segments, bins) = power.graph, power.shape
        power = power if power.dtype is self._dtype else g.cast(power, self._dtype)
        sums = g.input("sums", (*outer, self._levels, bins), self._dtype)
        # By level: the factor that keeps it, its weight in the carry, the target of the carry, its weight in the result.
        retained, carried, target, shares = (
            g.input(name, (self._levels, 1), self._dtype) for name in _SETTINGS
        )
        weights = g.input("weights", (segments, 1), self._dtype)
        new = power * weights
        if segments > 1:
            new = g.sum(new, -2, keepdims=True)
        if self._levels == 1:
            after = sums * retained + new
            return g.squeeze(after * shares, [-2]), {"sums": after}
        lowest = np.zeros((self._levels, 1), self._dtype.numpy)
        lowest[0] = 1
        over = g.sum(sums * carried, -2, keepdims=True)
        after = sums * retained + over * target + new * g.constant(lowest)
        return g.sum(after * shares, -2), {"sums": after}

    def plan(self, views: dict[str, Array], which: Sequence[int]) -> None:
        """See ``Average``."""
        fresh = len(which)
        keep, carried, target = ([value] * self._levels for value in (1.0, 0.0, 0.0))
        weights = views["weights"]
        weights[...] = 0
        if fresh:
            self._carry(keep, carried, target)
            weights[which, 0] = self._weights(fresh)
            keep[0] *= self._keep**fresh
            self._until[0] += fresh
            self._added[0] += 1
            self._count += fresh
        whole = self._count if self._alpha is None and self._count else 1
        shares = [self._keep ** (self._until[0] - until) / whole for until in self._until]
        for name, values in zip(_SETTINGS, (keep, carried, target, shares), strict=True):
            if name in views:
                views[name][:, 0] = values

    def _weights(self, fresh: int) -> Array | float:
        if self._alpha is None:
            return 1.0
        weights: Array = self._alpha * self._keep ** np.arange(fresh - 1, -1, -1.0)
        if not self._count:  # nothing stands before the first segment
            weights[0] /= self._alpha
        return weights

    def _carry(self, keep: list[float], carried: list[float], target: list[float]) -> None:
        """Adds the full levels to the first level that is not full; the last level is never full."""
        full = 0
        while full < self._levels - 1 and self._added[full] == _FAN:
            full += 1
        if not full:
            return
        now = self._until[0]
        for level in range(full):
            carried[level], keep[level] = self._keep ** (now - self._until[level]), 0.0
            self._until[level], self._added[level] = now, 0
        target[full], keep[full] = 1.0, self._keep ** (now - self._until[full])
        self._until[full] = now
        self._added[full] += 1


class Ring:
    """The mean of the last segments. They are kept one by one, so that nothing adds up.

    Args:
        last: How many.
    """

    def __init__(self, last: int) -> None:
        self._last = last
        self.reset()

    def reset(self) -> None:
        """The next segment is the first one."""
        self._count = 0

    def build(self, power: Node) -> tuple[Node, dict[str, Node]]:
        """See ``Average``."""
        g, (*outer, _, bins) = power.graph, power.shape
        ring = g.input("ring", (*outer, self._last, bins), power.dtype)
        place = g.input("ring_from", (self._last,), "i32")
        shares = g.input("shares", (self._last, 1), power.dtype)
        after = g.gather(g.concat([ring, power], -2), place, -2)
        return g.sum(after * shares, -2), {"ring": after}

    def plan(self, views: dict[str, Array], which: Sequence[int]) -> None:
        """See ``Average``."""
        fresh = [self._last + i for i in which]
        views["ring_from"][...] = np.append(np.arange(self._last), fresh)[-self._last :]
        self._count = min(self._last, self._count + len(fresh))
        views["shares"][...] = 0
        if self._count:
            views["shares"][-self._count :] = 1 / self._count


def average_of(
    where: str, average: str, alpha: float | None, last: int | None, dtype: DType
) -> Average:
    """The average of that name; "exponential" needs ``alpha``, the newest segment's weight, "sliding" needs ``last``.

    Raises:
        InputError: There is no such average, or its constant is missing or is another one's.
    """
    one_of(where, "average", average, AVERAGES)
    inputs: dict[str, Any] = {"alpha": alpha, "last": last}
    wanted = {"exponential": "alpha", "sliding": "last"}.get(average)
    for name, value in inputs.items():
        if (value is not None) != (name == wanted):
            raise InputError(
                f"[{where}] {name} with average={average!r}",
                got=value,
                expected="a number" if name == wanted else "None",
                hint="'exponential' takes alpha, 'sliding' takes last, 'mean' neither",
            )
    if alpha is not None and not 0 < alpha <= 1:
        raise InputError(f"[{where}] alpha", got=alpha, expected="above 0, at most 1")
    return Sum(dtype, alpha) if last is None else Ring(integer(where, "last", last))


def _depth(alpha: float) -> int:
    """Levels after which what is kept from one addition to the next is at most half."""
    half_life = math.log(2) / -math.log1p(-alpha) if alpha < 1 else 0.0
    return 1 + max(0, math.ceil(math.log(max(half_life, 1.0), _FAN)))

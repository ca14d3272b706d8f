"""What a handful of noisy processes say about a ratio of times: intervals, noise floors, many cases at once.

The process is the unit: runs within one process share its memory layout and its luck, so each process gives one
number, the logarithm of its median. docs/explanation/regression_statistics.md explains the choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats: TypeAlias = NDArray[np.float64]

LEVEL = 0.95
"""How often an interval holds the true ratio."""

FALSE_DISCOVERIES = 0.05
"""Share of the cases called slower or faster that may be so by chance."""

FEWEST = 3
"""Processes on each side without which nothing is decided."""

MOST_PROCESSES = 200
"""More processes than this are not proposed."""

# Nothing is repeated better than this (standard deviation of the logarithm); equal numbers mean a coarse clock.
_LEAST_SPREAD = 0.002
_RESAMPLES = 2000
_SEED = 21


@dataclass(frozen=True)
class Effect:
    """How the times of two recordings differ.

    Attributes:
        log_ratio: Logarithm of new by base; above 0 is slower.
        low: Lower end of the interval of ``LEVEL``.
        high: Its upper end.
        least: What the logarithm is above with a certainty of ``LEVEL``; a bound on this side alone.
        most: What it is below with that certainty.
        p: Chance of a difference at least as large where nothing has changed.
        spread: Standard deviation of one process's logarithm; where ``paired``, of a difference of two.
        paired: Whether processes that measured one after the other were compared.
    """

    log_ratio: float
    low: float
    high: float
    least: float
    most: float
    p: float
    spread: float
    paired: bool = False

    @property
    def ratio(self) -> float:
        """New by base."""
        return ratio_of(self.log_ratio)


def ratio_of(log_ratio: float) -> float:
    """A ratio from its logarithm, cut off where a float ends."""
    return math.exp(min(max(log_ratio, -700.0), 700.0))


def calm_spread(groups: Iterable[Sequence[float]]) -> float:
    """The standard deviation within a group of logarithms that a quarter of the groups stays below.

    It is the least spread that ``effect`` believes: with five processes, some cases look far calmer than they are.
    """
    found = [float(np.std(group, ddof=1)) for group in groups if len(group) > 1]
    return max(float(np.quantile(found, 0.25)) if found else 0.0, _LEAST_SPREAD)


def differences(base: Sequence[float], new: Sequence[float]) -> list[float]:
    """New less base of each pair of processes that measured one after the other."""
    return [float(now - was) for was, now in zip(base, new, strict=True)]


def effect(
    base: Sequence[float], new: Sequence[float], least_spread: float = 0.0, paired: bool = False
) -> Effect:
    """Compares two groups of processes.

    The interval is a bootstrap-t: resamples tell how skewed the studentized difference is. It is never narrower than
    Welch's t interval, since ten numbers can't show their own tails. The same numbers give the same interval.

    Args:
        base: Logarithms of the processes' medians, at least two.
        new: Those of the other recording, at least two.
        least_spread: Standard deviation that neither group, or no group of differences, is believed to be below
            (``calm_spread``).
        paired: Whether the processes of equal index measured one after the other. Their differences are then the
            group: what slowed both down drops out.

    Returns:
        The difference of the means, with its interval and p-value.
    """
    one, other = np.asarray(base, np.float64), np.asarray(new, np.float64)
    signed = [(1.0, other - one)] if paired else [(1.0, other), (-1.0, one)]
    groups = [group for _, group in signed]
    least = max(least_spread, _LEAST_SPREAD)
    difference = sum(sign * float(group.mean()) for sign, group in signed)
    errors, freedom = _standard_error([group[None] for group in groups], least)
    error = float(errors[0])
    p = float(2 * stats.t.sf(abs(difference) / error, freedom[0]))
    again = [group[pick] for group, pick in zip(groups, _picks(*map(len, groups)), strict=True)]
    # A resample without the one slow process looks far calmer than the processes are.
    resampled = np.maximum(_standard_error(again, least)[0], error / 2)
    means = sum(sign * group.mean(1) for (sign, _), group in zip(signed, again, strict=True))
    t = (means - difference) / resampled
    bounds: list[tuple[float, float]] = []
    for level in ((1 + LEVEL) / 2, LEVEL):
        student = float(stats.t.ppf(level, freedom[0]))
        below, above = (float(x) for x in np.quantile(t, [1 - level, level]))
        down, up = max(above, student) * error, max(-below, student) * error
        bounds.append((difference - down, difference + up))
    spread = error / math.sqrt(sum(1 / len(group) for group in groups))
    return Effect(difference, *bounds[0], *bounds[1], p, spread, paired)


def _standard_error(groups: Sequence[Floats], least: float) -> tuple[Floats, Floats]:
    """Of the sum or difference of the groups' means, by rows, and Welch's degrees of freedom."""
    parts = [np.maximum(x.var(1, ddof=1), least**2) / x.shape[1] for x in groups]
    total = np.sum(parts, axis=0)
    squares = [part**2 / (x.shape[1] - 1) for part, x in zip(parts, groups, strict=True)]
    return np.sqrt(total), total**2 / np.sum(squares, axis=0)


@lru_cache(maxsize=64)
def _picks(*counts: int) -> list[NDArray[Any]]:
    """Which processes of each group each resample has; the same in every call."""
    random = np.random.default_rng((_SEED, *counts))
    return [random.integers(0, count, (_RESAMPLES, count)) for count in counts]


def noise_floor(
    groups: Iterable[Sequence[float]], least_spread: float = 0.0, paired: bool = False
) -> float | None:
    """The |log ratio| that 95 of 100 comparisons of unchanged code stay within (an A/A comparison).

    Each group is taken apart into two made-up recordings of as many processes, many times, by drawing from its
    deviations from its mean.

    Args:
        groups: For each case the logarithms of its processes' medians; where ``paired``, their differences.
        least_spread: Standard deviation that no group is believed to be below.
        paired: Whether a group holds the differences of two recordings already.

    Returns:
        The floor; None where no group has two processes.
    """
    found = []
    for group in groups:
        count = len(group)
        if count > 1:
            x = np.asarray(group, np.float64)
            # Deviations from a mean of the same numbers are too small by this factor.
            x = (x - x.mean()) * math.sqrt(count / (count - 1))
            x *= max(1.0, least_spread / max(float(np.std(x)), 1e-12))
            one, other = (x[pick[:200]].mean(1) for pick in _picks(count, count))
            found.append(np.abs(one if paired else one - other))
    return float(np.quantile(np.concatenate(found), 0.95)) if found else None


def adjusted(p_values: Sequence[float]) -> list[float]:
    """p-values of many cases by Benjamini and Hochberg: what is at most q among them is false in a share q."""
    if not p_values:
        return []
    return [float(q) for q in stats.false_discovery_control(np.asarray(p_values), method="bh")]


def processes_to_decide(found: Effect, threshold: float) -> int | None:
    """How many processes on each side would probably decide an inconclusive case.

    Args:
        found: What is known of it.
        threshold: The least |log ratio| that counts.

    Returns:
        The number; None where 200 would not do, since the difference is too close to the threshold.
    """
    size = abs(found.log_ratio)
    # Beyond the threshold the interval has to leave 0 out; below it, the bound has to leave the threshold out.
    level, room = ((1 + LEVEL) / 2, size) if size >= threshold else (LEVEL, threshold - size)
    for count in range(FEWEST, MOST_PROCESSES + 1):
        groups = 1 if found.paired else 2
        student = float(stats.t.ppf(level, groups * (count - 1)))
        half = student * found.spread * math.sqrt(groups / count)
        if half < room:
            return count
    return None

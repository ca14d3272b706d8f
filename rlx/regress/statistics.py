"""Statistics of a ratio of times from a handful of noisy processes: intervals, noise floors, many cases at once.

The process is the unit: runs within one process share its memory layout and its luck, so each process gives one
number, the logarithm of its median. docs/explanation/regression_statistics.md explains the choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from rlx.dataclasses import dataclass

Floats: TypeAlias = NDArray[np.float64]

LEVEL = 0.95
"""The probability with which an interval holds the true ratio."""

FALSE_DISCOVERIES = 0.05
"""Share of the cases called slower or faster that may be so by chance."""

FEWEST = 3
"""Processes on each side without which nothing is decided."""

MAX_PROCESSES = 200
"""More processes than this are not proposed."""

LEAST_SPREAD = 0.002
"""Nothing is repeated better than this (standard deviation of the logarithm); equal numbers mean a coarse clock."""

# Groups that a prior is made of at least, and the most that it weighs.
_FEWEST_GROUPS = 10
_MAX_FREEDOM = 10.0
_RESAMPLES = 2000
_SEED = 21


@dataclass(frozen=True)
class Effect:
    """The difference of the times of two recordings.

    Attributes:
        log_ratio: Logarithm of new by base; above 0 is slower.
        low: Lower end of the interval of ``LEVEL``.
        high: Its upper end.
        least: The lower bound of the logarithm with a certainty of ``LEVEL``, on this side alone.
        most: The upper bound with that certainty.
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


@dataclass(frozen=True)
class Prior:
    """Prior knowledge of the variance within any group, before its own numbers are seen.

    Attributes:
        variance: The usual variance.
        freedom: Its weight: so many degrees of freedom.
    """

    variance: float = LEAST_SPREAD**2
    freedom: float = 0.0

    def moderated(self, variance: Floats, freedom: float) -> tuple[Floats, float]:
        """Variances drawn towards the usual one, and their degrees of freedom."""
        total = self.freedom + freedom
        drawn = (self.freedom * self.variance + freedom * variance) / total
        return np.maximum(drawn, LEAST_SPREAD**2), total


def prior_of(groups: Iterable[Sequence[float]]) -> Prior:
    """The prior of many groups, by their own variances: five numbers alone say too little about their noise.

    Source: G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments", 2004: the mean and the variance of the logarithms of the groups' variances.

    Args:
        groups: Logarithms of processes, or differences of pairs. Fewer than ten groups give no prior.
    """
    known = [(float(np.var(group, ddof=1)), len(group) - 1) for group in groups if len(group) > 1]
    if len(known) < _FEWEST_GROUPS:
        return Prior()
    variances, freedom = np.array(known).T
    logs = np.log(np.maximum(variances, LEAST_SPREAD**2))
    logs -= special.digamma(freedom / 2) - np.log(freedom / 2)
    # The variances differ by more than their own uncertainty: the less, the more the prior weighs.
    excess = float(logs.var(ddof=1) - special.polygamma(1, freedom / 2).mean())
    weight = _MAX_FREEDOM
    if excess > float(special.polygamma(1, _MAX_FREEDOM / 2)):
        weight = 2 * float(
            optimize.brentq(
                lambda half: float(special.polygamma(1, half)) - excess, 1e-6, _MAX_FREEDOM / 2
            )
        )
    usual = float(logs.mean() + special.digamma(weight / 2) - np.log(weight / 2))
    return Prior(math.exp(usual), weight)


def differences(base: Sequence[float], new: Sequence[float]) -> list[float]:
    """New less base of each pair of processes that measured one after the other."""
    return [float(now - was) for was, now in zip(base, new, strict=True)]


def effect(
    base: Sequence[float], new: Sequence[float], prior: Prior | None = None, paired: bool = False
) -> Effect:
    """Compares two groups of processes.

    The interval is a bootstrap-t: resamples tell how skewed the studentized difference is. It is never narrower than
    Welch's t interval, since ten numbers can't show their own tails. The same numbers give the same interval.

    Args:
        base: Logarithms of the processes' medians, at least two.
        new: Those of the other recording, at least two.
        prior: The noise of other cases (``prior_of``).
        paired: Whether the processes of equal index measured one after the other. Their differences are then the
            group: what slowed both down drops out.

    Returns:
        The difference of the means, with its interval and p-value.
    """
    first, other = np.asarray(base, np.float64), np.asarray(new, np.float64)
    signed = [(1.0, other - first)] if paired else [(1.0, other), (-1.0, first)]
    groups = [group for _, group in signed]
    prior = prior or Prior()
    difference = sum(sign * float(group.mean()) for sign, group in signed)
    errors, freedom = _standard_error([group[None] for group in groups], prior)
    error = float(errors[0])
    p = float(2 * special.stdtr(freedom[0], -abs(difference) / error))
    again = [group[pick] for group, pick in zip(groups, _picks(*map(len, groups)), strict=True)]
    # A resample without the one slow process looks far calmer than the processes are.
    resampled = np.maximum(_standard_error(again, prior)[0], error / 2)
    means = sum(sign * group.mean(1) for (sign, _), group in zip(signed, again, strict=True))
    t = (means - difference) / resampled
    bounds, levels = [], ((1 + LEVEL) / 2, LEVEL)
    tails = np.quantile(t, [(1 - level, level) for level in levels]).tolist()
    for level, (below, above) in zip(levels, tails, strict=True):
        student = float(special.stdtrit(freedom[0], level))
        down, up = max(above, student) * error, max(-below, student) * error
        bounds.append((difference - down, difference + up))
    spread = error / math.sqrt(sum(1 / len(group) for group in groups))
    return Effect(difference, *bounds[0], *bounds[1], p, spread, paired)


def _standard_error(groups: Sequence[Floats], prior: Prior) -> tuple[Floats, Floats]:
    """Returns the standard error of the groups' sum or difference by rows, and Welch's degrees of freedom."""
    total, squares = np.zeros((2, len(groups[0])))
    for x in groups:
        variance, freedom = prior.moderated(x.var(1, ddof=1), x.shape[1] - 1)
        total += variance / x.shape[1]
        squares += (variance / x.shape[1]) ** 2 / freedom
    return np.sqrt(total), total**2 / squares


@lru_cache(maxsize=64)
def _picks(*counts: int) -> list[NDArray[Any]]:
    """Draws the processes of each group for each resample; every call draws the same."""
    random = np.random.default_rng((_SEED, *counts))
    return [random.integers(0, count, (_RESAMPLES, count)) for count in counts]


def noise_floor(
    groups: Iterable[Sequence[float]], prior: Prior | None = None, paired: bool = False
) -> float | None:
    """The |log ratio| that 95 of 100 comparisons of unchanged code stay within (an A/A comparison).

    Each group is taken apart into two made-up recordings of as many processes, many times, by drawing from its
    deviations from its mean.

    Args:
        groups: For each case the logarithms of its processes' medians; where ``paired``, their differences.
        prior: The noise of other cases (``prior_of``).
        paired: Whether a group holds the differences of two recordings already.

    Returns:
        The floor; None where no group has two processes.
    """
    results = []
    for group in groups:
        count = len(group)
        if count > 1:
            x = np.asarray(group, np.float64)
            variance, _ = (prior or Prior()).moderated(x.var(ddof=1), count - 1)
            x -= x.mean()
            x *= math.sqrt(variance) / max(float(np.std(x)), 1e-12)
            first, other = (x[pick[:200]].mean(1) for pick in _picks(count, count))
            results.append(np.abs(first if paired else first - other))
    return float(np.quantile(np.concatenate(results), 0.95)) if results else None


def adjusted(p_values: Sequence[float]) -> list[float]:
    """p-values of many cases by Benjamini and Hochberg: what is at most q among them is false in a share q."""
    if not p_values:
        return []
    return [float(q) for q in stats.false_discovery_control(np.asarray(p_values), method="bh")]


def processes_to_decide(result: Effect, threshold: float) -> int | None:
    """Estimates the processes on each side that would probably decide an inconclusive case.

    Args:
        result: The known facts about it.
        threshold: The least |log ratio| that counts.

    Returns:
        The number; None where 200 would not do, since the difference is too close to the threshold.
    """
    size = abs(result.log_ratio)
    # Beyond the threshold the interval has to leave 0 out; below it, the bound has to leave the threshold out.
    level, room = ((1 + LEVEL) / 2, size) if size >= threshold else (LEVEL, threshold - size)
    for count in range(FEWEST, MAX_PROCESSES + 1):
        groups = 1 if result.paired else 2
        student = float(special.stdtrit(groups * (count - 1), level))
        half = student * result.spread * math.sqrt(groups / count)
        if half < room:
            return count
    return None

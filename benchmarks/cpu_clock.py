"""Two contestants in turns: bursts of calls, who goes first alternates, a ratio for each pair of bursts.

A machine slows down and speeds up while a benchmark runs. Two bursts that follow each other see the same
machine, so that their ratio says more than that of two medians; its quartiles say how much to believe it.
"""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

# Nanoseconds of a burst and calls in it; calls before it are not counted.
BURST_NS, MAX_CALLS, WARM_NS = 4_000_000, 1000, 1_000_000
# Pairs of a row.
FEWEST, MOST = 3, 40
# Threads that wait for work by spinning take processors from who comes next; they stop after some tens of milliseconds.
REST_S = 0.1


@dataclass(frozen=True)
class Pair:
    """The times of two contestants in microseconds.

    Attributes:
        p50: Medians by contestant.
        p99: 99th percentiles.
        ratio: The second's time by the first's, the median over pairs of bursts; NaN for one alone.
        spread: The lower and the upper quartile of the same.
        pairs: Pairs of bursts.
        calls: Calls in a burst, by contestant.
    """

    p50: tuple[float, ...]
    p99: tuple[float, ...]
    ratio: float
    spread: tuple[float, float]
    pairs: int
    calls: tuple[int, ...]


def quickest(ways):
    """The name of the fastest of several calls; what takes long is called few times."""
    return min(ways, key=lambda name: _estimate(ways[name])) if len(ways) > 1 else next(iter(ways))


def _nothing():
    """Draws no new data."""


def _estimate(call, draw=_nothing):
    """Returns the nanoseconds of a call: the least of a few, after one warm-up call."""
    call()
    result, until = [], time.perf_counter_ns() + BURST_NS
    while not result or (time.perf_counter_ns() < until and len(result) < MAX_CALLS):
        result.append(burst(call, 1, draw)[0])
    return min(result)


def burst(call, count, draw=_nothing):
    """Nanoseconds of each of some calls; before each, outside of its time, new data are drawn."""
    clock, spent = time.perf_counter_ns, []
    for _ in range(count):
        draw()
        began = clock()
        call()
        spent.append(clock() - began)
    return spent


def in_pairs(calls, seconds, threads=1, draw=_nothing):
    """Times one or two calls in turns.

    Args:
        calls: The contestants, rlx first.
        seconds: About so long; at least three pairs are measured.
        threads: With several, each burst comes after a rest.
        draw: Puts new data where the calls read theirs.
    """
    estimates = [max(1, _estimate(call, draw)) for call in calls]
    counts = [int(min(MAX_CALLS, max(1, BURST_NS // ns))) for ns in estimates]
    warm = [int(min(5, WARM_NS // ns)) for ns in estimates]
    bursts = [[] for _ in calls]
    until = time.perf_counter() + seconds
    for index in range(MOST):
        if index >= FEWEST and time.perf_counter() >= until:
            break
        order = range(len(calls)) if index % 2 == 0 else reversed(range(len(calls)))
        for item in order:
            if threads > 1:
                time.sleep(REST_S)
            burst(calls[item], warm[item], draw)
            bursts[item].append(burst(calls[item], counts[item], draw))
    return _summary(bursts, counts)


def _summary(bursts, counts):
    everything = [np.concatenate(item) / 1e3 for item in bursts]
    ratios = [median(b) / median(a) for a, b in zip(bursts[0], bursts[-1], strict=True)]
    alone = len(bursts) == 1
    lower, middle, upper = (
        [float("nan")] * 3 if alone else np.percentile(ratios, (25, 50, 75)).tolist()
    )
    return Pair(
        p50=tuple(float(np.percentile(item, 50)) for item in everything),
        p99=tuple(float(np.percentile(item, 99)) for item in everything),
        ratio=middle,
        spread=(lower, upper),
        pairs=len(bursts[0]),
        calls=tuple(counts),
    )

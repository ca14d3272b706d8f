"""Frames of signals, and the search for peaks, which walks by steps that double."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx_xla.values import XlaTracedArray, arithmetic


def framed(x: Any, length: int, hop: int) -> XlaTracedArray:
    """The frames of the last axis."""
    count = (x.shape[-1] - length) // hop + 1
    position = np.arange(count, dtype=np.int32)[:, None] * hop + np.arange(length, dtype=np.int32)
    return XlaTracedArray(x.raw[..., position])


def _tables(row: Any, levels: int) -> tuple[Any, Any]:
    """For each level k and place i the largest and the least of the 2^k samples that end at i."""
    high, low = [row], [row]
    edge = row.dtype.type(np.inf)
    for k in range(levels):
        step = 1 << k
        for item, join in ((high, jnp.maximum), (low, jnp.minimum)):
            # Windows that begin before the row never count as passed.
            before = jnp.concatenate(
                [jnp.full(step, edge if item is high else -edge), item[-1][:-step]]
            )
            item.append(join(item[-1], before))
    return jnp.stack(high), jnp.stack(low)


def _lowest_before_larger(row: Any, peaks: Any, levels: int) -> Any:
    """The least sample on the way left from each peak to a larger one, or to the end."""
    high, low = _tables(row, levels)
    height, position, least = row[peaks], peaks, row[peaks]
    for k in reversed(range(levels + 1)):
        passed = (position >= 0) & (high[k][jnp.maximum(position, 0)] <= height)
        least = jnp.where(passed, jnp.minimum(least, low[k][jnp.maximum(position, 0)]), least)
        position = jnp.where(passed, position - (1 << k), position)
    return least


def _crossing(row: Any, peaks: Any, level: Any, levels: int) -> Any:
    """Measures how far left of each peak the row crosses a level, by linear interpolation."""
    _, low = _tables(row, levels)
    position = peaks
    for k in reversed(range(levels + 1)):
        passed = (position >= 0) & (low[k][jnp.maximum(position, 0)] > level)
        position = jnp.where(passed, position - (1 << k), position)
    here, before = row[jnp.maximum(position, 0)], row[jnp.clip(position + 1, 0, row.shape[0] - 1)]
    return (peaks - position) - (level - here) / (before - here)


def _both_ways(function: Any, row: Any, peaks: Any, *more: Any) -> tuple[Any, Any]:
    """Applies a function that looks left, then the same function to the right."""
    return function(row, peaks, *more), function(row[::-1], row.shape[0] - 1 - peaks, *more)


def _maxima(row: Any, limit: int) -> tuple[Any, Any]:
    """Middles of runs of equal samples that are higher than what is beside them, and how many there are."""
    n = row.shape[0]
    place = jnp.arange(n)
    begins = jnp.concatenate([jnp.ones(1, bool), row[1:] != row[:-1]])
    following = lax.cummin(jnp.where(begins, place, n), reverse=True)
    ends = jnp.concatenate([following[1:], jnp.full(1, n)]) - 1
    rises = begins & (place > 0) & (row[jnp.maximum(place - 1, 0)] < row)
    falls = (ends + 1 < n) & (row[jnp.minimum(ends + 1, n - 1)] < row)
    result = jnp.where(rises & falls, (place + ends) // 2, n)
    return jnp.sort(result)[:limit], jnp.sum(rises & falls)


def _within(values: Any, bounds: Any) -> Any:
    low, high = bounds or (None, None)
    retained = jnp.ones(values.shape, bool)
    retained = retained if low is None else retained & (values >= low)
    return retained if high is None else retained & (values <= high)


def _spaced(peaks: Any, heights: Any, retained: Any, distance: float) -> Any:
    """Drops peaks that are too near to a larger kept peak; of equal peaks the later is kept."""
    order = jnp.argsort(jnp.where(retained, heights, -jnp.inf), stable=True)[::-1]

    def step(i: Any, retained: Any) -> Any:
        position = order[i]
        far = jnp.abs(peaks - peaks[position]) >= distance
        return jnp.where(retained[position], (retained & far).at[position].set(True), retained)

    return lax.fori_loop(0, peaks.shape[0], step, retained)


def find_peaks(
    x: Any,
    height: Any = None,
    distance: float | None = None,
    prominence: Any = None,
    width: Any = None,
    max_peaks: int | None = None,
) -> Any:
    """Local maxima along the last axis."""
    assert max_peaks is not None, "inference states it"
    n, lead, room = x.shape[-1], x.shape[:-1], max_peaks
    rows = x.wide.reshape(math.prod(lead), n)
    largest = max((n - 1) // 2, 0)
    levels = max(n - 1, 1).bit_length()

    def peaks_of_row(row: Any) -> Any:
        result, count = _maxima(row, largest)
        peaks = jnp.minimum(result, n - 1)
        retained = (jnp.arange(largest) < count) & _within(row[peaks], height)
        if distance is not None:
            retained = _spaced(peaks, row[peaks], retained, distance)
        drops = row[peaks] - jnp.maximum(*_both_ways(_lowest_before_larger, row, peaks, levels))
        wanted = retained & _within(drops, prominence)
        if width is not None:
            level = row[peaks] - 0.5 * drops
            wanted &= _within(sum(_both_ways(_crossing, row, peaks, level, levels)), width)
        order = jnp.argsort(~wanted, stable=True)[:room]
        shown = wanted[order]
        pad = (0, room - order.shape[0])
        indices = jnp.pad(jnp.where(shown, peaks[order], -1), pad, constant_values=-1)
        return indices, jnp.sum(wanted), jnp.pad(jnp.where(shown, drops[order], 0.0), pad)

    if not rows.size or not largest:
        nothing = jnp.full((*lead, room), -1), jnp.zeros(lead, jnp.int32)
        return *map(XlaTracedArray, nothing), XlaTracedArray(
            jnp.zeros((*lead, room), arithmetic().real)
        )
    indices, counts, drops = jax.vmap(peaks_of_row)(rows)
    shape = (*lead, room)
    return (
        XlaTracedArray(indices.reshape(shape)),
        XlaTracedArray(counts.reshape(lead)),
        XlaTracedArray(drops.reshape(shape)),
    )


INSTEAD = {"rlx.ops.spectra.frames.framed": framed}
RECORDS = {"find_peaks": find_peaks}

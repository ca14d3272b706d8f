"""Boxes that are kept: a loop over the kept ones, as the reference has it, on arrays of one size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rlx_xla.hand.rows import order
from rlx_xla.values import XlaTracedArray, lifted


def _corners(boxes: Any, centred: bool) -> Any:
    """Boxes ``[..., 4]`` as the low corner, then the high one. One of negative size overlaps none."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return jnp.concatenate([first - second / 2, first + second / 2], -1)
    return jnp.concatenate([jnp.minimum(first, second), jnp.maximum(first, second)], -1)


def _covers(box: Any, others: Any, most: Any) -> Any:
    """Returns whether a box overlaps each of others by more than a share of the area of both."""
    low = jnp.maximum(box[:2], others[:, :2])
    high = jnp.minimum(box[2:], others[:, 2:])
    common = jnp.prod(jnp.maximum(high - low, 0), axis=1)
    area = jnp.prod(box[2:] - box[:2]) + jnp.prod(others[:, 2:] - others[:, :2], axis=1) - common
    return (area > 0) & (common / jnp.where(area > 0, area, 1) > most)


def kept_boxes(
    boxes: Any,
    scores: Any,
    limit: Any,
    overlap: Any,
    least: Any,
    most: int,
    center_point_box: bool,
) -> XlaTracedArray:
    """The best boxes of each row that no better one of it covers, and -1 behind them."""
    batches, classes, count = scores.shape
    if not most or not count or not batches or not classes:
        return XlaTracedArray(jnp.full((batches, classes, most), -1, jnp.int32))
    wanted, share, threshold = (jnp.asarray(lifted(x)) for x in (limit, overlap, least))
    share = jnp.maximum(share, 0)

    def row(corners: Any, values: Any, places: Any) -> Any:
        boxes_in_order, free = corners[places], values[places] > threshold

        def step(k: Any, state: Any) -> Any:
            kept, free = state
            best = jnp.argmax(free)
            found = free[best] & (k < wanted)
            kept = kept.at[k].set(jnp.where(found, places[best], -1).astype(jnp.int32))
            free &= ~(found & _covers(boxes_in_order[best], boxes_in_order, share))
            return kept, free.at[best].set(False)

        return lax.fori_loop(0, most, step, (jnp.full((most,), -1, jnp.int32), free))[0]

    by_class = jax.vmap(row, (None, 0, 0))
    corners = _corners(jnp.asarray(lifted(boxes)), center_point_box)
    result = jax.vmap(by_class)(corners, jnp.asarray(lifted(scores)), order(scores, True).raw)
    return XlaTracedArray(result)


RECORDS = {"kept_boxes": kept_boxes}

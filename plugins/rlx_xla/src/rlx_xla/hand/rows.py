"""Sorting: by keys that are whole numbers, so that ties and NaN fall where NumPy's stable sort puts them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx_xla.values import XlaTracedArray, is_float

_WORDS = {2: jnp.int16, 4: jnp.int32, 8: jnp.int64}


def _keys(x: Any, largest: bool) -> Any:
    """Whole numbers in the order of the elements, the first one largest; NaN has the least of all."""
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.int8)
    if not is_float(x.dtype):
        return x if largest else ~x
    bits = lax.bitcast_convert_type(
        x + np.asarray(0, x.dtype), _WORDS[x.dtype.itemsize]
    )  # -0 becomes 0
    least = np.iinfo(bits.dtype).min
    rising = jnp.where(bits < 0, bits ^ np.asarray(~least, bits.dtype), bits)
    return jnp.where(jnp.isnan(x), least, rising if largest else ~rising)


def order(x: Any, largest: bool) -> XlaTracedArray:
    """Positions along the last axis in order: ties to the lower one, NaN last."""
    # The sort rises, and the largest key comes first.
    return XlaTracedArray(
        jnp.argsort(~_keys(x.raw, largest), axis=-1, stable=True).astype(jnp.int64)
    )


def ordered(x: Any, k: int, largest: bool) -> Any:
    """Returns the first ``k`` elements in order, and their positions."""
    keys = _keys(x.raw, largest)
    if 0 < k < x.shape[-1] and keys.size:
        _, position = lax.top_k(keys, k)
    else:
        position = jnp.argsort(~keys, axis=-1, stable=True)[..., :k]
    return XlaTracedArray(jnp.take_along_axis(x.raw, position, -1)), XlaTracedArray(position)


def _split_for(x: Any, splits: Any, questions: Any) -> Any:
    """Splits as numbers of the operand's width that give the same answers as those in float64."""
    narrow = splits.astype(x.dtype)
    asked = questions % 4
    with np.errstate(over="ignore"):
        below = np.where(narrow > splits, np.nextafter(narrow, x.dtype.type(-np.inf)), narrow)
        above = np.where(narrow < splits, np.nextafter(narrow, x.dtype.type(np.inf)), narrow)
    equal = np.where(narrow == splits, narrow, x.dtype.type(np.nan))
    return np.choose(asked, (below, above, equal))


def _leaf_values(leaves: Any, count: int, join: str) -> Any:
    """Computes the values that each leaf gives to each target, and whether it gives any."""
    starts, targets, weights = leaves
    stored = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    nothing = {"sum": 0.0, "min": np.inf, "max": -np.inf}[join]
    result = np.full((len(starts) - 1, count), nothing)
    number = ~np.isnan(weights) | (join == "sum")
    step = {"sum": np.add, "min": np.minimum, "max": np.maximum}[join]
    step.at(result, (stored[number], targets[number]), weights[number])
    arguments = np.zeros(result.shape, bool)
    arguments[stored[number], targets[number]] = True
    return result, arguments


def tree_scores(  # noqa: PLR0913 - trees are eight tables
    x: Any,
    features: Any,
    splits: Any,
    questions: Any,
    children: Any,
    roots: Any,
    starts: Any,
    targets: Any,
    weights: Any,
    count: int,
    join: str = "sum",
) -> XlaTracedArray:
    """All rows go down all trees at once, as many steps as the deepest tree has."""
    values, arguments = _leaf_values((starts, targets, weights), count, join)
    depth, level = 0, np.unique(roots)
    while (level := level[features[level] >= 0]).size:
        level, depth = np.unique(np.concatenate([children[level], children[level] + 1])), depth + 1
    rows = x.wide
    # Nodes by number fit 32 bits, and so do features.
    limits = jnp.asarray(_split_for(np.zeros(0, rows.dtype), splits, questions))
    index = jnp.broadcast_to(jnp.asarray(roots, jnp.int32), (x.shape[0], len(roots)))
    tables = (
        jnp.asarray(features, jnp.int32),
        jnp.asarray(questions),
        jnp.asarray(children, jnp.int32),
    )

    def step(_: Any, position: Any) -> Any:
        feature, question = tables[0][position], tables[1][position]
        value, limit = jnp.take_along_axis(rows, jnp.maximum(feature, 0), 1), limits[position]
        asked = question % 4
        yes = jnp.where(
            asked == 0, value <= limit, jnp.where(asked == 1, value < limit, value == limit)
        )
        yes |= (question >= 4) & jnp.isnan(value)
        return jnp.where(feature >= 0, tables[2][position] + 1 - yes.astype(jnp.int32), position)

    index = lax.fori_loop(0, depth, step, index) if rows.size else index
    leaf = tables[2][index]
    if not values.size:
        return XlaTracedArray(jnp.zeros((x.shape[0], count), rows.dtype))
    result, some = jnp.asarray(values.astype(rows.dtype))[leaf], jnp.asarray(arguments)[leaf].any(1)
    if join == "sum":
        return XlaTracedArray(jnp.sum(result, 1))
    # Without trees there is nothing to join, and 0 is the result.
    y = jnp.min(result, 1, initial=np.inf) if join == "min" else jnp.max(result, 1, initial=-np.inf)
    return XlaTracedArray(jnp.where(some, y, 0))


INSTEAD = {"rlx.ops.rows.sorting._order": order}
RECORDS = {"ordered": ordered, "tree_scores": tree_scores}

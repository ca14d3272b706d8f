"""Gathers and scatters. A scatter has an order: where two updates meet, the later one stays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx_xla.values import XlaTracedArray, arithmetic, lifted


def _array(value: Any) -> Any:
    """Returns an operand unchanged."""
    return value.raw if isinstance(value, XlaTracedArray) else jnp.asarray(lifted(value))


def _within(index: Any, size: int) -> Any:
    """Indices counted from the end where they are negative, and held inside."""
    result = _array(index)
    if result.dtype.kind == "i":
        result = jnp.where(result < 0, result + np.asarray(size, result.dtype), result)
    return result


def gather(x: Any, indices: Any, axis: int = 0) -> XlaTracedArray:
    """``np.take``; indices outside of the axis give its nearest end."""
    return XlaTracedArray(jnp.take(_array(x), _within(indices, x.shape[axis]), axis, mode="clip"))


def gather_nd(x: Any, indices: Any, batch_dims: int = 0) -> XlaTracedArray:
    """Elements, or slices, at places that are listed; one gather for all batches."""
    position, (*lead, depth) = _array(indices), indices.shape
    where = [_within(position[..., d], x.shape[batch_dims + d]) for d in range(depth)]
    batch = [lax.broadcasted_iota(position.dtype, tuple(lead), d) for d in range(batch_dims)]
    result = _array(x).at[(*batch, *where)].get(mode="clip") if batch or where else None
    whole = (*lead, *x.shape[batch_dims + depth :])
    return XlaTracedArray(jnp.broadcast_to(_array(x), whole) if result is None else result)


def narrow(x: Any, axis: int, start: int, length: int) -> XlaTracedArray:
    """A part of an axis."""
    return XlaTracedArray(lax.slice_in_dim(_array(x), start, start + length, axis=axis))


def pad_constant(x: Any, value: Any, pads: Any) -> XlaTracedArray:
    """A value around an operand."""
    array = _array(x)
    return XlaTracedArray(
        lax.pad(array, _array(value).astype(array.dtype).reshape(()), [(*pair, 0) for pair in pads])
    )


def _scattered(y: Any, indices: Sequence[Any], updates: Any, reduction: str) -> Any:
    """NumPy's unbuffered updates at places of a flat array, in order."""
    (index,) = indices
    if reduction == "none":
        count = updates.shape[0]
        last = (
            jnp.full(y.shape[:1], -1, jnp.int32).at[index].max(jnp.arange(count, dtype=jnp.int32))
        )
        retained = last.reshape(-1, *(1,) * (y.ndim - 1))
        return jnp.where(retained >= 0, updates[jnp.maximum(last, 0)], y) if count else y
    ref = y.at[index]
    return {"add": ref.add, "mul": ref.multiply, "min": ref.min, "max": ref.max}[reduction](updates)


def _flat_index(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """Places as numbers in row-major order."""
    result: Any = 0
    for index, size in zip(indices, shape, strict=True):
        result = result * size + _within(index, size).astype(
            jnp.int32 if math.prod(shape) < 2**31 else jnp.int64
        )
    return result


def _updated(x: Any, updates: Any, reduction: str | None) -> tuple[Any, Any, str]:
    """Operand and updates in the dtype in which they are joined."""
    kind = reduction or "none"
    join = kind in ("add", "mul") and arithmetic()
    y, new = (v.wide if join and isinstance(v, XlaTracedArray) else _array(v) for v in (x, updates))
    return y, new.astype(y.dtype), kind


def scatter_elements(
    x: Any, indices: Any, updates: Any, axis: int, reduction: str | None = None
) -> XlaTracedArray:
    """Updates at the places of their own, but for one axis."""
    y, new, kind = _updated(x, updates, reduction)
    if not new.size or not y.size:
        return XlaTracedArray(y)
    positions = [lax.broadcasted_iota(jnp.int32, indices.shape, d) for d in range(y.ndim)]
    positions[axis] = _array(indices)
    place = _flat_index(positions, y.shape).reshape(-1)
    return XlaTracedArray(
        _scattered(y.reshape(-1), [place], new.reshape(-1), kind).reshape(y.shape)
    )


def scatter_nd(x: Any, indices: Any, updates: Any, reduction: str | None = None) -> XlaTracedArray:
    """Updates, or slices of them, at places that are listed."""
    y, new, kind = _updated(x, updates, reduction)
    depth = indices.shape[-1]
    if not new.size or not y.size:
        return XlaTracedArray(y)
    rows = y.reshape(math.prod(y.shape[:depth]), -1)
    tuples = _array(indices).reshape(-1, depth)
    place = _flat_index([tuples[:, d] for d in range(depth)], y.shape[:depth])
    place = jnp.broadcast_to(place, (tuples.shape[0],)) if depth == 0 else place
    new = new.reshape(tuples.shape[0], rows.shape[1])
    return XlaTracedArray(_scattered(rows, [place], new, kind).reshape(y.shape))


RECORDS = {
    "gather": gather,
    "gather_nd": gather_nd,
    "narrow": narrow,
    "pad_constant": pad_constant,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
}

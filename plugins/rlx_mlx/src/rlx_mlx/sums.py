"""Sums of MLX arrays along axes."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx

# Elements that are added up one after the other at most, on the processor; Metal adds up in a tree.
_BLOCK = 32


def total(x: Any, axis: Any, keepdims: bool) -> Any:
    """Sums along axes; on the processor those of long rows by blocks, whose rounding does not pile up."""
    axes = list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    count = math.prod(x.shape[axis] for axis in axes)
    if count <= _BLOCK or x.dtype != mx.float32 or mx.metal.is_available():
        return mx.sum(x, axes, keepdims=keepdims)
    gone = {axis % x.ndim for axis in axes}
    remaining = [index for index in range(x.ndim) if index not in gone]
    rows = mx.reshape(mx.transpose(x, [*remaining, *sorted(gone)]), [-1, count])
    while rows.shape[-1] > _BLOCK:
        whole = rows.shape[-1] // _BLOCK * _BLOCK
        sums = mx.sum(mx.reshape(rows[:, :whole], [rows.shape[0], -1, _BLOCK]), -1)
        rows = mx.concatenate([sums, rows[:, whole:]], -1)
    return mx.reshape(mx.sum(rows, -1), reduced(x.shape, axis, keepdims))


def reduced(shape: Any, axis: Any, keepdims: bool) -> list[int]:
    """The shape of a reduction along axes."""
    axes = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    gone = {axis % len(shape) for axis in axes}
    return [
        1 if index in gone else n for index, n in enumerate(shape) if keepdims or index not in gone
    ]

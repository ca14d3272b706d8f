"""Linear quantisation: numbers as 8-bit integers with a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType, DTypeLike
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, NodeLike, Sample
from rlx.ir.shape import as_axis
from rlx.ops.declare import FLOAT_KERNELS, composite

_RANGE = {DType.I8: (-128, 127), DType.U8: (0, 255)}


def _along(g: Graph, value: Any, x: Node, axis: int | None, dtype: DType) -> Node:
    """A scale or zero point as a node that broadcasts over ``x``."""
    node = value if isinstance(value, Node) else g.constant(value, dtype)
    node = node if node.dtype is dtype else g.cast(node, dtype)
    if node.shape == () or axis is None:
        if node.shape not in ((), (1,)):
            raise ShapeError(
                "[quantize] one value per entry of an axis needs axis=", got=node.shape
            )
        return g.reshape(node, ())
    axis = as_axis(axis, len(x.shape), where="quantize")
    if node.shape != (x.shape[axis],):
        raise ShapeError(
            "[quantize] scale or zero point", got=node.shape, expected=(x.shape[axis],)
        )
    return g.reshape(node, (x.shape[axis], *(1,) * (len(x.shape) - axis - 1)))


def _range(dtype: Any) -> tuple[DType, int, int]:
    result = DType.parse(dtype)
    if result not in _RANGE:
        raise DTypeError("[quantize] target", got=result, expected="i8 or u8")
    return result, *_RANGE[result]


def _quantize(g: Graph, x: Node, scale: Any, zero_point: Any, axis: int | None, dtype: Any) -> Node:
    target, low, high = _range(dtype)
    steps = g.round(g.div(x, _along(g, scale, x, axis, x.dtype)))
    shifted = g.add(steps, _along(g, zero_point, x, axis, x.dtype))
    return g.cast(g.clip(shifted, low, high), target)


def _broadcast(value: Any, x: Array, axis: int | None) -> Array:
    value = np.asarray(value)
    return (
        value
        if axis is None or value.ndim == 0
        else value.reshape(-1, *(1,) * (x.ndim - axis % x.ndim - 1))
    )


@composite(
    _quantize,
    dtypes=FLOAT_KERNELS,
    samples=lambda: (
        Sample(((3, 5),), {"scale": 0.5}, low=-90, high=90),
        Sample(((3, 5),), {"scale": 0.25, "zero_point": 100, "dtype": "u8"}, low=-90, high=90),
        Sample(
            ((3, 2),), {"scale": (0.5, 0.25), "zero_point": (1, -4), "axis": 1}, low=-90, high=90
        ),
        Sample(((1,),), {"scale": 1.0}),
        Sample(((0, 4),), {"scale": 1.0}),
    ),
)
def quantize(
    x: Array,
    scale: NodeLike,
    zero_point: NodeLike = 0,
    axis: int | None = None,
    dtype: DTypeLike = "i8",
) -> Array:
    """round(x / scale) + zero_point, held within the range of an 8-bit type.

    Args:
        x: Any shape.
        scale: A number, or one per entry of ``axis``; a node or an array.
        zero_point: The integer that stands for 0; the same shapes.
        axis: The axis that has scales of its own; None for one scale.
        dtype: "i8" or "u8".
    """
    low, high = _RANGE[DType.parse(dtype)]
    steps = np.rint(x / _broadcast(scale, x, axis)) + _broadcast(zero_point, x, axis)
    return np.clip(steps, low, high)


def _dequantize(
    g: Graph, x: Node, scale: Any, zero_point: Any, axis: int | None, dtype: Any
) -> Node:
    target = DType.parse(dtype)
    wide = g.cast(x, DType.I32) if x.dtype is not DType.I32 else x
    centred = g.sub(wide, _along(g, zero_point, x, axis, DType.I32))
    return g.mul(g.cast(centred, target), _along(g, scale, x, axis, target))


@composite(
    _dequantize,
    dtypes=frozenset({DType.I8, DType.U8, DType.I32}),
    samples=lambda: (
        Sample(((3, 5),), {"scale": 0.5, "zero_point": 3}, low=-100, high=100),
        Sample(
            ((3, 2),), {"scale": (0.5, 0.25), "zero_point": (1, -4), "axis": 1}, low=-90, high=90
        ),
        Sample(((1,),), {"scale": 1.0}),
        Sample(((0, 4),), {"scale": 1.0, "dtype": "f16"}),
    ),
)
def dequantize(
    x: Array,
    scale: NodeLike,
    zero_point: NodeLike = 0,
    axis: int | None = None,
    dtype: DTypeLike = "f32",
) -> Array:
    """(x - zero_point) * scale: the inverse of ``quantize``, but for its rounding."""
    centred = x.astype(np.int64) - _broadcast(zero_point, x, axis)
    return centred * _broadcast(scale, x, axis)

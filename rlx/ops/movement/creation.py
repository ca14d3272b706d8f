"""Tensors made from sizes and positions: dim, arange, one_hot, trilu."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError
from rlx.ir.dtype import ALL, DType, DTypeLike
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_axis
from rlx.ops.declare import composite, op
from rlx.resource_limits import charge
from rlx.sizes import SizeExpr, largest


def _lower_size(node: Node, emitter: Emitter) -> None:
    zero = emitter.table(np.zeros(1, np.int64))
    number = ("literal", (), DType.I64, node.attrs["size"])
    program = (number, ("add", (0, 1), DType.I64, None))
    emitter.elementwise(program, [zero], emitter.result(), [()])


# ``dim``, and operands that are sizes of dims, build it.
@op(
    infer=lambda types, attrs: TensorType((), DType.I64),
    cpu=Kernels((), _lower_size),
    webgpu=Kernels((), _lower_size),
    webgpu_dtypes=ALL,
    internal=True,
    samples=lambda: (Sample((), {"size": 3}), Sample((), {"size": 1}), Sample((), {"size": 0})),
)
def size(size: int) -> Array:
    """A size of a dim, or arithmetic of sizes, as a number."""
    return np.asarray(size, np.int64)


def _dim(g: Graph, x: Node, axis: int) -> Node:
    return g.as_node(x.shape[as_axis(axis, len(x.shape), where="dim")], DType.I64, where="dim")


@composite(
    _dim,
    samples=lambda: (
        Sample(((2, 3),), {"axis": -1}),
        Sample(((1,),), {"axis": 0}),
        Sample(((4, 0),), {"axis": 1}),
    ),
)
def dim(x: Array, axis: int) -> Array:
    """The size of an axis as a value of the graph, an i64 scalar; a constant where the size is known when it is built.

    Args:
        x: Any shape of rank >= 1.
        axis: The axis; counts from the end when negative.
    """
    return np.asarray(x.shape[axis], np.int64)


def numbers_below(g: Graph, count: int) -> Node:
    """The numbers from 0 to below a size that is known only when the graph runs."""
    return g.cumsum(g.expand(g.constant(1), (count,)), 0, exclusive=True)


def _arange(g: Graph, start: Any, stop: Any, step: Any, dtype: Any) -> Node:
    if step == 0:
        raise GraphError("[arange] a step of 0")
    first, end = (0, start) if stop is None else (start, stop)
    if any(isinstance(value, SizeExpr) for value in (first, end, step)):
        count = largest(math.ceil((end - first) / step), 0)
        return g.add(g.mul(g.cast(numbers_below(g, count), dtype), step), first)
    count = (end - first) / step
    charge("[arange]", elements=max(count, 0))
    return g.constant(np.arange(first, end, step), dtype)


@composite(
    _arange,
    samples=lambda: (
        Sample((), {"start": 5}),
        Sample((), {"start": 2, "stop": 11, "step": 3, "dtype": "f32"}),
        Sample((), {"start": 3, "stop": 3}),
        Sample((), {"start": 1, "stop": -1, "step": -0.5, "dtype": "f16"}),
        Sample((), {"start": 0, "stop": 1}),
    ),
)
def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike = "i32"
) -> Array:
    """The constant start, start + step, ... below ``stop`` (NumPy's ``arange``)."""
    return np.arange(start, stop, step) if stop is not None else np.arange(0, start, step)


def _one_hot(g: Graph, indices: Node, depth: int, axis: int, values: Any, dtype: Any) -> Node:
    # Narrow integers could not hold the depth.
    if indices.dtype is not DType.I64:
        indices = g.cast(indices, DType.I32)
    axis = as_axis(axis, len(indices.shape) + 1, where="one_hot")
    spread = g.unsqueeze(indices, axis)
    charge("[one_hot]", elements=depth)
    numbers = np.arange(depth).reshape(-1, *(1,) * (len(indices.shape) - axis))
    classes = g.constant(numbers, indices.dtype)
    wrapped = g.where(g.lt(spread, 0), g.add(spread, depth), spread)
    off, on = (g.constant(value, dtype) for value in values)
    return g.where(g.eq(wrapped, classes), on, off)


@composite(
    _one_hot,
    dtypes=frozenset({DType.I32, DType.I64}),
    samples=lambda: (
        Sample(((5,),), {"depth": 4}, low=-6, high=6),
        Sample(((2, 3),), {"depth": 4, "axis": 1}, low=-6, high=6),
        Sample(
            ((2, 3),), {"depth": 3, "axis": 0, "values": (2, 5), "dtype": "i32"}, low=-6, high=6
        ),
        Sample(((),), {"depth": 3}, low=0, high=3),
        Sample(((0,),), {"depth": 3}),
    ),
)
def one_hot(
    indices: Array,
    depth: int,
    axis: int = -1,
    values: Sequence[float] = (0, 1),
    dtype: DTypeLike = "f32",
) -> Array:
    """Each index as a vector of ``depth`` numbers that is 1 at the index and 0 elsewhere.

    Args:
        indices: i32 or i64; negative ones count from the end; one out of range gives all 0.
        depth: Number of classes.
        axis: Where the new axis stands in the result.
        values: The values for 0 and 1.
        dtype: dtype of the result.
    """
    axis = axis % (indices.ndim + 1)
    wrapped = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    classes = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - axis))
    return np.where(wrapped == classes, values[1], values[0])


def _trilu(g: Graph, x: Node, k: int, upper: bool) -> Node:
    if len(x.shape) < 2:
        raise GraphError("[trilu] not a matrix", got=x.shape, expected="rank >= 2")
    rows, columns = x.shape[-2:]
    if isinstance(rows, SizeExpr) or isinstance(columns, SizeExpr):
        row = g.add(g.unsqueeze(numbers_below(g, rows), 1), k)
        column = g.unsqueeze(numbers_below(g, columns), 0)
        inside = g.ge(column, row) if upper else g.le(column, row)
        return g.where(inside, x, g.constant(0, x.dtype))
    charge("[trilu]", elements=rows * columns)
    ones = np.ones(x.shape[-2:], np.bool_)
    retained = np.triu(ones, k) if upper else np.tril(ones, k)
    if x.dtype is DType.BOOL:
        return g.logical_and(x, g.constant(retained))
    return g.where(g.constant(retained), x, g.constant(0, x.dtype))


@composite(
    _trilu,
    samples=lambda: (
        *(
            Sample((shape,), {"k": k, "upper": upper})
            for upper in (True, False)
            for shape in ((3, 4), (2, 4, 3), (1, 1))
            for k in (0, 1, -2)
        ),
        Sample(((0, 3),)),
    ),
)
def trilu(x: Array, k: int = 0, upper: bool = True) -> Array:
    """The upper or lower triangle of the last two axes, 0 elsewhere.

    Args:
        x: ``[..., rows, columns]``.
        k: The diagonal that bounds it: 0 the main one, positive ones above it.
        upper: The triangle above it, else below.
    """
    return np.triu(x, k) if upper else np.tril(x, k)

"""Elements that a condition picks: their positions, and the entries there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_axis, as_size, same_size, size, strides
from rlx.ops.declare import composite, one_call, op
from rlx.ops.rows.cumulate import emit_cumulate
from rlx.ops.rows.reduce_rows import Reduction

_WORKGROUP = 256


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    count = attrs["count"] = as_size(attrs["count"])
    if not types[0].shape or count < 0:
        raise ShapeError("[true_positions] of no axes", got=f"{count} of {types[0].shape}")
    return TensorType((count, len(types[0].shape)), DType.I64)


def _geometry(node: Node) -> dict[str, Any]:
    shape = node.inputs[0].shape
    return {"rank": len(shape), "count": node.attrs["count"], "dims": tuple(shape)}


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    count = size(node.inputs[0].shape)
    if same_size(count, 0):
        return
    ones, before = (emitter.temp(TensorType((count,), DType.I32)) for _ in "12")
    emitter.elementwise((("cast", (0,), DType.I32, None),), [emitter.operand(0)], ones, [(count,)])
    flags = {"product": 0, "exclusive": 1, "reverse": 0}
    emit_cumulate(emitter, ones, before, Reduction(1, count, 1), flags, DType.I32)
    params = {**_geometry(node), "n": count}
    groups = math.ceil(count / _WORKGROUP)
    emitter.call("true_positions", [ones, before], [emitter.result()], params, groups)


@op(
    infer=_infer,
    cpu=one_call("true_positions", _geometry),
    webgpu=Kernels(("true_positions",), _lower_webgpu),
    dtypes=frozenset({DType.BOOL}),
    internal=True,
    samples=lambda: tuple(
        Sample((mask.shape,), {"count": int(mask.sum())}, values=(mask,))
        for mask in (
            np.arange(70) % 3 == 0,
            np.zeros((3, 4), bool),
            np.ones((2, 3, 2), bool),
            np.arange(1200).reshape(2, 600) % 7 > 3,
            np.zeros((0, 3), bool),
        )
    ),
)
def true_positions(mask: Array, count: int) -> Array:
    """The coordinates of the first ``count`` elements that are true, in order. Rows past the last one are 0."""
    flat = np.reshape(mask, (-1,))
    places = np.argsort(np.where(flat, 0, 1), kind="stable")[:count]
    found = np.arange(count) < np.sum(np.where(flat, 1, 0))
    columns = [places // step % n for n, step in zip(mask.shape, strides(mask.shape), strict=True)]
    return np.where(found[:, None], np.stack(columns, 1), 0).astype(np.int64)


def where_true(g: Graph, mask: Node) -> Node:
    """The coordinates of the true elements of a mask: i64 ``[count, rank]``, with a dim for their number."""
    count = g.read_size(g.nonzero_count(mask), max=size(mask.shape))
    return g.add_node("true_positions", [mask], {"count": count})


def as_mask(g: Graph, x: Node) -> Node:
    """Returns whether each element is not 0."""
    return x if x.dtype is DType.BOOL else g.ne(x, g.constant(0, x.dtype))


def _nonzero(g: Graph, x: Node) -> Node:
    if not x.shape:
        raise ShapeError("[nonzero] of no axes", got=x.shape, expected="rank >= 1")
    return where_true(g, as_mask(g, x))


@composite(
    _nonzero,
    samples=lambda: (
        Sample(((7,),), low=-1, high=2),
        Sample(((3, 5),), low=-1, high=2),
        Sample(((2, 1, 4),), low=-1, high=2),
        Sample(((0, 3),)),
        Sample(((3,),), values=(np.array([0.0, -0.0, np.nan], np.float32),), dtypes=(DType.F32,)),
    ),
)
def nonzero(x: Array) -> Array:
    """The positions of the elements that are not 0, or are true, in order.

    The number of rows is known when the graph runs: ``g.dim(result, 0)`` is its value.

    Args:
        x: Any shape of rank >= 1.

    Returns:
        i64 ``[count, rank]``: the coordinates of an element in each row.
    """
    return np.argwhere(x)


def _compress(g: Graph, condition: Node, x: Node, axis: int | None) -> Node:
    if len(condition.shape) != 1:
        raise ShapeError("[compress] the condition", got=condition.shape, expected="one axis")
    if condition.dtype is not DType.BOOL:
        raise DTypeError("[compress] the condition", got=condition.dtype, expected="bool")
    flat = g.reshape(x, (size(x.shape),)) if axis is None else x
    axis = as_axis(axis or 0, len(flat.shape), where="compress")
    entries, conditions = flat.shape[axis], condition.shape[0]
    if conditions > entries:
        raise ShapeError(
            "[compress] the condition is longer than the axis",
            got=conditions,
            expected=f"at most {entries}",
        )
    positions = where_true(g, condition)
    return g.gather(flat, g.reshape(positions, positions.shape[:1]), axis)


@composite(
    _compress,
    free=("condition",),
    samples=lambda: (
        Sample(((5,), (5,)), {}, dtypes=(DType.BOOL, DType.F32)),
        Sample(((3,), (4, 2)), {"axis": 0}, dtypes=(DType.BOOL, DType.I64), low=-9, high=9),
        Sample(((4,), (2, 6)), {"axis": -1}, dtypes=(DType.BOOL, DType.F16)),
        Sample(((1,), (1,)), {}, dtypes=(DType.BOOL, DType.F32)),
        Sample(((0,), (3, 2)), {"axis": 1}, dtypes=(DType.BOOL, DType.F32)),
        Sample(((4,), (2, 3)), {}, dtypes=(DType.BOOL, DType.U8), low=0, high=9),
    ),
)
def compress(condition: Array, x: Array, axis: int | None = None) -> Array:
    """The entries of an axis for which a condition is true (NumPy's ``compress``).

    Args:
        condition: bool of one axis. Entries past its end are left out.
        x: Any shape.
        axis: The axis; None takes ``x`` as one row.
    """
    return np.compress(condition, x, axis)

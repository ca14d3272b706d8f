"""Entries that are repeated as often as numbers say."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Sample
from rlx.ir.shape import as_axis, same_size, size
from rlx.ops.declare import composite


def _repeat_interleave(g: Graph, x: Node, repeats: Node, axis: int | None, total: Any) -> Node:
    flat = g.reshape(x, (size(x.shape),)) if axis is None else x
    axis = as_axis(axis or 0, len(flat.shape), where="repeat_interleave")
    n = flat.shape[axis]
    if repeats.dtype not in (DType.I32, DType.I64):
        raise DTypeError("[repeat_interleave] repeats", got=repeats.dtype, expected="i32 or i64")
    if len(repeats.shape) > 1:
        raise ShapeError("[repeat_interleave] repeats", got=repeats.shape, expected="a number each")
    if same_size(n, 0):
        return flat
    counts = g.expand(g.cast(repeats, DType.I64), (n,))
    # A negative number makes the size negative, too: it is refused as it is read.
    least = g.minimum(g.min(g.concat([counts, g.constant(np.zeros(1, np.int64))], 0)), np.int64(0))
    wanted = g.where(g.lt(least, np.int64(0)), least, g.sum(counts))
    length = g.read_size(wanted, max=total)
    # The entry before a position is the number of the entries that end at or before it.
    ends = g.cumsum(counts, 0)
    marks = g.scatter_elements(
        g.expand(g.constant(np.int64(0)), (length + 1,)),
        ends,
        g.expand(g.constant(np.int64(1)), (n,)),
        0,
        "add",
    )
    return g.gather(flat, g.cumsum(g.narrow(marks, 0, 0, length), 0), axis)


@composite(
    _repeat_interleave,
    free=("repeats",),
    samples=lambda: (
        Sample(((4,), (4,)), {}, dtypes=(DType.F32, DType.I64), low=(-1, 0), high=(1, 4)),
        Sample(((2, 3), (3,)), {"axis": 1}, dtypes=(DType.I32, DType.I32), low=(-5, 0), high=(5, 3)),
        Sample(((2, 3), ()), {"axis": -2}, dtypes=(DType.F32, DType.I64), low=(-1, 2), high=(1, 3)),
        Sample(((3,), (3,)), {}, values=(np.ones(3, np.float32), np.zeros(3, np.int64)),
               dtypes=(DType.F32, DType.I64)),
        Sample(((0, 2), (0,)), {"axis": 0}, dtypes=(DType.F32, DType.I64)),
        Sample(((2, 2), (4,)), {}, dtypes=(DType.F16, DType.I64), low=(-1, 0), high=(1, 3)),
    ),
)  # fmt: skip
def repeat_interleave(
    x: Array, repeats: Array, axis: int | None = None, total: int | None = None
) -> Array:
    """Each entry of an axis as often as a number says, one after the other.

    Args:
        x: Any shape.
        repeats: i32 or i64: one number for all entries, or one for each.
        axis: The axis; None takes ``x`` as one row.
        total: The largest length of the result, a number or a size; None for no bound.

    Raises:
        SizesError: A run brings a negative number, or more than ``total`` entries.
    """
    return np.repeat(x, repeats, axis)

"""Different entries, with their places and numbers."""

from __future__ import annotations

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Sample
from rlx.ir.shape import as_axis, size
from rlx.ops.declare import FLOAT_KERNELS, composite
from rlx.ops.movement.creation import numbers_below
from rlx.ops.selection.positions import where_true
from rlx.sizes import SizeExpr

_NUMBERS = FLOAT_KERNELS | {DType.I32, DType.U32, DType.I64}


def _starts(g: Graph, ordered: Node) -> Node:
    """Returns whether each entry of sorted rows differs from the one before it."""
    places = numbers_below(g, ordered.shape[1])
    before = g.gather(ordered, g.maximum(g.sub(places, 1), 0), 1)
    differs = g.ne(ordered, before)
    if ordered.dtype.is_float:
        both = g.logical_and(g.is_nan(ordered), g.is_nan(before))
        differs = g.logical_and(differs, g.logical_not(both))
    return g.logical_or(differs, g.eq(places, 0))


def _ranks(g: Graph, keys: Node) -> tuple[Node, Node, Node]:
    """Returns, for each row, its order, the starts of equal entries in that, and the number of the value at each place."""
    ordered, order = g.topk(keys, keys.shape[1], 1, largest=False)
    starts = _starts(g, ordered)
    numbers = g.sub(g.cumsum(g.cast(starts, DType.I32), 1), 1)
    ranks = g.scatter_elements(g.expand(g.constant(0), keys.shape), order, numbers, 1)
    return order, starts, ranks


def _keys(g: Graph, x: Node) -> Node:
    """Rows as numbers that are equal and in order where the rows are: ranks of columns, two by two."""
    columns, n = x.shape
    if isinstance(columns, SizeExpr):
        raise ShapeError(
            "[unique] entries of unknown size", got=x.shape, expected="a known number of elements"
        )
    keys = x
    while columns > 1:
        ranks = g.cast(_ranks(g, keys)[2], DType.I64)
        if columns % 2:
            zeros = g.expand(g.constant(np.int64(0)), (1, n))
            ranks, columns = g.concat([ranks, zeros], 0), columns + 1
        pairs = g.reshape(ranks, (columns // 2, 2, n))
        high, low = (g.reshape(g.narrow(pairs, 1, i, 1), (columns // 2, n)) for i in (0, 1))
        rows = g.as_node(n, DType.I64, where="unique")
        keys, columns = g.add(g.mul(high, rows), low), columns // 2
    return keys


def _unique(g: Graph, x: Node, axis: int | None, sorted: bool) -> tuple[Node, ...]:
    flat = g.reshape(x, (size(x.shape),)) if axis is None else x
    axis = as_axis(axis or 0, len(flat.shape), where="unique")
    rest = [a for a in range(len(flat.shape)) if a != axis]
    n, columns = flat.shape[axis], size(tuple(flat.shape[a] for a in rest))
    moved = g.reshape(g.transpose(flat, (*rest, axis)), (columns, n))
    # Entries without elements are all equal.
    keys = _keys(g, moved) if columns else g.expand(g.constant(np.int64(0)), (1, n))
    order, starts, ranks = (g.reshape(part, (n,)) for part in _ranks(g, keys))
    places = where_true(g, starts)
    count = places.shape[0]
    places = g.reshape(places, (count,))
    first = g.cast(g.gather(order, places, 0), DType.I64)
    end = g.reshape(g.as_node(n, DType.I64, where="unique"), (1,))
    bounds = g.concat([places, end], 0)
    counts = g.sub(g.narrow(bounds, 0, 1, count), g.narrow(bounds, 0, 0, count))
    inverse = g.cast(ranks, DType.I64)
    if not sorted:
        _, by_place = g.topk(first, count, 0, largest=False)
        numbers = g.cast(numbers_below(g, count), DType.I64)
        renumbered = g.scatter_elements(numbers, by_place, numbers, 0)
        first, counts = g.gather(first, by_place, 0), g.gather(counts, by_place, 0)
        inverse = g.gather(renumbered, inverse, 0)
    return g.gather(flat, first, axis), first, inverse, counts


@composite(
    _unique,
    dtypes=_NUMBERS,
    samples=lambda: (
        Sample(((9,),), {}, low=-3, high=3, dtypes=(DType.I64,)),
        Sample(((3, 4),), {"sorted": False}, low=-3, high=3, dtypes=(DType.I32,)),
        Sample(((6, 2),), {"axis": 0}, low=0, high=2, dtypes=(DType.I64,)),
        Sample(((3, 7),), {"axis": 1, "sorted": False}, low=0, high=2, dtypes=(DType.I32,)),
        Sample(((0,),), {}, dtypes=(DType.F32,)),
        Sample(((1,),), {}, dtypes=(DType.F32,)),
        Sample(
            ((4,),), {}, values=(np.array([np.nan, 1, -0.0, 0], np.float32),), dtypes=(DType.F32,)
        ),
        Sample(((3, 0),), {"axis": 0}, dtypes=(DType.F32,)),
    ),
)
def unique(
    x: Array, axis: int | None = None, sorted: bool = True
) -> tuple[Array, Array, Array, Array]:
    """The different entries of an axis: values, first places, the number of each entry, and counts.

    All NaN are one value, and zeros of both signs are (NumPy's ``unique``).

    Args:
        x: Any shape.
        axis: The axis whose entries are compared; None compares elements.
        sorted: Whether they are sorted; otherwise they stand in the order of their first places.

    Returns:
        (values, indices, inverse, counts) with a dim for their number: values of x's dtype, the others i64. ``indices`` are
        the first places of values, ``inverse`` says for each entry which value it is.
    """
    array = x if axis is not None else x.reshape(-1)
    axis = axis or 0
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        values, first, counts = np.take(values, order, axis), first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return values, first, inverse, counts

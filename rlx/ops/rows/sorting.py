"""The first k entries of an axis in order, with their positions. Sorting takes all entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_axis, as_size, estimated, size
from rlx.ops.declare import FLOAT_KERNELS, composite, one_call, op
from rlx.sizes import SizeExpr, flag, hinted, is_steady, may_exceed, preferring

_NUMBERS = FLOAT_KERNELS | {DType.I32, DType.U32, DType.I64}
# Longest row that is sorted in workgroup memory. Longer rows are sorted in blocks of this length.
_BLOCK = 1024
# Largest k for selecting instead of sorting, in rows at least four times as long; entries that a workgroup looks at.
_FEW = 64
_PIECE = 2048
_WORKGROUP = 256


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    shape, k = types[0].shape, as_size(attrs["k"])
    if not shape or not 0 <= k <= shape[-1]:
        raise ShapeError("[ordered] k", got=f"{k} of {shape}", expected="0 to the last axis")
    attrs.update(k=k, largest=bool(attrs["largest"]))
    result = (*shape[:-1], k)
    return TensorType(result, types[0].dtype), TensorType(result, DType.I32)


def _geometry(node: Node) -> dict[str, int]:
    shape = node.inputs[0].shape
    return {"rows": size(shape[:-1]), "n": shape[-1], "k": node.attrs["k"],
            "largest": int(node.attrs["largest"])}  # fmt: skip


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    wide = node.inputs[0].dtype is DType.I64
    emit_ordered(emitter, emitter.operand(0), emitter.results(), _geometry(node), wide)


def emit_ordered(
    emitter: Emitter, x: Any, results: Sequence[Any], params: dict[str, int], wide: bool
) -> None:
    """The WebGPU kernels of the first entries of rows in order.

    Args:
        emitter: Takes the calls.
        x: The rows.
        results: The values, and their places.
        params: ``rows``, ``n``, ``k`` and whether the ``largest`` come first.
        wide: Whether keys are two words.
    """
    rows, k, n = params["rows"], params["k"], params["n"]
    # The selecting kernel does not hold keys of two words.
    if not wide and not may_exceed(k, _FEW) and _is_long(n, k):
        _select(emitter, x, results, params)
        return
    top, m = padded_length(n)
    params.update(m=m, wide=wide)
    if top <= _BLOCK and not isinstance(m, SizeExpr):
        emitter.call("sort_rows", [x], results, params, rows)
        return
    pairs = emitter.temp(TensorType((rows * m, 4 if wide else 2), DType.U32))
    emitter.call("sort_keys", [x], [pairs], params, math.ceil(rows * m / _WORKGROUP))

    def block(first: int, last: int) -> None:
        steps = {"first": first, "last": last, "m": m, "wide": wide}
        groups = rows * m // _BLOCK * flag(m - last + 1)
        emitter.call("sort_block", [], [pairs], steps, groups)

    block(2, _BLOCK)
    length = 2 * _BLOCK
    while length <= top:
        stride = length // 2
        while stride >= _BLOCK:
            step = {"size": length, "stride": stride, "rows": rows, "m": m, "wide": wide}
            groups = math.ceil(rows * m / 2 / _WORKGROUP) * flag(m - length + 1)
            emitter.call("sort_step", [], [pairs], step, groups)
            stride //= 2
        block(length, length)
        length *= 2
    emitter.call("sort_take", [x, pairs], results, params, math.ceil(rows * k / _WORKGROUP))


def _is_long(n: Any, k: Any) -> bool:
    with preferring():
        return bool(4 * k <= n)


def padded_length(n: Any) -> tuple[int, Any]:
    """Returns the longest row that calls are made for, and the length that rows are padded to: powers of two."""
    if not isinstance(n, SizeExpr) or not is_steady():
        m = max(2, 1 << (n - 1).bit_length())
        return m, m
    top = _longest(n)
    steps = range(_BLOCK.bit_length() - 1, top.bit_length() - 1)
    return top, _BLOCK + sum(flag(n - (1 << step)) * (1 << step) for step in steps)


def _longest(n: Any) -> int:
    """The longest row that the calls for a row are right for."""
    if not isinstance(n, SizeExpr) or not is_steady():
        return int(hinted(n))
    top = 1 << int(16 * max(hinted(n), _BLOCK) - 1).bit_length()
    assert n <= top  # other calls are made for longer rows
    return top


def _select(emitter: Emitter, x: Any, results: Sequence[Any], params: dict[str, int]) -> None:
    """The firsts of pieces of the rows, then the firsts of those, until one piece is left."""
    rows, count, k = params["rows"], params["n"], params["k"]
    read, longest = [x], _longest(count)
    while True:
        pieces = math.ceil(count / _PIECE)
        last = longest <= _PIECE if is_steady() else pieces == 1
        result = list(results)
        if not last:
            result = [emitter.temp(TensorType((rows * pieces * k, 2), DType.U32))]
        piece = min(_PIECE, longest if is_steady() else count)
        more = {"piece": piece, "pieces": pieces, "count": count, "last": int(last)}
        first = {"first": int(len(read) == 1)}
        emitter.call("select_rows", read, result, {**params, **more, **first}, rows * pieces)
        if last:
            return
        read, count, longest = [x, *result], pieces * k, math.ceil(longest / _PIECE) * _FEW


SORT_KERNELS = ("select_rows", "sort_rows", "sort_keys", "sort_block", "sort_step", "sort_take")


def _order(x: Array, largest: bool) -> Array:
    """Positions along the last axis in order: ties to the lower one, NaN last."""
    if not largest:
        return np.argsort(x, axis=-1, kind="stable")
    # Sorting the reversed row upwards and reading it backwards keeps ties in their order.
    up = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    down = x.shape[-1] - 1 - up[..., ::-1]
    nan = np.take_along_axis(
        np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool), down, -1
    )
    return np.take_along_axis(down, np.argsort(nan, axis=-1, kind="stable"), -1)


@op(
    infer=_infer,
    flops=lambda node: (
        size(node.inputs[0].shape) * max(1.0, math.log2(max(2, estimated(node.inputs[0].shape[-1]))))
    ),
    cpu=one_call("topk", _geometry),
    webgpu=Kernels(SORT_KERNELS, _lower_webgpu),
    dtypes=_NUMBERS,
    webgpu_dtypes=frozenset({DType.F32, DType.I32, DType.U32, DType.I64}),
    internal=True,
    samples=lambda: (
        *(
            Sample((shape,), {"k": k, "largest": largest}, low=-9, high=9)
            for largest in (True, False)
            for shape, k in (((3, 5), 2), ((3, 5), 5), ((1,), 1), ((2, 70), 7), ((0, 4), 2),
                             ((2, 0), 0), ((2, 1500), 1500), ((3, 3000), 10), ((2, 300), 64),
                             ((1, 140000), 64))
        ),
        # Many ties, across the borders of the pieces that workgroups look at.
        Sample(((1, 5000),), {"k": 9, "largest": True},
               values=((np.arange(5000) % 1999 // 990).astype(np.float32)[None],)),
    ),
)  # fmt: skip
def ordered(x: Array, k: int, largest: bool) -> Any:
    """The k first of the last axis in order, and their positions in i32."""
    pos = _order(x, largest)[..., :k]
    return np.take_along_axis(x, pos, -1), pos


def _along_last(g: Graph, x: Node, axis: int, k: int, largest: bool) -> tuple[Node, Node]:
    rank = len(x.shape)
    axis = as_axis(axis, rank, where="topk")
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError("[topk] k is not in the axis", got=k, expected=f"0 to {x.shape[axis]}")
    order = [a for a in range(rank) if a != axis] + [axis]
    moved = x if axis == rank - 1 else g.transpose(x, order)
    node = g.add_node("ordered", [moved], {"k": k, "largest": largest})
    both = [g.add_node(PART, [node], {"index": value}) for value in (0, 1)]
    back = [order.index(a) for a in range(rank)]
    values, indices = (p if axis == rank - 1 else g.transpose(p, back) for p in both)
    return values, indices


def _expand_sort(part: int, g: Graph, x: Node, axis: int, descending: bool) -> Node:
    n = x.shape[as_axis(axis, len(x.shape), where="sort")]
    return _along_last(g, x, axis, n, descending)[part]


_SHAPES = (((3, 5), -1), ((4, 3), 0), ((1,), 0), ((2, 70, 2), 1), ((0, 4), 1))


@composite(
    _along_last,
    dtypes=_NUMBERS,
    samples=lambda: tuple(
        Sample(
            (shape,), {"k": min(2, shape[axis]), "axis": axis, "largest": largest}, low=-3, high=3
        )
        for largest in (True, False)
        for shape, axis in _SHAPES
    ),
)
def topk(x: Array, k: int, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """The k largest (or smallest) entries along ``axis`` in order, and their positions.

    Args:
        x: Any shape of rank >= 1.
        k: How many, at most the length of the axis.
        axis: The axis that is searched.
        largest: False takes the smallest.

    Returns:
        (values, indices): of x's dtype and i32, with k entries along ``axis``. Ties go to the lower
        index; NaN comes last.
    """
    moved = np.moveaxis(x, axis, -1)
    pos = _order(moved, largest)[..., :k]
    return np.moveaxis(np.take_along_axis(moved, pos, -1), -1, axis), np.moveaxis(pos, -1, axis)


def _sort_samples() -> tuple[Sample, ...]:
    return tuple(
        Sample((shape,), {"axis": axis, "descending": descending}, low=-3, high=3)
        for descending in (False, True)
        for shape, axis in _SHAPES
    )


@composite(partial(_expand_sort, 0), dtypes=_NUMBERS, samples=lambda: _sort_samples())
def sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """``x`` in order along ``axis``; NaN comes last either way."""
    moved = np.moveaxis(x, axis, -1)
    return np.moveaxis(np.take_along_axis(moved, _order(moved, descending), -1), -1, axis)


@composite(partial(_expand_sort, 1), dtypes=_NUMBERS, samples=lambda: _sort_samples())
def argsort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    """Positions, in i32, that put ``x`` in order along ``axis``; equal entries keep their order."""
    return np.moveaxis(_order(np.moveaxis(x, axis, -1), descending), -1, axis)

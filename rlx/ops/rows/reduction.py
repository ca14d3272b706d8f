"""Reductions over any axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Axes, Emitter, Kernels, OpDef, Sample, TensorType
from rlx.ir.shape import Shape, as_axes, as_axis, size, strides
from rlx.ops.declare import FLOAT_KERNELS, composite, op
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.rows.cumulate import emit_cumulate
from rlx.ops.rows.reduce_rows import (
    CUT,
    JOINED,
    OF_EACH,
    Reduction,
    as_rows,
    emit_groups,
    emit_pieces,
    emit_reduce,
)


def _infer_reduction(
    name: str, empty: bool, types: Sequence[TensorType], attrs: dict[str, Any]
) -> TensorType:
    shape = types[0].shape
    axes = as_axes(attrs["axes"], len(shape), where=name)
    if not empty and any(shape[axis] == 0 for axis in axes):
        raise ShapeError(f"[{name}] of no elements", got=f"{shape} over axes {axes}")
    attrs["axes"] = axes
    if attrs["keepdims"]:
        return TensorType(tuple(1 if a in axes else d for a, d in enumerate(shape)), types[0].dtype)
    return TensorType(tuple(d for a, d in enumerate(shape) if a not in axes), types[0].dtype)


def _lower_cpu(kind: str, node: Node, emitter: Emitter) -> None:
    x = node.inputs[0]
    source, axes = emitter.operand(0), node.attrs["axes"]
    rows = as_rows(x.shape, axes)
    if rows is None and kind not in CUT:
        source, rows = _moved(node, emitter)
    if rows is not None:
        emit_pieces(emitter, kind, source, emitter.result(), rows, x.dtype)
        return
    emit_groups(emitter, kind, source, emitter.result(), x.type, axes)


def _moved(node: Node, emitter: Emitter) -> tuple[Any, tuple[int, int, int]]:
    """A copy of the operand with the reduced axes at the end, and its rows."""
    x, axes = node.inputs[0], node.attrs["axes"]
    order = [a for a in range(len(x.shape)) if a not in axes] + list(axes)
    shape = tuple(x.shape[a] for a in order)
    steps, copied = strides(x.shape), emitter.temp(TensorType(shape, x.dtype))
    sources = [steps[a] for a in order]
    emit_strided_copy(emitter, emitter.operand(0), copied, x.dtype, shape, sources, strides(shape))
    return copied, (size(node.shape), size(tuple(x.shape[a] for a in axes)), 1)


def _lower_webgpu(kind: str, node: Node, emitter: Emitter) -> None:
    x = node.inputs[0]
    source, rows = emitter.operand(0), as_rows(x.shape, node.attrs["axes"])
    if rows is None:
        source, rows = _moved(node, emitter)
    if kind in OF_EACH:
        mapped = emitter.temp(TensorType(rows, x.dtype))
        emitter.elementwise(((*OF_EACH[kind], x.dtype, None),), [source], mapped, (rows,))
        source = mapped
    emit_reduce(emitter, JOINED.get(kind, kind), source, emitter.result(), rows, x.dtype)


_SHAPES: tuple[tuple[Shape, Any, bool], ...] = (
    ((3, 5), None, False),
    ((3, 5), (0,), False),
    ((3, 300), (-1,), True),
    ((2, 3, 4, 5), (1, 3), False),
    ((2, 1, 4), (0, 2), True),
    ((1,), (0,), False),
    ((2, 2, 600), (2,), False),
    ((3, 40, 70), (1,), False),
    ((2, 700, 9), (1,), False),
    ((9000, 3), (0,), False),
    ((300, 7), (1,), False),
    ((70, 132), (1,), False),
    ((2, 40000), (1,), False),
    ((1, 30001), (1,), True),
    ((1500, 64), (0,), False),
    ((2, 1100, 33), (1,), False),
    ((3, 5, 400), (1,), False),
    ((9, 5, 2, 33), (0, 2, 3), True),
    ((3, 70, 5, 4, 7), (0, 2, 4), False),
)


def _samples(empty: bool) -> tuple[Sample, ...]:
    samples = [Sample((s,), {"axes": a, "keepdims": k}) for s, a, k in _SHAPES]
    samples.append(Sample(((0, 4),), {"axes": (1,), "keepdims": False}))
    if empty:
        samples.append(Sample(((4, 0),), {"axes": (1,), "keepdims": False}))
    samples.append(Sample(((512, 1024),), {"axes": (1,), "keepdims": False}, bench=True))
    return tuple(samples)


def _reduction(kind: str, empty: bool, **fields: Any) -> Callable[[Any], OpDef]:
    return op(
        infer=partial(_infer_reduction, kind, empty),
        flops=lambda node: size(node.inputs[0].shape),
        cpu=Kernels((f"reduce_{kind}", "reduce_sum", "strided_copy"), partial(_lower_cpu, kind)),
        webgpu=Kernels(("reduce", "reduce_tiles", "strided_copy"), partial(_lower_webgpu, kind)),
        samples=lambda: _samples(empty),
        **fields,
    )


_NUMBERS = FLOAT_KERNELS | {DType.I32, DType.U32, DType.I64}


@_reduction("sum", empty=True, dtypes=_NUMBERS)
def sum(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Sum over ``axes`` (all of them by default), in the operand's dtype; integers wrap."""
    return np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


@_reduction("mean", empty=True, dtypes=FLOAT_KERNELS)
def mean(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Mean over ``axes`` (all of them by default); NaN over no elements."""
    return np.sum(x, axis=axes, keepdims=keepdims) / np.prod([x.shape[a] for a in axes])


@_reduction("max", empty=False, dtypes=_NUMBERS)
def max(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Largest element over ``axes`` (all of them by default); NaN where there is one."""
    return np.max(x, axis=axes, keepdims=keepdims)


@_reduction("min", empty=False, dtypes=_NUMBERS)
def min(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Smallest element over ``axes`` (all of them by default); NaN where there is one."""
    return np.min(x, axis=axes, keepdims=keepdims)


@_reduction("prod", empty=True, dtypes=_NUMBERS)
def prod(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Product over ``axes`` (all of them by default), in the operand's dtype; integers wrap."""
    return np.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


# --- reductions that others express ------------------------------------------------------------------


@_reduction("sum_squares", empty=True, internal=True, dtypes=FLOAT_KERNELS)
def sum_squares(x: Array, axes: Any = None, keepdims: bool = False) -> Array:
    """Sum of squares over ``axes`` (all of them by default)."""
    return np.sum(x * x, axis=axes, keepdims=keepdims)


@_reduction("sum_abs", empty=True, internal=True, dtypes=FLOAT_KERNELS)
def sum_abs(x: Array, axes: Any = None, keepdims: bool = False) -> Array:
    """Sum of absolute values over ``axes`` (all of them by default)."""
    return np.sum(np.abs(x), axis=axes, keepdims=keepdims)


def _composed(expand: Callable[..., Node], **fields: Any) -> Callable[[Any], OpDef]:
    return composite(expand, dtypes=FLOAT_KERNELS, samples=lambda: _samples(empty=False), **fields)


def _axes(axes: Any, rank: int) -> Any:
    """NumPy's form of an axes argument."""
    return as_axes(axes, rank, where="reduce")


def _logsumexp(g: Graph, x: Node, axes: Any, keepdims: bool) -> Node:
    top = g.max(x, axes, True)
    # An infinite maximum stays out of the exponent: inf - inf has no value.
    shift = g.where(g.is_inf(top), 0.0, top)
    total = g.add(g.log(g.sum(g.exp(g.sub(x, shift)), axes, True)), shift)
    if keepdims:
        return total
    result = as_axes(axes, len(x.shape), where="logsumexp")
    return g.reshape(total, [d for a, d in enumerate(x.shape) if a not in result])


@_composed(_logsumexp, tolerance={DType.F32: 1e-5})
def logsumexp(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over ``axes`` (all of them by default), without overflow."""
    axes = _axes(axes, x.ndim)
    top = np.max(x, axis=axes, keepdims=True)
    shift = np.where(np.isinf(top), 0, top)
    total = np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift
    return total if keepdims else np.squeeze(total, axes)


@_composed(lambda g, x, axes, keepdims: g.sum(g.abs(x), axes, keepdims))
def l1(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Sum of absolute values over ``axes`` (all of them by default)."""
    return np.sum(np.abs(x), axis=_axes(axes, x.ndim), keepdims=keepdims)


@_composed(lambda g, x, axes, keepdims: g.sqrt(g.sum(g.mul(x, x), axes, keepdims)))
def l2(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Square root of the sum of squares over ``axes`` (all of them by default)."""
    return np.sqrt(np.sum(x * x, axis=_axes(axes, x.ndim), keepdims=keepdims))


def _nonzero_count(g: Graph, x: Node, axes: Any, keepdims: bool) -> Node:
    there = x if x.dtype is DType.BOOL else g.ne(x, g.constant(0, x.dtype))
    return g.sum(g.cast(there, DType.I32), axes, keepdims)


@composite(
    _nonzero_count,
    dtypes=_NUMBERS | {DType.BOOL},
    samples=lambda: tuple(
        Sample((shape,), {"axes": axes, "keepdims": keep}, low=-1, high=2)
        for shape, axes, keep in (((3, 5), None, False), ((3, 5), (1,), True), ((0, 4), 0, False),
                                  ((1,), None, False))
    ),
)  # fmt: skip
def nonzero_count(x: Array, axes: Axes = None, keepdims: bool = False) -> Array:
    """Counts the elements that are not 0 (or are true) over ``axes`` (all of them by default), in i32."""
    return np.sum(x != 0, axis=_axes(axes, x.ndim), keepdims=keepdims)


# --- positions and running totals ------------------------------------------------------------------


def _infer_arg(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    axis = as_axis(attrs["axis"], len(shape), where="argmax")
    if shape[axis] == 0:
        raise ShapeError("[argmax] of no elements", got=f"{shape} over axis {axis}")
    attrs["axis"] = axis
    middle = (1,) if attrs["keepdims"] else ()
    return TensorType((*shape[:axis], *middle, *shape[axis + 1 :]), DType.I32)


# WebGPU searches a longer line in partitions of so many elements, then the places that these give.
_PARTITION = 1 << 16


def _lower_arg(node: Node, emitter: Emitter, *, largest: bool, webgpu: bool) -> None:
    outer, n, inner = _line(node.inputs[0].shape, node.attrs["axis"])
    x, result = emitter.operand(0), emitter.result()
    params = {"outer": outer, "n": n, "inner": inner, "largest": int(largest)}
    params["last"] = int(node.attrs["select_last"])
    if not webgpu or n <= 4 * _PARTITION:
        emitter.call("arg_reduce", [x], [result], params, outer * inner)
        return
    splits = math.ceil(n / _PARTITION)
    places = emitter.temp(TensorType((outer, inner, splits), DType.I32))
    params |= {"splits": splits, "partition": _PARTITION}
    work = outer * inner * splits
    emitter.call("arg_reduce", [x], [places], {**params, "listed": False}, work, unit=splits)
    emitter.call("arg_reduce", [x, places], [result], {**params, "listed": True}, outer * inner)


def _line(shape: Shape, axis: int) -> tuple[int, int, int]:
    """(outer, n, inner) of one axis."""
    return size(shape[:axis]), shape[axis], size(shape[axis + 1 :])


def _arg(largest: bool) -> Callable[[Any], OpDef]:
    shapes = (((3, 5), 1), ((3, 5), 0), ((2, 300, 3), 1), ((1,), 0), ((0, 4), 1), ((2, 700), -1),
              ((270001, 2), 0))  # fmt: skip
    attrs: tuple[dict[str, Any], ...] = ({}, {"keepdims": True}, {"select_last": True})
    return op(
        infer=_infer_arg,
        flops=lambda node: size(node.inputs[0].shape),
        cpu=Kernels(("arg_reduce",), partial(_lower_arg, largest=largest, webgpu=False)),
        webgpu=Kernels(("arg_reduce",), partial(_lower_arg, largest=largest, webgpu=True)),
        dtypes=_NUMBERS,
        # Small whole numbers, so that there are ties.
        samples=lambda: tuple(
            Sample((shape,), {"axis": axis, **a}, (dtype,), low=-3, high=3)
            for a in attrs
            for shape, axis in shapes
            for dtype in (DType.F32, DType.I32, DType.U8, DType.F64, DType.I64)
        ),
    )


def _argument(function: Any, x: Array, axis: int, keepdims: bool, select_last: bool) -> Array:
    if not select_last:
        return function(x, axis=axis, keepdims=keepdims)
    return x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=keepdims)


@_arg(largest=True)
def argmax(x: Array, axis: int, keepdims: bool = False, select_last: bool = False) -> Array:
    """Position of the largest element along ``axis``, in i32; the first NaN where there is one.

    Args:
        x: Any shape of rank >= 1.
        axis: The axis that is searched.
        keepdims: Keep the axis, with size 1.
        select_last: Of equal elements take the last instead of the first.
    """
    return _argument(np.argmax, x, axis, keepdims, select_last)


@_arg(largest=False)
def argmin(x: Array, axis: int, keepdims: bool = False, select_last: bool = False) -> Array:
    """Position of the smallest element along ``axis``; otherwise as ``argmax``."""
    return _argument(np.argmin, x, axis, keepdims, select_last)


def _infer_cumulation(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    attrs["axis"] = as_axis(attrs["axis"], len(types[0].shape), where="cumsum")
    return types[0]


def _lower_cumulation(node: Node, emitter: Emitter, *, product: bool, webgpu: bool) -> None:
    outer, n, inner = _line(node.shape, node.attrs["axis"])
    flags = {name: int(node.attrs[name]) for name in ("exclusive", "reverse")}
    more = {"product": int(product), **flags}
    source, result = emitter.operand(0), emitter.result()
    if webgpu:
        rows = Reduction(outer, n, inner, node.dtype is DType.I64)
        emit_cumulate(emitter, source, result, rows, more, node.dtype)
        return
    emitter.call("cumulate", [source], [result], {"outer": outer, "n": n, "inner": inner, **more})


def _cumulation(product: bool, low: float, high: float) -> Callable[[Any], OpDef]:
    tiles = ("cumulate", "cumulate_rows", "cumulate_columns", "reduce_tiles")
    longer: tuple[Shape, ...] = ((0, 4), (2, 1100), (2, 9004), (2, 2051), (3, 70, 12), (1, 200, 7))
    shapes = (((3, 5), 1), ((3, 70), -1), ((2, 9, 3), 1), ((1,), 0), *((s, 1) for s in longer))
    return op(
        infer=_infer_cumulation,
        flops=lambda node: size(node.shape),
        cpu=Kernels(("cumulate",), partial(_lower_cumulation, product=product, webgpu=False)),
        webgpu=Kernels(tiles, partial(_lower_cumulation, product=product, webgpu=True)),
        dtypes=_NUMBERS,
        tolerance={DType.F32: 1e-5},  # sums on the GPU are carried in f32
        samples=lambda: (
            *(
                Sample((s,), {"axis": a, "exclusive": e, "reverse": r}, low=low, high=high)
                for e in (False, True)
                for r in (False, True)
                for s, a in shapes
            ),
            Sample(((256, 1024),), {"axis": 1}, low=low, high=high, bench=True),
        ),
    )


def _cumulated(
    function: Any, x: Array, axis: int, exclusive: bool, reverse: bool, start: int
) -> Array:
    y = np.flip(x, axis) if reverse else x
    y = function(y, axis=axis, dtype=x.dtype)
    if exclusive:
        first = np.full_like(np.take(y, [0] if y.shape[axis] else [], axis), start)
        y = np.concatenate([first, np.delete(y, -1, axis)], axis) if y.shape[axis] else y
    return np.flip(y, axis) if reverse else y


@_cumulation(product=False, low=-2, high=2)
def cumsum(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Running sum along ``axis``.

    Args:
        x: Any shape of rank >= 1; integers wrap.
        axis: The axis that is summed along.
        exclusive: Leave an element out of its own sum.
        reverse: Start from the end.
    """
    return _cumulated(np.cumsum, x, axis, exclusive, reverse, 0)


@_cumulation(product=True, low=0.9, high=1.1)
def cumprod(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Running product along ``axis``; otherwise as ``cumsum``."""
    return _cumulated(np.cumprod, x, axis, exclusive, reverse, 1)

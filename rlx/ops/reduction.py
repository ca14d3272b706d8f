"""Reductions over any axes, and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, Sample, TensorType
from rlx.ir.shape import Shape, as_axes, as_axis, size, strides
from rlx.ops.movement import emit_strided_copy
from rlx.ops.record import FLOAT_KERNELS, WEBGPU_FLOATS, op


def as_rows(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """``(outer, n, inner)`` when the axes stand side by side (axes of size 1 aside), else None."""
    live = [axis for axis in range(len(shape)) if shape[axis] != 1]
    reduced = [axis for axis in live if axis in axes]
    if not reduced:
        return size(shape), 1, 1
    first, last = reduced[0], reduced[-1]
    if any(first < axis < last and axis not in axes for axis in live):
        return None
    return size(shape[:first]), size(shape[first : last + 1]), size(shape[last + 1 :])


def _infer_reduction(name: str, empty: bool) -> Callable[..., TensorType]:
    def infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
        shape = types[0].shape
        axes = as_axes(attrs["axes"], len(shape), where=name)
        if not empty and any(shape[axis] == 0 for axis in axes):
            raise ShapeError(describe(f"[{name}] of no elements", got=f"{shape} over axes {axes}"))
        attrs["axes"] = axes
        if attrs["keepdims"]:
            return TensorType(
                tuple(1 if a in axes else d for a, d in enumerate(shape)), types[0].dtype
            )
        return TensorType(tuple(d for a, d in enumerate(shape) if a not in axes), types[0].dtype)

    return infer


def _lower_reduction(kind: str, webgpu: bool) -> Callable[[Node, Emitter], None]:
    def lower(node: Node, emitter: Emitter) -> None:
        x = node.inputs[0]
        source, axes = emitter.operand(0), node.attrs["axes"]
        rows = as_rows(x.shape, axes)
        if rows is None:
            # The reduced axes are moved to the end first.
            order = [a for a in range(len(x.shape)) if a not in axes] + list(axes)
            moved = tuple(x.shape[a] for a in order)
            steps = strides(x.shape)
            source = emitter.temp(TensorType(moved, x.dtype))
            emit_strided_copy(
                emitter,
                emitter.operand(0),
                source,
                x.dtype,
                moved,
                [steps[a] for a in order],
                strides(moved),
            )
            rows = size(node.shape), size(tuple(x.shape[a] for a in axes)), 1
        outer, n, inner = rows
        if outer * inner == 0:
            return
        params: dict[str, Any] = {"outer": outer, "n": n, "inner": inner}
        if webgpu:
            emitter.call(
                "reduce", [source], [emitter.result()], {**params, "kind": kind}, outer * inner
            )
        else:
            emitter.call(f"reduce_{kind}", [source], [emitter.result()], params)

    return lower


_SHAPES: tuple[tuple[Shape, Any, bool], ...] = (
    ((3, 5), None, False),
    ((3, 5), (0,), False),
    ((3, 300), (-1,), True),
    ((2, 3, 4, 5), (1, 3), False),
    ((2, 1, 4), (0, 2), True),
    ((1,), (0,), False),
    ((2, 2, 600), (2,), False),
)


def _reduction(kind: str, empty: bool, **fields: Any) -> Callable[[Any], OpDef]:
    samples = [Sample((s,), {"axes": a, "keepdims": k}) for s, a, k in _SHAPES]
    samples.append(Sample(((0, 4),), {"axes": (1,), "keepdims": False}))
    if empty:
        samples.append(Sample(((4, 0),), {"axes": (1,), "keepdims": False}))
    samples.append(Sample(((512, 1024),), {"axes": (1,), "keepdims": False}, bench=True))
    return op(
        infer=_infer_reduction(kind, empty),
        flops=lambda node: size(node.inputs[0].shape),
        cpu=Kernels((f"reduce_{kind}", "strided_copy"), _lower_reduction(kind, webgpu=False)),
        webgpu=Kernels(("reduce", "strided_copy"), _lower_reduction(kind, webgpu=True)),
        samples=tuple(samples),
        **fields,
    )


_NUMBERS = FLOAT_KERNELS | {DType.I32, DType.U32, DType.I64}
_WEBGPU_NUMBERS = frozenset({DType.F32, DType.I32, DType.U32})


@_reduction("sum", empty=True, dtypes=_NUMBERS, webgpu_dtypes=_WEBGPU_NUMBERS)
def sum(x: Array, axes: Any = None, keepdims: bool = False) -> Array:
    """Sum over ``axes`` (all of them by default), in the operand's dtype; integers wrap."""
    return np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


@_reduction("mean", empty=True, dtypes=FLOAT_KERNELS, webgpu_dtypes=WEBGPU_FLOATS)
def mean(x: Array, axes: Any = None, keepdims: bool = False) -> Array:
    """Mean over ``axes`` (all of them by default); NaN over no elements."""
    return np.sum(x, axis=axes, keepdims=keepdims) / np.prod([x.shape[a] for a in axes])


@_reduction("max", empty=False, dtypes=_NUMBERS, webgpu_dtypes=_WEBGPU_NUMBERS)
def max(x: Array, axes: Any = None, keepdims: bool = False) -> Array:
    """Largest element over ``axes`` (all of them by default); NaN where there is one."""
    return np.max(x, axis=axes, keepdims=keepdims)


def _infer_softmax(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    attrs["axis"] = as_axis(attrs["axis"], len(types[0].shape), where="softmax")
    return types[0]


def _lower_softmax(node: Node, emitter: Emitter) -> None:
    rows = as_rows(node.shape, (node.attrs["axis"],))
    assert rows is not None, "one axis is always side by side with itself"
    outer, n, inner = rows
    if size(node.shape):
        emitter.call(
            "softmax",
            [emitter.operand(0)],
            [emitter.result()],
            {"outer": outer, "n": n, "inner": inner},
            outer * inner,
        )


@op(
    infer=_infer_softmax,
    flops=lambda node: 12.0 * size(node.shape),
    cpu=Kernels(("softmax",), _lower_softmax),
    webgpu=Kernels(("softmax",), _lower_softmax),
    dtypes=FLOAT_KERNELS,
    webgpu_dtypes=WEBGPU_FLOATS,
    tolerance={DType.F32: 5e-6},  # the GPU's exp is 3 + 2|x| ULP
    samples=(
        Sample(((4, 8),)),
        Sample(((1, 1),)),
        Sample(((0, 8),)),
        Sample(((2, 3, 5),), {"axis": 1}),
        Sample(((3, 1000),), low=-30, high=30),
        Sample(((2, 7),), low=1e4, high=1.1e4),
        Sample(((128, 2048),), bench=True),
    ),
)
def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x - max) / sum along ``axis``; a row of all -inf gives NaN, as in NumPy."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis=axis, keepdims=True)

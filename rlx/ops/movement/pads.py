"""Borders around tensors: of one value, or of elements that are repeated. The builder is ``pad`` of layout.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.movement import PADS
from rlx.errors import ShapeError
from rlx.ir.dtype import ALL, DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import Shape, is_size, is_sized, size, strides
from rlx.ops.declare import op
from rlx.ops.movement.strided import emit_strided_copy

_WORKGROUP = 256


def _padded_shape(shape: Shape, pads: Any) -> Shape:
    """The shape of a tensor with so many entries more before and after each axis."""
    fits = isinstance(pads, tuple) and len(pads) == len(shape) > 0
    counts = fits and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pads)
    if not counts or not all(is_size(n) for pair in pads for n in pair):
        raise ShapeError("[pad] one (before, after) pair per axis", got=pads, expected=len(shape))
    if any(n < 0 for pair in pads for n in pair):
        raise ShapeError("[pad] counts", got=pads, expected="none below 0")
    return tuple(before + n + after for n, (before, after) in zip(shape, pads, strict=True))


def _infer_pad(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    if types[1].shape != ():
        raise ShapeError("[pad] one value", got=types[1].shape, expected="a scalar")
    return TensorType(_padded_shape(types[0].shape, attrs["pads"]), types[0].dtype)


def _lower_pad(node: Node, emitter: Emitter) -> None:
    # Axes that are not padded are parts of the axis before.
    axes: list[tuple[int, int, int]] = []
    shape = node.inputs[0].shape
    for dim, n, (before, after) in zip(node.shape, shape, node.attrs["pads"], strict=True):
        if axes and not is_sized((before, after)) and before == after == 0:
            axes[-1] = (axes[-1][0] * dim, axes[-1][1] * n, axes[-1][2] * n)
        else:
            axes.append((dim, n, before))
    dims, inside, starts = zip(*axes, strict=True)
    params = {"rank": len(axes), "dims": dims, "inside": inside, "before": starts}
    emitter.call("pad", [emitter.operand(0), emitter.operand(1)], [emitter.result()], params)


def _lower_pad_webgpu(node: Node, emitter: Emitter) -> None:
    """The value everywhere, then the operand over it."""
    shape, steps = node.inputs[0].shape, strides(node.shape)
    pos = sum(before * step for (before, _), step in zip(node.attrs["pads"], steps, strict=True))
    value, x, y = emitter.operand(1), emitter.operand(0), emitter.result()
    emit_strided_copy(emitter, value, y, node.dtype, node.shape, (0,) * len(steps), steps)
    emit_strided_copy(emitter, x, y, node.dtype, shape, strides(shape), steps, target_offset=pos)


@op(
    internal=True,
    infer=_infer_pad,
    cpu=Kernels(("pad",), _lower_pad),
    webgpu=Kernels(("strided_copy", "strided_copy_narrow"), _lower_pad_webgpu),
    webgpu_dtypes=ALL,
    samples=lambda: (
        Sample(((2, 3), ()), {"pads": ((1, 2), (0, 3))}),
        Sample(((1, 1), ()), {"pads": ((0, 0), (0, 0))}),
        Sample(((0, 2), ()), {"pads": ((1, 1), (0, 1))}),
        Sample(((2, 0), ()), {"pads": ((0, 0), (2, 1))}),
        Sample(((2, 3, 5, 4), ()), {"pads": ((0, 0), (1, 0), (2, 1), (3, 2))}),
        Sample(((2, 3, 5, 4), ()), {"pads": ((1, 2), (0, 0), (2, 1), (0, 0))}),
    ),
)
def pad_constant(x: Array, value: Array, pads: Any) -> Array:
    """``x`` of rank >= 1 with a scalar around it; one (before, after) pair per axis, none negative."""
    y = np.full([sum(pair) + n for n, pair in zip(x.shape, pads, strict=True)], value, x.dtype)
    inside = tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, pads, strict=True))
    y[inside] = x
    return y


def _infer_pad_repeat(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape, pads = types[0].shape, attrs["pads"]
    result = _padded_shape(shape, pads)
    empty = [axis for axis, pair in enumerate(pads) if shape[axis] == 0 and any(pair)]
    if attrs["mode"] not in PADS or empty:
        raise ShapeError(
            "[pad_repeat] a mode, and no empty axis", got=f"{attrs['mode']}, {shape}, {pads}"
        )
    return TensorType(result, types[0].dtype)


def _lower_pad_repeat(node: Node, emitter: Emitter) -> None:
    shape, pads = node.inputs[0].shape, node.attrs["pads"]
    # The axes after the last padded axis are moved as a unit; of axes before it those without borders join.
    last = max((axis for axis, pair in enumerate(pads) if any(pair)), default=0)
    axes: list[tuple[int, int, int]] = []
    for dim, n, (before, after) in zip(node.shape, shape, pads[: last + 1], strict=False):
        plain = before == after == 0
        if plain and axes and axes[-1][0] == axes[-1][1]:
            axes[-1] = (axes[-1][0] * dim, axes[-1][1] * n, 0)
        else:
            axes.append((dim, n, before))
    dims, inside, starts = zip(*axes, strict=True)
    unit = size(shape[last + 1 :])
    emitter.call(
        "pad_repeat",
        [emitter.operand(0)],
        [emitter.result()],
        {
            "rank": len(axes),
            "mode": PADS.index(node.attrs["mode"]),
            "unit": unit,
            "dims": dims,
            "inside": inside,
            "before": starts,
        },
        work=math.ceil(size(node.shape) / _WORKGROUP),
        wgsl={
            "count": size(node.shape),
            "kind": node.attrs["mode"],
            "steps": [unit * step for step in strides(inside)],
        },
    )


@op(
    internal=True,
    infer=_infer_pad_repeat,
    cpu=Kernels(("pad_repeat",), _lower_pad_repeat),
    webgpu=Kernels(("pad_repeat",), _lower_pad_repeat),
    webgpu_dtypes=frozenset({DType.F32, DType.I32, DType.U32, DType.I64, DType.F64}),
    samples=lambda: tuple(
        Sample((shape,), {"pads": pads, "mode": mode})
        for mode in PADS
        for shape, pads in (
            ((2, 3), ((1, 2), (0, 3))),
            ((1, 1), ((2, 0), (0, 3))),
            ((4, 0), ((1, 1), (0, 0))),
            ((3,), ((9, 8),)),
            ((2, 3, 5, 4), ((0, 0), (1, 0), (2, 1), (0, 0))),
            ((2, 3, 5, 4), ((0, 0), (0, 0), (0, 7), (6, 0))),
        )
    ),
)
def pad_repeat(x: Array, pads: Any, mode: str) -> Array:
    """``x`` of rank >= 1 with borders that repeat some of its elements, as NumPy's ``pad`` in the mode of that name."""
    kind: Any = mode
    return np.pad(x, pads, kind)

"""Convolutions whose weight lies in the order of matrix units: the channels of one tap, then those of the next."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from rlx.ir.dtype import DType
from rlx.ir.fragments import halves
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, Sample, TensorType
from rlx.ir.shape import Shape, strides
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.f16_via_f32 import lower_widened
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.windows.convolution import (
    CONVOLUTIONS,
    WEBGPU_NAMES,
    call_fragments,
    convolution_flops,
    fragments_of,
    infer_convolution,
    lower_wide,
    suits_units,
)
from rlx.ops.windows.convolution_cpu import CPU

# The turned form of each convolution, by the convolution's name.
TURNED = {name: f"turned_{name}" for name in ("conv1d", "conv2d", "conv3d")}


class _UsualOrder:
    """An emitter whose weight is a copy in the order that other kernels read; all else is the emitter's own."""

    def __init__(self, node: Node, emitter: Emitter) -> None:
        self._node, self._emitter = node, emitter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emitter, name)

    def operand(self, index: int) -> Any:
        """See ``Emitter``."""
        args = self._emitter.operand(index)
        if index != 1:
            return args
        outputs, channels, *kernel = self._node.inputs[1].shape
        taps, dtype = math.prod(kernel), args.type.dtype
        order, steps = (outputs, channels, taps), (channels * taps, 1, channels)
        usual = self._emitter.temp(TensorType(order, dtype))
        emit_strided_copy(self._emitter, args, usual, dtype, order, steps, strides(order), unit=0)
        return usual


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    variant = fragments_of(node, emitter) if halves(node.dtype, emitter.limits) else None
    if variant is None:
        lower_widened(node, emitter, lambda item, wide: lower_wide(item, _UsualOrder(item, wide)))
        return
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    call_fragments(node, emitter, variant, operands)


def usual_order(w: Array) -> Array:
    """A turned weight as convolutions have it."""
    outputs, channels = w.shape[:2]
    return w.reshape(outputs, -1, channels).swapaxes(1, 2).reshape(w.shape)


def _samples(rank: int) -> tuple[Sample, ...]:
    cases: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
        ((2, 9, 1, 7, 11), (10, 9, 1, 3, 3), {"padding": (0, 1, 1)[-rank:]}),
        ((1, 8, 1, 6, 9), (16, 4, 1, 2, 3), {"groups": 2}),
        ((1, 3, 1, 8, 10), (2, 3, 1, 2, 3), {"stride": (1, 2, 2)[-rank:]}),
        ((0, 8, 1, 5, 5), (8, 8, 1, 3, 3), {}),
    )
    plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "present": ("bias",)}
    return tuple(
        Sample(((*x[:2], *x[-rank:]), (*w[:2], *w[-rank:]), (w[0],)), {**plain, **attrs})
        for x, w, attrs in cases
    )


def _turned(rank: int) -> OpDef:
    name = f"conv{rank}d"

    def reference(
        x: Array,
        w: Array,
        bias: Array | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Array:
        return CONVOLUTIONS[rank].reference(
            x, usual_order(w), bias, stride, padding, dilation, groups
        )

    reference.__doc__ = (
        f"``conv{rank}d`` with a weight whose numbers lie in the order [outputs, taps, channels]."
    )
    record = op(
        name=TURNED[name],
        infer=partial(infer_convolution, name, rank),
        flops=convolution_flops,
        cpu=Kernels(CPU.names, lambda node, emitter: CPU.lower(node, _UsualOrder(node, emitter))),
        webgpu=Kernels(WEBGPU_NAMES, _lower_webgpu),
        internal=True,
        dtypes=FLOAT_KERNELS,
        units_f16=suits_units,
        tolerance={DType.F32: 1e-5},  # as the convolution
        samples=lambda: _samples(rank),
    )
    return record(reference)


turned_conv1d, turned_conv2d, turned_conv3d = map(_turned, (1, 2, 3))

"""Convolution over one to three axes, with groups, dilation and any padding."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.fragments import FragmentVariant, fragment_params, halves, tile_subgroups
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, PerAxis, Sample, TensorType
from rlx.ir.shape import Shape, size, strides
from rlx.ir.variants import Variant
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.f16_via_f32 import lower_widened
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.windows import strips
from rlx.ops.windows.convolution_cpu import CPU
from rlx.ops.windows.geometry import (
    FEW,
    Padding,
    Window,
    as_pads,
    collapsed,
    params_of,
    per_axis,
    same_pads,
    tensor_axes,
    window_of,
    windows,
)
from rlx.ops.windows.tiles import (
    CONV,
    ConvProblem,
    down,
    is_near,
    partitions,
    step_partitions,
    steps,
    tiles,
)
from rlx.sizes import divides, may_exceed

# WGSL: threads of a workgroup of the direct kernel, and of the kernel that adds partitions.
_DIRECT = 256
# Most taps of an invocation of the direct kernel; lavapipe ends longer loops early.
_DIRECT_TAPS = 16384


def check_operands(
    name: str, types: Sequence[TensorType], attrs: dict[str, Any], rank: int, transposed: bool
) -> Shape:
    """Checks weight, bias and groups; gives the kernel's size.

    Raises:
        ShapeError: They do not fit each other.
    """
    x, w = types[0].shape, types[1].shape
    tensor_axes(x, (rank,), where=name)
    tensor_axes(w, (rank,), where=name, name="w")
    groups = per_axis(attrs["groups"], 1, what="groups", where=name, least=1)[0]
    attrs["groups"] = groups
    # A convolution has w [O, C / groups, ...], a transposed one [C, O / groups, ...].
    fits = x[1] == w[0] if transposed else x[1] == w[1] * groups
    if not fits or w[0] % groups or 0 in w[2:]:
        layout = "[C, O / groups, ...]" if transposed else "[O, C / groups, ...]"
        raise ShapeError(
            f"[{name}] x, w and groups do not fit",
            got=f"x {x}, w {w}, groups {groups}",
            expected=f"w {layout} for C = {x[1]}, both divisible by groups",
        )
    outputs = w[1] * groups if transposed else w[0]
    if len(types) > 2 and types[2].shape != (outputs,):
        raise ShapeError(
            f"[{name}] bias has the wrong shape", got=types[2].shape, expected=(outputs,)
        )
    return w[2:]


def infer_convolution(
    name: str, rank: int, types: Sequence[TensorType], attrs: dict[str, Any]
) -> TensorType:
    """The rule for the type of a convolution's result, over ``rank`` axes."""
    kernel = check_operands(name, types, attrs, rank, transposed=False)
    x, w = types[0].shape, types[1].shape
    for key in ("stride", "dilation"):
        attrs[key] = per_axis(attrs[key], rank, what=key, where=name, least=1)
    stride, dilation = attrs["stride"], attrs["dilation"]
    if isinstance(attrs["padding"], str):
        pads = same_pads(attrs["padding"], x[2:], kernel, stride, dilation, where=name)
    else:
        pads = as_pads(attrs["padding"], rank, where=name)
    attrs["padding"] = pads
    window = Window.of(x[2:], kernel, stride, dilation, pads, where=name)
    return TensorType((x[0], w[0], *window.out), types[0].dtype)


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    variant = fragments_of(node, emitter) if halves(node.dtype, emitter.limits) else None
    if variant is None:
        lower_widened(node, emitter, lower_wide)
    else:
        operands = [emitter.operand(i) for i in range(len(node.inputs))]
        operands[1] = _by_taps(node, emitter, operands[1])
        call_fragments(node, emitter, variant, operands)


def lower_wide(node: Node, emitter: Emitter) -> None:
    """By kernels of f32."""
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    call_webgpu(node, emitter, operands, emitter.result())


# Least channels and outputs of a group for matrix units: with fewer, most of a tile would be padding. So many channels are
# worth a tile for any number of outputs, since other kernels read them for each output.
_LEAST, _MANY_CHANNELS = 8, 64


def _problem(node: Node, window: Window, half: bool = False) -> ConvProblem:
    groups = node.attrs["groups"]
    positions = node.shape[0] * size(window.out)
    taps = size(node.inputs[1].shape[1:])
    return ConvProblem(node.shape[1] // groups, positions, taps, groups, is_near(window), half)


def suits_units(node: Node) -> bool:
    """Returns whether a convolution has enough channels and outputs for matrix units."""
    channels, groups = node.inputs[1].shape[1], node.attrs["groups"]
    outputs = node.shape[1] // groups
    return channels >= _LEAST and (
        outputs >= _LEAST or (groups == 1 and channels >= _MANY_CHANNELS)
    )


def fragments_of(node: Node, emitter: Emitter) -> Variant | None:
    """The tile that matrix units make; None where other kernels are better, or there are no such units."""
    if not suits_units(node):
        return None
    result = CONV.choose(_problem(node, collapsed(window_of(node)), half=True), emitter)
    return result if isinstance(result, FragmentVariant) else None


def _by_taps(node: Node, emitter: Emitter, weight: Any) -> Any:
    """A weight in the order [outputs, taps, channels]: a copy, which known weights are spared (``hwio_weights.py``)."""
    outputs, channels, *kernel = node.inputs[1].shape
    taps = math.prod(kernel)
    if taps == 1:
        return weight
    order, steps = (outputs, taps, channels), (taps * channels, 1, taps)
    turned = emitter.temp(TensorType(order, node.dtype))
    emit_strided_copy(emitter, weight, turned, node.dtype, order, steps, strides(order), unit=0)
    return turned


def call_fragments(node: Node, emitter: Emitter, variant: Variant, operands: Sequence[Any]) -> None:
    """Writes the call of the kernel for matrix units, whose weight is in the order [outputs, taps, channels]."""
    window = collapsed(window_of(node))
    taps = math.prod(window.kernel)
    problem, fragment = _problem(node, window, half=True), fragment_params(emitter.limits)
    threads = fragment["lanes"] * tile_subgroups(variant.params)
    splits, length = step_partitions(problem, variant, taps)
    params = {
        **params_of(node, window),
        **variant.params,
        **fragment,
        "fragments": 1,
        "rounded": int(node.dtype is DType.F32),
        "per": max(1, variant.params["bn"] // threads),
        "splits": splits,
        "partition_steps": length,
    }
    work, unit = tiles(problem, variant), down(problem, variant)
    if not may_exceed(splits, 1):
        emitter.call("conv_fragments", operands, [emitter.result()], params, work, unit)
        return
    _call_split(
        "conv_fragments", node, emitter, operands, emitter.result(), params, work, size(window.out)
    )


WEBGPU_NAMES = (
    "conv_tiles", "conv", "split_sum", "conv_strips", "conv_direct", "conv_fragments", "strided_copy",
)  # fmt: skip


def call_webgpu(node: Node, emitter: Emitter, operands: Sequence[Any], result: Any) -> None:
    """Writes the calls of the WGSL kernels: operands x, w and a bias, where there is one."""
    window = collapsed(window_of(node))
    params = params_of(node, window)
    outputs = node.shape[1] // node.attrs["groups"]
    taps = size(node.inputs[1].shape[1:])
    if outputs < 2 * FEW and taps <= _DIRECT_TAPS:
        strip = strips.StripProblem.of(size(node.shape[:2]), window)
        cut = strips.DIRECT.choose(strip, emitter)
        if cut.name != "plain":
            params |= {"tall": strips.tall(strip, cut), "threads": cut.threads}
            work = strips.work(strip, cut)
            emitter.call("conv_strips", operands, [result], params, work)
            return
        lines = size(node.shape[:2]) * math.prod(window.out[:2])
        work = math.ceil(lines * math.ceil(window.out[2] / 4) / _DIRECT)
        emitter.call("conv_direct", operands, [result], params, work)
        return
    problem = _problem(node, window)
    variant = CONV.choose(problem, emitter)
    work, unit = tiles(problem, variant), down(problem, variant)
    if variant.name == "plain":
        emitter.call("conv", operands, [result], params, work, unit)
        return
    step = steps(window.kernel)
    splits, length = partitions(problem, variant, step)
    params |= {**variant.params, **step._asdict(), "splits": splits, "partition_lines": length}
    if not may_exceed(splits, 1):
        emitter.call("conv_tiles", operands, [result], params, work, unit)
        return
    _call_split("conv_tiles", node, emitter, operands, result, params, work, size(window.out))


def _call_split(
    kernel: str,
    node: Node,
    emitter: Emitter,
    operands: Sequence[Any],
    result: Any,
    params: dict[str, Any],
    work: int,
    windows: int,
) -> None:
    """Writes the call of a kernel whose sums are split, and of the kernel that adds the partitions."""
    splits, elements = params["splits"], size(node.shape)
    partial = emitter.temp(TensorType((splits, elements), DType.F32))
    emitter.call(kernel, operands[:2], [partial], params, work * splits, 0)
    added = {
        "splits": splits,
        "elements": elements,
        "n": node.shape[1],
        "every": windows,
        "has_bias": params["has_bias"],
        "half": int(params.get("fragments", 0) and node.dtype is DType.F16),
        "act": 0,
    }
    groups = math.ceil(elements / (_DIRECT * (4 if divides(4, windows) else 1)))
    emitter.call("split_sum", [partial, *operands[2:]], [result], added, groups, 0)


def _samples(rank: int) -> tuple[Sample, ...]:
    """Cases over ``rank`` axes, cut from these: x, w, whether there is a bias, attributes."""
    pairs, around = ((1, 2), (0, 3), (2, 0)), ((0, 1), (1, 2), (2, 2))
    cases: tuple[tuple[Shape, Shape, bool, dict[str, Any]], ...] = (
        ((1, 1, 1, 1, 1), (1, 1, 1, 1, 1), True, {}),
        ((0, 2, 5, 5, 5), (3, 2, 3, 3, 3), True, {}),
        ((2, 0, 5, 5, 5), (3, 0, 3, 3, 3), True, {}),
        ((2, 3, 7, 6, 9), (5, 3, 3, 2, 3), True, {"padding": 1}),
        ((2, 3, 9, 8, 37), (7, 3, 1, 1, 1), True, {}),
        ((1, 4, 9, 8, 13), (8, 4, 3, 3, 3), False, {"stride": (1, 2, 3)[-rank:]}),
        ((2, 5, 8, 9, 10), (6, 5, 2, 3, 2), True, {"dilation": (1, 2, 3)[-rank:], "padding": 2}),
        ((1, 3, 6, 7, 9), (9, 3, 2, 3, 4), True, {"padding": pairs[-rank:], "stride": 2}),
        ((1, 3, 5, 7, 8), (4, 3, 2, 3, 4), True, {"padding": "same_upper", "stride": 2}),
        ((1, 3, 5, 7, 8), (4, 3, 2, 2, 4), True, {"padding": "same_lower", "dilation": 2}),
        ((2, 6, 5, 6, 7), (12, 2, 2, 3, 3), True, {"groups": 3, "padding": 1}),
        ((2, 5, 6, 7, 33), (5, 1, 3, 3, 3), True, {"groups": 5, "padding": 1}),
        ((2, 5, 1, 9, 33), (5, 1, 1, 3, 3), True, {"groups": 5, "padding": (0, 1, 1)[-rank:]}),
        ((2, 3, 1, 10, 21), (6, 1, 1, 5, 4), False, {"groups": 3, "padding": (0, 2, 2)[-rank:]}),
        ((1, 3, 1, 9, 45), (3, 1, 1, 3, 3), True, {"groups": 3, "stride": (1, 2, 2)[-rank:]}),
        ((2, 3, 1, 12, 9), (3, 1, 1, 5, 2), True, {"groups": 3, "stride": (1, 2, 2)[-rank:]}),
        ((1, 4, 6, 7, 23), (8, 1, 3, 3, 5), False, {"groups": 4, "padding": 2, "stride": 2}),
        ((1, 4, 7, 7, 19), (4, 2, 2, 3, 3), True, {"groups": 2, "stride": 3, "dilation": 2}),
        ((1, 70, 2, 5, 11), (66, 70, 2, 1, 5), True, {"padding": 2}),
        ((1, 3, 1, 3, 90), (2, 3, 1, 1, 4), True, {}),
        # A long filter, which the CPU takes to transforms.
        ((2, 2, 1, 1, 1500), (2, 1, 1, 1, 200), True, {"groups": 2}),
        # Filters that are deeper than the planes; single elements whose padding and strides leave the size.
        ((2, 3, 1, 6, 9), (6, 1, 2, 1, 2), True, {"groups": 3, "padding": around[-rank:]}),
        ((2, 3, 3, 3, 3), (3, 1, 1, 1, 1), True, {"groups": 3, "padding": 1, "stride": 2}),
    )
    bench: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
        ((1, 80, 3000), (384, 80, 3), {"padding": 1}),
        ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((1, 16, 8, 28, 28), (16, 16, 3, 3, 3), {"padding": 1}),
    )
    results = []
    for x, w, bias, attrs in cases:
        shapes: list[Shape] = [(*x[:2], *x[-rank:]), (*w[:2], *w[-rank:])]
        absent = {} if bias else {"bias": None}
        results.append(Sample((*shapes, (w[0],)) if bias else tuple(shapes), {**absent, **attrs}))
    x, w, attrs = bench[rank - 1]
    results.append(Sample((x, w, (w[0],)), attrs, bench=True))
    return tuple(results)


def convolution_flops(node: Node) -> float:
    """Two for every tap of every channel of a window."""
    return 2.0 * size(node.shape) * size(node.inputs[1].shape[1:])


def _convolution(rank: int) -> OpDef:
    """The record over ``rank`` axes; the three differ in nothing else."""
    name = f"conv{rank}d"

    def reference(
        x: Array,
        w: Array,
        bias: Array | None = None,
        stride: PerAxis = 1,
        padding: Padding = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
    ) -> Array:
        window = Window.of(x.shape[2:], w.shape[2:], stride, dilation, padding, where=name)
        seen = windows(x, window, 0.0)
        n, outputs, axes = x.shape[0], w.shape[0], len(window.dims)
        seen = seen.reshape(n, groups, x.shape[1] // groups, *seen.shape[2:])
        weight = w.reshape(groups, outputs // groups, *w.shape[1:])
        taps = "uvw"[:axes]
        places = "xyz"[:axes]
        y = np.einsum(f"ngc{places}{taps},goc{taps}->ngo{places}", seen, weight, optimize=True)
        y = y.reshape(n, outputs, *window.out)
        return y if bias is None else y + bias.reshape(-1, *(1,) * axes)

    reference.__doc__ = f"""Convolution (cross-correlation, as in ONNX) over {rank} of {rank} spatial axes.

    y[n, o, p] = bias[o] + sum over c, k of x[n, c, p * stride - before + k * dilation] * w[o, c, k]

    Args:
        x: ``[N, C, {", ".join("DHW"[-rank:])}]``.
        w: ``[O, C / groups, {", ".join("K" + axis for axis in "DHW"[-rank:])}]``.
        bias: ``[O]``, or None for 0.
        stride: Distance between windows; an int or one per axis.
        padding: Zeros around x: an int, one per axis, a (before, after) pair per axis, or
            "same_upper" or "same_lower" for results of ceil(size / stride).
        dilation: Distance between taps; an int or one per axis.
        groups: Parts that the channels are split into; a part of x meets its part of w only.

    Returns:
        ``[N, O, ...]``, each size floor((size + before + after - (K - 1) * dilation - 1) / stride) + 1.
    """
    record = op(
        name=name,
        infer=functools.partial(infer_convolution, name, rank),
        flops=convolution_flops,
        cpu=CPU,
        webgpu=Kernels(WEBGPU_NAMES, _lower_webgpu),
        dtypes=FLOAT_KERNELS,
        units_f16=suits_units,
        tolerance={DType.F32: 1e-5},  # sums of up to thousands of products, in f32
        samples=lambda: _samples(rank),
    )
    return record(reference)


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
CONVOLUTIONS = {1: conv1d, 2: conv2d, 3: conv3d}

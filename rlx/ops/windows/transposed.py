"""Transposed convolution: every entry of x adds a scaled kernel to the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, PerAxis, Sample, TensorType
from rlx.ir.shape import Shape, size
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.windows.convolution import check_operands
from rlx.ops.windows.geometry import SAME, Padding, Window, as_pads, per_axis, window_params
from rlx.sizes import ceil_divide, largest

# Elements of scratch that the products take before they are added up.
_BLOCK = 1 << 20
# Most steps of the loops of an invocation of the WGSL kernel; lavapipe ends longer loops early.
_STEPS = 32768
_WORKGROUP = 256


def _same(
    mode: str, dims: Shape, kernel: Shape, stride: Shape, dilation: Shape, extra: Shape, where: str
) -> tuple[tuple[tuple[int, int], ...], Shape]:
    """Padding and output padding that make each result size * stride long (ONNX's auto_pad)."""
    if mode not in SAME:
        raise ShapeError(f"[{where}] no such padding", got=repr(mode), expected=" or ".join(SAME))
    pads, more = [], []
    for n, k, s, d, e in zip(dims, kernel, stride, dilation, extra, strict=True):
        total = s * (n - 1) + e + (k - 1) * d + 1 - n * s
        # A kernel smaller than the stride leaves a gap at the end instead.
        more.append(e + largest(-total, 0))
        half, rest = largest(total, 0) // 2, ceil_divide(largest(total, 0), 2)
        pads.append((half, rest) if mode == "same_upper" else (rest, half))
    return tuple(pads), tuple(more)


def _infer(name: str, rank: int, types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    kernel = check_operands(name, types, attrs, rank, transposed=True)
    x, w = types[0].shape, types[1].shape
    for key, least in (("stride", 1), ("dilation", 1), ("output_padding", 0)):
        attrs[key] = per_axis(attrs[key], rank, what=key, where=name, least=least)
    stride, dilation, extra = attrs["stride"], attrs["dilation"], attrs["output_padding"]
    if isinstance(attrs["padding"], str):
        attrs["padding"], attrs["output_padding"] = _same(
            attrs["padding"], x[2:], kernel, stride, dilation, extra, name
        )
    else:
        attrs["padding"] = as_pads(attrs["padding"], rank, where=name)
    out = _out(x[2:], kernel, attrs)
    if any(n < 1 for n in out):
        raise ShapeError(
            f"[{name}] the result would be empty",
            got=f"x {x}, w {w}, padding {attrs['padding']}",
            expected="stride * (size - 1) + (kernel - 1) * dilation + 1 + output_padding "
            "> padding on every axis",
        )
    return TensorType((x[0], w[1] * attrs["groups"], *out), types[0].dtype)


def _out(dims: Shape, kernel: Shape, attrs: Any) -> Shape:
    names = ("stride", "dilation", "output_padding", "padding")
    axes = zip(dims, kernel, *(attrs[name] for name in names), strict=True)
    return tuple(s * (n - 1) + e + (k - 1) * d + 1 - sum(pad) for n, k, s, d, e, pad in axes)


def _params(node: Node) -> dict[str, Any]:
    # The result is the operand of a plain convolution whose windows are the entries of x.
    a, x, w = node.attrs, node.inputs[0].shape, node.inputs[1].shape
    window = Window(node.shape[2:], w[2:], a["stride"], a["dilation"], a["padding"], x[2:])
    return {
        "batch": x[0],
        "channels": x[1],
        "outputs": node.shape[1],
        "parts": a["groups"],
        **window.three().params(),
        "has_bias": int(len(node.inputs) > 2),
    }


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    x, w = node.inputs[0].shape, node.inputs[1].shape
    outputs = w[1]
    taps, entries = size(w[2:]), size(x[2:])
    # Outputs whose products are made at once.
    block = min(max(_BLOCK // max(taps * entries, 1), 1), outputs)
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    params = {**window_params(_params(node)), "block": block}
    emitter.call("conv_transpose", operands, [emitter.result()], params)


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    w = node.inputs[1].shape
    channels, outputs, taps = w[0] // node.attrs["groups"], w[1], size(w[2:])
    per_thread = min(outputs, 4)
    threads = node.shape[0] * node.attrs["groups"] * math.ceil(outputs / per_thread)
    work = math.ceil(threads * size(node.shape[2:]) / _WORKGROUP)
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    # Long sums are split over calls that add to the result.
    some_taps = min(taps, _STEPS)
    some_channels = max(min(channels, _STEPS // some_taps), 1)
    for tap in range(0, taps, some_taps):
        for channel in range(0, max(channels, 1), some_channels):
            params = {
                **_params(node),
                "per_thread": per_thread,
                "first": int(tap == 0 and channel == 0),
                "tap_from": tap,
                "tap_to": min(tap + some_taps, taps),
                "channel_from": channel,
                "channel_to": min(channel + some_channels, channels),
            }
            emitter.call("conv_transpose", operands, [emitter.result()], params, work)


def _samples(rank: int) -> tuple[Sample, ...]:
    cases: tuple[tuple[Shape, Shape, bool, dict[str, Any]], ...] = (
        ((1, 1, 1, 1), (1, 1, 1, 1), True, {}),
        ((0, 2, 5, 5), (2, 3, 3, 3), True, {}),
        ((2, 0, 5, 5), (0, 3, 3, 3), True, {}),
        ((2, 3, 6, 9), (3, 5, 2, 3), True, {}),
        ((1, 4, 8, 13), (4, 7, 4, 4), False, {"stride": 2, "padding": 1}),
        ((2, 3, 5, 7), (3, 6, 3, 3), True, {"stride": 2, "padding": 1, "output_padding": 1}),
        ((1, 5, 5, 6), (5, 3, 3, 2), True, {"dilation": (2, 3)[-rank:], "stride": (3, 2)[-rank:]}),
        ((1, 3, 5, 8), (3, 4, 3, 4), True, {"padding": ((1, 2), (0, 3))[-rank:], "stride": 2}),
        ((1, 3, 5, 6), (3, 4, 5, 4), True, {"padding": "same_upper", "stride": 2}),
        ((1, 3, 5, 6), (3, 4, 2, 2), True, {"padding": "same_lower", "stride": 3}),
        ((2, 6, 5, 7), (6, 2, 3, 3), True, {"groups": 3, "padding": 1, "stride": 2}),
        ((1, 5, 4, 9), (5, 1, 3, 3), False, {"groups": 5, "stride": 2}),
        ((1, 66, 3, 40), (66, 9, 2, 5), True, {"stride": 2, "padding": 1}),
    )
    results = []
    for x, w, bias, attrs in cases:
        shapes: tuple[Shape, ...] = ((*x[:2], *x[-rank:]), (*w[:2], *w[-rank:]))
        outputs = w[1] * attrs.get("groups", 1)
        if bias:
            results.append(Sample((*shapes, (outputs,)), attrs))
        else:
            results.append(Sample(shapes, {"bias": None, **attrs}))
    # More products per result than one invocation of the WGSL kernel adds.
    results.append(Sample(((1, 700, *(1, 60)[-rank:]), (700, 1, *(1, 50)[-rank:])), {"bias": None}))
    x, w = ((1, 64, *(32, 32)[-rank:]), (64, 32, *(4, 4)[-rank:]))
    results.append(Sample((x, w, (32,)), {"stride": 2, "padding": 1}, bench=True))
    return tuple(results)


def _added_taps(x: Array, w: Array, attrs: dict[str, Any], groups: int, out: Shape) -> Array:
    """Every entry of x times the kernel, added where it belongs; then what padding leaves of that."""
    stride, dilation, padding = attrs["stride"], attrs["dilation"], attrs["padding"]
    axes = range(len(out))
    whole = tuple(o + sum(pad) for o, pad in zip(out, padding, strict=True))
    y = np.zeros((x.shape[0], groups, w.shape[1], *whole))
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    weight = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for tap in np.ndindex(*w.shape[2:]):
        spread = np.einsum("ngc...,gco->ngo...", parts, weight[(..., *tap)])
        indices = [
            slice(tap[a] * dilation[a], tap[a] * dilation[a] + x.shape[2 + a] * stride[a])
            for a in axes
        ]
        # The last step of the stride may reach past the result, where nothing is added.
        place = y[(slice(None),) * 3 + tuple(indices)]
        place[(slice(None),) * 3 + tuple(slice(None, None, stride[a]) for a in axes)] += spread
    cut: list[Any] = [slice(pad[0], pad[0] + o) for o, pad in zip(out, padding, strict=True)]
    return y.reshape(x.shape[0], -1 if y.size else groups * w.shape[1], *whole)[(..., *cut)]


def _transposed(rank: int) -> OpDef:
    """The record over ``rank`` axes."""
    name = f"conv_transpose{rank}d"

    def reference(
        x: Array,
        w: Array,
        bias: Array | None = None,
        stride: PerAxis = 1,
        padding: Padding = 0,
        output_padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
    ) -> Array:
        attrs = {"stride": stride, "dilation": dilation, "padding": padding}
        out = _out(x.shape[2:], w.shape[2:], {**attrs, "output_padding": output_padding})
        y = _added_taps(x, w, attrs, groups, out)
        return y if bias is None else y + bias.reshape(-1, *(1,) * rank)

    reference.__doc__ = f"""Transposed convolution over {rank} spatial axes (ONNX's ConvTranspose).

    The gradient of ``conv{rank}d`` with respect to its operand: entry p of x adds x[n, c, p] * w[c, o, k]
    to the result at p * stride - before + k * dilation.

    Args:
        x: ``[N, C, {", ".join("HW"[-rank:])}]``.
        w: ``[C, O / groups, {", ".join("K" + axis for axis in "HW"[-rank:])}]``.
        bias: ``[O]``, or None for 0.
        stride: Distance in the result between the kernels of neighbours; an int or one per axis.
        padding: The number of entries cut off the result: an int, one per axis, a (before, after) pair per axis, or
            "same_upper" or "same_lower" for results of size * stride.
        output_padding: Entries added at the end of each axis; an int or one per axis.
        dilation: Distance between taps; an int or one per axis.
        groups: Parts that the channels are split into.

    Returns:
        ``[N, O, ...]``, each size stride * (size - 1) + (K - 1) * dilation + 1 + output_padding -
        before - after.
    """
    record = op(
        name=name,
        infer=partial(_infer, name, rank),
        flops=lambda node: 2.0 * size(node.inputs[0].shape) * size(node.inputs[1].shape[1:]),
        cpu=Kernels(("conv_transpose",), _lower_cpu),
        webgpu=Kernels(("conv_transpose",), _lower_webgpu),
        dtypes=FLOAT_KERNELS,
        tolerance={DType.F32: 1e-5},  # sums of up to thousands of products, in f32
        samples=lambda: _samples(rank),
    )
    return record(reference)


conv_transpose1d, conv_transpose2d = map(_transposed, (1, 2))

"""Convolution over one to three axes, with groups, dilation and any padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.abi.calls import fields
from rlx.abi.constants import (
    CONV_COLUMNS,
    CONV_FEW_WINDOWS,
    CONV_PANELS,
    PLANE_SLACK,
    VECTOR_ELEMENTS,
)
from rlx.abi.products import ACTIVATIONS
from rlx.abi.windows import padded_plane
from rlx.errors import ShapeError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, PerAxis, Sample, TensorType
from rlx.ir.shape import Shape, size, strides
from rlx.ops.declare import FLOAT_KERNELS, WEBGPU_FLOATS, op, operand_names
from rlx.ops.elementwise.records import Step
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.windows import inside, strips, winograd
from rlx.ops.windows.geometry import (
    Padding,
    Window,
    as_pads,
    per_axis,
    same_pads,
    tensor_axes,
    window_params,
    windows,
)
from rlx.ops.windows.long import call_long, samples_of_block
from rlx.ops.windows.tiles import CONV, Problem, down, is_near, partitions, steps, tiles

# Result rows whose panels are packed together, so that the panels stay in the cache.
_MOST_OUTPUTS = 512
# Minimum outputs of a group for the matrix product; for fewer, packing costs more than it gains.
FEW = 4
# Least elements of a filter for which windows, read where they stand, are multiplied by packed weights. With fewer of
# them, to store results takes longer than the products.
_DEEP = 128
# The same for few windows.
_SHALLOW = 4
# The part of the lanes that outputs have to fill for that at least, on the widest vectors.
_FULL = 7 / 8
# The part of the lanes that a row of results has to fill for the depthwise kernel whose lanes are windows of a row.
_FULL_ROW = 3 / 4
# Planes, at least, and elements of one and of its results, at most, for the kernel whose lanes are planes.
_PLANES, _SMALL_PLANES = 8, 16384
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
    # Of a convolution w is [O, C / groups, ...], of a transposed one [C, O / groups, ...].
    fits = x[1] == w[0] if transposed else x[1] == w[1] * groups
    if not fits or w[0] % groups or 0 in w[2:]:
        layout = "[C, O / groups, ...]" if transposed else "[O, C / groups, ...]"
        raise ShapeError(
            describe(
                f"[{name}] x, w and groups do not fit",
                got=f"x {x}, w {w}, groups {groups}",
                expected=f"w {layout} for C = {x[1]}, both divisible by groups",
            )
        )
    outputs = w[1] * groups if transposed else w[0]
    if len(types) > 2 and types[2].shape != (outputs,):
        raise ShapeError(
            describe(f"[{name}] bias has the wrong shape", got=types[2].shape, expected=(outputs,))
        )
    return w[2:]


def _window(node: Node) -> Window:
    a = node.attrs
    dims, kernel = node.inputs[0].shape[2:], node.inputs[1].shape[2:]
    return Window.of(dims, kernel, a["stride"], a["dilation"], a["padding"], where=node.op)


def infer_convolution(name: str, rank: int) -> Callable[..., TensorType]:
    """The rule for the type of a convolution's result, over ``rank`` axes."""

    def infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
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

    return infer


def _collapsed(window: Window) -> Window:
    """Three axes; those of a pointwise convolution are one."""
    wide = window.three()
    plain = wide.dims == wide.out and wide.kernel == wide.stride == (1, 1, 1)
    if not plain or any(side for pair in wide.pads for side in pair):
        return wide
    line, one = (1, 1, size(wide.dims)), (1, 1, 1)
    return Window(line, one, one, one, wide.pads, line)


def _params(node: Node, window: Window) -> dict[str, Any]:
    return {
        "batch": node.shape[0],
        "channels": node.inputs[0].shape[1],
        "outputs": node.shape[1],
        "parts": node.attrs["groups"],
        **window.params(),
        "has_bias": int("bias" in operand_names(node)),
    }


def _operands(node: Node, emitter: Emitter) -> list[Any]:
    """x, w, bias and what is added to the result, None for those that are absent."""
    given = {name: at for at, name in enumerate(operand_names(node))}
    names = ("x", "w", "bias", "residual")
    found = [emitter.operand(given[name]) if name in given else None for name in names]
    while found[-1] is None:
        found.pop()
    return found


def _cpu_params(node: Node, window: Window) -> dict[str, Any]:
    """The window, as the C kernels take it, and what they do to a result before they store it."""
    act = ACTIVATIONS.index(node.attrs.get("act", "none"))
    return {**window_params(_params(node, window)), "act": act}


def _lanes(elements: int) -> int:
    """Lanes of the vectors that hold so many elements."""
    return math.ceil(elements / VECTOR_ELEMENTS) * VECTOR_ELEMENTS


def _depthwise_kernel(node: Node, window: Window) -> str:
    """The kernel for planes with a filter each that makes this convolution; "" for none of them."""
    if node.inputs[1].shape[1] != 1:
        return ""
    flat = window.dims[0] == window.out[0] == 1
    columns, step = window.out[2], window.stride[2]
    # It makes four rows at a time; few long rows are left to the direct kernel.
    by_rows = node.dtype is DType.F32 and flat and window.out[1] >= 4 and step in (1, 2)
    # Rows of these kernels are read once for four rows of results.
    near = window.dilation[1] == 1 and window.stride[1] == step and window.kernel[1] in (3, 5, 7)
    full = columns >= (_FULL_ROW if step == 1 else 1) * _lanes(columns)
    small = size(window.dims) + size(window.out) <= _SMALL_PLANES
    if small and node.shape[1] >= _PLANES and not (by_rows and near and full):
        return "conv_depthwise_lanes"
    return "conv_depthwise" if by_rows else ""


def _is_scaling(node: Node, window: Window) -> bool:
    """Whether each plane is multiplied by a number, and no more."""
    one = size(window.kernel) == 1 and window.dims == window.out
    return one and node.inputs[0].shape[1] == node.shape[1] == node.attrs["groups"]


def _lower_scaling(node: Node, emitter: Emitter) -> None:
    """One pass over the elements: x * w + bias + residual, then the activation."""
    x, *others = _operands(node, emitter)
    channel = (1, node.shape[1], *(1,) * (len(node.shape) - 2))
    given = zip(others, ("mul", "add", "add"), (channel, channel, node.shape), strict=False)
    steps = [one for one in given if one[0] is not None]
    count, program = 1 + len(steps), list[Step]()
    for at, (_, name, _) in enumerate(steps):
        program.append((name, (count + at - 1 if at else 0, 1 + at), node.dtype, None))
    if (act := node.attrs.get("act", "none")) != "none":
        program.append((act, (count + len(steps) - 1,), node.dtype, None))
    shapes = [node.shape, *(shape for _, _, shape in steps)]
    emitter.elementwise(program, [x, *(value for value, _, _ in steps)], emitter.result(), shapes)


def _meets_few(window: Window) -> bool:
    """Whether windows are single elements, all inside, that are apart."""
    one, apart = size(window.kernel) == 1, max(window.stride) > 1
    inside = all(
        b == 0 and r <= n
        for (b, _), r, n in zip(window.pads, window.reach, window.dims, strict=True)
    )
    return one and apart and inside


def _only_met(node: Node, emitter: Emitter, x: Any, window: Window) -> tuple[Any, Window]:
    """A copy of the elements that windows of one element meet, and the windows of this copy, which are next to each other.

    A product of neighbours is so much faster that the copy pays.
    """
    planes, out, one = size(node.inputs[0].shape[:2]), window.out, (1, 1, 1)
    copy = emitter.temp(TensorType((planes * size(out),), node.dtype))
    rows, columns = window.dims[1:]
    steps = [
        stride * each
        for stride, each in zip(window.stride, (rows * columns, columns, 1), strict=True)
    ]
    dims = (planes, *out)
    emit_strided_copy(
        emitter, x, copy, node.dtype, dims, (size(window.dims), *steps), strides(dims)
    )
    return copy, _collapsed(Window(out, one, one, one, ((0, 0),) * 3, out))


def _together(node: Node, window: Window) -> int:
    """Images that are made together: those with few windows are joined, to fill the columns of a panel."""
    return max(1, min(node.shape[0], CONV_COLUMNS // max(1, size(window.out))))


def _is_by_outputs(node: Node, window: Window) -> bool:
    """Whether the lanes of vectors are outputs, and windows are read where they stand."""
    outputs = node.shape[1] // node.attrs["groups"]
    elements = size(node.inputs[1].shape[1:])
    few = _together(node, window) * size(window.out) <= CONV_FEW_WINDOWS and elements >= _SHALLOW
    full = outputs >= _FULL * _lanes(outputs)
    deep = elements >= _DEEP and not (size(window.kernel) == 1 and window.out == window.dims)
    return few or (deep and full)


def lower_cpu(node: Node, emitter: Emitter) -> None:
    """Writes the call of the C kernel that fits, also for a convolution with what follows it."""
    if size(node.shape) == 0:
        return
    window = _collapsed(_window(node))
    x, groups = node.inputs[0], node.attrs["groups"]
    direct = node.shape[1] // groups < FEW
    if _is_scaling(node, window):
        _lower_scaling(node, emitter)
        return
    if direct and (kernel := _depthwise_kernel(node, window)):
        params = _cpu_params(node, window)
        emitter.call(kernel, _operands(node, emitter), [emitter.result()], params)
        return
    operands = _operands(node, emitter)
    if _meets_few(window) and not direct:
        operands[0], window = _only_met(node, emitter, operands[0], window)
    fixed = operands[1].kind in ("param", "constant")
    block = samples_of_block(node, window, fixed)
    if block:
        call_long(node, emitter, operands, _cpu_params(node, window), block)
        return
    if not direct and winograd.pays(node, window, fixed):
        winograd.call(node, emitter, operands, _cpu_params(node, window), window)
        return
    padded = any(b for b, _ in window.pads) or any(
        r > n for r, n in zip(window.reach, window.dims, strict=True)
    )
    outputs = node.shape[1] // groups
    together = 1 if direct else _together(node, window)
    params = _cpu_params(node, window)
    if direct:
        shared = {**params, "together": together, "copied": 1}
        emitter.call("conv_direct", operands, [emitter.result()], shared)
        return
    by_outputs = _is_by_outputs(node, window)
    filled = 1.0 if by_outputs else outputs / _lanes(outputs)
    weights = outputs * size(node.inputs[1].shape[1:])
    if inside.pays(window, node.shape[0], weights, outputs, filled):
        shared = {**params, "together": inside.together(window, node.shape[0])}
        emitter.call("conv_inside", operands, [emitter.result()], shared)
        return
    # Only vectors of windows need those that are apart as neighbours, and so a copy.
    apart = window.stride[2] > 1 and not by_outputs
    shared = {**params, "together": together, "copied": int(padded or apart)}
    if shared["copied"]:
        # Once for all parts of the convolution.
        elements = size(x.shape[:2]) * padded_plane(fields(params)) + PLANE_SLACK
        copy = emitter.temp(TensorType((elements,), node.dtype))
        emitter.call("conv_pad", [operands[0]], [copy], window_params(_params(node, window)))
        operands[0] = copy
    if by_outputs:
        emitter.call("conv_by_outputs", operands, [emitter.result()], shared)
        return
    most = CONV_PANELS if outputs * CONV_PANELS <= _MOST_OUTPUTS else _MOST_OUTPUTS // outputs
    emitter.call("conv", operands, [emitter.result()], {**shared, "panels": max(1, most)})


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    if size(node.shape):
        operands = [emitter.operand(index) for index in range(len(node.inputs))]
        call_webgpu(node, emitter, operands, emitter.result())


CPU = Kernels(
    (
        *("conv", "conv_pad", "conv_by_outputs", "conv_inside", "conv_direct", "conv_long"),
        *("conv_winograd", "conv_depthwise", "conv_depthwise_lanes", "strided_copy"),
    ),
    lower_cpu,
)
WEBGPU_NAMES = ("conv_tiles", "conv", "split_sum", "conv_strips", "conv_direct")


def call_webgpu(node: Node, emitter: Emitter, operands: Sequence[Any], result: Any) -> None:
    """Writes the calls of the WGSL kernels: operands x, w and a bias, where there is one."""
    window = _collapsed(_window(node))
    params = _params(node, window)
    groups = node.attrs["groups"]
    outputs = node.shape[1] // groups
    taps = size(node.inputs[1].shape[1:])
    if outputs < 2 * FEW and taps <= _DIRECT_TAPS:
        strip = strips.Problem.of(size(node.shape[:2]), window)
        cut = strips.DIRECT.choose(strip, emitter)
        if cut.name != "plain":
            params |= {"tall": strips.tall(strip, cut), "threads": cut.threads}
            work = strips.work(strip, cut)
            emitter.call("conv_strips", operands, [result], params, work)
            return
        work = math.ceil(
            size(node.shape[:2])
            * math.prod(window.out[:2])
            * math.ceil(window.out[2] / 4)
            / _DIRECT
        )
        emitter.call("conv_direct", operands, [result], params, work)
        return
    positions = node.shape[0] * size(window.out)
    problem = Problem(outputs, positions, taps, groups, is_near(window))
    variant = CONV.choose(problem, emitter)
    work, unit = tiles(problem, variant), down(problem, variant)
    if variant.name == "plain":
        emitter.call("conv", operands, [result], params, work, unit)
        return
    step = steps(window.kernel)
    splits, length = partitions(problem, variant, step)
    params |= {**variant.params, **step._asdict(), "splits": splits, "partition_lines": length}
    if splits == 1:
        emitter.call("conv_tiles", operands, [result], params, work, unit)
        return
    elements, windows = size(node.shape), size(window.out)
    partial = emitter.temp(TensorType((splits, elements), DType.F32))
    emitter.call("conv_tiles", operands[:2], [partial], params, work * splits, 0)
    wide = windows % 4 == 0
    added = {
        "splits": splits,
        "elements": elements,
        "n": node.shape[1],
        "every": windows,
        "has_bias": params["has_bias"],
        "half": 0,
        "act": 0,
    }
    groups = math.ceil(elements / (_DIRECT * (4 if wide else 1)))
    emitter.call("split_sum", [partial, *operands[2:]], [result], added, groups, 0)


def _samples(rank: int) -> tuple[Sample, ...]:
    """Cases over ``rank`` axes, cut from these: x, w, whether there is a bias, attributes."""
    pairs = ((1, 2), (0, 3), (2, 0))
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
    )
    bench: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
        ((1, 80, 3000), (384, 80, 3), {"padding": 1}),
        ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((1, 16, 8, 28, 28), (16, 16, 3, 3, 3), {"padding": 1}),
    )
    made = []
    for x, w, bias, attrs in cases:
        shapes: list[Shape] = [(*x[:2], *x[-rank:]), (*w[:2], *w[-rank:])]
        absent = {} if bias else {"bias": None}
        made.append(Sample((*shapes, (w[0],)) if bias else tuple(shapes), {**absent, **attrs}))
    x, w, attrs = bench[rank - 1]
    made.append(Sample((x, w, (w[0],)), attrs, bench=True))
    return tuple(made)


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
        infer=infer_convolution(name, rank),
        flops=convolution_flops,
        cpu=CPU,
        webgpu=Kernels(WEBGPU_NAMES, _lower_webgpu),
        dtypes=FLOAT_KERNELS,
        webgpu_dtypes=WEBGPU_FLOATS,
        tolerance={DType.F32: 1e-5},  # sums of up to thousands of products, in f32
        samples=lambda: _samples(rank),
    )
    return record(reference)


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))

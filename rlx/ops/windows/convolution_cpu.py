"""Convolutions on the CPU: which C kernel makes which, and its calls."""

from __future__ import annotations

import math
from typing import Any

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
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Emitter, Kernels, TensorType
from rlx.ir.shape import estimated, is_sized, size, strides
from rlx.ops.declare import operand_names
from rlx.ops.elementwise.records import Step
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.windows import conv_no_padding, winograd
from rlx.ops.windows.fft_conv import call_long, samples_of_block
from rlx.ops.windows.geometry import FEW, Window, collapsed, params_of, window_of, window_params
from rlx.sizes import largest, smallest

# Result rows whose panels are packed together, so that the panels stay in the cache.
_MAX_OUTPUTS = 512
# Least elements of a filter for which windows, read where they stand, are multiplied by packed weights. With fewer of
# them, to store results takes longer than the products.
_DEEP = 128
# The same for few windows.
_SHALLOW = 4
# The part of the lanes that outputs have to fill for that at least, on the widest vectors.
_FULL = 7 / 8
# The part of the lanes that a row of results has to fill for the depthwise kernel whose lanes are windows of a row.
_FULL_ROW = 3 / 4
# Elements of the shortest vector.
_SHORTEST_VECTOR = 4
# Planes, at least, and elements of one and of its results, at most, for the kernel whose lanes are planes.
_PLANES, _SMALL_PLANES = 8, 16384


def _operands(node: Node, emitter: Emitter) -> list[Any]:
    """x, w, bias and what is added to the result, None for those that are absent."""
    inputs = {name: i for i, name in enumerate(operand_names(node))}
    names = ("x", "w", "bias", "residual")
    results = [emitter.operand(inputs[name]) if name in inputs else None for name in names]
    while results[-1] is None:
        results.pop()
    return results


def _cpu_params(node: Node, window: Window) -> dict[str, Any]:
    """The window, as the C kernels take it, and what they do to a result before they store it."""
    act = ACTIVATIONS.index(node.attrs.get("act", "none"))
    return {**window_params(params_of(node, window)), "act": act}


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
    tall = _at_least(window.out[1], 4) and _at_least(window.dims[2], _SHORTEST_VECTOR)
    by_rows = node.dtype is DType.F32 and flat and tall and step in (1, 2)
    # Rows of these kernels are read once for four rows of results.
    near = window.dilation[1] == 1 and window.stride[1] == step and window.kernel[1] in (3, 5, 7)
    full = is_sized((columns,)) or columns >= (_FULL_ROW if step == 1 else 1) * _lanes(columns)
    small = estimated(size(window.dims) + size(window.out)) <= _SMALL_PLANES
    if small and node.shape[1] >= _PLANES and not (by_rows and near and full):
        return "conv_depthwise_lanes"
    return "conv_depthwise" if by_rows else ""


def _at_least(size: int, least: int) -> bool:
    """Returns whether a size is at least a number; one that is not known is."""
    return is_sized((size,)) or size >= least


def _is_scaling(node: Node, window: Window) -> bool:
    """Returns whether a convolution only multiplies each plane by a number."""
    single = size(window.kernel) == 1 and window.dims == window.out
    return single and node.inputs[0].shape[1] == node.shape[1] == node.attrs["groups"]


def _lower_scaling(node: Node, emitter: Emitter) -> None:
    """One pass over the elements: x * w + bias + residual, then the activation."""
    x, *others = _operands(node, emitter)
    channel = (1, node.shape[1], *(1,) * (len(node.shape) - 2))
    args = zip(others, ("mul", "add", "add"), (channel, channel, node.shape), strict=False)
    steps = [item for item in args if item[0] is not None]
    count, program = 1 + len(steps), list[Step]()
    for i, (_, name, _) in enumerate(steps):
        program.append((name, (count + i - 1 if i else 0, 1 + i), node.dtype, None))
    if (act := node.attrs.get("act", "none")) != "none":
        program.append((act, (count + len(steps) - 1,), node.dtype, None))
    shapes = [node.shape, *(shape for _, _, shape in steps)]
    emitter.elementwise(program, [x, *(value for value, _, _ in steps)], emitter.result(), shapes)


def _meets_few(window: Window) -> bool:
    """Returns whether windows are single elements, all inside, that are apart."""
    first, apart = size(window.kernel) == 1, max(window.stride) > 1
    inside = all(
        b == 0 and r <= n
        for (b, _), r, n in zip(window.pads, window.reach, window.dims, strict=True)
    )
    return first and apart and inside


def _only_met(node: Node, emitter: Emitter, x: Any, window: Window) -> tuple[Any, Window]:
    """A copy of the elements that windows of one element meet, and the windows of this copy, which are next to each other.

    A product of neighbours is so much faster that the copy pays.
    """
    planes, out, first = size(node.inputs[0].shape[:2]), window.out, (1, 1, 1)
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
    return copy, collapsed(Window(out, first, first, first, ((0, 0),) * 3, out))


def _together(node: Node, window: Window) -> int:
    """Images that are made together: those with few windows are joined, to fill the columns of a panel."""
    return largest(1, smallest(node.shape[0], CONV_COLUMNS // largest(1, size(window.out))))


def _is_by_outputs(node: Node, window: Window) -> bool:
    """Returns whether the lanes of vectors are outputs, and windows are read in place."""
    outputs = node.shape[1] // node.attrs["groups"]
    elements = size(node.inputs[1].shape[1:])
    windows = size(window.out)
    # All these kernels give the same bits. The one for many windows is taken where their number is not known.
    few = not is_sized((windows,)) and elements >= _SHALLOW
    few = few and _together(node, window) * windows <= CONV_FEW_WINDOWS
    full = outputs >= _FULL * _lanes(outputs)
    deep = elements >= _DEEP and not (size(window.kernel) == 1 and window.out == window.dims)
    return few or (deep and full)


def lower_cpu(node: Node, emitter: Emitter) -> None:
    """Writes the call of the C kernel that fits, also for a convolution with what follows it."""
    window = collapsed(window_of(node))
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
    if conv_no_padding.pays(window, node.shape[0], weights, outputs, filled):
        shared = {**params, "together": conv_no_padding.together(window, node.shape[0])}
        emitter.call("conv_inside", operands, [emitter.result()], shared)
        return
    # Only vectors of windows need those that are apart as neighbours, and so a copy.
    apart = window.stride[2] > 1 and not by_outputs
    shared = {**params, "together": together, "copied": int(padded or apart)}
    if shared["copied"]:
        # Once for all parts of the convolution.
        elements = size(x.shape[:2]) * padded_plane(fields(params)) + PLANE_SLACK
        copy = emitter.temp(TensorType((elements,), node.dtype))
        emitter.call("conv_pad", [operands[0]], [copy], window_params(params_of(node, window)))
        operands[0] = copy
    if by_outputs:
        emitter.call("conv_by_outputs", operands, [emitter.result()], shared)
        return
    limit = CONV_PANELS if outputs * CONV_PANELS <= _MAX_OUTPUTS else _MAX_OUTPUTS // outputs
    emitter.call("conv", operands, [emitter.result()], {**shared, "panels": max(1, limit)})


CPU = Kernels(
    (
        *("conv", "conv_pad", "conv_by_outputs", "conv_inside", "conv_direct", "conv_long"),
        *("conv_winograd", "conv_depthwise", "conv_depthwise_lanes", "strided_copy"),
    ),
    lower_cpu,
)

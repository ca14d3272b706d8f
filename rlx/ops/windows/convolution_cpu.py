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
from rlx.ir.opdef import Emitter, Kernels, Step, TensorType
from rlx.ir.shape import is_sized, size, strides
from rlx.ops.declare import named_operands
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.windows import conv_no_padding, winograd
from rlx.ops.windows.fft_conv import call_long, samples_of_block
from rlx.ops.windows.geometry import FEW, Window, collapsed, params_of, window_of, window_params
from rlx.sizes import flag, largest, smallest

# Result rows whose panels are packed together, so that the panels stay in the cache.
_MAX_OUTPUTS = 512
# Least elements of a filter for which windows, read where they stand, are multiplied by packed weights. With fewer of
# them, to store results takes longer than the products.
_DEEP = 128
# The same for few windows.
_SHALLOW = 4
# The part of the lanes that outputs have to fill for that at least, on the widest vectors.
_FULL = 7 / 8
# The quarters of the lanes that a row of results has to fill for the depthwise kernel whose lanes are windows of a row.
_FULL_ROW = 3
# Elements of the shortest vector.
_SHORTEST_VECTOR = 4
# Planes, at least, and elements of one and of its results, at most, for the kernel whose lanes are planes.
_PLANES, _SMALL_PLANES = 8, 16384


def _operands(node: Node, emitter: Emitter) -> list[Any]:
    """x, w, bias and what is added to the result, None for those that are absent."""
    results = named_operands(node, emitter, ("x", "w", "bias", "residual"))
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


def _depthwise_kernels(node: Node, window: Window) -> dict[str, Any]:
    """The kernels for planes with a filter each, and 1 where they fit, a size where sizes tell; the first that fits is taken."""
    if node.inputs[1].shape[1] != 1:
        return {}
    flat = window.dims[0] == window.out[0] == window.kernel[0] == 1
    columns, step = window.out[2], window.stride[2]
    rows = 0
    if node.dtype is DType.F32 and flat and step in (1, 2):
        # It makes four rows at a time; few long rows are left to the direct kernel.
        rows = flag(window.out[1] - 3) * flag(window.dims[2] - _SHORTEST_VECTOR + 1)
    # Rows of these kernels are read once for four rows of results.
    near = window.dilation[1] == 1 and window.stride[1] == step and window.kernel[1] in (3, 5, 7)
    full = flag(4 * columns - (_FULL_ROW if step == 1 else 4) * _lanes(columns) + 1)
    lanes = 1 - rows * full if near else 1
    if node.shape[1] >= _PLANES:
        lanes = lanes * flag(_SMALL_PLANES - size(window.dims) - size(window.out) + 1)
    else:
        lanes = 0
    return {"conv_depthwise_lanes": lanes, "conv_depthwise": rows}


def _made(
    emitter: Emitter, kernel: str, operands: list[Any], params: dict[str, Any], share: Any
) -> bool:
    """Calls a kernel with a share of the images; ``params`` keep the others. Returns whether there are none in any run."""
    sized, images = is_sized((share,)), params["batch"]
    if sized or share:
        params["batch"] = images * (1 - share)
        emitter.call(kernel, operands, [emitter.result()], {**params, "batch": images * share})
    return not sized and bool(share)


def _is_scaling(node: Node, window: Window) -> bool:
    """Returns whether a convolution only multiplies each plane by a number."""
    single = size(window.kernel) == 1 and window.dims == window.out
    inside = not any(before or after for before, after in window.pads)
    return single and inside and node.inputs[0].shape[1] == node.shape[1] == node.attrs["groups"]


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


def _by_outputs(node: Node, window: Window) -> Any:
    """Returns 1 where the lanes of vectors are outputs, and windows are read in place; 0 or a size as ``_made`` takes it."""
    outputs = node.shape[1] // node.attrs["groups"]
    elements = size(node.inputs[1].shape[1:])
    full = outputs >= _FULL * _lanes(outputs)
    deep = elements >= _DEEP and not (size(window.kernel) == 1 and window.out == window.dims)
    if deep and full:
        return 1
    # All these kernels give the same bits.
    few = flag(CONV_FEW_WINDOWS - _together(node, window) * size(window.out) + 1)
    return few if elements >= _SHALLOW else 0


def lower_cpu(node: Node, emitter: Emitter) -> None:
    """Writes the call of the C kernel that fits, also for a convolution with what follows it."""
    window = collapsed(window_of(node))
    direct = node.shape[1] // node.attrs["groups"] < FEW
    if _is_scaling(node, window):
        _lower_scaling(node, emitter)
        return
    operands, params = _operands(node, emitter), _cpu_params(node, window)
    for kernel, share in _depthwise_kernels(node, window).items() if direct else ():
        if _made(emitter, kernel, operands, params, share):
            return
    if _meets_few(window) and not direct:
        operands[0], window = _only_met(node, emitter, operands[0], window)
        params = _cpu_params(node, window)
    fixed = operands[1].kind in ("param", "constant")
    block = samples_of_block(node, window, fixed)
    if block:
        call_long(node, emitter, operands, params, block)
        return
    share = 0 if direct else winograd.share(node, window, fixed)
    if is_sized((share,)) or share:
        tiled = {**params, "block": winograd.block(node, window)}
        tiled_operands = [*operands, *[None] * (4 - len(operands)), operands[1]]
        if _made(emitter, "conv_winograd", tiled_operands, tiled, share):
            return
        params["batch"] = tiled["batch"]
    if direct:
        shared = {**params, "together": 1, "copied": 1}
        emitter.call("conv_direct", operands, [emitter.result()], shared)
    else:
        _lower_sums(node, emitter, operands, params, window)


def _lower_sums(
    node: Node, emitter: Emitter, operands: list[Any], params: dict[str, Any], window: Window
) -> None:
    """Writes the call of a kernel that adds up products of windows and weights, for enough outputs to fill vectors."""
    padded = any(b for b, _ in window.pads) or any(
        r > n for r, n in zip(window.reach, window.dims, strict=True)
    )
    outputs = node.shape[1] // node.attrs["groups"]
    by_outputs = _by_outputs(node, window)
    sized = is_sized((by_outputs,))
    filled = 1.0 if sized or by_outputs else outputs / _lanes(outputs)
    weights = outputs * size(node.inputs[1].shape[1:])
    fixed = operands[1].kind in ("param", "constant")
    if conv_no_padding.pays(window, node.shape[0], weights, outputs, filled, fixed):
        shared = {**params, "together": conv_no_padding.together(window, node.shape[0])}
        emitter.call("conv_inside", operands, [emitter.result()], shared)
        return
    # Only vectors of windows need those that are apart as neighbours, and so a copy.
    apart = window.stride[2] > 1 and (sized or not by_outputs)
    shared = {**params, "together": _together(node, window), "copied": int(padded or apart)}
    if shared["copied"]:
        # Once for all parts of the convolution.
        elements = size(node.inputs[0].shape[:2]) * padded_plane(fields(params)) + PLANE_SLACK
        copy = emitter.temp(TensorType((elements,), node.dtype))
        windows = {name: value for name, value in params.items() if name != "act"}
        emitter.call("conv_pad", [operands[0]], [copy], windows)
        operands[0] = copy
    if _made(emitter, "conv_by_outputs", operands, shared, by_outputs):
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

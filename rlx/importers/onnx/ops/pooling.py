"""Pools: the largest, the mean or a norm of windows, and regions of interest."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import builder, onnx_op
from rlx.importers.onnx.ops.convolution import Pairs, paddings, per_axis, spatial
from rlx.importers.onnx.ops.shapes import limited, ones_but
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Node
from rlx.ir.shape import Shape, strides


def _window(call: OnnxCall) -> tuple[tuple[int, ...], dict[str, Any]]:
    spatial(call)
    return pool_window(call, call.shape())


def pool_window(call: OnnxCall, shape: Shape) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Kernel and the other arguments of a pool over a tensor of a shape, channels in front."""
    rank = len(shape) - 2
    if rank > 3:
        raise RefusedError(f"a pool over {rank} axes")
    call.need(bool(call.int_list("kernel_shape")), "attribute 'kernel_shape' is missing")
    kernel = per_axis(call, "kernel_shape", rank)
    strides, dilations = per_axis(call, "strides", rank), per_axis(call, "dilations", rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    ceil = bool(call.integer("ceil_mode", 0)) and call.text("auto_pad", "NOTSET") in (
        "NOTSET",
        "VALID",
        "",
    )
    pads: Pairs = paddings(call, shape[2:], reach, strides)
    return kernel, {"stride": strides, "padding": pads, "dilation": dilations, "ceil_mode": ceil}


@onnx_op("MaxPool")
def max_pool(call: OnnxCall) -> Any:
    """The largest of each window, and where it was."""
    kernel, window = _window(call)
    result = call.g.max_pool(call.x(), kernel, **window)
    return (result, _places(call, kernel, window)) if call.wants(1) else result


def _places(call: OnnxCall, kernel: tuple[int, ...], window: dict[str, Any]) -> Node:
    """Position of each window's largest entry in the whole operand, the first of equal ones.

    The windows are gathered: one axis of taps, of which the largest is searched.
    """
    g, x = call.g, call.x()
    sizes = x.shape[2:]
    rank = len(sizes)
    out = g.max_pool(x, kernel, **window).shape[2:]
    taps = math.prod(kernel)
    limited((taps, *out))
    inside = np.ones((taps, *out), bool)
    indices = []
    for a in range(rank):
        tap = np.indices(kernel)[a].reshape(-1) * window["dilation"][a] - window["padding"][a][0]
        step = np.arange(out[a]).reshape(ones_but(rank, {a: out[a]})) * window["stride"][a]
        pos = tap.reshape(-1, *[1] * rank) + step
        inside &= (pos >= 0) & (pos < sizes[a])
        indices.append(np.clip(pos, 0, sizes[a] - 1))
    steps = strides(sizes)
    stored = strides(sizes[::-1])[::-1] if call.integer("storage_order", 0) else steps
    place, number = (reduce(np.add, map(np.multiply, indices, each)) for each in (steps, stored))
    planes = math.prod(x.shape[:2])
    rows = g.reshape(x, (planes, math.prod(sizes)))
    picked = g.gather(rows, g.constant(place.reshape(-1)), 1)
    picked = g.reshape(picked, (planes, taps, math.prod(out)))
    # Padding counts as the least value of the type.
    limits: Any = np.finfo if x.dtype.is_float else np.iinfo
    low = g.constant(limits(x.dtype.numpy).min, x.dtype)
    picked = g.where(g.constant(inside.reshape(1, taps, -1)), picked, low)
    best = g.cast(g.argmax(picked, 1, keepdims=True), "i64")
    numbers = g.expand(g.constant(number.reshape(1, taps, -1)), picked.shape)
    output = g.reshape(g.gather_elements(numbers, best, 1), (*x.shape[:2], *out))
    plane = g.constant(np.arange(planes, dtype=np.int64).reshape(*x.shape[:2], *[1] * rank))
    return g.add(output, g.mul(plane, g.constant(np.int64(math.prod(sizes)))))


@onnx_op("AveragePool")
def average_pool(call: OnnxCall) -> Any:
    """The mean of each window."""
    kernel, window = _window(call)
    return call.g.avg_pool(
        call.x(), kernel, **window, count_include_pad=bool(call.integer("count_include_pad", 0))
    )


@onnx_op("LpPool")
def lp_pool(call: OnnxCall) -> Any:
    """A norm of each window."""
    kernel, window = _window(call)
    return call.g.lp_pool(call.x(), kernel, p=call.integer("p", 2), **window)


onnx_op("GlobalMaxPool")(builder("global_max_pool"))
onnx_op("GlobalAveragePool")(builder("global_avg_pool"))
onnx_op("GlobalLpPool")(builder("global_lp_pool", p=2))


@onnx_op("MaxUnpool")
def max_unpool(call: OnnxCall) -> Any:
    """Entries put back where a pool found them; 0 elsewhere."""
    g, x, indices = call.g, call.x(0), call.x(1)
    rank = spatial(call)
    kernel, strides = per_axis(call, "kernel_shape", rank), per_axis(call, "strides", rank)
    flat = call.int_list("pads", (0,) * (2 * rank))
    call.need(len(flat) == 2 * rank, f"{len(flat)} pads for {rank} axes")
    call.need(indices.shape == x.shape, f"indices of shape {indices.shape} for {x.shape}")
    sizes = tuple(
        (x.shape[a + 2] - 1) * strides[a] + kernel[a] - flat[a] - flat[a + rank]
        for a in range(rank)
    )
    natural = (*x.shape[:2], *sizes)
    rows = g.expand(g.constant(0.0, x.dtype), (math.prod(natural),))
    count = (math.prod(x.shape),)
    # The indices number the entries of the smallest result; a larger one has zeros behind.
    placed = g.scatter_elements(rows, g.reshape(indices, count), g.reshape(x, count), 0)
    placed = g.reshape(placed, natural)
    if call.has(2):
        wanted = call.ints(2)
        call.need(wanted[:2] == natural[:2], f"a result of shape {wanted} of {x.shape}")
        pads = [(0, want - have) for want, have in zip(wanted, natural, strict=True)]
        placed = g.pad(placed, pads)
    return placed

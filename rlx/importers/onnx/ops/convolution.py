"""Convolutions and their transposes, of floats and of quantised integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.products import less_zero, requantized
from rlx.importers.onnx.ops.sampling import bilinear
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Graph, Node

Pairs = list[tuple[int, int]]


def paddings(
    call: OnnxCall, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> Pairs:
    """The padding of each spatial axis; ``window`` is the extent of a window, dilation included.

    Raises:
        ImportModelError: There are too few pads, or no such ``auto_pad``.
    """
    auto, rank = call.text("auto_pad", "NOTSET"), len(sizes)
    both = auto not in ("NOTSET", "") and any(call.int_list("pads", ()))
    call.need(not both, f"both pads and auto_pad {auto!r}")
    if auto in ("NOTSET", ""):
        flat = call.int_list("pads", (0,) * (2 * rank)) or (0,) * (2 * rank)
        if len(flat) != 2 * rank:
            raise ImportModelError(f"{len(flat)} pads for {rank} axes")
        return [(flat[a], flat[a + rank]) for a in range(rank)]
    if auto == "VALID":
        return [(0, 0)] * rank
    results = []
    for size, reach, stride in zip(sizes, window, strides, strict=True):
        spare = max((-(-size // stride) - 1) * stride + reach - size, 0)
        small, large = spare // 2, spare - spare // 2
        results.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return results


def spatial(call: OnnxCall, index: int = 0) -> int:
    """The number of spatial axes.

    Raises:
        ImportModelError: There are none.
    """
    rank = call.rank(index) - 2
    if rank < 1:
        raise ImportModelError(f"no spatial axes in {call.shape(index)}")
    return rank


def per_axis(call: OnnxCall, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """An attribute with one integer per spatial axis."""
    results: tuple[int, ...] = call.int_list(name, (default,) * rank) or (default,) * rank
    if len(results) != rank:
        raise ImportModelError(f"{name} {results} for {rank} axes")
    return results


def _check_kernel(call: OnnxCall, w: Node) -> None:
    """Refuses a ``kernel_shape`` that is not that of the weights."""
    kernel = tuple(call.int_list("kernel_shape") or w.shape[2:])
    call.need(kernel == w.shape[2:], f"kernel_shape {kernel} and weights {w.shape}")


def _conv(call: OnnxCall, x: Node, w: Node, bias: Node | None) -> Node:
    rank = len(x.shape) - 2
    if rank > 3:
        raise RefusedError(f"a convolution over {rank} axes")
    strides, dilations = per_axis(call, "strides", rank), per_axis(call, "dilations", rank)
    _check_kernel(call, w)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    pads = paddings(call, x.shape[2:], reach, strides)
    result: Node = getattr(call.g, f"conv{rank}d")(
        x, w, bias, strides, pads, dilations, call.integer("group", 1)
    )
    return result


@onnx_op("Conv")
def conv(call: OnnxCall) -> Any:
    """Over one to three axes."""
    spatial(call)
    return _conv(call, call.x(0), call.x(1), call.opt(2))


@onnx_op("ConvInteger")
def conv_integer(call: OnnxCall) -> Any:
    """8-bit operands, exact in i32."""
    spatial(call)
    return _exact_conv(call, call.x(0), (0, 1), (2, 3))


# Up to here integers are exact in f32, and so are sums of products that can't exceed it, in any order.
_EXACT = 1 << 24


def _exact_conv(call: OnnxCall, x: Node, operands: tuple[int, int], zeros: tuple[int, int]) -> Node:
    """The convolution of an operand with the channels in front by 8-bit weights, less their zero points, in i32.

    Floats compute it. Where a sum over all channels might exceed what is exact in f32, it is cut into parts by channels:
    two or three convolutions in f32 take less time than one in f64.
    """
    g, w = call.g, call.x(operands[1])
    left = less_zero(g, x, call.opt(zeros[0]))
    right = less_zero(g, w, call.opt(zeros[1]), 0)
    product = math.prod(_largest(call, *pair) for pair in zip(operands, zeros, strict=True))
    channels, some = w.shape[1], (_EXACT - 1) // max(1, product * math.prod(w.shape[2:]))
    parts = -(-channels // some) if some else 0
    if parts <= 1 or call.integer("group", 1) > 1 or parts > _MAX_PARTS:
        wide = "f32" if channels <= some else "f64"
        return g.cast(_conv(call, g.cast(left, wide), g.cast(right, wide), None), "i32")
    # Parts would not show weights for other channels than the operand has.
    call.need(x.shape[1] == w.shape[1], f"{x.shape[1]} channels and weights {w.shape}")
    edges = [channels * part // parts for part in range(parts + 1)]
    sums = []
    for first, end in pairwise(edges):
        a, b = (g.cast(g.narrow(item, 1, first, end - first), "f32") for item in (left, right))
        sums.append(g.cast(_conv(call, a, b, None), "i32"))
    return reduce(g.add, sums)


# Convolutions in f32 that take no longer than one in f64.
_MAX_PARTS = 4


def _largest(call: OnnxCall, index: int, zero: int) -> int:
    """The largest magnitude of an 8-bit operand less its zero point, where that is known."""
    low, high = call.element(index).limits
    if not call.has(zero):
        points = [0]
    elif call.is_known(zero) and call.known(zero).size:
        points = [int(call.known(zero).min()), int(call.known(zero).max())]
    else:
        points = [int(low), int(high)]
    return max(abs(int(end) - point) for end in (low, high) for point in points)


@onnx_op("QLinearConv")
def qlinear_conv(call: OnnxCall) -> Any:
    """Quantised operands and result; weights may have a scale per channel."""
    spatial(call)
    return quantized_conv(call, call.x(0))


def quantized_conv(call: OnnxCall, x: Node) -> Node:
    """A convolution of an 8-bit operand with the channels in front; the other operands are the node's."""
    g, w = call.g, call.x(3)
    exact = _exact_conv(call, x, (0, 3), (2, 5))
    if call.has(8):
        exact = g.add(exact, g.reshape(call.x(8), (w.shape[0], *(1,) * (len(w.shape) - 2))))
    return requantized(call, exact, (1, 4, 6), 7, axis=1)


@onnx_op("ConvTranspose")
def conv_transpose(call: OnnxCall) -> Any:
    """The gradient of a convolution; over three axes as a convolution of a spread operand."""
    g, x, w, bias = call.g, call.x(0), call.x(1), call.opt(2)
    rank = spatial(call)
    strides, dilations = per_axis(call, "strides", rank), per_axis(call, "dilations", rank)
    extra = per_axis(call, "output_padding", rank, 0)
    groups = call.integer("group", 1)
    _check_kernel(call, w)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    whole = [
        s * (n - 1) + o + r for s, n, o, r in zip(strides, x.shape[2:], extra, reach, strict=True)
    ]
    flat = call.int_list("pads", ())
    call.need(len(flat) in (0, 2 * rank), f"{len(flat)} pads for {rank} axes")
    wanted = call.int_list("output_shape")
    auto = call.text("auto_pad", "NOTSET")
    if wanted or auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = wanted or [s * n for s, n in zip(strides, x.shape[2:], strict=True)]
        pads = []
        for total, size in zip(whole, sizes[-rank:], strict=True):
            cut = max(total - size, 0)
            front = cut // 2 if auto == "SAME_UPPER" else cut - cut // 2
            pads.append((front, total - size - front))
    else:
        pads = paddings(call, x.shape[2:], reach, strides)
    if rank <= 2:
        # A result larger than what the operand reaches is padded with zeros behind.
        less = [tuple(max(p, 0) for p in pair) for pair in pads]
        more = [tuple(max(-p, 0) for p in pair) for pair in pads]
        method = getattr(g, f"conv_transpose{rank}d")
        plain = not any(map(any, more))
        result = method(x, w, bias if plain else None, strides, less, extra, dilations, groups)
        if not plain:
            result = g.pad(result, [(0, 0), (0, 0), *more])
            if bias is not None:
                result = g.add(result, g.reshape(bias, (w.shape[1] * groups, *(1,) * rank)))
        return result
    if rank > 3:
        raise RefusedError(f"a transposed convolution over {rank} axes")
    return _spread(g, (x, w, bias), _Windows(strides, pads, extra, dilations), groups)


class _Windows(NamedTuple):
    """Windows of a transposed convolution, per axis: ``pads`` cut entries off the result, ``extra`` are added."""

    strides: Sequence[int]
    pads: Pairs
    extra: Sequence[int]
    dilations: Sequence[int]


def _spread(
    g: Graph, operands: tuple[Node, Node, Node | None], windows: _Windows, groups: int
) -> Node:
    """A transposed convolution over three axes: zeros between the entries, and a flipped kernel."""
    x, w, bias = operands
    for axis, stride in enumerate(windows.strides, 2):
        if stride > 1:
            shape = list(x.shape)
            wide = g.pad(
                g.unsqueeze(x, (axis + 1,)),
                [(0, 0)] * (axis + 1) + [(0, stride - 1)] + [(0, 0)] * (len(shape) - axis - 1),
            )
            shape[axis] *= stride
            x = g.reshape(wide, shape)
            x = g.narrow(x, axis, 0, shape[axis] - stride + 1)
    channels, each = w.shape[0] // groups, w.shape[1]
    kernel = g.flip(w, tuple(range(2, len(w.shape))))
    kernel = g.reshape(kernel, (groups, channels, each, *w.shape[2:]))
    kernel = g.transpose(kernel, (0, 2, 1, *range(3, len(w.shape) + 1)))
    kernel = g.reshape(kernel, (groups * each, channels, *w.shape[2:]))
    around = [
        ((k - 1) * d - before, (k - 1) * d - after + o)
        for k, d, (before, after), o in zip(
            w.shape[2:], windows.dilations, windows.pads, windows.extra, strict=True
        )
    ]
    x = g.pad(x, [(0, 0), (0, 0), *around])
    return g.conv3d(x, kernel, bias, 1, 0, tuple(windows.dilations), groups)


@onnx_op("DeformConv")
def deform_conv(call: OnnxCall) -> Any:
    """A convolution whose taps are moved by offsets, over two axes: samples, then one product."""
    g, x, w, offset = call.g, call.x(0), call.x(1), call.x(2)
    if spatial(call) != 2:
        raise RefusedError("a deformable convolution over other than two axes")
    n, c, height, width = x.shape
    _check_kernel(call, w)
    kh, kw = w.shape[2:]
    strides, dilations = per_axis(call, "strides", 2), per_axis(call, "dilations", 2)
    flat = call.int_list("pads", (0, 0, 0, 0))
    groups, parts = call.integer("group", 1), call.integer("offset_group", 1)
    oh, ow = offset.shape[2:]
    taps = kh * kw
    limited((taps, oh, ow))
    moved = g.reshape(offset, (n, parts, taps, 2, oh, ow))
    where = []
    for axis, (k, out) in enumerate(((kh, oh), (kw, ow))):
        tap = np.arange(k, dtype=np.float32) * dilations[axis] - flat[axis]
        step = np.arange(out, dtype=np.float32) * strides[axis]
        grid = np.repeat(tap, kw) if axis == 0 else np.tile(tap, kh)
        line = step[:, None] if axis == 0 else step[None, :]
        start = grid[:, None, None] + np.broadcast_to(line, (oh, ow))
        part = g.reshape(g.narrow(moved, 3, axis, 1), (n, parts, taps, oh, ow))
        where.append(g.add(part, g.constant(start[None, None], x.dtype)))
    image = g.reshape(x, (n * parts, c // parts, height, width))
    flat_at = [g.reshape(i, (n * parts, taps * oh * ow)) for i in where]
    result = bilinear(g, image, flat_at[0], flat_at[1])
    result = g.reshape(result, (n, parts, c // parts, taps, oh * ow))
    if call.has(4):
        mask = g.reshape(call.x(4), (n, parts, 1, taps, oh * ow))
        result = g.mul(result, mask)
    columns = g.reshape(result, (n, groups, c // groups * taps, oh * ow))
    weights = g.reshape(w, (1, groups, w.shape[0] // groups, w.shape[1] * taps))
    y = g.reshape(g.matmul(weights, columns), (n, w.shape[0], oh, ow))
    bias = call.opt(3)
    return y if bias is None else g.add(y, g.reshape(bias, (w.shape[0], 1, 1)))

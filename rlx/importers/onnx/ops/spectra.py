"""Fourier transforms and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Graph, Node


def _resized(g: Graph, x: Node, axis: int, length: int) -> Node:
    """Cut, or padded with zeros, to a length."""
    pads = [(0, 0)] * len(x.shape)
    pads[axis] = (0, length - x.shape[axis])
    return x if x.shape[axis] == length else g.pad(x, pads)


def _blocks(g: Graph, x: Node) -> Node:
    """``[..., N, 1 or 2]`` as rlx's block layout ``[..., 2N]``."""
    n, parts = x.shape[-2:]
    rest = x.shape[:-2]
    if parts not in (1, 2):
        raise ImportModelError(f"{parts} parts of a complex number")
    real = g.reshape(g.narrow(x, len(rest) + 1, 0, 1), (*rest, n))
    if parts == 1:
        imaginary = g.expand(g.constant(0.0, x.dtype), real.shape)
    else:
        imaginary = g.reshape(g.narrow(x, len(rest) + 1, 1, 1), (*rest, n))
    return g.concat([real, imaginary], len(rest))


def _pairs(g: Graph, x: Node, retained: int, parts: int = 2) -> Node:
    """Block layout as ``[..., kept, parts]``."""
    n = x.shape[-1] // 2
    axis = len(x.shape) - 1
    halves = [g.narrow(x, axis, i * n, retained) for i in range(parts)]
    return g.concat([g.unsqueeze(half, (axis + 1,)) for half in halves], axis + 1)


def _mirrored(g: Graph, x: Node, length: int) -> Node:
    """The whole spectrum ``[..., length, 2]`` of a real signal from its first half."""
    axis = len(x.shape) - 2
    have = length // 2 + 1
    x = _resized(g, x, axis, have)
    if x.shape[-1] == 1:
        x = g.pad(x, [(0, 0)] * (axis + 1) + [(0, 1)])
    rest = length - have
    if not rest:
        return x
    tail = g.flip(g.narrow(x, axis, 1, rest), (axis,))
    sign = g.constant(np.array([1.0, -1.0], np.float32), x.dtype)
    return g.concat([x, g.mul(tail, sign)], axis)


@onnx_op("DFT", since=17)
def dft(call: OnnxCall) -> Any:
    """Along one axis; one half of a real signal's spectrum, forth and back."""
    g, x = call.g, call.x()
    rank = len(x.shape)
    if call.opset < 20:
        axis = call.integer("axis", 1)
    else:
        axis = int(call.number(2)) if call.has(2) else -2
    if not -rank <= axis < rank or axis % rank == rank - 1:
        raise ImportModelError(f"axis {axis} of a tensor of rank {rank}")
    axis %= rank
    inverse, onesided = call.integer("inverse", 0), call.integer("onesided", 0)
    back = inverse and onesided
    call.need(not onesided or inverse or x.shape[-1] == 1, "half a spectrum of complex numbers")
    call.need(not back or x.shape[-1] == 2, "half a spectrum is of complex numbers")
    length = int(call.number(1)) if call.has(1) else (
        2 * (x.shape[axis] - 1) if back else x.shape[axis]
    )  # fmt: skip
    order = [a for a in range(rank - 1) if a != axis] + [axis, rank - 1]
    transposed = g.transpose(x, order)
    if back:
        transposed = _mirrored(g, transposed, length)
    else:
        transposed = _resized(g, transposed, rank - 2, length)
    spectrum = g.fft(_blocks(g, transposed), inverse=bool(inverse))
    retained = length // 2 + 1 if onesided and not inverse else length
    return g.transpose(_pairs(g, spectrum, retained, 1 if back else 2), np.argsort(order).tolist())


@onnx_op("STFT", since=17)
def stft(call: OnnxCall) -> Any:
    """The transforms of windowed frames."""
    g, x = call.g, call.x()
    x = g.unsqueeze(x, (2,)) if len(x.shape) == 2 else x
    step = int(call.number(1))
    size = call.shape(2)[0] if call.has(2) else x.shape[1]
    size = int(call.number(3)) if call.has(3) else size
    if call.has(2):
        call.need(call.shape(2) == (size,), f"a window {call.shape(2)} for frames of {size}")
    batch, samples, parts = x.shape
    if step < 1 or not 1 <= size <= samples:
        raise ImportModelError(f"frames of {size} every {step} of {samples} samples")
    count = (samples - size) // step + 1
    limited((count, size))
    places = np.arange(count)[:, None] * step + np.arange(size)
    frames = g.gather(x, g.constant(places.ravel()), 1)
    frames = g.reshape(frames, (batch, count, size, parts))
    if call.has(2):
        frames = g.mul(frames, g.reshape(call.x(2), (size, 1)))
    spectrum = g.fft(_blocks(g, frames))
    onesided = call.integer("onesided", 1) and parts == 1
    return _pairs(g, spectrum, size // 2 + 1 if onesided else size)


@onnx_op("MelWeightMatrix", raw=True)
def mel_weights(call: OnnxCall) -> Any:
    """Triangles over the bins of a spectrum, at equal distances in mel."""
    count, length, rate = (int(call.number(i)) for i in range(3))
    low, high = float(call.number(3)), float(call.number(4))
    element = element_of(call.integer("output_datatype", 1), "MelWeightMatrix")
    if element.dtype is None:
        raise RefusedError(f"a mel matrix of {element.name}")
    bins = length // 2 + 1
    limited((bins, count))
    call.need(0 <= low <= high and length > 0 < rate, f"frequencies from {low} to {high}")
    ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
    # Edges at equal distances, the upper end left out, as ONNX has it.
    mels = ends[0] + np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2)
    edges = np.floor((length + 1) * 700 * (10 ** (mels / 2595) - 1) / rate).astype(int)
    result = np.zeros((bins, count))
    for index in range(count):
        first, top, last = edges[index : index + 3]
        rise, fall = max(top - first, 0), last - top
        if not rise:
            result[top : top + 1, index] = 1
        else:
            result[first : top + 1, index] = (np.arange(first, top + 1) - first)[
                : bins - first
            ] / rise
        if fall > 0:
            result[top:last, index] = (last - np.arange(top, last))[: max(bins - top, 0)] / fall
    return result.astype(element.numpy)

"""Norms."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.movement import axis_of
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import RefusedError, as_dtype
from rlx.ir.dtype import HALVES, DType
from rlx.ir.graph import Graph, Node


@onnx_op("BatchNormalization")
def batch_norm(call: OnnxCall) -> Any:
    """By given statistics, or in training mode by those of the batch, which join the running ones."""
    g, x = call.g, call.x()
    if call.opset < 9 and not call.integer("spatial", 1):
        raise RefusedError("statistics per position (spatial=0)")
    eps = call.real("epsilon", 1e-5)
    args = [call.x(i) for i in range(1, 5)]
    scale, bias, mean, var = (as_dtype(g, p, x.dtype) for p in args)
    if not call.integer("training_mode", 0) or call.opset < 14:
        return g.batch_norm(x, scale, bias, mean, var, eps)
    axes = (0, *range(2, len(x.shape)))
    momentum = call.real("momentum", 0.9)
    result = g.mean(x, axes, True)
    centred = g.sub(x, result)
    spread = g.mean(g.mul(centred, centred), axes)
    middle = g.reshape(result, mean.shape)
    y = g.batch_norm(x, scale, bias, middle, spread, eps)
    # Running statistics have the type of the old ones, whatever that of x is.
    running = [
        g.add(g.mul(old, momentum), g.mul(as_dtype(g, new, old.dtype), 1 - momentum))
        for old, new in zip(args[2:], (middle, spread), strict=True)
    ]
    return (y, *running)


@onnx_op("InstanceNormalization")
def instance_norm(call: OnnxCall) -> Any:
    """Each channel of each sample."""
    return call.g.instance_norm(call.x(0), call.x(1), call.x(2), call.real("epsilon", 1e-5))


def _computed_in(call: OnnxCall, x: Node, since: int) -> DType:
    """The type that statistics are computed in: ``stash_type``, never narrower than x."""
    stash = element_of(call.integer("stash_type", 1), "stash_type").dtype
    return x.dtype if x.dtype is DType.F64 or stash is None or call.opset < since else stash


def _as_rlx_does(x: Node, dtype: DType) -> bool:
    """Returns whether a norm of x is computed in a type anyway: its own, or f32 for 16 bits, rounded once."""
    return dtype is x.dtype or (dtype is DType.F32 and x.dtype in HALVES)


@onnx_op("LayerNormalization")
def layer_norm(call: OnnxCall) -> Any:
    """Over ``axis`` to the last; the mean and 1 / deviation are results too."""
    g, x, axis = call.g, call.x(), axis_of(call, -1)
    eps, dtype = call.real("epsilon", 1e-5), _computed_in(call, call.x(), 17)
    rows = x.shape[axis:]
    scale, bias = call.x(1), call.opt(2)
    if not call.wants(1) and not call.wants(2) and _as_rlx_does(x, dtype):
        fits = scale.shape == rows and (bias is None or bias.shape == rows)
        if fits:
            return g.layer_norm(x, scale, bias, axis=axis, eps=eps)
    wide = as_dtype(g, x, dtype)
    y = as_dtype(g, g.layer_norm(wide, axis=axis, eps=eps), x.dtype)
    y = g.mul(y, scale)
    y = y if bias is None else g.add(y, bias)
    if not call.wants(1) and not call.wants(2):
        return y
    axes = tuple(range(axis, len(x.shape)))
    mean = g.mean(wide, axes, True)
    centred = g.sub(wide, mean)
    inverse = g.rsqrt(g.add(g.mean(g.mul(centred, centred), axes, True), eps))
    # Computed in a type no narrower than x, and given in the one that the node asks for.
    stash = element_of(call.integer("stash_type", 1), "stash_type").dtype or dtype
    return y, as_dtype(g, mean, stash), as_dtype(g, inverse, stash)


@onnx_op("RMSNormalization", since=23)
def rms_norm(call: OnnxCall) -> Any:
    """Over ``axis`` to the last."""
    g, x, axis = call.g, call.x(), axis_of(call, -1)
    eps, dtype = call.real("epsilon", 1e-5), _computed_in(call, call.x(), 23)
    return scaled_rms_norm(g, x, call.x(1), axis, eps, dtype)


def scaled_rms_norm(g: Graph, x: Node, scale: Node, axis: int, eps: float, dtype: DType) -> Node:
    """A norm over ``axis`` to the last, computed in a type, in the type of the scale that it is multiplied with."""
    fits = scale.dtype is x.dtype and scale.shape == x.shape[axis:]
    if fits and _as_rlx_does(x, dtype):
        result: Node = g.rms_norm(x, scale, eps=eps, axis=axis)
        return result
    y = g.rms_norm(as_dtype(g, x, dtype), eps=eps, axis=axis)
    return g.mul(as_dtype(g, y, scale.dtype), scale)


@onnx_op("GroupNormalization", since=18)
def group_norm_by_group(call: OnnxCall) -> Any:
    """Before version 21 scale and bias are per group."""
    g, x = call.g, call.x()
    groups = call.integer("num_groups")
    each = x.shape[1] // groups
    weight, bias = (
        g.reshape(g.expand(g.unsqueeze(call.x(value), (1,)), (groups, each)), (x.shape[1],))
        for value in (1, 2)
    )
    return g.group_norm(x, groups, weight, bias, eps=call.real("epsilon", 1e-5))


@onnx_op("GroupNormalization", since=21)
def group_norm(call: OnnxCall) -> Any:
    """Scale and bias per channel."""
    g, x, eps = call.g, call.x(), call.real("epsilon", 1e-5)
    dtype = _computed_in(call, x, 21)
    if _as_rlx_does(x, dtype):
        return g.group_norm(x, call.integer("num_groups"), call.x(1), call.x(2), eps=eps)
    y = as_dtype(
        g, g.group_norm(as_dtype(g, x, dtype), call.integer("num_groups"), eps=eps), x.dtype
    )
    shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
    return g.add(g.mul(y, g.reshape(call.x(1), shape)), g.reshape(call.x(2), shape))


@onnx_op("LpNormalization")
def lp_norm(call: OnnxCall) -> Any:
    """Divided by the norm along an axis; 0 where that is 0."""
    g, x = call.g, call.x()
    method = g.l1 if call.integer("p", 2) == 1 else g.l2
    norm = method(x, (axis_of(call, -1),), True)
    zero, first = g.constant(0.0, x.dtype), g.constant(1.0, x.dtype)
    none = g.eq(norm, zero)
    return g.where(none, zero, g.div(x, g.where(none, first, norm)))


@onnx_op("LRN")
def lrn(call: OnnxCall) -> Any:
    """Divided by a power of the squares of the channels around."""
    g, x = call.g, call.x()
    size = call.integer("size")
    alpha, beta, bias = call.real("alpha", 1e-4), call.real("beta", 0.75), call.real("bias", 1.0)
    channels, rest = x.shape[1], math.prod(x.shape[2:])
    # A window over all channels reaches no further.
    before, after = min((size - 1) // 2, channels), min(size // 2, channels)
    pads = ((0, 0), (before, after), (0, 0))
    square = g.pad(g.reshape(g.mul(x, x), (x.shape[0], channels, rest)), pads)
    summed = reduce(g.add, (g.narrow(square, 1, i, channels) for i in range(before + after + 1)))
    base = g.add(g.mul(g.reshape(summed, x.shape), alpha / size), bias)
    return g.div(x, g.pow(base, g.constant(np.float32(beta), x.dtype)))

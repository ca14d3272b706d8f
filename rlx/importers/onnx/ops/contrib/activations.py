"""Activations with a bias, and approximations of them."""

from __future__ import annotations

import math
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import builder
from rlx.importers.onnx.ops.activations import swished
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.ir.shape import as_axis

contrib("Gelu")(builder("gelu"))


@contrib("BiasGelu")
def bias_gelu(call: OnnxCall) -> Any:
    """Gelu of the sum of both operands."""
    return call.g.gelu(call.g.add(call.x(0), call.x(1)))


@contrib("FastGelu")
def fast_gelu(call: OnnxCall) -> Any:
    """Gelu by tanh, of the sum with a bias where there is one."""
    g, x, bias = call.g, call.x(0), call.opt(1)
    return g.gelu_approx(x if bias is None else g.add(x, bias))


@contrib("QuickGelu")
def quick_gelu(call: OnnxCall) -> Any:
    """X times the sigmoid of alpha x."""
    return swished(call, call.x(), call.real("alpha", 1.702))


@contrib("BiasSplitGelu")
def bias_split_gelu(call: OnnxCall) -> Any:
    """After the bias, the left half times gelu of the right one."""
    g, y = call.g, call.g.add(call.x(0), call.x(1))
    half = y.shape[-1] // 2
    call.need(2 * half == y.shape[-1], f"two halves of {y.shape[-1]} columns")
    left, right = g.split(y, [half, half], -1)
    return g.mul(left, g.gelu(right))


@contrib("BiasAdd")
def bias_add(call: OnnxCall) -> Any:
    """A bias and a skipped operand added."""
    return call.g.add(call.g.add(call.x(0), call.x(1)), call.x(2))


@contrib("BiasSoftmax")
def bias_softmax(call: OnnxCall) -> Any:
    """Softmax of a sum over the axes from one on."""
    g, total = call.g, call.g.add(call.x(0), call.x(1))
    call.ignore("is_inner_broadcast")  # the bias broadcasts as the sum's operand that it was
    shape = call.shape()
    call.need(total.shape == shape, f"a bias of shape {call.shape(1)} for {shape}")
    axis = as_axis(call.integer("axis", 1), len(shape), where="axis")
    rows, columns = math.prod(shape[:axis]), math.prod(shape[axis:])
    return g.reshape(g.softmax(g.reshape(total, (rows, columns))), shape)

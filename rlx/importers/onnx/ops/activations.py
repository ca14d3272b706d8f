"""ONNX's activation functions with attributes, and those that are written with other ops."""

from __future__ import annotations

import math
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import builder, onnx_op
from rlx.importers.onnx.ops.movement import axis_of
from rlx.importers.onnx.ops.shapes import limited
from rlx.ir.graph import Node
from rlx.ops.elementwise.table import SELU_ALPHA, SELU_SCALE

onnx_op("LeakyRelu")(builder("leaky_relu", alpha=0.01))
onnx_op("Elu")(builder("elu", alpha=1.0))
onnx_op("Celu")(builder("celu", alpha=1.0))
onnx_op("HardSigmoid")(builder("hard_sigmoid", alpha=0.2, beta=0.5))


@onnx_op("Selu")
def selu(call: OnnxCall) -> Any:
    """The self-normalising unit, rlx's own where the attributes are the usual ones."""
    g, x = call.g, call.x()
    alpha, gamma = call.real("alpha", SELU_ALPHA), call.real("gamma", SELU_SCALE)
    if abs(alpha - SELU_ALPHA) < 1e-6 and abs(gamma - SELU_SCALE) < 1e-6:
        return g.selu(x)
    return g.mul(g.elu(x, alpha), gamma)


@onnx_op("ThresholdedRelu")
def thresholded_relu(call: OnnxCall) -> Any:
    """Keeps elements above a threshold; 0 elsewhere."""
    g, x = call.g, call.x()
    return g.where(g.gt(x, call.real("alpha", 1.0)), x, g.constant(0.0, x.dtype))


@onnx_op("Gelu")
def gelu(call: OnnxCall) -> Any:
    """By the error function, or its approximation by tanh."""
    kind = "gelu_approx" if call.text("approximate", "none") == "tanh" else "gelu"
    return call.g.activation(kind, call.x())


def swished(call: OnnxCall, x: Node, alpha: float) -> Node:
    """X times the sigmoid of alpha x."""
    g = call.g
    if alpha == 1:
        return g.silu(x)
    wide = call.widened(x)
    return g.cast(g.mul(wide, g.sigmoid(g.mul(wide, alpha))), x.dtype)


@onnx_op("Swish")
def swish(call: OnnxCall) -> Any:
    """A gate of itself."""
    return swished(call, call.x(), call.real("alpha", 1.0))


@onnx_op("SwiGLU")
def swiglu(call: OnnxCall) -> Any:
    """The first operand's swish times the second."""
    return call.g.mul(swished(call, call.x(0), call.real("alpha", 1.0)), call.x(1))


@onnx_op("Shrink")
def shrink(call: OnnxCall) -> Any:
    """Moved toward zero by a bias outside of a band, 0 within."""
    g, x = call.g, call.x()
    lambd, bias = call.real("lambd", 0.5), call.real("bias", 0.0)
    if not x.dtype.is_float:
        return g.cast(_shrunk(g, g.cast(x, "f32"), lambd, bias), x.dtype)
    return _shrunk(g, x, lambd, bias)


def _shrunk(g: Any, x: Node, lambd: float, bias: float) -> Any:
    zero = g.constant(0.0, x.dtype)
    above = g.where(g.gt(x, lambd), g.sub(x, bias), zero)
    return g.where(g.lt(x, -lambd), g.add(x, bias), above)


@onnx_op("Dropout")
def dropout(call: OnnxCall) -> Any:
    """The identity, as it is at inference, where the mask keeps everything; in training some entries are 0."""
    g, x = call.g, call.x()
    training = call.has(2) and bool(call.number(2)) and (not call.has(1) or call.number(1) != 0)
    if not training:
        return x, g.expand(g.constant(True), x.shape)
    ratio = call.number(1) if call.has(1) else 0.5
    noise = g.random_uniform(x.shape, seed=int(call.integer("seed", 0)) & 0xFFFFFFFF)
    keep = g.ge(noise, float(ratio))
    scale = 1.0 / (1.0 - ratio) if ratio < 1 else 0.0
    return g.where(keep, g.mul(x, scale), g.constant(0.0, x.dtype)), keep


@onnx_op("Dropout", since=7)
def dropout_by_attribute(call: OnnxCall) -> Any:
    """The identity; before version 10 the mask is of its type."""
    g, x = call.g, call.x()
    mask = g.constant(1.0, x.dtype) if call.opset < 10 else g.constant(True)
    return x, g.expand(mask, x.shape)


onnx_op("Dropout", since=12, fold=False)(dropout)


@onnx_op("Hardmax", since=13)
def hardmax(call: OnnxCall) -> Any:
    """1 at the first largest entry of an axis, 0 elsewhere."""
    g, x = call.g, call.x()
    axis = axis_of(call, -1)
    limited((x.shape[axis],))
    return g.one_hot(g.argmax(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


@onnx_op("Softmax", "LogSoftmax", since=13)
def softmax(call: OnnxCall) -> Any:
    """Along one axis."""
    method = call.g.softmax if call.node.op == "Softmax" else call.g.log_softmax
    return method(call.x(), call.integer("axis", -1))


@onnx_op("Softmax", "LogSoftmax", "Hardmax")
def softmax_flat(call: OnnxCall) -> Any:
    """Before version 13: along everything from an axis on."""
    g, x = call.g, call.x()
    axis = axis_of(call, 1)
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    flat = g.reshape(x, (rows, columns))
    if call.node.op == "Hardmax":
        limited((columns,))
        result = g.one_hot(g.argmax(flat, 1), columns, dtype=x.dtype)
    else:
        result = (g.softmax if call.node.op == "Softmax" else g.log_softmax)(flat)
    return g.reshape(result, x.shape)

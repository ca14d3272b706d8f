"""Operators on 8-bit tensors: decoded, computed in f32, and quantised again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.products import limits
from rlx.importers.onnx.values import RefusedError, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import as_axis


def _single(call: OnnxCall, index: int) -> Node:
    """A scale or a zero point, of which there is one for the tensor, as a scalar in f32."""
    node = call.x(index)
    if node.shape not in ((), (1,)):
        raise RefusedError(f"input {index} of shape {node.shape}; one scale and zero point for all")
    return call.g.reshape(as_dtype(call.g, node, DType.F32), ())


def decoded(call: OnnxCall, x: Node, scale: int, zero: int) -> Node:
    """8-bit elements as floats, by the operands that hold their scale and zero point."""
    g = call.g
    wide = g.cast(x, "f32")
    if call.has(zero):
        wide = g.sub(wide, _single(call, zero))
    return g.mul(wide, _single(call, scale))


def encoded(call: OnnxCall, y: Node, scale: int, zero: int, dtype: DType) -> Node:
    """A result in 8 bits, by the operands that hold its scale and zero point."""
    g = call.g
    result = g.round(g.div(y, _single(call, scale)))
    if call.has(zero):
        result = g.add(result, _single(call, zero))
    low, high = limits(dtype)
    return g.cast(g.minimum(g.maximum(result, low), high), dtype)


# The function of one decoded operand.
ONE: dict[str, Callable[[OnnxCall, Node], Any]] = {
    "QLinearSigmoid": lambda call, x: call.g.sigmoid(x),
    "QLinearLeakyRelu": lambda call, x: call.g.leaky_relu(x, call.real("alpha", 0.01)),
    "QLinearSoftmax": lambda call, x: _softmax(call, x),
}
# The function of two decoded operands.
TWO: dict[str, Callable[[Graph, Node, Node], Any]] = {
    "QLinearAdd": lambda g, a, b: g.add(a, b),
    "QLinearMul": lambda g, a, b: g.mul(a, b),
}


@contrib(*ONE)
def one_operand(call: OnnxCall) -> Any:
    """A function of one tensor."""
    y = ONE[call.node.op](call, decoded(call, call.x(0), 1, 2))
    return encoded(call, y, 3, 4, call.dtype())


@contrib(*TWO)
def two_operands(call: OnnxCall) -> Any:
    """A function of two tensors that broadcast."""
    y = TWO[call.node.op](call.g, decoded(call, call.x(0), 1, 2), decoded(call, call.x(3), 4, 5))
    return encoded(call, y, 6, 7, call.dtype())


def _softmax(call: OnnxCall, x: Node) -> Any:
    """Along one axis; as it was before version 13 of ONNX: along all from an axis on."""
    g, axis = call.g, as_axis(call.integer("axis", -1), len(x.shape), where="axis")
    if call.integer("opset") >= 13:
        return g.softmax(x, axis)
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return g.reshape(g.softmax(g.reshape(x, (rows, columns))), x.shape)


@contrib("QLinearWhere")
def where(call: OnnxCall) -> Any:
    """One or the other tensor where a condition holds or does not."""
    y = call.g.where(call.x(0), decoded(call, call.x(1), 2, 3), decoded(call, call.x(4), 5, 6))
    return encoded(call, y, 7, 8, call.dtype(1))


@contrib("QLinearConcat")
def concat(call: OnnxCall) -> Any:
    """Tensors of different scales joined along an axis."""
    count = len(call.operands) - 2
    call.need(count > 0 and count % 3 == 0, f"{count} operands, not a multiple of three")
    parts = [decoded(call, call.x(i), i + 1, i + 2) for i in range(2, 2 + count, 3)]
    axis = as_axis(call.integer("axis"), len(parts[0].shape), where="axis")
    y = parts[0] if len(parts) == 1 else call.g.concat(parts, axis)
    return encoded(call, y, 0, 1, call.dtype(2))

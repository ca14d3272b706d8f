"""ONNX's arithmetic, comparisons, logic and bits: rows of a table where an rlx op means the same."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import UINT64
from rlx.importers.onnx.handlers import Handler, builder, onnx_op
from rlx.importers.onnx.values import CARRIERS, RefusedError
from rlx.ir.dtype import DType, store, widen
from rlx.ir.graph import Node

# ONNX's name, rlx's, and whether it is right for 16-bit integers and u64 in a wider type.
UNARY = (
    ("Abs", "abs", False), ("Neg", "neg", True), ("Sign", "sign", False), ("Exp", "exp", False),
    ("Log", "log", False), ("Sqrt", "sqrt", False), ("Reciprocal", "reciprocal", False),
    ("Sin", "sin", False), ("Cos", "cos", False), ("Tan", "tan", False), ("Asin", "asin", False),
    ("Acos", "acos", False), ("Atan", "atan", False), ("Sinh", "sinh", False),
    ("Cosh", "cosh", False), ("Tanh", "tanh", False), ("Asinh", "asinh", False),
    ("Acosh", "acosh", False), ("Atanh", "atanh", False), ("Erf", "erf", False),
    ("Ceil", "ceil", False), ("Floor", "floor", False), ("Round", "round", False),
    ("Sigmoid", "sigmoid", False), ("Relu", "relu", False), ("Softplus", "softplus", False),
    ("Softsign", "softsign", False), ("HardSwish", "hard_swish", False), ("Mish", "mish", False),
    ("IsNaN", "is_nan", False), ("Not", "logical_not", False),
)  # fmt: skip
BINARY = (
    ("Add", "add", True), ("Sub", "sub", True), ("Mul", "mul", True), ("And", "logical_and", False),
    ("Or", "logical_or", False), ("Xor", "logical_xor", False), ("BitwiseAnd", "bit_and", True),
    ("BitwiseOr", "bit_or", True), ("BitwiseXor", "bit_xor", True), ("Equal", "eq", True),
)  # fmt: skip
COMPARISONS = (("Less", "lt"), ("LessOrEqual", "le"), ("Greater", "gt"), ("GreaterOrEqual", "ge"))


def _binary(method: str) -> Handler:
    return lambda call: getattr(call.g, method)(call.x(0), second(call))


def second(call: OnnxCall) -> Node:
    """The second operand; before version 7 it could stand at an axis of the first."""
    b = call.x(1)
    if call.opset >= 7 or not call.integer("broadcast", 0) or "axis" not in call.attributes:
        return b
    behind = call.rank(0) - call.integer("axis") - len(b.shape)
    return call.g.reshape(b, (*b.shape, *(1,) * max(behind, 0)))


def _comparison(method: str) -> Handler:
    def handler(call: OnnxCall) -> Node:
        a, b = call.x(0), second(call)
        if call.element() is not UINT64:
            result: Node = getattr(call.g, method)(a, b)
            return result
        below = _below(call, b, a) if method in ("le", "gt") else _below(call, a, b)
        return call.g.logical_not(below) if method in ("le", "ge") else below

    return handler


def _below(call: OnnxCall, a: Node, b: Node) -> Node:
    """Computes a < b for u64 in i64, where a negative number is a large one."""
    g, zero = call.g, call.g.constant(np.int64(0))
    large_a, large_b = g.lt(a, zero), g.lt(b, zero)
    return g.where(g.logical_not(g.logical_xor(large_a, large_b)), g.lt(a, b), large_b)


for _onnx, _rlx, _carried in UNARY:
    onnx_op(_onnx, carried=_carried)(builder(_rlx))
for _onnx, _rlx, _carried in BINARY:
    onnx_op(_onnx, carried=_carried)(_binary(_rlx))
for _onnx, _rlx in COMPARISONS:
    onnx_op(_onnx, carried=True)(_comparison(_rlx))
onnx_op("Where", carried=True)(builder("where", 3))


@onnx_op("PRelu")
def prelu(call: OnnxCall) -> Any:
    """A slope below zero; one per channel may come as a plain list."""
    g, x, slope = call.g, call.x(0), call.x(1)
    if len(x.shape) > 2 and slope.shape == (x.shape[1],) != (x.shape[-1],):
        slope = g.reshape(slope, (x.shape[1], *(1,) * (len(x.shape) - 2)))
    return g.prelu(x, slope)


@onnx_op("Div", carried=True)
def div(call: OnnxCall) -> Any:
    """Integers are truncated toward zero."""
    if call.element() is UINT64:
        raise RefusedError("division of uint64")
    if call.dtype() is DType.I64 and call.is_known(0) and call.is_known(1):
        a, b = call.known(0), call.known(1)
        # The reference divides in floats; sizes of 2^53 and more stay exact here.
        safe = np.where(b == 0, 1, b)
        quotient = np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe)
        return np.asarray(np.where(b == 0, 0, quotient), np.int64)
    return call.g.div(call.x(0), second(call))


@onnx_op("Mod", carried=True)
def mod(call: OnnxCall) -> Any:
    """The sign of the divisor, or with fmod that of the dividend."""
    if call.element() is UINT64:
        raise RefusedError("remainders of uint64")
    method = call.g.fmod if call.integer("fmod", 0) else call.g.mod
    return method(call.x(0), call.x(1))


def _power_of_half(call: OnnxCall, base: Node, exponent: Node) -> Node:
    """A power of 16 bits whose exponent has more."""
    g = call.g
    if call.is_known(1):
        args = np.asarray(call.known(1), np.float64)
        stored = store(args, base.dtype)
        if np.array_equal(widen(stored, base.dtype), args):
            return g.pow(base, g.constant(stored, base.dtype))
    # An exponent rounded to 16 bits may become a whole number, which powers of negative numbers have.
    return g.cast(g.pow(g.cast(base, "f32"), g.cast(exponent, "f32")), base.dtype)


@onnx_op("Pow", carried=True)
def power(call: OnnxCall) -> Any:
    """The result has the base's type, whatever the exponent's."""
    if call.element().name in CARRIERS:
        raise RefusedError(f"powers of {call.element().name}")
    g, base, exponent = call.g, call.x(0), second(call)
    if base.dtype is exponent.dtype:
        return g.pow(base, exponent)
    if base.dtype.is_float and base.dtype.itemsize == 2 and exponent.dtype.is_float:
        return _power_of_half(call, base, exponent)
    if base.dtype.is_float:
        return g.pow(base, g.cast(exponent, base.dtype))
    if exponent.dtype.is_float:
        # In f64: f32 does not hold all integers.
        return g.cast(g.pow(g.cast(base, "f64"), g.cast(exponent, "f64")), base.dtype)
    return g.pow(base, g.cast(exponent, base.dtype))


@onnx_op("Sum", "Mean")
def total(call: OnnxCall) -> Any:
    """The sum of the operands, or their mean."""
    xs = call.xs()
    result = reduce(call.g.add, xs)
    return result if call.node.op == "Sum" else call.g.mul(result, 1.0 / len(xs))


def _extreme(method: str) -> Handler:
    def handler(call: OnnxCall) -> Node:
        def step(a: Node, b: Node) -> Node:
            if call.element() is not UINT64:
                result: Node = getattr(call.g, method)(a, b)
                return result
            low, high = (a, b) if method == "minimum" else (b, a)
            return call.g.where(_below(call, a, b), low, high)

        return reduce(step, call.xs())

    return handler


onnx_op("Max", carried=True)(_extreme("maximum"))
onnx_op("Min", carried=True)(_extreme("minimum"))


@onnx_op("BitwiseNot", carried=True)
def bitwise_not(call: OnnxCall) -> Any:
    """Every bit inverted."""
    x = call.x()
    return call.g.bit_xor(x, call.g.constant(~x.dtype.numpy.type(0), x.dtype))


@onnx_op("BitShift", carried=True)
def bit_shift(call: OnnxCall) -> Any:
    """Unsigned shifts."""
    g, x, by = call.g, call.x(0), call.x(1)
    if call.text("direction") == "LEFT":
        return g.shift_left(x, by)
    if call.element() is not UINT64:
        return g.shift_right(x, by)
    # An arithmetic shift brings the sign along; the mask of what it leaves takes it away.
    first, zero = g.constant(np.int64(1)), g.constant(np.int64(0))
    retained = g.sub(g.shift_left(first, g.sub(g.constant(np.int64(64)), by)), first)
    masked = g.bit_and(g.shift_right(x, by), retained)
    inside = g.logical_and(g.ge(by, zero), g.lt(by, g.constant(np.int64(64))))
    return g.where(g.eq(by, zero), x, g.where(inside, masked, zero))


@onnx_op("IsInf")
def is_inf(call: OnnxCall) -> Any:
    """Infinite, of the signs that are asked for."""
    g, x = call.g, call.x()
    negative, positive = call.integer("detect_negative", 1), call.integer("detect_positive", 1)
    result = g.is_inf(x)
    if negative and positive:
        return result
    zero = g.constant(0.0, x.dtype)
    if not (negative or positive):
        return g.logical_and(result, g.constant(False))
    return g.logical_and(result, g.lt(x, zero) if negative else g.gt(x, zero))


def _clip(call: OnnxCall, low: Any, high: Any) -> Any:
    x = call.x()
    if low is not None:
        x = call.g.maximum(x, low)
    return x if high is None else call.g.minimum(x, high)


@onnx_op("Clip")
def clip(call: OnnxCall) -> Any:
    """Bounds as attributes, from version 11 on as operands, each of them optional."""
    if call.opset < 11:
        return _clip(call, call.real("min"), call.real("max"))
    bounds: list[Node | None] = []
    for value in (1, 2):
        bound = call.opt(value)
        call.need(bound is None or math.prod(bound.shape) == 1, "a bound is one number")
        bounds.append(None if bound is None else call.g.reshape(bound, ()))
    return _clip(call, *bounds)

"""Products of 8-bit matrices that give floats, and layers with 8-bit weights."""

from __future__ import annotations

import math
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.contrib.quantization import encoded
from rlx.importers.onnx.ops.products import exact_product
from rlx.importers.onnx.ops.quantization import quantized_by_range
from rlx.importers.onnx.ops.recurrent import lstm_layer
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node


def scaled_product(g: Graph, exact: Node, left: Node, right: Node) -> Node:
    """An exact product as floats, by the scales of both factors: one each, or one for each row and for each column."""
    by_row = g.reshape(left, () if math.prod(left.shape) == 1 else (*left.shape, 1))
    scale = g.mul(by_row, right if math.prod(right.shape) > 1 else g.reshape(right, ()))
    return g.mul(g.cast(exact, scale.dtype), scale)


@contrib("MatMulIntegerToFloat")
def integer_to_float(call: OnnxCall) -> Any:
    """8-bit matrices; the result is scaled, and a bias added."""
    g = call.g
    exact = exact_product(g, call.x(0), call.x(1), call.opt(4), call.opt(5))
    y = scaled_product(g, exact, call.x(2), call.x(3))
    return g.add(y, call.x(6)) if call.has(6) else y


@contrib("DynamicQuantizeMatMul")
def dynamic_matmul(call: OnnxCall) -> Any:
    """The first factor is quantised by the range of its elements as it comes."""
    g = call.g
    rows, scale, zero = quantized_by_range(g, call.x(0))
    exact = exact_product(g, rows, call.x(1), zero, call.opt(3))
    y = scaled_product(g, exact, scale, call.x(2))
    return g.add(y, call.x(4)) if call.has(4) else y


@contrib("QGemm")
def quantized_gemm(call: OnnxCall) -> Any:
    """The sum of an 8-bit product and i32 integers, scaled; quantised again where there is a scale for it."""
    g, a, b = call.g, call.x(0), call.x(3)
    a = g.transpose(a) if call.integer("transA", 0) else a
    b = g.transpose(b) if call.integer("transB", 0) else b
    exact = exact_product(g, a, b, call.opt(2), call.opt(5))
    if call.has(6):
        exact = g.add(exact, call.x(6))
    y = scaled_product(g, exact, call.x(1), call.x(4))
    alpha = call.real("alpha", 1.0)
    y = y if alpha == 1 else g.mul(y, alpha)
    if not call.has(7):
        call.need(not call.has(8), "a zero point of the result without its scale")
        return y
    return encoded(call, y, 7, 8, call.dtype(8) if call.has(8) else call.dtype())


@contrib("DynamicQuantizeLSTM")
def dynamic_lstm(call: OnnxCall) -> Any:
    """A recurrent layer with 8-bit weights. What they multiply is rounded to 16 bits at most, not to 8."""
    weights = [_gates(call, i, scale) for i, scale in ((1, 8), (2, 10))]
    call.ignore("activation_alpha", "activation_beta")  # the usual activations have none
    return lstm_layer(call, *weights)


def _gates(call: OnnxCall, index: int, scale: int) -> Node:
    """Weights ``[directions, inputs, gates]`` as floats ``[directions, gates, inputs]``."""
    g, w, zero = call.g, call.x(index), call.x(scale + 1)
    codes, scales = g.transpose(w, (0, 2, 1)), g.cast(call.x(scale), "f32")
    # Zero points in the middle of the range leave signed codes.
    middle = 128 if w.dtype is DType.U8 else 0
    if call.is_known(scale + 1) and bool((call.known(scale + 1) == middle).all()):
        if middle:
            codes = g.cast(g.sub(g.cast(codes, "i32"), middle), "i8")
        return g.add_node("coarse_weights", [codes, g.expand(_rows(g, scales, w), codes.shape[:2])])
    shifted = g.sub(g.cast(codes, "f32"), g.unsqueeze(_rows(g, g.cast(zero, "f32"), w), (-1,)))
    return g.mul(shifted, g.unsqueeze(_rows(g, scales, w), (-1,)))


def _rows(g: Graph, values: Node, w: Node) -> Node:
    """A number for each direction, or for each gate of it, as ``[directions, 1 or gates]``."""
    return g.reshape(values, (w.shape[0], values.shape[1] if len(values.shape) > 1 else 1))

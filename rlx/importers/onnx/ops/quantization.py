"""Quantised tensors: to integers and back, by one scale, by axis or by block."""

from __future__ import annotations

import math
from typing import Any

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import UINT8, Element
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.narrow import FORMATS, decoded, encoded
from rlx.importers.onnx.ops.shapes import ones_but
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import CARRIERS, Coded, OnnxValue, RefusedError, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import as_axis


def _spread(call: OnnxCall, node: Node, x: Node) -> Node:
    """Scales or zero points shaped to go with x: one, one per entry of an axis, or one per block."""
    g, rank, named = call.g, len(x.shape), call.integer("axis", 1)
    if math.prod(node.shape) == 1 and len(node.shape) <= 1:
        call.need(
            not (node.shape == () and call.integer("block_size", 0)), "blocks have no single scale"
        )
        return g.reshape(node, ())
    axis = as_axis(named, rank, where="axis")
    block = call.integer("block_size", 0)
    if len(node.shape) == 1 and not block:
        return g.reshape(node, ones_but(rank, {axis: node.shape[0]}))
    if len(node.shape) != rank:
        raise ImportModelError(f"scales of shape {node.shape} for a tensor of {x.shape}")
    size = block or -(-x.shape[axis] // max(node.shape[axis], 1))
    expected = [-(-d // size) if size and i == axis else d for i, d in enumerate(x.shape)]
    call.need(list(node.shape) == expected, f"scales of shape {node.shape}, not {expected}")
    shape = list(node.shape)
    wide = g.expand(g.unsqueeze(node, (axis + 1,)), (*shape[: axis + 1], size, *shape[axis + 1 :]))
    shape[axis] *= size
    return g.narrow(g.reshape(wide, shape), axis, 0, x.shape[axis])


def _target(call: OnnxCall) -> Element:
    code = call.integer("output_dtype", 0)
    if call.has(2):
        named = call.element(2)
        call.need(code in (0, named.code), f"output_dtype {code} and a zero point of {named.name}")
        return named
    return element_of(code, "output_dtype") if code else UINT8


@onnx_op("QuantizeLinear", carried=True)
def quantize(call: OnnxCall) -> Any:
    """round(x / scale) + zero point, held within the type."""
    g, x, element = call.g, call.x(0), _target(call)
    dtype = element.dtype or CARRIERS.get(element.name)
    saturate = bool(call.integer("saturate", 1))
    if dtype is None or element.numpy.kind not in "iu" or element.dtype is DType.BF16:
        raise RefusedError(f"quantisation to {element.name}")
    scale = call.x(1)
    x = as_dtype(g, x, scale.dtype)
    result = g.div(x, _spread(call, scale, x))
    if element.name in FORMATS:
        wide = as_dtype(g, result, DType.F32)
        if call.has(2):
            wide = g.add(wide, _spread(call, decoded(g, call.x(2), element.name), x))
        return OnnxValue(element, node=encoded(g, wide, element.name, saturate))
    result = g.round(result)
    # A 16-bit range does not fit half precision, so the rest is in f32.
    result = result if result.dtype in (DType.F32, DType.F64) else g.cast(result, "f32")
    if call.has(2):
        result = g.add(result, g.cast(_spread(call, call.x(2), x), result.dtype))
    low, high = element.limits
    stored = g.minimum(g.maximum(result, float(low)), float(high))
    return OnnxValue(element, node=g.cast(stored, dtype))


@onnx_op("DequantizeLinear", carried=True)
def dequantize(call: OnnxCall) -> Any:
    """(x - zero point) * scale. A large weight in 4-bit integers waits for the node that uses it."""
    codes, scale = call.value(0), call.value(1)
    zero = call.value(2) if call.has(2) else None
    waits = codes.element.name in ("int4", "uint4") and call.site.params
    if not waits or codes.array is None or codes.array.ndim != 2 or scale.array is None:
        return _decoded(call)
    if (zero is not None and zero.array is None) or call.integer("output_dtype", 0):
        return _decoded(call)
    return Coded(
        scale.element,
        name=codes.name,
        codes=codes.array,
        scale=scale.array,
        zero=None if zero is None else zero.array,
        axis=as_axis(call.integer("axis", 1), 2, where="axis"),
        block=call.integer("block_size", 0),
        decode=lambda: call.site.node(_decoded(call)),
    )


def _decoded(call: OnnxCall) -> OnnxValue:
    g, x, scale = call.g, call.x(0), call.x(1)
    if call.element(0).name in FORMATS:
        wide = decoded(g, x, call.element(0).name)
        if call.has(2):
            wide = g.sub(wide, _spread(call, decoded(g, call.x(2), call.element(2).name), x))
    else:
        wide = as_dtype(g, x, DType.I32)
        if call.has(2):
            wide = g.sub(wide, as_dtype(g, _spread(call, call.x(2), x), DType.I32))
    code = call.integer("output_dtype", 0)
    target = element_of(code, "output_dtype").dtype if code else scale.dtype
    if target is None:
        raise RefusedError(f"output_dtype {code}")
    through = DType.F64 if scale.dtype is DType.F64 else DType.F32
    spread = as_dtype(g, _spread(call, scale, x), through)
    return OnnxValue.of(as_dtype(g, g.mul(as_dtype(g, wide, through), spread), target))


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize(call: OnnxCall) -> Any:
    """To u8 by the range of the elements, which 0 belongs to."""
    return quantized_by_range(call.g, call.x())


def quantized_by_range(g: Graph, x: Node) -> tuple[Node, Node, Node]:
    """A tensor as u8, the scale, and the zero point."""
    high, low = g.maximum(g.max(x), 0.0), g.minimum(g.min(x), 0.0)
    scale = g.div(g.sub(high, low), 255.0)
    # A tensor of zeros has no scale; 1 keeps its zeros.
    safe = g.where(g.eq(scale, 0.0), g.constant(1.0, x.dtype), scale)
    zero = g.round(g.minimum(g.maximum(g.div(g.neg(low), safe), 0.0), 255.0))
    y = g.minimum(g.maximum(g.add(g.round(g.div(x, safe)), zero), 0.0), 255.0)
    return g.cast(y, "u8"), scale, g.cast(zero, "u8")

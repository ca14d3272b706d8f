"""Operators that ONNX took over, or that mean what ONNX's own of that name mean."""

from __future__ import annotations

from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops import movement, quantization
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.values import TypedResult
from rlx.ir.shape import as_axis

contrib("Trilu")(movement.trilu)
contrib("GatherND", carried=True)(movement.gather_nd)
contrib("QuantizeLinear", carried=True)(quantization.quantize)
contrib("DequantizeLinear", carried=True)(quantization.dequantize)


@contrib("ExpandDims")
def expand_dims(call: OnnxCall) -> Any:
    """One more axis."""
    (axis,) = call.ints(1)
    return call.g.unsqueeze(call.x(), (as_axis(axis, call.rank() + 1, where="axis"),))


@contrib("Unique")
def unique(call: OnnxCall) -> Any:
    """Different entries in the order of their first places, where each is, and their counts."""
    call.need(call.rank() == 1, f"entries of a tensor of rank {call.rank()}")
    values, _, inverse, counts = call.g.unique(call.x(), 0, sorted=False)
    return TypedResult(call.element(), node=values), inverse, counts

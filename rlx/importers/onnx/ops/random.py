"""Random numbers: Philox streams, one per node, the same on every device and in every run."""

from __future__ import annotations

import struct
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.shapes import checked_shape
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import RefusedError, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Node


def _seed(call: OnnxCall) -> int:
    """The bits of the seed, or the number of the node in the model."""
    args = call.real("seed")
    if args is None:
        return call.lowering.position
    return int(struct.unpack("<I", struct.pack("<f", args))[0])


def _type(call: OnnxCall, default: DType) -> DType:
    code = call.integer("dtype")
    result = default if code is None else element_of(code, "dtype").dtype
    if result is None:
        raise RefusedError("random numbers of a type that rlx lacks")
    return result


@onnx_op("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", fold=False)
def drawn(call: OnnxCall) -> Any:
    """Draws random numbers of a shape that is an attribute, or the operand's."""
    like = call.node.op.endswith("Like")
    shape = call.shape() if like else checked_shape(call.int_list("shape", ()))
    dtype = _type(call, call.dtype() if like else DType.F32)
    g, seed = call.g, _seed(call)
    if "Normal" in call.node.op:
        result: Node = g.random_normal(
            shape, seed, mean=call.real("mean", 0.0), scale=call.real("scale", 1.0)
        )
    else:
        result = g.random_uniform(
            shape, seed, low=call.real("low", 0.0), high=call.real("high", 1.0)
        )
    return as_dtype(g, result, dtype)


@onnx_op("Bernoulli", fold=False)
def bernoulli(call: OnnxCall) -> Any:
    """1 with the probability that the operand holds."""
    g, x = call.g, call.x()
    noise = as_dtype(g, g.random_uniform(x.shape, _seed(call)), x.dtype)
    return g.cast(g.lt(noise, x), _type(call, x.dtype))

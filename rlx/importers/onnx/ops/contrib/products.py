"""Products and convolutions with activations, and products with packed weights."""

from __future__ import annotations

import math
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.contrib.domain import activated, contrib
from rlx.importers.onnx.ops.convolution import conv
from rlx.importers.onnx.ops.products import gemm
from rlx.importers.onnx.values import RefusedError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node


@contrib("FusedConv")
def fused_conv(call: OnnxCall) -> Any:
    """A convolution, an operand added to it, and an activation."""
    y = conv(call)
    if call.has(3):
        y = call.g.add(y, call.x(3))
    return activated(call, y, call.float_list("activation_params", ()))


@contrib("FusedGemm")
def fused_gemm(call: OnnxCall) -> Any:
    """A product with a summand, and an activation."""
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return activated(call, gemm(call), [call.real(name) for name in names])


def _turned(call: OnnxCall, index: int, side: str) -> Node:
    """A factor with its axes exchanged as the attributes say."""
    x = call.x(index)
    rank = len(x.shape)
    order = list(range(rank))
    if call.integer(f"transBatch{side}", 0) and rank > 2:
        order = [*order[1 : rank - 1], 0, rank - 1]
    if call.integer(f"trans{side}", 0) and rank > 1:
        order[-2:] = order[:-3:-1]
    return x if order == sorted(order) else call.g.transpose(x, order)


@contrib("FusedMatMul", "TransposeMatMul")
def fused_matmul(call: OnnxCall) -> Any:
    """A scaled product of factors with their axes exchanged."""
    y = call.g.matmul(_turned(call, 0, "A"), _turned(call, 1, "B"))
    alpha = call.real("alpha", 1.0)
    return y if alpha == 1 else call.g.mul(y, alpha)


# Bits of a weight, and the scheme that reads the bytes as they are.
SCHEMES = {4: "int4", 8: "int8"}


@contrib("MatMulNBits")
def matmul_nbits(call: OnnxCall) -> Any:
    """A product with weights in blocks of 4 or 8 bits, which stay packed."""
    g, x = call.g, call.x(0)
    k, n, block = call.integer("K"), call.integer("N"), call.integer("block_size")
    bits = call.integer("bits", 4)
    call.ignore("accuracy_level")  # how roughly others may compute; the sums here are in f32
    if bits not in SCHEMES:
        raise RefusedError(f"weights of {bits} bits; 4 and 8 are read")
    if call.integer("weight_prepacked", 0):
        raise RefusedError("weights in the layout of another device (weight_prepacked)")
    count = -(-k // block)
    call.need(x.shape[-1:] == (k,), f"an operand of shape {x.shape} for {k} weights")
    row_bytes = count * block * bits // 8
    call.need(
        math.prod(call.shape(1)) == n * row_bytes,
        f"weights of shape {call.shape(1)} for {n} rows of {row_bytes} bytes",
    )
    packed = g.reshape(call.x(1), (n, row_bytes))
    scales = g.reshape(call.x(2), (n, count))
    if k < count * block:
        x = g.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(0, count * block - k)])
    y = g.dequant_matmul(x, packed, SCHEMES[bits], scales, _zeros(call, n, count, bits))
    return g.add(y, call.x(5)) if call.has(5) else y


def _zeros(call: OnnxCall, n: int, count: int, bits: int) -> Node | None:
    """The zero points as ``[n, count]``; packed ones are taken apart."""
    g, args = call.g, call.opt(3)
    if args is None:
        return None
    if args.dtype is not DType.U8 or bits == 8:
        return g.reshape(args, (n, count))
    packed = g.cast(g.reshape(args, (n, -(-count // 2), 1)), "i32")
    both = g.concat([g.bit_and(packed, 15), g.shift_right(packed, 4)], 2)
    return g.cast(g.narrow(g.reshape(both, (n, 2 * (-(-count // 2)))), 1, 0, count), "u8")

"""Rounding to blocks of 8 bits: what a cache keeps of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.block_formats import FORMATS
from rlx.ops.declare import one_call, op

_WEIGHTS, _BYTES = FORMATS["Q8_0"].weights, FORMATS["Q8_0"].nbytes
# The scale is the largest number times this: devices agree on products, but not on quotients.
_PART = np.float32(1 / 127)


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    if not shape or shape[-1] % _WEIGHTS:
        raise ShapeError("[quantize_q8_0] x", got=shape, expected=f"rows of {_WEIGHTS} n numbers")
    return TensorType((*shape[:-1], shape[-1] // _WEIGHTS * _BYTES), DType.U8)


def _count(node: Node) -> Any:
    return size(node.inputs[0].shape) // _WEIGHTS


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    params = {"count": _count(node), "pairs": -(-_count(node) // 2)}
    x, y, groups = [emitter.operand(0)], [emitter.result()], -(-params["pairs"] // 64)
    emitter.call("quantize_q8_0", x, y, params, groups)


def _samples() -> list[Sample]:
    odd = np.ones((4, 32), np.float32)
    odd[0, 3], odd[1, 5], odd[2] = np.nan, -np.inf, 0
    # Ties between two codes, and numbers whose scale is no f16 or a subnormal one.
    ties = np.concatenate([np.arange(-127, 128, 2), np.zeros(128)]).reshape(-1, 32) / 2
    ties[:, 0] = 127
    sizes = 1.5 * np.logspace(-9, 9, 64).repeat(32).reshape(64, 32)
    given = [x.astype(np.float32) for x in (odd, ties, sizes, np.ones((0, 64)))]
    shapes = ((3, 32), (7, 1, 160), (5, 3, 64))
    results = [Sample((shape,), {}, (DType.F32,)) for shape in shapes]
    return results + [Sample((x.shape,), {}, (DType.F32,), values=(x,)) for x in given]


@op(
    infer=_infer,
    flops=lambda node: 4.0 * size(node.inputs[0].shape),
    cpu=one_call("quantize_q8_0", lambda node: {"count": _count(node)}),
    webgpu=Kernels(("quantize_q8_0",), _lower_webgpu),
    dtypes=frozenset({DType.F32}),
    internal=True,
    samples=_samples,
)
def quantize_q8_0(x: Array) -> Array:
    """Numbers f32 ``[..., n]`` in blocks of Q8_0, u8 ``[..., n / 32 * 34]``: a scale in f16, and 32 whole numbers.

    The scale is that of the largest number, and codes are the nearest ones, even ones where two are as near. A block
    with a number that is not finite, or with a scale that f16 does not hold, decodes to NaN.
    """
    blocks = x.reshape(-1, _WEIGHTS)
    scale = np.max(np.abs(blocks), axis=1, keepdims=True).astype(np.float32) * _PART
    # The bits of the scale in f16, rounded to the nearest, and what they stand for.
    bits = scale.view(np.int32)
    rounded = (bits - 0x38000000 + 0xFFF + ((bits >> 13) & 1)) >> 13
    small = np.rint(np.where(bits < 0x38800000, scale, 0) * 2.0**24).astype(np.int32)
    half = np.where(bits < 0x38800000, small, np.where(rounded < 0x7C00, rounded, 0x7E00))
    usual = (half * 8192 + 0x38000000).astype(np.int32).view(np.float32)
    scale = np.where(half < 0x400, half * 2.0**-24, usual).astype(np.float64)
    known = (half > 0) & (half < 0x7C00)
    steps = np.where(known, blocks, 0).astype(np.float64) / np.where(known, scale, 1)
    codes = np.clip(np.rint(steps), -127, 127).astype(np.int32)
    packed = [(item & 255).astype(np.uint8) for item in (half, half >> 8, codes)]
    return np.concatenate(packed, axis=1).reshape((*x.shape[:-1], x.shape[-1] // _WEIGHTS * _BYTES))

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
from rlx.ops.declare import op

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


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    emitter.call("quantize_q8_0", [emitter.operand(0)], [emitter.result()], {"count": _count(node)})


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    params = {"count": _count(node), "pairs": -(-_count(node) // 2)}
    operands, groups = [emitter.operand(0)], -(-params["pairs"] // 64)
    emitter.call("quantize_q8_0", operands, [emitter.result()], params, groups)


def _samples() -> list[Sample]:
    odd = np.ones((4, 32), np.float32)
    odd[0, 3], odd[1, 5], odd[2] = np.nan, -np.inf, 0
    # Ties between two codes, and numbers whose scale is no f16 or a subnormal one.
    ties = np.concatenate([np.arange(-127, 128, 2), np.zeros(128)]).reshape(-1, 32) / 2
    ties[:, 0] = 127
    sizes = 1.5 * np.logspace(-9, 9, 64).repeat(32).reshape(64, 32)
    given = (odd, ties, sizes, np.ones((0, 64)))
    return [
        *(Sample((shape,), {}, (DType.F32,)) for shape in ((3, 32), (7, 1, 160), (5, 3, 64))),
        *(Sample((x.shape,), {}, (DType.F32,), values=(x.astype(np.float32),)) for x in given),
    ]


@op(
    infer=_infer,
    flops=lambda node: 4.0 * size(node.inputs[0].shape),
    cpu=Kernels(("quantize_q8_0",), _lower_cpu),
    webgpu=Kernels(("quantize_q8_0",), _lower_webgpu),
    dtypes=frozenset({DType.F32}),
    webgpu_dtypes=frozenset({DType.F32}),
    internal=True,
    samples=_samples,
)
def quantize_q8_0(x: Array) -> Array:
    """Numbers f32 ``[..., n]`` in blocks of Q8_0, u8 ``[..., n / 32 * 34]``: a scale in f16, and 32 whole numbers.

    The scale is that of the largest number, and codes are the nearest ones, even ones where two are as near. A block
    with a number that is not finite, or with a scale that f16 does not hold, decodes to NaN.
    """
    blocks = x.reshape(-1, _WEIGHTS)
    largest = np.max(np.abs(blocks), axis=1, keepdims=True)
    scale = (largest * _PART).astype(np.float16)
    scale = np.where(np.isfinite(scale), scale, np.float16(np.nan))
    steps = np.divide(blocks, scale, dtype=np.float64, out=np.zeros(blocks.shape), where=scale > 0)
    codes = np.clip(np.rint(steps), -127, 127).astype(np.int8)
    packed = np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], axis=1)
    return packed.reshape(*x.shape[:-1], x.shape[-1] // _WEIGHTS * _BYTES)

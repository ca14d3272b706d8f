"""Attention over keys and values of fewer bits, such as those of a cache: kernels widen them as they read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rlx.errors import DTypeError
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array, Kernels, Sample, TensorType
from rlx.ops.attention.attention import (
    WEBGPU_KERNELS,
    attention,
    attention_flops,
    attention_type,
    lower_attention_cpu,
    lower_attention_webgpu,
    shares_keys,
    unpacked,
)
from rlx.ops.attention.quantize_q8_0 import quantize_q8_0
from rlx.ops.block_formats import decode_blocks
from rlx.ops.declare import op


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    q, k, v, *mask = types
    if k.dtype is not v.dtype or k.dtype not in (DType.F16, DType.U8):
        got = f"{k.dtype}, {v.dtype}"
        raise DTypeError("[narrow_attention] k and v", got=got, expected="both f16, or both u8")
    wide = (TensorType(unpacked(item).shape, q.dtype) for item in (k, v))
    return attention_type([q, *wide, *mask], attrs)


def _case(sq: int, sk: int, d: int, dv: int, **given: Any) -> Sample:
    masked = given.get("kind") == "custom"
    shapes = ((2, sq, 4, d), (2, sk, 2, d), (2, sk, 2, dv), (2, sk))[: 4 if masked else 3]
    dtypes = (DType.F32, DType.F16, DType.F16, DType.BOOL)[: len(shapes)]
    attrs = dict.fromkeys(("num_heads", "head_dim", "scale", "softcap", "num_kv_heads"))
    attrs |= {"kind": "none", "layout": "bshd", "present": ("mask",) if masked else (), **given}
    return Sample(shapes, attrs, dtypes)


def _blocks_case(sq: int, sk: int, d: int, dv: int, **given: Any) -> Sample:
    sample, rng = _case(sq, sk, d, dv, **given), np.random.default_rng(sq)
    q, k, v, *mask = (rng.uniform(-2, 2, shape).astype(np.float32) for shape in sample.shapes)
    packed = (quantize_q8_0.reference(item) for item in (k, v))
    values = (q, *packed, *(item > 0 for item in mask))
    dtypes = (DType.F32, DType.U8, DType.U8, DType.BOOL)[: len(values)]
    return Sample(tuple(item.shape for item in values), sample.attrs, dtypes, values=values)


@op(
    free=("k", "v", "mask"),
    infer=_infer,
    flops=attention_flops,
    cpu=Kernels(("attention",), lower_attention_cpu),
    webgpu=Kernels(WEBGPU_KERNELS, lower_attention_webgpu),
    dtypes=frozenset({DType.F32}),
    units_f16=shares_keys,
    tolerance={DType.F32: 1e-5},  # as attention
    internal=True,
    samples=lambda: (
        _case(1, 1, 8, 4),
        _case(1, 300, 64, 64, kind="causal"),
        _case(1, 700, 40, 36, kind="causal"),
        _case(3, 9, 7, 5, kind="causal"),
        _case(7, 50, 6, 6, softcap=2.0),
        _case(2, 275, 8, 8, kind="custom"),
        _case(17, 70, 6, 5),
        _case(40, 200, 64, 64, kind="sliding:50"),
        _case(90, 130, 40, 72, kind="causal"),
        _case(0, 3, 4, 4),
        _blocks_case(1, 1, 32, 64),
        _blocks_case(1, 700, 64, 96, kind="causal"),
        _blocks_case(3, 9, 96, 32, kind="causal"),
        _blocks_case(2, 275, 32, 32, kind="custom"),
        _blocks_case(17, 70, 64, 64, softcap=2.0),
        _blocks_case(90, 130, 64, 160, kind="sliding:50"),
    ),
)
def narrow_attention(  # noqa: PLR0913 - the operation's own signature
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    kind: str = "none",
    num_heads: int | None = None,
    head_dim: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    num_kv_heads: int | None = None,
    layout: Literal["bhsd", "bshd"] = "bhsd",
) -> Array:
    """``attention`` of queries in f32 over keys and values in f16, or u8: blocks of Q8_0 along their last axis."""
    packed = k.dtype == np.uint8
    wide = ((decode_blocks(item, "Q8_0") if packed else item).astype(q.dtype) for item in (k, v))
    heads = num_heads, head_dim, scale, softcap, num_kv_heads
    return attention.reference(q, *wide, mask, kind, *heads, layout)

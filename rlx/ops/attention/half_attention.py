"""Attention over keys and values that stay in 16 bits, such as those of a cache: kernels widen them as they read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

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
)
from rlx.ops.declare import op


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    q, k, v, *mask = types
    if {k.dtype, v.dtype} != {DType.F16}:
        raise DTypeError("[half_attention] k and v", got=f"{k.dtype}, {v.dtype}", expected="f16")
    wide = (TensorType(item.shape, q.dtype) for item in (k, v))
    return attention_type([q, *wide, *mask], attrs)


def _case(sq: int, sk: int, d: int, dv: int, **given: Any) -> Sample:
    masked = given.get("kind") == "custom"
    shapes = ((2, sq, 4, d), (2, sk, 2, d), (2, sk, 2, dv), (2, sk))[: 4 if masked else 3]
    dtypes = (DType.F32, DType.F16, DType.F16, DType.BOOL)[: len(shapes)]
    attrs = dict.fromkeys(("num_heads", "head_dim", "scale", "softcap", "num_kv_heads"))
    attrs |= {"kind": "none", "layout": "bshd", "present": ("mask",) if masked else (), **given}
    return Sample(shapes, attrs, dtypes)


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
    ),
)
def half_attention(  # noqa: PLR0913 - the operation's own signature
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
    """``attention`` of queries in f32 over keys and values in f16."""
    wide = k.astype(q.dtype), v.astype(q.dtype)
    heads = num_heads, head_dim, scale, softcap, num_kv_heads
    return attention.reference(q, *wide, mask, kind, *heads, layout)

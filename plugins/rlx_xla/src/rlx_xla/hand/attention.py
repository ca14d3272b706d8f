"""Attention by ``jax.nn.dot_product_attention``, on NVIDIA GPUs by cuDNN where it takes the operands."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlx.ops.attention.attention import _kind
from rlx.plugin import OPS
from rlx_xla.products import PRECISIONS, operands
from rlx_xla.references import REBOUND
from rlx_xla.values import XlaTracedArray, arithmetic, lifted, widened

# cuDNN takes heads of at most so many numbers, a multiple of 8.
_CUDNN_HEAD = 128


def _heads_last(x: Any, heads: int, layout: str) -> Any:
    """An operand as [batch, sequence, heads, numbers]."""
    if x.ndim == 3:
        return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads)
    return x.transpose(0, 2, 1, 3) if layout == "bhsd" else x


def _visible(name: str, window: int, sizes: tuple[int, int], mask: Any) -> Any:
    """Computes a mask of the keys that each query sees, as [batch, heads, queries, keys]; None for all of them."""
    sq, sk = sizes
    position, key = np.arange(sq)[:, None] + (sk - sq), np.arange(sk)[None, :]
    if name == "custom":
        return jnp.asarray(lifted(mask)).astype(bool)[:, None, None, :]
    if name not in ("causal", "sliding"):
        return None
    seen = key <= position
    return (seen if name == "causal" else seen & (key >= position - window))[None, None]


def _by_cudnn(q: Any, heads: tuple[int, int], name: str) -> bool:
    fits = q.dtype.itemsize == 2 and q.shape[-1] % 8 == 0 and q.shape[-1] <= _CUDNN_HEAD
    return arithmetic().cudnn and fits and name in ("none", "causal") and heads[0] % heads[1] == 0


def attention(  # noqa: PLR0913 - the reference's own parameters
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    kind: str = "none",
    num_heads: int | None = None,
    head_dim: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    num_kv_heads: int | None = None,
    layout: str = "bhsd",
) -> Any:
    """softmax(q k' scale) v."""
    assert num_heads is not None, "inference states it"
    assert num_kv_heads is not None, "inference states it"
    name, window = _kind(kind)
    (q4, k4, v4), _ = operands(q, k, v)
    if arithmetic().platform == "cpu":  # which has no products of 16 bits that are added up in 32
        q4, k4, v4 = map(widened, (q4, k4, v4))
    q4, k4, v4 = (
        _heads_last(x, heads, layout)
        for x, heads in ((q4, num_heads), (k4, num_kv_heads), (v4, num_kv_heads))
    )
    sq, sk = q4.shape[1], k4.shape[1]
    same = q4.dtype == k4.dtype == v4.dtype and v4.shape[-1] == q4.shape[-1]
    if softcap or not same or not q4.size or not k4.size or arithmetic().real == jnp.float64:
        reference = REBOUND.function(OPS["attention"].reference)
        return reference(
            q, k, v, mask, kind, num_heads, head_dim, scale, softcap, num_kv_heads, layout
        )
    cudnn = _by_cudnn(q4, (num_heads, num_kv_heads), name) and (name == "none" or sq == sk)
    causal = name == "causal" and sq == sk
    seen = None if causal else _visible(name, window, (sq, sk), mask)
    bias = None
    if name == "bias":
        bias = jnp.asarray(lifted(mask))
        bias = jnp.broadcast_to(bias, (*(1,) * (4 - bias.ndim), *bias.shape))
    with jax.default_matmul_precision(PRECISIONS[arithmetic().precision]):
        y = jax.nn.dot_product_attention(
            q4,
            k4,
            v4,
            bias,
            seen,
            scale=scale,
            is_causal=causal,
            implementation="cudnn" if cudnn else "xla",
        )
    if seen is not None:  # a query that sees nothing gives zeros
        y = jnp.where(jnp.moveaxis(jnp.any(seen, -1, keepdims=True), 1, 2), y, 0)
    if q.ndim == 3:
        return XlaTracedArray(y.reshape(q.shape[0], sq, -1))
    return XlaTracedArray(y.transpose(0, 2, 1, 3) if layout == "bhsd" else y)


RECORDS = {"attention": attention}

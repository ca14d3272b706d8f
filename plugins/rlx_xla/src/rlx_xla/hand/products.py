"""Products of operations: with weights of f16, and by expert."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from rlx_xla.products import einsum, matmul, operands, product
from rlx_xla.references import REBOUND
from rlx_xla.values import XlaTracedArray, lifted

# Rows of a grouped product up to which each reads its own expert's weights.
_FEW_ROWS = 16


def half_matmul(x: Any, w: Any, bias: Any = (), act: str = "none", transposed: bool = False) -> Any:
    """A product with weights of f16, which are exact in f32."""
    y = matmul(x, w.T if transposed else w)
    y = y + bias[0] if len(bias) else y
    return y if act == "none" else REBOUND.reference(act)(y)


def grouped_matmul(x: Any, w: Any, idx: Any) -> XlaTracedArray:
    """Each row times the weights of its expert: rows sorted by expert, one product for each."""
    if x.shape[0] <= _FEW_ROWS or not w.size:
        return einsum("mk,mkn->mn", x, w[idx])
    index = jnp.asarray(lifted(idx))
    index = jnp.where(index < 0, index + w.shape[0], index)
    order = jnp.argsort(index, stable=True)
    sizes = jnp.bincount(index, length=w.shape[0]).astype(jnp.int32)
    (rows, weights), how = operands(x, w)
    result = lax.ragged_dot(rows[order], weights, sizes, **how)
    return product(jnp.zeros_like(result).at[order].set(result, unique_indices=True))


def partial_grouped_matmul(x: Any, w: Any, idx: Any) -> XlaTracedArray:
    """The same; rows without an expert are 0."""
    index = jnp.asarray(lifted(idx))
    y = grouped_matmul(x, w, XlaTracedArray(jnp.maximum(index, 0)))
    return XlaTracedArray(jnp.where(index[:, None] < 0, 0.0, y.wide))


RECORDS = {
    "half_matmul": half_matmul,
    "grouped_matmul": grouped_matmul,
    "partial_grouped_matmul": partial_grouped_matmul,
}

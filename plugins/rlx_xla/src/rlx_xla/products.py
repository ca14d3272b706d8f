"""Products: in the precision that was asked for, from operands of 16 bits where they have no more."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from rlx_xla.values import XlaTracedArray, arithmetic, capped, is_float, lifted

# JAX's names of the public precisions; f16 and bf16 round the operands instead.
PRECISIONS = {"f32": "highest", "tf32": "tensorfloat32", "bf16": "default", "f16": "default"}
_ROUNDED = {"bf16": jnp.bfloat16, "f16": jnp.float16}


def operands(*arguments: Any) -> tuple[list[Any], dict[str, Any]]:
    """Operands of a product as JAX takes them, and what to tell it.

    Operands of 16 bits are multiplied as they are, which gives exact products, and added up in f32.
    """
    now = arithmetic()
    raw = [
        item.raw if isinstance(item, XlaTracedArray) else jnp.asarray(lifted(item))
        for item in arguments
    ]
    floats = {np.dtype(item.dtype) for item in raw if is_float(item.dtype)}
    narrow = len(floats) == 1 and next(iter(floats)).itemsize == 2
    if not narrow:
        raw = [item.astype(now.real) if is_float(item.dtype) else item for item in raw]
    if now.real == jnp.float64 or not floats:
        return raw, {"precision": "highest"}
    if not narrow and now.precision in _ROUNDED:
        raw = [item.astype(_ROUNDED[now.precision]) for item in raw]
    if narrow and now.platform != "cpu":
        # The units add up in f32 and round once. A result in f32 would be written, read and rounded apart from them.
        return raw, {"precision": "default"}
    precision = "default" if narrow else PRECISIONS[now.precision]
    return raw, {"precision": precision, "preferred_element_type": jnp.float32}


def matmul(a: Any, b: Any) -> XlaTracedArray:
    """``np.matmul``."""
    raw, how = operands(a, b)
    return product(jnp.matmul(*raw, **how))


def einsum(equation: str, *xs: Any) -> XlaTracedArray:
    """``np.einsum``."""
    raw, how = operands(*xs)
    return product(jnp.einsum(equation, *raw, **how))


def product(result: Any) -> XlaTracedArray:
    """The result of a product; one of 16 bits stays so until something is computed from it."""
    return XlaTracedArray(
        result if is_float(result.dtype) and result.dtype.itemsize == 2 else capped(result)
    )


def _turned(b: Any, a: Any) -> XlaTracedArray:
    return matmul(a, b)


setattr(XlaTracedArray, "__matmul__", matmul)  # noqa: B010 - products stand on values
setattr(XlaTracedArray, "__rmatmul__", _turned)  # noqa: B010

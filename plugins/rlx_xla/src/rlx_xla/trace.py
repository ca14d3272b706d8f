"""A graph as a function of JAX arrays: node by node, each by its reference."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax.numpy as jnp
import numpy as np

from rlx.plugin import DType, Node, Tracer
from rlx_xla.references import REBOUND
from rlx_xla.values import XlaTracedArray, computing, is_float

# Constants up to this many bytes become part of the program; larger ones are arguments, as weights are.
INLINE_BYTES = 1 << 14


def stored_dtype(dtype: DType) -> Any:
    """The dtype of JAX that holds values of a dtype."""
    return jnp.dtype(jnp.bfloat16) if dtype is DType.BF16 else jnp.dtype(dtype.numpy)


def as_stored(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """An array of rlx as JAX takes it: bf16, which NumPy lacks, is carried in uint16."""
    return array.view(jnp.bfloat16) if dtype is DType.BF16 else array


class _XlaTracer(Tracer[XlaTracedArray]):
    def as_stored(self, array: np.ndarray[Any, Any], dtype: DType) -> Any:
        return jnp.asarray(as_stored(array, dtype))

    def cast(self, raw: Any, dtype: DType) -> Any:
        target = stored_dtype(dtype)
        if target == jnp.bool_ and raw.dtype != target:
            return raw != 0
        if raw.dtype == jnp.int64 and is_float(target) and target.itemsize == 2:
            raw = raw.astype(jnp.float64)
        return raw.astype(target)

    def around(self, node: Node) -> AbstractContextManager[Any]:
        """Numbers are computed in f64 where an operand or a result is."""
        dtypes = {item.dtype for item in node.inputs} | {type.dtype for type in node.types}
        return computing(real=jnp.float64 if DType.F64 in dtypes else jnp.float32)


outputs_of = _XlaTracer(REBOUND, XlaTracedArray, "rlx-xla").outputs_of

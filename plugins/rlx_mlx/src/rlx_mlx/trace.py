"""A graph as a function of MLX arrays: node by node, each by its reference."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from rlx.plugin import DType, Tracer
from rlx_mlx.references import REBOUND
from rlx_mlx.values import STORED, MlxTracedArray


def as_stored(array: np.ndarray[Any, Any], dtype: DType) -> Any:
    """An array of rlx in MLX: bf16, which NumPy lacks, is carried in uint16."""
    if dtype is DType.F64:  # only passed on: what computes with it runs on the host
        return mx.array(np.asarray(array, order="C").view(np.int64))
    result = mx.array(np.asarray(array, order="C"))
    return result.view(mx.bfloat16) if dtype is DType.BF16 else result


class _MlxTracer(Tracer[MlxTracedArray]):
    def as_stored(self, array: np.ndarray[Any, Any], dtype: DType) -> Any:
        return as_stored(array, dtype)

    def cast(self, raw: Any, dtype: DType) -> Any:
        target = STORED[dtype]
        if target == mx.bool_ and raw.dtype != mx.bool_:
            return raw != 0
        return raw.astype(target)


outputs_of = _MlxTracer(REBOUND, MlxTracedArray, "rlx-mlx").outputs_of

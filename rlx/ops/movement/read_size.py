"""Sizes that a graph computes; ``Graph.read_size`` makes dims of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array, TensorType
from rlx.ops.declare import op
from rlx.sizes import SizeExpr, dims_of


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    size = attrs["size"]
    if types[0].shape != ():
        raise ShapeError("[read_size] not one number", got=types[0].shape, expected="()")
    if not isinstance(size, SizeExpr) or size.terms != dims_of(size)[0].terms:
        raise ShapeError("[read_size] not a dim", got=repr(size))
    return TensorType((), DType.I64)


# The compiler cuts a graph into segments behind these nodes: no backend has kernels for them.
@op(infer=_infer, dtypes=frozenset({DType.I32, DType.I64}), internal=True)
def read_size(x: Array, size: Any) -> Array:
    """The number that becomes the value of a dim."""
    return np.asarray(x, np.int64)

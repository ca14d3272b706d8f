"""The placeholders of a graph: values that come from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError
from rlx.ir.dtype import ALL, DType
from rlx.ir.opdef import Array, Sample, TensorType
from rlx.ops.declare import op


def _declared(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    return TensorType(attrs["shape"], attrs["dtype"])


def _value(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    value, dtype = attrs["value"], attrs["dtype"]
    if not isinstance(dtype, DType) or getattr(value, "dtype", None) != dtype.numpy:
        raise DTypeError("[constant] the array has the wrong type", got=repr(value), expected=dtype)
    return TensorType(value.shape, dtype)


# ``Graph.input``, ``param`` and ``constant`` build these; they run nothing.


@op(infer=_declared, view=True, internal=True)
def input(shape: Any, dtype: Any) -> Array:
    """A value given to every run."""
    return np.zeros(shape, DType.parse(dtype).numpy)


@op(infer=_declared, view=True, internal=True)
def param(shape: Any, dtype: Any) -> Array:
    """A weight, set once."""
    return np.zeros(shape, DType.parse(dtype).numpy)


@op(infer=_value, view=True, internal=True)
def constant(value: Any, dtype: Any) -> Array:
    """A value fixed in the graph."""
    return np.asarray(value)


@op(free=("x",), infer=lambda types, attrs: types[attrs["index"]], view=True, internal=True)
def part(x: Array, index: int) -> Array:
    """Result ``index`` of an operand that has several."""
    return x


def _leading(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    # Not checked against the operand: the number of rows may be a made-up one, larger than it.
    return TensorType((attrs["rows"], *types[0].shape[1:]), types[0].dtype)


@op(
    infer=_leading,
    view=True,
    internal=True,
    webgpu_dtypes=ALL,
    samples=lambda: (
        Sample(((4, 3),), {"rows": 2}),
        Sample(((1, 2),), {"rows": 1}),
        Sample(((5, 0),), {"rows": 3}),
    ),
)
def leading(x: Array, rows: int) -> Array:
    """The first rows of an operand: the beginning of its memory."""
    return x[:rows]


LEAVES = ("input", "param", "constant")

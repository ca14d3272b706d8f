"""Converts values from users, arrays or raw bytes, to the declared shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.arguments import as_array
from rlx.errors import InputError
from rlx.ir.casting import check_array, converted
from rlx.ir.dtype import DType, DTypeLike, store, widen
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, TensorType


def to_array(value: Any, shape: tuple[int, ...], dtype: DType, where: str) -> Array:
    """Converts a value to the storage of a dtype. For bf16 that is uint16; floats are rounded once.

    Args:
        value: Anything that holds an array.
        shape: The declared shape.
        dtype: The declared dtype.
        where: The value's name in messages.

    Raises:
        InputError: Wrong shape, a dtype that does not convert, or values that it can't hold.
    """
    array = as_array(value)
    numpy_dtype = dtype.numpy
    if array.dtype == numpy_dtype and array.shape == shape and dtype is not DType.BF16:
        return np.asarray(array, order="C")
    expected = "floats or bf16 in uint16 " if dtype is DType.BF16 else str(numpy_dtype)
    check_array(array, shape, expected, where)
    if dtype is not DType.BF16:
        return np.asarray(converted(array, numpy_dtype, where), order="C")
    if array.dtype == numpy_dtype:
        return store(array, dtype)
    if array.dtype.kind != "f":
        raise InputError(
            f"{where} has a dtype that does not convert",
            got=str(array.dtype),
            expected=expected,
            hint="convert it with .astype('float32')",
        )
    stored = store(array, dtype)
    if np.any(np.isfinite(array) & ~np.isfinite(widen(stored, dtype))):
        raise InputError(f"{where} holds a value that bf16 can't hold")
    return stored


def from_bytes(node: Node, data: bytes, dtype: DTypeLike, type: TensorType | None = None) -> Array:
    """Raw bytes in row-major order as an array of an input's or param's shape.

    Args:
        node: The input or param.
        data: The bytes.
        dtype: Their dtype.
        type: The type of a node that has dims.

    Raises:
        InputError: They are too few or too many.
    """
    type = node.type if type is None else type
    stored = DType.parse(dtype)
    expected = type.size * stored.itemsize
    if len(data) != expected:
        raise InputError(
            f"bytes of {node.name!r} do not fill it",
            got=f"{len(data)} bytes of {stored}",
            expected=f"{expected} bytes for {list(type.shape)}",
        )
    array = np.frombuffer(data, stored.numpy).reshape(type.shape)
    return widen(array, stored) if stored is DType.BF16 and node.dtype is not DType.BF16 else array

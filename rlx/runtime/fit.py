"""Converts values from users, arrays or raw bytes, to the declared shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.arguments import as_array
from rlx.errors import InputError, describe
from rlx.ir.dtype import DType, DTypeLike, store, widen
from rlx.ir.graph import Node
from rlx.ir.opdef import Array


def fit(value: Any, shape: tuple[int, ...], dtype: DType, where: str) -> Array:
    """Converts a value to the storage of a dtype. For bf16 that is uint16; floats are rounded.

    Args:
        value: Anything that holds an array.
        shape: The declared shape.
        dtype: The declared dtype.
        where: What messages call it.

    Raises:
        InputError: Wrong shape, a dtype that does not convert, or values out of its range.
    """
    array, held = as_array(value), dtype.numpy
    if dtype is DType.BF16:
        fits = array.dtype.kind == "f" or array.dtype == held
    else:
        fits = array.dtype == held or np.can_cast(array.dtype, held, "same_kind")
    if array.shape != shape or not fits:
        wanted = "floats or bf16 in uint16 " if dtype is DType.BF16 else str(held)
        target = "float32" if dtype is DType.BF16 else str(held)
        raise InputError(
            describe(
                f"{where} does not fit",
                got=f"{array.dtype}{list(array.shape)}",
                expected=f"{wanted}{list(shape)}",
                hint=None if fits else f"convert it with .astype({target!r})",
            )
        )
    if array.dtype.itemsize > held.itemsize and held.kind in "iu" and array.dtype.kind in "iu":
        limits = np.iinfo(held)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise InputError(
                describe(f"{where} holds values that {held} can't", got=str(array.dtype))
            )
    return store(array, dtype) if dtype is DType.BF16 else np.asarray(array, held, order="C")


def from_bytes(node: Node, data: bytes, dtype: DTypeLike) -> Array:
    """Raw bytes in row-major order as an array of an input's or param's shape.

    Args:
        node: The input or param.
        data: The bytes.
        dtype: What they hold.

    Raises:
        InputError: They are too few or too many.
    """
    held = DType.parse(dtype)
    expected = node.type.size * held.itemsize
    if len(data) != expected:
        raise InputError(
            describe(
                f"bytes of {node.name!r} do not fill it",
                got=f"{len(data)} bytes of {held}",
                expected=f"{expected} bytes for {list(node.shape)}",
            )
        )
    array = np.frombuffer(data, held.numpy).reshape(node.shape)
    return widen(array, held) if held is DType.BF16 and node.dtype is not DType.BF16 else array

"""Arrays of ml_dtypes: the numbers of 16, 8, 4 and 2 bits that NumPy lacks, as onnx and JAX hold them.

They are known by the names of their dtypes. The package is imported where an array of it is to be made, and nowhere else.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.opdef import Array


def name_of(dtype: Any) -> str:
    """The name that ml_dtypes gives a dtype; "" for a dtype of NumPy."""
    own = getattr(dtype, "isbuiltin", 1) == 2 and dtype.type.__module__.startswith("ml_dtypes")
    return str(dtype.name) if own else ""


def plain(array: Array) -> Array:
    """An array of the same numbers in a dtype of NumPy that holds each of them: float32, int8 or uint8."""
    name = name_of(array.dtype)
    if name.startswith(("bfloat", "float")):
        # A signalling NaN is not an error.
        with np.errstate(invalid="ignore"):
            return array.astype(np.float32)
    if name.startswith(("int", "uint")):
        return array.astype(np.int8 if name.startswith("int") else np.uint8)
    return array


def bits(array: Array) -> Array:
    """An array's bits: uint16 or uint8."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


@functools.cache
def _package() -> ModuleType | None:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes


def dtype_of(name: str) -> np.dtype[Any] | None:
    """The dtype of a name; None where ml_dtypes is not installed, or its release lacks it."""
    result = getattr(_package(), name, None) if name else None
    return None if result is None else np.dtype(result)


def as_extended(array: Array, name: str) -> Array:
    """Bits, or small integers, as an array of ml_dtypes; as they are where there is no such dtype."""
    dtype = dtype_of(name)
    if dtype is None or array.dtype == dtype:
        return array
    return array.astype(dtype) if name.startswith(("int", "uint")) else array.view(dtype)

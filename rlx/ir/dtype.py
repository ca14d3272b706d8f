"""Element types: the one list of what a tensor may hold, and what each device stores it as."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import DTypeError, did_you_mean


class DType(enum.Enum):
    """The element type of a tensor. The value is the short name used in text.

    Example:
        >>> DType.parse("f32").itemsize, DType.parse(np.int64).name
        (4, 'I64')
    """

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F64 = "f64"
    I8 = "i8"
    U8 = "u8"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    BOOL = "bool"

    # There is one object for each type; Enum's own hash is a Python function.
    if not TYPE_CHECKING:
        __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"rlx.DType.{self.name}"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays of this type; bf16, which NumPy lacks, is carried in uint16."""
        return _NUMPY[self]

    @property
    def is_float(self) -> bool:
        """True for a floating-point type."""
        return self in FLOATS

    @property
    def is_integer(self) -> bool:
        """True for a signed or unsigned integer type (bool is not)."""
        return self in INTEGERS

    @staticmethod
    def parse(value: DTypeLike) -> DType:
        """Reads a member, a short name or anything ``np.dtype`` takes.

        Raises:
            DTypeError: There is no such type here.
        """
        if isinstance(value, DType):
            return value
        if isinstance(value, str) and value in _BY_NAME:
            return _BY_NAME[value]
        try:
            kind = np.dtype(value)
            # The type of ml_dtypes; NumPy has none.
            result = DType.BF16 if kind.name == "bfloat16" else _BY_NUMPY.get(kind)
        except TypeError:
            result = None
        if result is None:
            raise DTypeError(
                "not a dtype of rlx",
                got=repr(value),
                expected="a rlx.DType, a NumPy dtype or a short name",
                hint=did_you_mean(str(value), _BY_NAME),
            )
        return result


DTypeLike = DType | str | np.dtype[Any] | type[Any]

_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.uint16),
    DType.F64: np.dtype(np.float64),
    DType.I8: np.dtype(np.int8),
    DType.U8: np.dtype(np.uint8),
    DType.I32: np.dtype(np.int32),
    DType.U32: np.dtype(np.uint32),
    DType.I64: np.dtype(np.int64),
    DType.BOOL: np.dtype(np.bool_),
}
_ITEMSIZE = {dtype: numpy.itemsize for dtype, numpy in _NUMPY.items()}
_BY_NAME = {dtype.value: dtype for dtype in DType}
_BY_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items() if dtype is not DType.BF16}

# The floats of 16 bits.
HALVES = (DType.F16, DType.BF16)
FLOATS = frozenset({DType.F32, DType.F16, DType.BF16, DType.F64})
INTEGERS = frozenset({DType.I8, DType.U8, DType.I32, DType.U32, DType.I64})
NUMERIC = FLOATS | INTEGERS
ALL = frozenset(DType)

# The wider type for a device without kernels for the first type: each value is held exactly,
# and integers wrap to the same bits when they are cast back.
WIDER = {DType.F16: DType.F32, DType.BF16: DType.F32, DType.I8: DType.I32, DType.U8: DType.I32}


def widen(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """An array as references take it: floats in float64, bf16 decoded, the rest as it is."""
    if dtype is DType.BF16:
        # A signalling NaN is not an error.
        with np.errstate(invalid="ignore"):
            return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64) if dtype.is_float else array


def _odd(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array in float32, so that rounding the result further rounds its values once.

    Values between two floats become the one with an odd last bit.
    """
    if array.dtype.itemsize < 4 or array.dtype == np.float32:
        return array.astype(np.float32)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        # Doubles don't hold the bits below the 53rd, so they are joined.
        size = np.where(array < 0, np.zeros_like(array) - array, array).astype(np.uint64)
        retained = ((size >> 11) | ((size & 2047) != 0)).astype(np.float64) * 2048
        array = np.where(size >> 53, retained, size.astype(np.float64)) * np.where(
            array < 0, -1.0, 1.0
        )
    wide = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        near = wide.astype(np.float32)
        bits = near.view(np.uint32) - (np.abs(near) > np.abs(wide)).astype(np.uint32)
        odd: np.ndarray[Any, Any] = bits | (near != wide).astype(np.uint32)
    return odd.view(np.float32)


def store(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """An array rounded once to the storage of ``dtype`` (bf16: to nearest, ties to even).

    An array of uint16 is taken for bf16 in storage already.
    """
    if dtype is not DType.BF16 or array.dtype == np.uint16:
        return np.asarray(array, order="C").astype(dtype.numpy)
    bits = _odd(np.asarray(array, order="C")).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Rounding could turn a NaN's bits into infinity or zero.
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.asarray(np.where(nan, (bits >> 16) | 0x40, rounded), np.uint16)


def stored_array(raw: Any, dtype: Any, shape: Any, offset: int = 0) -> np.ndarray[Any, Any]:
    """An array that a file holds: little endian, numbers and bools of 1 to 8 bytes each.

    Raises:
        ValueError: It is of another dtype, does not fit into the buffer, or a bool is neither 0 nor 1.
    """
    if type(dtype) is not str or type(offset) is not int or offset < 0:
        raise ValueError(f"an array of {dtype!r} at {offset!r}")
    kind = np.dtype(dtype)
    if kind.kind not in "biuf" or kind.itemsize > 8 or kind.str != dtype or dtype[0] == ">":
        raise ValueError(f"an array of {dtype!r}")
    if not all(type(dim) is int and dim >= 0 for dim in shape):
        raise ValueError(f"an array of shape {shape!r}")
    count = math.prod(shape)
    if offset + count * kind.itemsize > len(raw):
        raise ValueError(f"array {dtype}{shape} at {offset} is outside of the file")
    if not count:
        result: np.ndarray[Any, Any] = np.zeros(shape, kind)
        result.setflags(write=False)
        return result
    output = np.frombuffer(raw, kind, count, offset).reshape(shape)
    # A kernel takes a bool for an index of two, and the compiler takes it for 0 or 1.
    if kind.kind == "b" and output.view(np.uint8).max() > 1:
        raise ValueError("a bool that is neither 0 nor 1")
    return output

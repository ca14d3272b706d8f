"""A value of a graph while it is traced: an MLX array that behaves like the float64 array that references expect."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np

from rlx.plugin import DType, TracedArray, listed
from rlx_mlx.sums import total

# By dtype of rlx, the one of MLX. f64 is not here: Metal has none.
STORED = {
    DType.F32: mx.float32,
    DType.F16: mx.float16,
    DType.BF16: mx.bfloat16,
    DType.I8: mx.int8,
    DType.U8: mx.uint8,
    DType.I32: mx.int32,
    DType.U32: mx.uint32,
    DType.I64: mx.int64,
    DType.BOOL: mx.bool_,
}
_NUMPY: dict[Any, np.dtype[Any]] = {
    mx.float32: np.dtype(np.float64),
    mx.float16: np.dtype(np.float64),
    mx.bfloat16: np.dtype(np.float64),
    mx.complex64: np.dtype(np.complex128),
    mx.int8: np.dtype(np.int8),
    mx.uint8: np.dtype(np.uint8),
    mx.int16: np.dtype(np.int16),
    mx.uint16: np.dtype(np.uint16),
    mx.int32: np.dtype(np.int32),
    mx.uint32: np.dtype(np.uint32),
    mx.int64: np.dtype(np.int64),
    mx.uint64: np.dtype(np.uint64),
    mx.bool_: np.dtype(np.bool_),
}
_MLX = {numpy: key for key, numpy in _NUMPY.items() if numpy.kind not in "fc"}
NARROW = (mx.float16, mx.bfloat16)


class MlxTracedArray(TracedArray):
    """An MLX array in place of a NumPy array.

    References see floats of every width as float64; numbers are computed in f32. Values of 16 bits stay as they are
    while they are only moved.

    Attributes:
        raw: The array.
    """

    __slots__ = ()

    @property
    def wide(self) -> Any:
        """The array as numbers are computed from it."""
        return self.raw.astype(mx.float32) if self.raw.dtype in NARROW else self.raw

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that references see."""
        return _NUMPY[self.raw.dtype]

    @property
    def T(self) -> MlxTracedArray:  # noqa: N802 - NumPy's name
        """The axes in reverse order."""
        return MlxTracedArray(mx.transpose(self.raw))

    @property
    def real(self) -> MlxTracedArray:
        """The real parts."""
        return MlxTracedArray(mx.real(self.raw))

    @property
    def imag(self) -> MlxTracedArray:
        """The imaginary parts."""
        return MlxTracedArray(mx.imag(self.raw))

    def astype(self, dtype: Any, **_: Any) -> MlxTracedArray:
        """The same values in another dtype."""
        target = named(np.dtype(dtype))
        floats = target == mx.float32 and (self.raw.dtype in NARROW or self.raw.dtype == mx.float32)
        return MlxTracedArray(self.raw if floats else self.wide.astype(target))

    def reshape(self, *shape: Any) -> MlxTracedArray:
        """The elements in another shape."""
        wanted = list(listed(shape))
        if -1 in wanted:
            others = math.prod(size for size in wanted if size != -1)
            wanted[wanted.index(-1)] = self.size // others if others else 0
        return MlxTracedArray(mx.reshape(self.raw, wanted))

    def transpose(self, *axes: Any) -> MlxTracedArray:
        """The axes in another order."""
        order = listed(axes)
        return MlxTracedArray(
            mx.transpose(self.raw, order)
            if order and order[0] is not None
            else mx.transpose(self.raw)
        )

    def swapaxes(self, first: int, other: int) -> MlxTracedArray:
        """Two axes exchanged."""
        return MlxTracedArray(mx.swapaxes(self.raw, first, other))

    def view(self, dtype: Any) -> MlxTracedArray:
        """The same bytes as elements of another dtype."""
        result = np.dtype(dtype)
        views = {"<f2": mx.float16, "<f4": mx.float32}
        return MlxTracedArray(
            mx.view(mx.contiguous(self.raw), views.get(result.str) or named(result))
        )

    def sum(self, axis: Any = None, keepdims: bool = False) -> MlxTracedArray:
        """Sums along axes."""
        return MlxTracedArray(total(self.wide, axis, keepdims))

    def mean(self, axis: Any = None, keepdims: bool = False) -> MlxTracedArray:
        """Means along axes."""
        return MlxTracedArray(mx.mean(self.wide, axis, keepdims=keepdims))

    def max(self, axis: Any = None, keepdims: bool = False) -> MlxTracedArray:
        """Largest elements along axes."""
        return MlxTracedArray(mx.max(self.wide, axis, keepdims=keepdims))

    def min(self, axis: Any = None, keepdims: bool = False) -> MlxTracedArray:
        """Least elements along axes."""
        return MlxTracedArray(mx.min(self.wide, axis, keepdims=keepdims))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Takes another array in place of its own."""
        result = mx.array(self.raw)
        result[lifted(index)] = lifted(value)
        self.raw = result

    @staticmethod
    def lifted(value: Any) -> Any:
        """A value of a reference as MLX takes it."""
        return lifted(value)

    def __neg__(self) -> MlxTracedArray:
        return MlxTracedArray(mx.negative(self.wide))

    def __invert__(self) -> MlxTracedArray:
        return MlxTracedArray(mx.bitwise_invert(self.wide))

    def __abs__(self) -> MlxTracedArray:
        return MlxTracedArray(mx.abs(self.wide))


def named(dtype: np.dtype[Any]) -> Any:
    """Returns the MLX dtype for a dtype that a reference names."""
    if dtype.kind in "fc":
        return mx.float32 if dtype.kind == "f" else mx.complex64
    return _MLX[dtype]


def array_of(value: np.ndarray[Any, Any]) -> Any:
    """A static array as MLX has it: floats in f32."""
    if value.dtype.kind == "c":
        return mx.array(value.astype(np.complex64))
    return mx.array(
        value.astype(np.float32)
        if value.dtype.kind == "f"
        else np.ascontiguousarray(value).reshape(value.shape)
    )


def lifted(value: Any) -> Any:
    """A value of a reference as MLX takes it."""
    if isinstance(value, MlxTracedArray):
        return value.wide
    if isinstance(value, np.generic):
        return value.item() if value.dtype.kind in "fcb" else mx.array(np.asarray(value))
    if isinstance(value, np.ndarray):
        return array_of(value)
    if isinstance(value, tuple):
        return tuple(lifted(item) for item in value)
    if isinstance(value, list):
        return [lifted(item) for item in value]
    return mx.arange(value.start, value.stop, value.step) if isinstance(value, range) else value

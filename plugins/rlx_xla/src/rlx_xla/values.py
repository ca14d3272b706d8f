"""A value of a graph while it is traced: a JAX array that behaves like the float64 array that references expect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.plugin import TracedArray, listed

_NARROW = (np.dtype(jnp.float16), np.dtype(jnp.bfloat16))


class Arithmetic(NamedTuple):
    """The dtypes in which a node's numbers are computed.

    Attributes:
        real: The dtype of floats between operands and results: f32, or f64 where an operand or result is.
        precision: The public precision of products: "f32", "tf32", "bf16" or "f16".
        platform: The platform that JAX names: "cpu", "cuda", "rocm" or "tpu".
        cudnn: Whether attention may run in cuDNN.
    """

    real: Any = jnp.float32
    precision: str = "f32"
    platform: str = "cpu"
    cudnn: bool = False

    @property
    def complex(self) -> Any:
        """The dtype of complex numbers."""
        return jnp.complex128 if self.real == jnp.float64 else jnp.complex64


_PLAIN = Arithmetic()
_NOW: ContextVar[Arithmetic] = ContextVar("arithmetic", default=_PLAIN)


def arithmetic() -> Arithmetic:
    """Returns the arithmetic of the current node."""
    return _NOW.get()


@contextmanager
def computing(**fields: Any) -> Iterator[None]:
    """Changes the dtypes of the computation."""
    token = _NOW.set(_NOW.get()._replace(**fields))
    try:
        yield
    finally:
        _NOW.reset(token)


class XlaTracedArray(TracedArray):
    """A JAX array in place of a NumPy array.

    References compute in float64. They see this as float64, too, whatever the engine computes in: f32 mostly. Values
    of 16 bits stay as they are while they are only moved, and are widened when something is computed from them.

    Attributes:
        raw: The array, maybe of 16 bits.
    """

    __slots__ = ()

    @property
    def wide(self) -> Any:
        """The array in the dtype that numbers are computed in."""
        return widened(self.raw)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that references see."""
        dtype = np.dtype(self.raw.dtype)
        if is_float(dtype):
            return np.dtype(np.float64)
        return np.dtype(np.complex128) if dtype.kind == "c" else dtype

    @property
    def T(self) -> XlaTracedArray:  # noqa: N802 - NumPy's name
        """The axes in reverse order."""
        return XlaTracedArray(self.raw.T)

    @property
    def real(self) -> XlaTracedArray:
        """The real parts."""
        return XlaTracedArray(self.wide.real)

    @property
    def imag(self) -> XlaTracedArray:
        """The imaginary parts."""
        return XlaTracedArray(self.wide.imag)

    def astype(self, dtype: Any, **_: Any) -> XlaTracedArray:
        """The same values in another dtype."""
        return XlaTracedArray(
            self.raw
            if is_float(np.dtype(dtype)) and is_float(self.raw.dtype)
            else self.wide.astype(computed(dtype))
        )

    def reshape(self, *shape: Any) -> XlaTracedArray:
        """The elements in another shape."""
        wanted = list(listed(shape))
        if -1 in wanted and 0 in wanted:  # of nothing NumPy makes nothing, whatever is left open
            wanted[wanted.index(-1)] = 0
        return XlaTracedArray(self.raw.reshape(wanted))

    def transpose(self, *axes: Any) -> XlaTracedArray:
        """The axes in another order."""
        order = listed(axes)
        return XlaTracedArray(
            jnp.transpose(self.raw, order if order and order[0] is not None else None)
        )

    def swapaxes(self, first: int, other: int) -> XlaTracedArray:
        """Two axes exchanged."""
        return XlaTracedArray(jnp.swapaxes(self.raw, first, other))

    def view(self, dtype: Any) -> XlaTracedArray:
        """The same bytes as elements of another dtype, along the last axis."""
        return XlaTracedArray(reinterpreted(self.raw, np.dtype(dtype)))

    def sum(self, axis: Any = None, keepdims: bool = False) -> XlaTracedArray:
        """Sums along axes."""
        return XlaTracedArray(capped(jnp.sum(self.wide, axis, keepdims=keepdims)))

    def mean(self, axis: Any = None, keepdims: bool = False) -> XlaTracedArray:
        """Means along axes."""
        return XlaTracedArray(capped(jnp.mean(self.wide, axis, keepdims=keepdims)))

    def max(self, axis: Any = None, keepdims: bool = False) -> XlaTracedArray:
        """Largest elements along axes."""
        return XlaTracedArray(jnp.max(self.wide, axis, keepdims=keepdims))

    def min(self, axis: Any = None, keepdims: bool = False) -> XlaTracedArray:
        """Least elements along axes."""
        return XlaTracedArray(jnp.min(self.wide, axis, keepdims=keepdims))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Takes another array in place of its own: JAX's are never changed."""
        self.raw = self.raw.at[lifted(index)].set(lifted(value))

    @staticmethod
    def lifted(value: Any) -> Any:
        """A value of a reference as JAX takes it."""
        return lifted(value)

    @staticmethod
    def capped(array: Any) -> Any:
        """See the function of that name."""
        return capped(array)


def is_float(dtype: Any) -> bool:
    """Returns whether a dtype is a floating-point type, bf16 included."""
    return bool(jnp.issubdtype(dtype, jnp.floating))


def widened(array: Any) -> Any:
    """An array as numbers are computed from it: floats in one dtype."""
    if is_float(array.dtype) and array.dtype != arithmetic().real:
        return array.astype(arithmetic().real)
    return array


def capped(array: Any) -> Any:
    """A result whose floats are no wider than what numbers are computed in."""
    if array.dtype == jnp.float64 or array.dtype in _NARROW:
        return array.astype(arithmetic().real)
    return array.astype(arithmetic().complex) if array.dtype == jnp.complex128 else array


def computed(dtype: Any) -> Any:
    """Returns the JAX dtype for a dtype that a reference names."""
    result = np.dtype(dtype)
    if is_float(result):
        return arithmetic().real
    return arithmetic().complex if result.kind == "c" else result


def lifted(value: Any) -> Any:
    """A value of a reference as JAX takes it: traced ones as arrays, static floats in the dtype of the others."""
    if isinstance(value, XlaTracedArray):
        return value.wide
    if isinstance(value, np.generic):
        # A NumPy float would widen what it meets; a number of Python takes the other's dtype.
        return value.item() if value.dtype.kind in "fc" else value
    if isinstance(value, np.ndarray):
        return value.astype(computed(value.dtype)) if value.dtype.kind in "fc" else value
    if isinstance(value, (np.dtype, type)) and _names_dtype(value):
        return computed(value)
    if isinstance(value, slice):
        return value
    if isinstance(value, tuple):
        return tuple(lifted(item) for item in value)
    if isinstance(value, list):
        return [lifted(item) for item in value]
    return np.arange(value.start, value.stop, value.step) if isinstance(value, range) else value


def _names_dtype(value: Any) -> bool:
    return isinstance(value, np.dtype) or issubclass(value, (np.generic, float, int, bool, complex))


def reinterpreted(array: Any, dtype: np.dtype[Any]) -> Any:
    """The bytes of an array as elements of another dtype, along the last axis."""
    target, (old, new) = jnp.dtype(dtype), (array.dtype.itemsize, dtype.itemsize)
    if new > old:
        array = array.reshape(*array.shape[:-1], array.shape[-1] * old // new, new // old)
    result = lax.bitcast_convert_type(array, target)
    return result.reshape(*result.shape[:-2], -1) if new < old else result

"""The functions of jax.numpy that replace NumPy's for traced arguments."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx_xla.products import einsum, matmul
from rlx_xla.values import XlaTracedArray, arithmetic, capped, is_float, lifted

# Functions that only move elements: values of 16 bits stay as they are.
_MOVES = frozenset(
    "reshape transpose swapaxes moveaxis broadcast_to concatenate stack expand_dims squeeze flip tile split repeat "
    "triu tril take_along_axis hstack pad".split()
)


def of_jax(path: str) -> Callable[..., Any]:
    """Returns the function that replaces one of NumPy for traced arguments."""
    return BY_HAND.get(path) or _of_jax(path)


def _of_jax(path: str) -> Callable[..., Any]:
    """JAX's function of a name."""
    function, moves = attrgetter(path)(jnp), path in _MOVES

    def apply(*args: Any, **kwargs: Any) -> Any:
        result = _moved(function, args, kwargs) if moves else None
        if result is None:
            result = function(
                *map(lifted, args), **{key: lifted(value) for key, value in kwargs.items()}
            )
        return traced(result)

    return apply


def _moved(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a function that moves elements of 16 bits; None where they are not all of one dtype."""
    first = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
    dtypes = {item.raw.dtype for item in first if isinstance(item, XlaTracedArray)}
    if len(dtypes) != 1 or not all(isinstance(item, XlaTracedArray) for item in first):
        return None
    (dtype,) = dtypes
    if not is_float(dtype) or dtype == arithmetic().real:
        return None
    raw = [item.raw for item in first] if isinstance(args[0], (list, tuple)) else first[0].raw
    return function(
        raw, *map(lifted, args[1:]), **{key: lifted(value) for key, value in kwargs.items()}
    )


def traced(result: Any) -> Any:
    """Results of JAX as traced values."""
    if isinstance(result, (tuple, list)):
        return type(result)(traced(item) for item in result)
    if not hasattr(result, "dtype"):
        return result
    moved = is_float(result.dtype) and result.dtype.itemsize == 2
    return XlaTracedArray(result if moved else capped(result))


def _asarray(value: Any, dtype: Any = None, **_: Any) -> XlaTracedArray:
    if isinstance(value, (list, tuple)):
        value = traced(jnp.stack([jnp.asarray(lifted(item)) for item in value]))
    result = XlaTracedArray(value.raw)  # of its own: it may be changed in place
    return result if dtype is None else result.astype(dtype)


def _power(x: Any, y: Any) -> XlaTracedArray:
    """Powers; of whole numbers by squaring, for exponents of all their bits, and wrapped around as in NumPy."""
    base, exponent = jnp.asarray(lifted(x)), jnp.asarray(lifted(y))
    if base.dtype.kind not in "iu":
        return XlaTracedArray(capped(jnp.power(base, exponent)))
    base, exponent = _alike(base, exponent)

    def step(position: Any, state: Any) -> Any:
        result, square = state
        odd = ((exponent >> position.astype(exponent.dtype)) & 1) != 0
        return jnp.where(odd, result * square, result), square * square

    bits = 8 * exponent.dtype.itemsize - (exponent.dtype.kind == "i")
    return XlaTracedArray(lax.fori_loop(0, bits, step, (jnp.ones_like(base), base))[0])


def _alike(first: Any, other: Any) -> tuple[Any, Any]:
    """Two arrays of one dtype and shape."""
    dtype = jnp.promote_types(first.dtype, other.dtype)
    shape = jnp.broadcast_shapes(first.shape, other.shape)
    return tuple(jnp.broadcast_to(each.astype(dtype), shape) for each in (first, other))  # type: ignore[return-value]


def _take(x: Any, indices: Any, axis: int | None = None) -> XlaTracedArray:
    places = np.asarray(indices) if isinstance(indices, (list, tuple, range)) else lifted(indices)
    raw = x.raw if isinstance(x, XlaTracedArray) else jnp.asarray(lifted(x))
    return XlaTracedArray(jnp.take(raw, places, axis))


def _argsort(x: Any, axis: int = -1, kind: str | None = None) -> XlaTracedArray:
    """All of NumPy's kinds that references name are stable."""
    return XlaTracedArray(jnp.argsort(lifted(x), axis=axis, stable=True))


def _unpackbits(x: XlaTracedArray, axis: int, bitorder: str) -> XlaTracedArray:
    """The bits of bytes along the last axis, the lowest first."""
    assert (axis % x.ndim, bitorder) == (x.ndim - 1, "little"), "references ask for nothing else"
    bits = (x.raw[..., None] >> np.arange(8, dtype=np.uint8)) & np.uint8(1)
    return XlaTracedArray(bits.reshape(*x.shape[:-1], 8 * x.shape[-1]))


def _frames(x: XlaTracedArray, window_shape: int, axis: int = -1) -> Any:
    raise TypeError("windows of traced arrays are made by hand")


# Functions of NumPy that have another name or meaning in JAX.
BY_HAND: dict[str, Callable[..., Any]] = {
    "array": _asarray,
    "asarray": _asarray,
    "ascontiguousarray": _asarray,
    "copy": _asarray,
    "argsort": _argsort,
    "power": _power,
    "take": _take,
    "unpackbits": _unpackbits,
    "matmul": matmul,
    "einsum": einsum,
    "float_power": lambda x, y: XlaTracedArray(capped(jnp.power(lifted(x), lifted(y)))),
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": lambda x: x.size,
    "lib.stride_tricks.sliding_window_view": _frames,
}

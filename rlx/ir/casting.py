"""Conversions of values to a declared dtype: which are made, and which values would be lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import InputError
from rlx.ir.opdef import Array


def check_array(array: Array, shape: tuple[int, ...], expected: str, where: str) -> None:
    """Refuses arrays of another shape, and those that hold no real numbers.

    Raises:
        InputError: It does not fit.
    """
    hint = _HINTS.get(array.dtype.kind)
    if hint is not None or array.shape != shape:
        raise InputError(
            f"{where} does not fit",
            got=f"{array.dtype}{list(array.shape)}",
            expected=f"{expected}{list(shape)}",
            hint=hint,
        )


def converted(array: Array, dtype: Any, where: str) -> Array:
    """An array in another dtype, by NumPy's casting rule "same_kind", where that keeps the values.

    Floats may be rounded. A finite float must not become infinite, and an integer must be held exactly. An
    array that has the dtype is returned as it is, whatever it holds.

    Args:
        array: The array.
        dtype: The declared dtype.
        where: Its name in messages.

    Raises:
        InputError: The dtype does not convert, or a value would be lost.
    """
    if array.dtype == dtype:
        return array
    rule = _rule(array.dtype, np.dtype(dtype))
    if rule is None:
        raise InputError(
            f"{where} has a dtype that does not convert",
            got=str(array.dtype),
            expected=str(np.dtype(dtype)),
            hint=f"convert it with .astype({str(np.dtype(dtype))!r})",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        result: Array = array.astype(dtype, order="C")
        lost = rule(array, result)
    if lost is not None and lost.any():
        index = np.unravel_index(int(np.argmax(lost)), lost.shape)
        place = f" at {[int(i) for i in index]}" if index else ""
        raise InputError(
            f"{where} holds a value that {result.dtype} can't hold",
            got=f"{array[index]!r}{place}",
            expected=f"values in the range of {result.dtype}, and integers that it holds exactly",
            hint=f"to accept the loss, convert it with .astype({str(result.dtype)!r})",
        )
    return result


# Hints for values that are no real numbers, by the kind of their NumPy dtype.
_NUMBERS = "pass a NumPy array of numbers, or nested lists of them"
_HINTS = {
    "O": _NUMBERS,
    "U": _NUMBERS,
    "S": _NUMBERS,
    "M": _NUMBERS,
    "m": _NUMBERS,
    "V": _NUMBERS,
    "c": "pass x.real and x.imag as two inputs, or rlx.signal.complex_block(x)",
}


# Where a conversion lost a value that it has to keep; None where it lost none.
_Rule = Callable[[Array, Array], Array | None]


@functools.cache
def _rule(value: Any, wanted: Any) -> _Rule | None:
    """Returns the rule that checks a conversion between NumPy dtypes; None for conversions that are refused."""
    if not np.can_cast(value, wanted, "same_kind"):
        return None
    if value.kind == "f":
        return _no_loss if value.itemsize <= wanted.itemsize else _became_infinite
    if wanted.kind == "f":
        # NumPy calls 64-bit integers to float64 safe, too.
        exact = value.kind == "b" or 8 * value.itemsize <= np.finfo(wanted).nmant + 1
        return _no_loss if exact else _was_rounded
    return _no_loss if np.can_cast(value, wanted, "safe") else _was_cut


def _no_loss(array: Array, result: Array) -> None:
    """Every value is held."""


def _became_infinite(array: Array, result: Array) -> Array | None:
    finite = np.isfinite(result)
    return None if finite.all() else ~finite & np.isfinite(array)


def _was_rounded(array: Array, result: Array) -> Array:
    # A float of 2^63 or 2^64 does not go back to the integer type.
    limit = 2.0 ** (8 * array.dtype.itemsize - (array.dtype.kind == "i"))
    lost: Array = (result.astype(np.float64) >= limit) | (result.astype(array.dtype) != array)
    return lost


def _was_cut(array: Array, result: Array) -> Array:
    lost: Array = result.astype(array.dtype) != array
    if array.dtype.kind != result.dtype.kind:
        lost |= result < 0  # an unsigned integer with the highest bit set
    return lost

"""Coefficients of filters as users and ``scipy.signal`` give them: checked, in float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from rlx.errors import DTypeError, InputError, describe
from rlx.ir.graph import Node
from rlx.ir.opdef import Array

_SOS_FIRST = "the sections stand before the signal: sosfilt(sos, x)"
_B_FIRST = "the coefficients stand before the signal: lfilter(b, a, x)"
_SOS = "[sections, 6]: b0, b1, b2, a0, a1, a2 of each section"


def sections_of(where: str, sos: Any) -> Array:
    """Second-order sections ``[sections, 6]`` whose a0 is 1.

    Raises:
        InputError: They are not that, are not finite, or an a0 is not 1.
        DTypeError: They are complex.
    """
    rows = _numbers(where, "sos", sos, _SOS_FIRST)
    if rows.ndim != 2 or rows.shape[1] != 6 or not len(rows):
        raise InputError(f"[{where}] sos", got=rows.shape, expected=_SOS, hint=_SOS_FIRST)
    if not np.all(rows[:, 3] == 1):
        raise InputError(
            f"[{where}] sos", got=f"a0 = {rows[:, 3]}", expected="sos[:, 3] all 1", hint=_SOS_FIRST
        )
    return rows


def taps_of(where: str, b: Any, a: Any) -> tuple[Array, Array]:
    """Numerator and denominator as vectors.

    Raises:
        InputError: They are no vectors of finite numbers, or a[0] is 0.
        DTypeError: They are complex.
    """
    results = []
    for name, values in (("b", b), ("a", a)):
        array = np.atleast_1d(_numbers(where, name, values, _B_FIRST))
        if array.ndim != 1 or not array.size:
            raise InputError(
                f"[{where}] {name}",
                got=array.shape,
                expected="a vector of coefficients",
                hint=_B_FIRST,
            )
        results.append(array)
    if results[1][0] == 0:
        raise InputError(
            f"[{where}] a",
            got="a[0] = 0",
            expected="a[0] other than 0: it divides all coefficients",
        )
    return results[0], results[1]


def warn_of_order(b: Array, x: Any) -> None:
    """Warns where the arguments look like ``lfilter(x, b, a)``: the signal is a short denominator."""
    if isinstance(x, Node):
        return
    shape = np.shape(x)
    if len(shape) == 1 and 0 < shape[0] < len(b) and x[0] == 1:
        text = f"x has {shape[0]} samples and begins with 1, and b has {len(b)} coefficients"
        warnings.warn(describe(text, hint=_B_FIRST), UserWarning, stacklevel=3)


def _numbers(where: str, name: str, values: Any, hint: str) -> Array:
    """Finite real numbers in float64."""
    try:
        args = np.asarray(None if isinstance(values, Node) else values)
    except ValueError:  # rows of different lengths
        args = np.asarray(None)
    if args.dtype.kind == "c":
        raise DTypeError(f"[{where}] {name}", got=args.dtype, expected="real coefficients")
    if args.dtype.kind not in "fiub":
        got = type(values).__name__
        raise InputError(f"[{where}] {name}", got=got, expected="numbers", hint=hint)
    array = np.asarray(args, np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"[{where}] {name}", got="NaN or infinity", expected="finite coefficients")
    return array

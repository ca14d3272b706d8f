"""Measures the difference of two contestants' outputs: absolutely, in units in the last place, and as decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType, widen
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array

# The largest difference of an element that passes, in parts of the output's largest value, by the dtype that a
# model computes in. 8-bit models may differ by a step anywhere, and steps add up.
TOLERANCES = {"f64": 1e-9, "f32": 1e-4, "f16": 1e-2, "bf16": 5e-2, "8-bit": 5e-2}


@dataclass(frozen=True)
class Agreement:
    """The difference of one output from the expected one.

    Attributes:
        output: Its name.
        elements: The number of its elements.
        max_abs: The largest difference of two finite elements.
        max_ulp: The same in units in the last place of the output's dtype; None for integers.
        rms: Root of the mean squared difference of the finite elements.
        relative: Norm of the difference by the norm of the expected output; infinite where NaN or infinity
            stands on one side only, or the shapes differ.
        same_argmax: Share of rows whose largest element is at the same place; None for outputs that are
            no table of scores ``[rows, classes]``.
        nan: NaNs in it.
        nan_expected: NaNs in what was expected.
        inf: Infinities in it.
        inf_expected: Infinities in what was expected.
        apart: Elements that differ by more than the tolerance, or of which one alone is not finite.
        failure: Why it does not pass; None where it does.
    """

    output: str
    elements: int
    max_abs: float
    max_ulp: int | None
    rms: float
    relative: float
    same_argmax: float | None
    nan: int
    nan_expected: int
    inf: int
    inf_expected: int
    apart: int
    failure: str | None


def precision_of(graph: Graph) -> str:
    """Returns the dtype that decides the tolerance of a model: the least precise dtype of its computations."""
    results = {node.dtype for node in graph.nodes}
    # Weights alone in 8 bits are exact numbers; what rounds is an activation that becomes 8 bits.
    eight = (DType.I8, DType.U8)
    if any(
        node.dtype in eight and any(x.dtype.is_float for x in node.inputs) for node in graph.nodes
    ):
        return "8-bit"
    narrow = [dtype for dtype in (DType.BF16, DType.F16, DType.F32) if dtype in results]
    return str(narrow[0]) if narrow else "f64"


def agreement(
    output: str,
    got: Array,
    want: Array,
    tolerance: float,
    dtype: DType | None = None,
    allow_nan: bool = False,
) -> Agreement:
    """Compares an output.

    Args:
        output: Its name.
        got: The output.
        want: The expected output.
        tolerance: The largest difference that passes, relative to the largest finite element expected. Integers of 8
            bits pass one step apart, too.
        dtype: The dtype of both, if NumPy lacks it (bf16 in uint16).
        allow_nan: Whether a NaN passes where a NaN was expected.
    """
    if got.shape != want.shape:
        text, inf = f"shape {got.shape}, expected {want.shape}", math.inf
        return Agreement(output, got.size, inf, None, inf, inf, None, 0, 0, 0, 0, got.size, text)
    max_ulp = _ulps(got, want, dtype)
    first, other = _values(got, dtype), _values(want, dtype)
    finite = np.isfinite(first) & np.isfinite(other)
    off = np.abs(first[finite] - other[finite])
    norm = float(np.linalg.norm(other[finite]))
    scale = float(np.max(np.abs(other[finite]), initial=0.0))
    step = 1.0 if got.dtype.kind in "iu" and got.dtype.itemsize == 1 else 0.0
    unlike = (first[~finite] != other[~finite]) & ~(
        np.isnan(first[~finite]) & np.isnan(other[~finite])
    )
    apart = int(np.count_nonzero(off > max(tolerance * scale, step))) + int(unlike.sum())
    nan, nan_expected = (int(np.count_nonzero(np.isnan(a))) for a in (first, other))
    inf, inf_expected = (int(np.count_nonzero(np.isinf(a))) for a in (first, other))
    distance = float(np.linalg.norm(off))
    return Agreement(
        output,
        got.size,
        float(np.max(off, initial=0.0)),
        max_ulp,
        distance / math.sqrt(off.size) if off.size else 0.0,
        math.inf if unlike.any() else (distance / norm if norm else distance),
        _same_argmax(first, other) if got.dtype.kind == "f" or dtype is DType.BF16 else None,
        nan,
        nan_expected,
        inf,
        inf_expected,
        apart,
        _failure(got.size, apart, nan, allow_nan),
    )


def relative_difference(outputs: Iterable[Array], wanted: Iterable[Array]) -> float:
    """The largest ``Agreement.relative`` of several outputs."""
    pairs = zip(outputs, wanted, strict=True)
    return max((agreement("", got, want, 0.0).relative for got, want in pairs), default=0.0)


def _failure(elements: int, apart: int, nan: int, allow_nan: bool) -> str | None:
    if apart:
        return f"{apart} of {elements} elements are further apart than the tolerance"
    if nan and not allow_nan:
        return f"{nan} of {elements} elements are NaN, where NaN was expected (--allow-nan passes them)"
    return None


def _values(array: Array, dtype: DType | None) -> Array:
    if dtype is DType.BF16 and array.dtype == np.uint16:
        return widen(array, dtype)
    return array.astype(np.float64)


def _ulps(got: Array, want: Array, dtype: DType | None) -> int | None:
    """The largest distance in steps from one number of a dtype to the next."""
    if dtype is not DType.BF16:
        if got.dtype.kind != "f":
            return None
        want = want.astype(got.dtype)
    left, other = (np.ascontiguousarray(array).reshape(-1) for array in (got, want))
    unsigned = np.dtype(f"u{left.dtype.itemsize}")
    sign = unsigned.type(1 << (8 * unsigned.itemsize - 1))
    finite = np.isfinite(_values(left, dtype)) & np.isfinite(_values(other, dtype))
    first, second = (_in_order(a[finite].view(unsigned), sign) for a in (left, other))
    return int(np.where(first > second, first - second, second - first).max(initial=0))


def _in_order(bits: Array, sign: np.generic) -> Array:
    """The bits of floats as unsigned integers that are ordered as the floats are; -0 and 0 are one."""
    result: Array = np.where(bits & sign, ~bits + bits.dtype.type(1), bits | sign)
    return result


def _same_argmax(first: Array, other: Array) -> float | None:
    if first.ndim not in (1, 2) or first.shape[-1] < 2 or not first.size:
        return None
    return float(np.mean(np.argmax(first, -1) == np.argmax(other, -1)))

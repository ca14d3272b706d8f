"""A signal at a fraction of its sample rate, after a low-pass filter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.errors import InputError, did_you_mean
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.analytic import resample_poly
from rlx.signal.arrays import on_arrays
from rlx.signal.axes import moved
from rlx.signal.checks import integer
from rlx.signal.filters import banded, sosfilt, sosfiltfilt
from rlx.signal.window_functions import window as window_samples

TYPES = ("iir", "fir")
_RIPPLE = 0.05  # decibels, in SciPy's decimate


def decimate(
    x: Any,
    q: int,
    n: int | None = None,
    ftype: str = "iir",
    axis: int = -1,
    zero_phase: bool = True,
    *,
    device: Any = None,
) -> Any:
    """Every q-th sample after a low-pass filter (``scipy.signal.decimate``).

    Args:
        x: Samples along ``axis``, a node or an array.
        q: Factor down, >= 1.
        n: Order of the filter; 8 for "iir" and 20 q for "fir" by default.
        ftype: "iir", a Chebyshev filter of type I with a ripple of 0.05 dB, or "fir", a filter with a
            Hamming window.
        axis: The axis of time.
        zero_phase: Whether the delay of the filter is undone: "iir" then runs forward and backward.
        device: Where an array is computed, "cpu" by default.

    Returns:
        ceil(samples / q) samples along ``axis``.

    Raises:
        InputError: A setting has no such value.
        ShapeError: x is too short to be filtered backward.

    Example:
        >>> import numpy as np, rlx
        >>> rlx.signal.decimate(np.ones(1000, np.float32), 4).shape
        (250,)
    """
    if ftype not in TYPES:
        raise InputError(
            "[decimate] ftype",
            got=repr(ftype),
            expected="'iir' or 'fir'",
            hint=did_you_mean(str(ftype), TYPES),
        )
    q = integer("decimate", "q", q)
    order = (8 if ftype == "iir" else 20 * q) if n is None else integer("decimate", "n", n)
    return _decimate(x, q, order, ftype, axis, bool(zero_phase), device=device)


@on_arrays
def _decimate(x: Node, q: int, order: int, ftype: str, axis: int, zero_phase: bool) -> Node:
    last, restore = moved("decimate", x, axis)
    if ftype == "fir":
        taps = low_pass(order + 1, 1 / q)
        if zero_phase:
            return restore(resample_poly(last, 1, q, -1, taps))
        return restore(banded(last, taps[::-1], 1, q, 1 - len(taps), -(-last.shape[-1] // q)))
    sos = chebyshev(order, _RIPPLE, 0.8 / q)
    smooth = sosfiltfilt(sos, last) if zero_phase else sosfilt(sos, last)
    return restore(smooth[..., ::q])


def low_pass(taps: int, cutoff: float) -> Array:
    """Coefficients of a low-pass with a Hamming window (``scipy.signal.firwin``), float64.

    Half the amplitude passes at ``cutoff``, a part of half the sample rate.
    """
    pos = np.arange(taps) - (taps - 1) / 2
    result = cutoff * np.sinc(cutoff * pos) * window_samples("hamming", taps, False)
    return np.asarray(result / result.sum())


def chebyshev(order: int, ripple: float, cutoff: float) -> Array:
    """Sections of a low-pass of Chebyshev's type I (Parks & Burrus 1987; ``scipy.signal.cheby1``).

    The gain may fall ``ripple`` decibels below 1 in the pass band, which ends at ``cutoff``, a part of half the sample
    rate.

    Returns:
        float64 ``[ceil(order / 2), 6]``; poles near the unit circle last.
    """
    size = math.asinh(1 / math.sqrt(10 ** (ripple / 10) - 1)) / order
    angle = math.pi * np.arange(1 - order, order, 2) / (2 * order)
    analog = -np.sinh(size + 1j * angle) * 2 * math.tan(math.pi * cutoff / 2)
    # The bilinear transform at two samples per unit of time; all zeros go to -1.
    poles = (2 + analog) / (2 - analog)
    upper = poles[poles.imag > 1e-9]
    upper = upper[np.argsort(np.abs(upper))]
    single = poles[np.abs(poles.imag) <= 1e-9].real
    rows = [[1, 1, 0, 1, -pole, 0] for pole in single]
    rows += [[1, 2, 1, 1, -2 * pole.real, abs(pole) ** 2] for pole in upper]
    sos = np.array(rows, np.float64)
    # At frequency 0 the gain is 1, or at the bottom of the ripple where the order is even.
    wanted = 1.0 if order % 2 else 10 ** (-ripple / 20)
    sos[0, :3] *= wanted / np.prod(sos[:, :3].sum(1) / sos[:, 3:].sum(1))
    return sos

"""Window functions, as SciPy defines them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx.errors import InputError, UnknownNameError, describe, did_you_mean
from rlx.ir.opdef import Array

# Coefficients of the cosine sum: a0 - a1 cos(t) + a2 cos(2t) - ... (Harris 1978).
_COSINE_SUMS: dict[str, Sequence[float]] = {
    "boxcar": (1.0,),
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
}


def window(name: str, n: int, periodic: bool = True) -> Array:
    """A window of n samples.

    Args:
        name: boxcar, hann, hamming or blackman.
        n: Number of samples, >= 1.
        periodic: For spectra (SciPy's default); False gives the symmetric one, for filter design.

    Returns:
        float64 ``[n]``.

    Raises:
        UnknownNameError: There is no such window.
        InputError: ``n`` is below 1.

    Example:
        >>> window("hann", 4).tolist()
        [0.0, 0.5, 1.0, 0.5]
    """
    if name not in _COSINE_SUMS:
        raise UnknownNameError(
            describe(f"no window is named {name!r}", hint=did_you_mean(name, _COSINE_SUMS))
        )
    if n < 1:
        raise InputError(describe("[window] length", got=n, expected="at least 1"))
    if n == 1:
        return np.ones(1)
    t = 2 * math.pi * np.arange(n) / (n if periodic else n - 1)
    result = np.zeros(n)
    for order, weight in enumerate(_COSINE_SUMS[name]):
        result += (-1) ** order * weight * np.cos(order * t)
    return result

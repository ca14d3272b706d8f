"""The analytic signal and the envelope, and resampling by a rational factor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.errors import InputError, ShapeError, describe
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import on_arrays
from rlx.signal.filters import banded
from rlx.signal.fourier import rfft
from rlx.signal.framing import extend
from rlx.signal.spectrum import power_of
from rlx.signal.window_functions import WindowLike
from rlx.signal.window_functions import window as window_samples


@on_arrays
def hilbert(x: Node) -> Node:
    """The analytic signal along the last axis (Marple 1999; ``scipy.signal.hilbert``).

    Args:
        x: ``[..., n]``, n >= 1.

    Returns:
        ``[..., 2 n]`` in block layout: x itself, then its Hilbert transform.

    Raises:
        ShapeError: There are no samples.
    """
    if not x.shape or x.shape[-1] < 1:
        raise ShapeError(describe("[hilbert] no samples", got=x.shape, expected="[..., n >= 1]"))
    g, n = x.graph, x.shape[-1]
    # Negative frequencies are dropped and positive ones doubled; 0 and n / 2 are neither.
    bins = n // 2 + 1
    keep = np.full(bins, 2.0, x.dtype.numpy)
    keep[0] = keep[-1] = 1.0
    if n % 2 and n > 1:
        keep[-1] = 2.0
    halves = g.reshape(rfft(x), (*x.shape[:-1], 2, bins)) * g.constant(keep)
    block = g.reshape(extend(halves, 0, n - bins), (*x.shape[:-1], 2 * n))
    result: Node = g.fft(block, inverse=True)
    return result


@on_arrays
def envelope(x: Node) -> Node:
    """The magnitude of the analytic signal along the last axis.

    Args:
        x: ``[..., n]``, n >= 1.

    Returns:
        Like ``x``.

    Example:
        >>> import numpy as np, rlx
        >>> wave = 3 * np.cos(2 * np.pi * np.arange(64) / 8)
        >>> bool(np.allclose(rlx.signal.envelope(wave), 3))
        True
    """
    result: Node = x.graph.sqrt(power_of(hilbert(x)))
    return result


@on_arrays
def resample_poly(x: Node, up: int, down: int, window: WindowLike = ("kaiser", 5.0)) -> Node:
    """The last axis at up / down times its sample rate (``scipy.signal.resample_poly``).

    Args:
        x: ``[..., n]``.
        up: Factor up, >= 1.
        down: Factor down, >= 1.
        window: The window of the low-pass filter, or the filter's coefficients.

    Returns:
        ``[..., ceil(n * up / down)]``; the signal counts as 0 outside of x.

    Raises:
        InputError: A factor is below 1.
        ShapeError: x has no axis.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> rlx.signal.resample_poly(g.input("x", (2, 1000)), 2, 5).shape
        (2, 400)
    """
    if up < 1 or down < 1:
        raise InputError(
            describe("[resample_poly] factors", got=f"{up} and {down}", expected="at least 1")
        )
    if not x.shape:
        raise ShapeError(describe("[resample_poly] x has no axis", got=x.shape))
    common = math.gcd(up, down)
    up, down = up // common, down // common
    if up == down == 1 or x.shape[-1] == 0:
        return x
    taps = up * _low_pass(max(up, down), window)
    # The coefficients are symmetric about their middle one in SciPy's default; reversed they stand
    # in the order of the samples they weigh.
    middle = (len(taps) - 1) // 2
    return banded(x, taps[::-1], up, down, middle + 1 - len(taps), -(-x.shape[-1] * up // down))


def _low_pass(rate: int, given: Any) -> Array:
    """Coefficients of a low-pass filter that passes 1 / rate of the band, 20 rate + 1 of them."""
    named = isinstance(given, str) or (
        isinstance(given, tuple) and bool(given) and isinstance(given[0], str)
    )
    if not named:
        taps = np.asarray(given, np.float64)
        if taps.ndim != 1 or taps.size == 0:
            raise InputError(
                describe("[resample_poly] coefficients", got=taps.shape, expected="a vector")
            )
        return taps
    half = 10 * rate
    taps = np.sinc(np.arange(-half, half + 1) / rate) * window_samples(given, 2 * half + 1, False)
    return np.asarray(taps / taps.sum())

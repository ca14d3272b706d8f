"""The analytic signal and the envelope, and resampling by a rational factor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import complex_numbers, on_arrays
from rlx.signal.axes import moved
from rlx.signal.checks import integer
from rlx.signal.coefficients import taps_of
from rlx.signal.filters import banded
from rlx.signal.fourier import analytic_of, fit, rfft
from rlx.signal.spectrum import power_of
from rlx.signal.window_functions import WindowLike, named
from rlx.signal.window_functions import window as window_samples


def hilbert(x: Any, N: int | None = None, axis: int = -1, *, device: Any = None) -> Any:  # noqa: N803 - SciPy's name
    """The analytic signal (Marple 1999; ``scipy.signal.hilbert``).

    Args:
        x: Samples along ``axis``, a node or an array.
        N: Length of the transform; x is cut or continued with zeros to it. None: all of x.
        axis: The axis of time.
        device: Where an array is computed, "cpu" by default.

    Returns:
        For an array complex numbers, N of them along ``axis``. For a node 2 N numbers along ``axis``, in
        block layout: x itself, then its Hilbert transform.

    Raises:
        ShapeError: There are no samples.

    Example:
        >>> import numpy as np, rlx
        >>> rlx.signal.hilbert(np.float32([1, 0, -1, 0])).round(6).tolist()
        [(1+0j), 1j, (-1+0j), -1j]
    """
    result = _hilbert(x, N, axis, device=device)
    return result if isinstance(x, Node) else complex_numbers(result, axis)


@on_arrays
def _hilbert(x: Node, count: int | None, axis: int) -> Node:
    last, restore = moved("hilbert", x, axis)
    return restore(analytic(last, count))


def analytic(x: Node, count: int | None = None) -> Node:
    """The analytic signal along the last axis in block layout, ``[..., n]`` to ``[..., 2 n]``."""
    n = x.shape[-1] if count is None else integer("hilbert", "N", count)
    if n < 1:
        raise ShapeError("[hilbert] no samples", got=x.shape, expected="[..., n >= 1]")
    return analytic_of(rfft(fit(x, n)), n)


@on_arrays
def envelope(x: Node, axis: int = -1) -> Node:
    """The magnitude of the analytic signal.

    Args:
        x: Samples along ``axis``, at least one.
        axis: The axis of time.

    Returns:
        Like ``x``.

    Raises:
        ShapeError: There are no samples.

    Example:
        >>> import numpy as np, rlx
        >>> wave = 3 * np.cos(2 * np.pi * np.arange(64) / 8)
        >>> bool(np.allclose(rlx.signal.envelope(wave), 3))
        True
    """
    last, restore = moved("envelope", x, axis)
    return restore(x.graph.sqrt(power_of(analytic(last))))


@on_arrays
def resample_poly(
    x: Node, up: int, down: int, axis: int = 0, window: WindowLike = ("kaiser", 5.0)
) -> Node:
    """An axis at up / down times its sample rate (``scipy.signal.resample_poly``).

    Args:
        x: Samples along ``axis``.
        up: Factor up, >= 1.
        down: Factor down, >= 1.
        axis: The axis of time. As in SciPy, the default is the first one, in this function alone.
        window: The window of the low-pass filter, or the filter's coefficients.

    Returns:
        ceil(n * up / down) samples along ``axis``; the signal counts as 0 outside of x.

    Raises:
        InputError: A factor is no integer of at least 1.
        ShapeError: There is no such axis.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> rlx.signal.resample_poly(g.input("x", (2, 1000)), 2, 5, axis=-1).shape
        (2, 400)
    """
    taps, up, down, middle = polyphase("resample_poly", up, down, window)
    last, restore = moved("resample_poly", x, axis)
    n = last.shape[-1]
    if up == down == 1 or n == 0:
        return x
    # Reversed the coefficients stand in the order of the samples they weigh.
    return restore(banded(last, taps[::-1], up, down, middle + 1 - len(taps), -(-n * up // down)))


def polyphase(where: str, up: int, down: int, window: WindowLike) -> tuple[Array, int, int, int]:
    """The filter of ``resample_poly``.

    Returns:
        The coefficients times up, up and down without common factors, and the number of the
        coefficient that a sample at the time of a result has.

    Raises:
        InputError: A factor is no integer of at least 1, or there is no such window.
    """
    up, down = integer(where, "up", up), integer(where, "down", down)
    common = math.gcd(up, down)
    up, down = up // common, down // common
    if up == down == 1:
        return np.ones(1), 1, 1, 0
    taps = up * _low_pass(where, max(up, down), window)
    return taps, up, down, (len(taps) - 1) // 2


def _low_pass(where: str, rate: int, value: Any) -> Array:
    """Coefficients of a low-pass filter that passes 1 / rate of the band, 20 rate + 1 of them."""
    if not named(value):
        return taps_of(where, value, 1.0)[0]
    half = 10 * rate
    taps = np.sinc(np.arange(-half, half + 1) / rate) * window_samples(value, 2 * half + 1, False)
    return np.asarray(taps / taps.sum())

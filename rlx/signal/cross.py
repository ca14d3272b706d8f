"""Spectra of two signals together: cross power and coherence, as SciPy defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.graph import Node
from rlx.signal.arrays import complex_numbers, of_one_dtype, on_arrays
from rlx.signal.axes import moved
from rlx.signal.checks import one_of, positive
from rlx.signal.spectrum import (
    SCALINGS,
    Estimate,
    Segments,
    averaged,
    bin_weights,
    one_sided,
    power_of,
    segment_spectra,
    with_frequencies,
)
from rlx.signal.window_functions import WindowLike, samples


def csd(  # noqa: PLR0913 - SciPy's signature
    x: Any,
    y: Any,
    fs: float = 1.0,
    window: WindowLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
    *,
    device: Any = None,
) -> Any:
    """Cross power spectrum by Welch's method (``scipy.signal.csd``): of conj(X) Y.

    Args:
        x: Samples along ``axis``, a node or an array.
        y: As many samples along ``axis``; the other axes are broadcast.
        fs: See ``welch``.
        window: See ``welch``.
        nperseg: See ``welch``.
        noverlap: See ``welch``.
        nfft: See ``welch``.
        detrend: See ``welch``.
        return_onesided: True.
        scaling: See ``welch``.
        axis: The axis of time.
        average: See ``welch``; the median is taken of real and imaginary parts.
        device: Where an array is computed, "cpu" by default.

    Returns:
        For arrays the frequencies in Hz ``[nfft // 2 + 1]``, and complex numbers with nfft // 2 + 1
        bins along ``axis``. For nodes 2 (nfft // 2 + 1) numbers along ``axis``, in block layout.

    Raises:
        InputError: A setting has no such value, or the lengths do not fit.
        ShapeError: x and y differ in length.

    Example:
        >>> import numpy as np, rlx
        >>> x = np.float32(np.sin(2 * np.pi * 10 * np.arange(2560) / 256))
        >>> hz, power = rlx.signal.csd(x, x, fs=256)
        >>> float(hz[np.abs(power).argmax()])
        10.0
    """
    one_sided("csd", return_onesided)
    settings = Estimate(fs, window, nperseg, noverlap, nfft, detrend, scaling, average)
    x, y = of_one_dtype("csd", x, y)
    result = _csd(x, y, settings, axis, device=device)
    if not isinstance(result, Node):
        result = complex_numbers(result, axis)
    return with_frequencies(result, x, settings, axis)


@on_arrays
def _csd(x: Node, y: Node, settings: Estimate, axis: int) -> Node:
    one_of("csd", "scaling", settings.scaling, SCALINGS)
    (a, b), restore, cut = _pair("csd", x, y, settings, axis)
    taper = samples(settings.window, cut.length, "csd")
    weights = bin_weights(taper, cut.n_fft, settings.fs, settings.scaling)
    both = x.graph.constant(np.tile(weights, 2).astype(x.dtype.numpy))
    return restore(averaged("csd", _cross(a, b) * both, settings.average))


def coherence(  # noqa: PLR0913 - SciPy's signature
    x: Any,
    y: Any,
    fs: float = 1.0,
    window: WindowLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool = "constant",
    axis: int = -1,
    *,
    device: Any = None,
) -> Any:
    """Magnitude squared coherence by Welch's method (``scipy.signal.coherence``).

    Args:
        x: Samples along ``axis``, a node or an array.
        y: As many samples along ``axis``; the other axes are broadcast.
        fs: See ``welch``.
        window: See ``welch``.
        nperseg: See ``welch``.
        noverlap: See ``welch``.
        nfft: See ``welch``.
        detrend: See ``welch``.
        axis: The axis of time.
        device: Where an array is computed, "cpu" by default.

    Returns:
        For arrays the frequencies in Hz ``[nfft // 2 + 1]``, and numbers from 0 to 1, nfft // 2 + 1 of
        them along ``axis``; for nodes the numbers alone. A bin without power is NaN.

    Raises:
        InputError: A setting has no such value, or the lengths do not fit.
        ShapeError: x and y differ in length.

    Example:
        >>> import numpy as np, rlx
        >>> rng = np.random.default_rng(0)
        >>> x, noise = rng.standard_normal((2, 4000))
        >>> hz, same = rlx.signal.coherence(x, 2 * x)
        >>> bool(np.allclose(same, 1)), bool(rlx.signal.coherence(x, noise)[1].mean() < 0.2)
        (True, True)
    """
    settings = Estimate(fs, window, nperseg, noverlap, nfft, detrend)
    x, y = of_one_dtype("coherence", x, y)
    return with_frequencies(_coherence(x, y, settings, axis, device=device), x, settings, axis)


@on_arrays
def _coherence(x: Node, y: Node, settings: Estimate, axis: int) -> Node:
    (a, b), restore, _ = _pair("coherence", x, y, settings, axis)
    g = x.graph
    cross = power_of(g.mean(_cross(a, b), -2))
    return restore(cross / (g.mean(power_of(a), -2) * g.mean(power_of(b), -2)))


def _pair(
    where: str, x: Node, y: Node, settings: Estimate, axis: int
) -> tuple[list[Node], Callable[[Node], Node], Segments]:
    """The transforms of the segments of two signals, what moves their bins back, and the segments."""
    positive(where, "fs", settings.fs)
    (a, restore), (b, other) = moved(where, x, axis), moved(where, y, axis)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"[{where}] x and y differ in length",
            got=f"{x.shape} and {y.shape}, axis {axis}",
            expected="as many samples of both",
        )
    cut = settings.segments(a.shape[-1], where)
    taper = samples(settings.window, cut.length, where)
    spectra = [segment_spectra(where, node, cut, taper, settings.detrend) for node in (a, b)]
    return spectra, restore if len(a.shape) >= len(b.shape) else other, cut


def _cross(a: Node, b: Node) -> Node:
    """conj(a) b of spectra in block layout."""
    bins = a.shape[-1] // 2
    (ar, ai), (br, bi) = ((z[..., :bins], z[..., bins:]) for z in (a, b))
    return a.graph.concat([ar * br + ai * bi, ar * bi - ai * br], -1)

"""The power of a signal in bands of frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import InputError
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import on_arrays
from rlx.signal.axes import position
from rlx.signal.fourier import fft_frequencies
from rlx.signal.spectrum import Estimate, spectrum
from rlx.signal.window_functions import WindowLike

Bands = Sequence[tuple[float, float]]


@on_arrays
def band_power(  # noqa: PLR0913 - the settings of welch
    x: Node,
    bands: Bands,
    fs: float = 1.0,
    window: WindowLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool = "constant",
    axis: int = -1,
    average: str = "mean",
) -> Node:
    """The power in bands of frequency, from the density that ``welch`` estimates.

    Args:
        x: Samples along ``axis``.
        bands: Pairs (low, high) in Hz. A band holds the bins with low <= f < high; a high of half the
            sample rate takes in that bin, too.
        fs: Samples per second.
        window: See ``welch``.
        nperseg: See ``welch``.
        noverlap: See ``welch``.
        nfft: See ``welch``.
        detrend: See ``welch``.
        axis: The axis of time.
        average: See ``welch``.

    Returns:
        ``[..., bands]``: for each band the sum of its bins' density times their distance in Hz, in the
        unit of x squared. The bands stand where the time was.

    Raises:
        InputError: A band is not one, or holds no bin.

    Example:
        >>> import numpy as np, rlx
        >>> wave = np.sin(2 * np.pi * 10 * np.arange(2560) / 256)
        >>> rlx.signal.band_power(wave, [(8, 13), (13, 30)], fs=256).round(3).tolist()
        [0.5, 0.0]
    """
    settings = Estimate(fs, window, nperseg, noverlap, nfft, detrend, average=average)
    index = position("band_power", len(x.shape), axis)
    n_fft = settings.segments(x.shape[index], "band_power").n_fft
    return spectrum(
        "band_power", x, settings, index, lambda power: of_bands(power, bands, fs, n_fft)
    )


def of_bands(power: Node, bands: Bands, fs: float, n_fft: int) -> Node:
    """The power in bands of a density ``[..., n_fft // 2 + 1]``."""
    return power @ power.graph.constant(_matrix(bands, fs, n_fft).astype(power.dtype.numpy))


def _matrix(bands: Any, fs: float, n_fft: int) -> Array:
    """Returns the matrix that a density is multiplied with, float64 ``[bins, bands]``."""
    try:
        edges = np.asarray(bands, np.float64)
    except (TypeError, ValueError):
        edges = np.empty(0)
    if edges.ndim != 2 or edges.shape[1] != 2 or not len(edges):
        raise InputError("[band_power] bands", got=bands, expected="pairs (low, high) in Hz")
    hz = fft_frequencies(n_fft, fs)
    matrix = np.zeros((hz.size, len(edges)))
    for column, (low, high) in zip(matrix.T, edges, strict=True):
        if not 0 <= low < high <= fs / 2:
            raise InputError(
                "[band_power] a band",
                got=f"({low}, {high})",
                expected=f"0 <= low < high <= fs / 2, {fs / 2}",
            )
        inside = (hz >= low) & ((hz < high) | ((high == fs / 2) & (hz == high)))
        if not inside.any():
            raise InputError(
                "[band_power] a band without a bin",
                got=f"({low}, {high})",
                expected=f"at least the distance of bins, {fs / n_fft} Hz",
                hint="raise nperseg or nfft",
            )
        column[inside] = fs / n_fft
    return matrix

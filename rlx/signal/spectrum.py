"""Power spectra: periodogram and Welch's method, as SciPy defines them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlx.errors import InputError, ShapeError, describe, did_you_mean
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import on_arrays
from rlx.signal.fourier import fft_frequencies, rfft
from rlx.signal.framing import frame
from rlx.signal.window_functions import WindowLike, samples

SCALINGS = ("density", "spectrum")
AVERAGES = ("mean", "median")
DETRENDS = ("constant", "linear", False)


class Segments(NamedTuple):
    """How a signal is cut, after the defaults are filled in.

    Attributes:
        length: Samples per segment.
        hop: Samples from one segment to the next.
        n_fft: Length of the transform, >= ``length``.
    """

    length: int
    hop: int
    n_fft: int


def segments(samples: int, nperseg: int, noverlap: int | None, nfft: int | None) -> Segments:
    """The segments of a signal of so many samples; a shorter one is a single segment.

    Raises:
        ShapeError: There are no samples.
        InputError: ``noverlap`` or ``nfft`` does not fit the segment.
    """
    if samples < 1 or nperseg < 1:
        raise ShapeError(
            describe(
                "[welch] no samples",
                got=f"{samples} samples, nperseg {nperseg}",
                expected="at least 1",
            )
        )
    length = min(nperseg, samples)
    overlap = length // 2 if noverlap is None else noverlap
    if not 0 <= overlap < length:
        raise InputError(
            describe("[welch] noverlap", got=noverlap, expected=f"0 to {length - 1}, below nperseg")
        )
    n_fft = length if nfft is None else nfft
    if n_fft < length:
        raise InputError(describe("[welch] nfft", got=nfft, expected=f"at least nperseg, {length}"))
    return Segments(length, length - overlap, n_fft)


@on_arrays
def welch(  # noqa: PLR0913 - SciPy's signature
    x: Node,
    fs: float = 1.0,
    window: WindowLike = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool = "constant",
    scaling: str = "density",
    average: str = "mean",
) -> Node:
    """Power spectrum along the last axis by Welch's method (Welch 1967; ``scipy.signal.welch``).

    Args:
        x: ``[..., samples]``.
        fs: Samples per second.
        window: A name, a tuple of a name and its parameters, or the segment's samples.
        nperseg: Samples per segment; a signal shorter than that is one segment.
        noverlap: Samples that neighbouring segments share; half a segment by default.
        nfft: Length of the transform, segments continued with zeros; the segment's by default.
        detrend: What is taken off each segment: "constant" its mean, "linear" the straight line that
            fits best, False nothing.
        scaling: "density" (x squared per Hz) or "spectrum" (x squared).
        average: Over the segments, "mean" or "median" (corrected for its bias; Allen et al. 2012,
            appendix B).

    Returns:
        ``[..., nfft // 2 + 1]``, one-sided; ``welch_frequencies`` gives the bins in Hz.

    Raises:
        InputError: A setting has no such value, or the lengths do not fit.

    Example:
        >>> import numpy as np, rlx
        >>> t = np.arange(2560) / 256
        >>> power = rlx.signal.welch(np.float32(np.sin(2 * np.pi * 10 * t)), fs=256)
        >>> int(power.argmax())
        10
    """
    _check("average", average, AVERAGES)
    cut = segments(x.shape[-1] if x.shape else 0, nperseg, noverlap, nfft)
    power = segment_powers(x, cut, fs, window, detrend, scaling)
    if average == "mean":
        mean: Node = x.graph.mean(power, -2)
        return mean
    return _median(power) * (1 / _median_bias(power.shape[-2]))


def segment_powers(
    x: Node, cut: Segments, fs: float, window: WindowLike, detrend: str | bool, scaling: str
) -> Node:
    """The power spectrum of each segment, ``[..., segments, nfft // 2 + 1]``; see ``welch``."""
    _check("detrend", detrend, DETRENDS)
    _check("scaling", scaling, SCALINGS)
    g, dtype = x.graph, x.dtype.numpy
    taper = samples(window, cut.length, "welch")
    parts = _detrended(frame(x, cut.length, cut.hop), detrend)
    spec = rfft(parts * g.constant(taper.astype(dtype)), cut.n_fft)
    weights = bin_weights(taper, cut.n_fft, fs, scaling)
    return power_of(spec) * g.constant(weights.astype(dtype))


def psd(
    x: Node,
    fs: float = 1.0,
    window: WindowLike = "boxcar",
    nfft: int | None = None,
    detrend: str | bool = "constant",
    scaling: str = "density",
    device: object = None,
) -> Node:
    """Power spectrum of the whole signal as one segment (``scipy.signal.periodogram``).

    Args:
        x: ``[..., samples]``.
        fs: Samples per second.
        window: As for ``welch``.
        nfft: Length of the transform; at least the samples.
        detrend: As for ``welch``.
        scaling: As for ``welch``.
        device: Where an array is computed, "cpu" by default.

    Returns:
        ``[..., nfft // 2 + 1]``, one-sided.
    """
    shape = np.shape(x) if not isinstance(x, Node) else x.shape
    length = shape[-1] if shape else 0
    result: Node = welch(x, fs, window, max(1, length), 0, nfft, detrend, scaling, device=device)
    return result


def welch_frequencies(
    samples: int, fs: float = 1.0, nperseg: int = 256, nfft: int | None = None
) -> Array:
    """Frequency in Hz of each bin of ``welch`` on a signal of so many samples, float64."""
    return fft_frequencies(segments(samples, nperseg, None, nfft).n_fft, fs)


def power_of(spec: Node) -> Node:
    """re^2 + im^2 of spectra in block layout: ``[..., 2 B]`` to ``[..., B]``."""
    bins = spec.shape[-1] // 2
    re, im = spec[..., :bins], spec[..., bins:]
    return re * re + im * im


def bin_weights(taper: Array, n_fft: int, fs: float, scaling: str) -> Array:
    """What turns re^2 + im^2 of a bin into one-sided power, float64 ``[n_fft // 2 + 1]``."""
    energy = fs * np.sum(taper**2) if scaling == "density" else np.sum(taper) ** 2
    weights = np.full(n_fft // 2 + 1, 2.0 / energy)
    weights[0] /= 2
    if n_fft % 2 == 0 and n_fft > 1:
        weights[-1] /= 2
    return weights


def _check(name: str, value: object, allowed: tuple[object, ...]) -> None:
    # 0 equals False and is not meant.
    if not any(
        value is choice or (isinstance(value, str) and value == choice) for choice in allowed
    ):
        raise InputError(
            describe(
                f"[welch] {name}",
                got=repr(value),
                expected=", ".join(map(repr, allowed)),
                hint=did_you_mean(str(value), [str(choice) for choice in allowed]),
            )
        )


def _detrended(parts: Node, detrend: str | bool) -> Node:
    """``[..., segments, length]`` without its mean, or without its straight line."""
    if detrend is False:
        return parts
    g, length = parts.graph, parts.shape[-1]
    centred: Node = parts - g.mean(parts, -1, keepdims=True)
    if detrend == "constant" or length == 1:
        return centred
    # The slope is the part along this unit vector, which is orthogonal to the mean already removed.
    line = np.arange(length) - (length - 1) / 2
    line = (line / np.linalg.norm(line)).astype(parts.dtype.numpy)
    return centred - (centred @ g.constant(line[:, None])) * g.constant(line)


def _median(power: Node) -> Node:
    """The median over axis -2 of ``[..., segments, bins]``."""
    g, count = power.graph, power.shape[-2]
    ordered = g.sort(power, -2)
    median = g.mean(ordered[..., (count - 1) // 2 : count // 2 + 1, :], -2)
    # A NaN stands last in order, but the median of what holds one is NaN.
    last = ordered[..., count - 1, :]
    result: Node = g.where(g.eq(last, last), median, last)
    return result


def _median_bias(count: int) -> float:
    """Expectation of the median of ``count`` exponential variables of mean 1."""
    even = 2.0 * np.arange(1, (count - 1) // 2 + 1)
    return float(1 + np.sum(1 / (even + 1) - 1 / even))

"""Power spectra: periodogram and Welch's method, as SciPy defines them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import InputError, ShapeError, describe
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import on_arrays
from rlx.signal.axes import moved, position
from rlx.signal.checks import integer, one_of, positive
from rlx.signal.fourier import fft_frequencies, rfft
from rlx.signal.framing import frame
from rlx.signal.window_functions import WindowLike, named, samples

SCALINGS = ("density", "spectrum")
AVERAGES = ("mean", "median")
DETRENDS = ("constant", "linear", False)


class Segments(NamedTuple):
    """The segmentation of a signal, after the defaults are filled in.

    Attributes:
        length: Samples per segment.
        hop: Samples from one segment to the next.
        n_fft: Length of the transform, >= ``length``.
    """

    length: int
    hop: int
    n_fft: int


class Estimate(NamedTuple):
    """The settings of ``welch``, by its names."""

    fs: float
    window: WindowLike
    nperseg: int | None
    noverlap: int | None
    nfft: int | None
    detrend: str | bool
    scaling: str = "density"
    average: str = "mean"

    def segments(self, samples: int, where: str) -> Segments:
        """The segments of a signal of so many samples; a shorter one is a single segment.

        Args:
            samples: Samples of the signal.
            where: The function's name, for messages.

        Raises:
            ShapeError: There are no samples.
            InputError: ``noverlap`` or ``nfft`` does not fit the segment.

        Warns:
            UserWarning: ``nperseg`` is more than there are samples.
        """
        if self.nperseg is None:
            asked = 256 if named(self.window) else np.size(self.window)
        else:
            asked = integer(where, "nperseg", self.nperseg)
        if samples < 1 or asked < 1:
            raise ShapeError(
                f"[{where}] no samples",
                got=f"{samples} samples, a window of {asked}",
                expected="at least 1",
            )
        if self.nperseg is not None and self.nperseg > samples:
            text = describe(
                f"[{where}] nperseg {self.nperseg} exceeds the {samples} samples",
                hint=f"nperseg={samples} is used",
            )
            warnings.warn(text, UserWarning, stacklevel=2)
        length = min(asked, samples)
        overlap = (
            length // 2 if self.noverlap is None else integer(where, "noverlap", self.noverlap, 0)
        )
        if overlap >= length:
            raise InputError(
                f"[{where}] noverlap",
                got=self.noverlap,
                expected=f"0 to {length - 1}, below nperseg",
            )
        n_fft = length if self.nfft is None else integer(where, "nfft", self.nfft)
        if n_fft < length:
            raise InputError(
                f"[{where}] nfft", got=self.nfft, expected=f"at least nperseg, {length}"
            )
        return Segments(length, length - overlap, n_fft)


def welch(  # noqa: PLR0913 - SciPy's signature
    x: Any,
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
    """Power spectrum by Welch's method (Welch 1967; ``scipy.signal.welch``).

    Args:
        x: Samples along ``axis``, a node or an array.
        fs: Samples per second.
        window: A name, a tuple of a name and its parameters, or the segment's samples.
        nperseg: Samples per segment, 256 by default or as many as the window has; a signal shorter
            than that is one segment.
        noverlap: Samples that neighbouring segments share; half a segment by default.
        nfft: Length of the transform, segments continued with zeros; the segment's by default.
        detrend: The trend that is subtracted from each segment: "constant" its mean, "linear" the straight line that
            fits best, False nothing.
        return_onesided: True; the other side of a real signal's spectrum mirrors this one.
        scaling: "density" (x squared per Hz) or "spectrum" (x squared).
        axis: The axis of time.
        average: Over the segments, "mean" or "median" (corrected for its bias; Allen et al. 2012,
            appendix B).
        device: Where an array is computed, "cpu" by default.

    Returns:
        For an array the frequencies in Hz ``[nfft // 2 + 1]``, and the power with nfft // 2 + 1 bins
        along ``axis``. For a node the power alone; ``welch_frequencies`` gives the bins in Hz.

    Raises:
        InputError: A setting has no such value, or the lengths do not fit.

    Warns:
        UserWarning: ``nperseg`` is more than there are samples.

    Example:
        >>> import numpy as np, rlx
        >>> t = np.arange(2560) / 256
        >>> hz, power = rlx.signal.welch(np.float32(np.sin(2 * np.pi * 10 * t)), fs=256)
        >>> float(hz[power.argmax()])
        10.0
    """
    one_sided("welch", return_onesided)
    settings = Estimate(fs, window, nperseg, noverlap, nfft, detrend, scaling, average)
    return with_frequencies(_welch(x, settings, axis, device=device), x, settings, axis)


@on_arrays
def _welch(x: Node, settings: Estimate, axis: int) -> Node:
    return spectrum("welch", x, settings, axis)


def psd(  # noqa: PLR0913 - SciPy's signature
    x: Any,
    fs: float = 1.0,
    window: WindowLike = "boxcar",
    nfft: int | None = None,
    detrend: str | bool = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    *,
    device: Any = None,
) -> Any:
    """Power spectrum of the whole signal as one segment (``scipy.signal.periodogram``).

    Args:
        x: Samples along ``axis``, a node or an array.
        fs: Samples per second.
        window: As for ``welch``.
        nfft: Length of the transform; at least the samples.
        detrend: As for ``welch``.
        return_onesided: True.
        scaling: As for ``welch``.
        axis: The axis of time.
        device: Where an array is computed, "cpu" by default.

    Returns:
        As for ``welch``.

    Raises:
        InputError: A setting has no such value, or the lengths do not fit.
    """
    one_sided("psd", return_onesided)
    shape = np.shape(x) if not isinstance(x, Node) else x.shape
    length = shape[position("psd", len(shape), axis)]
    settings = Estimate(fs, window, length, 0, nfft, detrend, scaling)
    return with_frequencies(_psd(x, settings, axis, device=device), x, settings, axis)


@on_arrays
def _psd(x: Node, settings: Estimate, axis: int) -> Node:
    return spectrum("psd", x, settings, axis)


def welch_frequencies(
    samples: int, fs: float = 1.0, nperseg: int | None = None, nfft: int | None = None
) -> Array:
    """Frequency in Hz of each bin of ``welch`` on a signal of so many samples, float64."""
    settings = Estimate(fs, "hann", nperseg, None, nfft, "constant")
    return fft_frequencies(settings.segments(samples, "welch").n_fft, fs)


def spectrum(
    where: str,
    x: Node,
    settings: Estimate,
    axis: int,
    then: Callable[[Node], Node] = lambda power: power,
) -> Node:
    """``welch`` of a node; ``then`` is done with the power while its bins are the last axis."""
    last, restore = moved(where, x, axis)
    power = segment_powers(last, settings.segments(last.shape[-1], where), settings, where)
    return restore(then(averaged(where, power, settings.average)))


def segment_powers(x: Node, cut: Segments, settings: Estimate, where: str) -> Node:
    """The power spectrum of each segment, ``[..., segments, nfft // 2 + 1]``; see ``welch``."""
    positive(where, "fs", settings.fs)
    one_of(where, "scaling", settings.scaling, SCALINGS)
    taper = samples(settings.window, cut.length, where)
    weights = bin_weights(taper, cut.n_fft, settings.fs, settings.scaling)
    spec = segment_spectra(where, x, cut, taper, settings.detrend)
    return power_of(spec) * x.graph.constant(weights.astype(x.dtype.numpy))


def segment_spectra(where: str, x: Node, cut: Segments, taper: Array, detrend: str | bool) -> Node:
    """The transforms of the segments, ``[..., segments, 2 (nfft // 2 + 1)]``."""
    one_of(where, "detrend", detrend, DETRENDS)
    parts = _detrended(frame(x, cut.length, cut.hop), detrend)
    spec: Node = rfft(parts * x.graph.constant(taper.astype(x.dtype.numpy)), cut.n_fft)
    return spec


def averaged(where: str, power: Node, average: str) -> Node:
    """The average over the segments, ``[..., segments, bins]`` to ``[..., bins]``."""
    one_of(where, "average", average, AVERAGES)
    if average == "mean":
        return power.graph.mean(power, -2)
    # By the expectation of the median of so many exponential variables of mean 1.
    even = 2.0 * np.arange(1, (power.shape[-2] - 1) // 2 + 1)
    return _median(power) * (1 / float(1 + np.sum(1 / (even + 1) - 1 / even)))


def with_frequencies(result: Any, x: Any, settings: Estimate, axis: int) -> Any:
    """Returns results made of nodes; results made of arrays follow the frequencies of their bins."""
    if isinstance(result, Node):
        return result
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the estimate has warned already
        cut = settings.segments(np.shape(x)[axis], "welch")
    return fft_frequencies(cut.n_fft, settings.fs), result


def one_sided(where: str, value: bool) -> None:
    """Refuses two-sided spectra.

    Raises:
        InputError: ``return_onesided`` is not True.
    """
    if value is not True:
        raise InputError(
            f"[{where}] return_onesided",
            got=repr(value),
            expected="True",
            hint="the other side of a real signal's spectrum mirrors this one",
        )


def power_of(spec: Node) -> Node:
    """re^2 + im^2 of spectra in block layout: ``[..., 2 B]`` to ``[..., B]``."""
    bins = spec.shape[-1] // 2
    re, im = spec[..., :bins], spec[..., bins:]
    return re * re + im * im


def bin_weights(taper: Array, n_fft: int, fs: float, scaling: str) -> Array:
    """Returns the factors from re^2 + im^2 of a bin to one-sided power, float64 ``[n_fft // 2 + 1]``."""
    energy = fs * np.sum(taper**2) if scaling == "density" else np.sum(taper) ** 2
    weights = np.full(n_fft // 2 + 1, 2.0 / energy)
    weights[0] /= 2
    if n_fft % 2 == 0 and n_fft > 1:
        weights[-1] /= 2
    return weights


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
    return g.where(g.eq(last, last), median, last)

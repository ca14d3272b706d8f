"""Transforms of real signals: rfft, irfft, stft and istft, one-sided and in block layout.

A one-sided spectrum of n samples has B = n // 2 + 1 bins; its block layout is ``[..., 2 B]``: the B
real parts, then the B imaginary parts.
"""

from __future__ import annotations

import numpy as np

from rlx.errors import InputError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.ops.spectra.fft import Norm
from rlx.signal.arrays import on_arrays
from rlx.signal.axes import moved
from rlx.signal.checks import integer, positive
from rlx.signal.framing import extend, frame, narrow, overlap_add
from rlx.signal.window_functions import WindowLike, samples

# Where the squared windows of overlapping frames sum to less than this, nothing is left to divide.
LEAST_OVERLAP = 1e-10
# The case of a transform as part of a larger function; see ``ops.fft`` for the transform alone.
TOLERANCE = {DType.F32: 4e-6, DType.F64: 1e-12}


def fft_frequencies(n: int, fs: float = 1.0) -> Array:
    """Frequency of each bin of a one-sided spectrum of n samples, float64 ``[n // 2 + 1]``.

    Raises:
        InputError: ``n`` or ``fs`` is not above 0.

    Example:
        >>> fft_frequencies(4, fs=100.0).tolist()
        [0.0, 25.0, 50.0]
    """
    n = integer("fft_frequencies", "n", n)
    positive("fft_frequencies", "fs", fs)
    return np.arange(n // 2 + 1) * (fs / n)


@on_arrays
def rfft(x: Node, n: int | None = None, axis: int = -1, norm: Norm | None = None) -> Node:
    """The one-sided transform of real samples (``numpy.fft.rfft``).

    Args:
        x: Samples along ``axis``.
        n: Length of the transform; x is cut or continued with zeros to it. None: all of x.
        axis: The axis of time.
        norm: NumPy's: "backward" (which None is), "ortho" or "forward".

    Returns:
        2 (n // 2 + 1) numbers along ``axis``, in block layout.

    Raises:
        ShapeError: x has no axis, or the length is below 1.

    Example:
        >>> import numpy as np, rlx
        >>> rlx.signal.rfft(np.float32([1, 0, 0, 0])).tolist()
        [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """
    last, restore = moved("rfft", x, axis)
    n = _length(x, "rfft", last.shape[-1] if n is None else n)
    return restore(x.graph.rfft(fit(last, n), norm or "backward"))


@on_arrays
def irfft(spec: Node, n: int | None = None, axis: int = -1, norm: Norm | None = None) -> Node:
    """Real samples from a one-sided transform (``numpy.fft.irfft``).

    Args:
        spec: 2 B numbers along ``axis``, in block layout.
        n: Number of samples; the spectrum is cut or continued with zeros to n // 2 + 1 bins. None:
            2 (B - 1).
        axis: The axis of frequency.
        norm: NumPy's: "backward" (which None is), "ortho" or "forward".

    Returns:
        n samples along ``axis``. The imaginary parts of bin 0, and of bin n / 2 for an even n, have no effect.

    Raises:
        ShapeError: ``spec`` is not in block layout, or n is below 1.
    """
    spec, restore = moved("irfft", spec, axis)
    if not spec.shape or spec.shape[-1] % 2 or spec.shape[-1] == 0:
        raise ShapeError(
            "[irfft] not a spectrum in block layout",
            got=spec.shape,
            expected="[..., 2 B]: B >= 1 real parts, then B imaginary parts",
        )
    n = _length(spec, "irfft", spec.shape[-1] - 2 if n is None else n)
    return restore(narrow(analytic_of(spec, n, norm), 0, n))


def analytic_of(spec: Node, n: int, norm: Norm | None = None) -> Node:
    """The analytic signal ``[..., 2 n]`` of a one-sided spectrum ``[..., 2 B]``, both in block layout.

    The other half of the spectrum mirrors this one. Bins that have a mirror image count twice, so that the real part
    is the signal.
    """
    g, outer, retained = spec.graph, spec.shape[:-1], n // 2 + 1
    twice = np.full(retained, 2.0, spec.dtype.numpy)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0
    halves = fit(g.reshape(spec, (*outer, 2, spec.shape[-1] // 2)), retained) * g.constant(twice)
    block = g.reshape(extend(halves, 0, n - retained), (*outer, 2 * n))
    result: Node = g.fft(block, inverse=True, norm=norm or "backward")
    return result


@on_arrays
def stft(
    x: Node,
    n_fft: int,
    hop: int,
    window: WindowLike = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    axis: int = -1,
) -> Node:
    """Short-time Fourier transform (``librosa.stft``).

    Args:
        x: Samples along ``axis``.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        window: A name, a tuple of a name and its parameters, or ``n_fft`` samples.
        center: Whether frame f is centred on sample f * hop; x is then continued by n_fft // 2
            samples at both ends.
        pad_mode: How: "reflect", "constant" (zeros) or "edge".
        axis: The axis of time. It goes; frames and bins are the last two axes.

    Returns:
        ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.

    Raises:
        ShapeError: The signal is shorter than a frame.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> rlx.signal.stft(g.input("x", (2, 1000)), 256, 128).shape
        (2, 6, 258)
    """
    n_fft, hop = integer("stft", "n_fft", n_fft), integer("stft", "hop", hop)
    x, _ = moved("stft", x, axis)
    if center:
        x = extend(x, n_fft // 2, n_fft // 2, pad_mode)
    taper = samples(window, n_fft, "stft").astype(x.dtype.numpy)
    result: Node = rfft(frame(x, n_fft, hop) * x.graph.constant(taper))
    return result


@on_arrays
def istft(
    spec: Node,
    n_fft: int,
    hop: int,
    window: WindowLike = "hann",
    center: bool = False,
    length: int | None = None,
) -> Node:
    """The signal of a short-time Fourier transform (Griffin & Lim 1984; ``librosa.istft``).

    Args:
        spec: ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next, at most ``n_fft``.
        window: The window of the ``stft``.
        center: The ``center`` of the ``stft``; the n_fft // 2 samples added there are cut off.
        length: Samples wanted: the result is cut or continued with zeros to it.

    Returns:
        ``[..., length]``; without ``length`` (frames - 1) * hop + n_fft samples, less the ones that
        ``center`` cuts off. A sample on which every window is 0 can't be known, and is 0.

    Raises:
        ShapeError: ``spec`` does not have n_fft // 2 + 1 bins, or no frames.
        InputError: ``hop`` leaves gaps between frames.

    Example:
        >>> import numpy as np, rlx
        >>> x = np.float32(range(1000))
        >>> spec = rlx.signal.stft(x, 256, 64, center=True)
        >>> bool(np.allclose(rlx.signal.istft(spec, 256, 64, center=True, length=1000), x, atol=1e-3))
        True
    """
    n_fft, hop = integer("istft", "n_fft", n_fft), integer("istft", "hop", hop)
    if len(spec.shape) < 2 or spec.shape[-1] != 2 * (n_fft // 2 + 1) or spec.shape[-2] < 1:
        raise ShapeError(
            "[istft] not frames of a spectrum",
            got=spec.shape,
            expected=f"[..., frames >= 1, {2 * (n_fft // 2 + 1)}]",
        )
    if hop > n_fft:
        raise InputError("[istft] gaps between frames", got=f"hop {hop}", expected=n_fft)
    count, taper = spec.shape[-2], samples(window, n_fft, "istft")
    total = (count - 1) * hop + n_fft
    weight = np.zeros(total)
    for i in range(count):
        weight[i * hop : i * hop + n_fft] += taper**2
    gain = np.where(weight > LEAST_OVERLAP, 1 / np.maximum(weight, LEAST_OVERLAP), 0.0)
    g, dtype = spec.graph, spec.dtype.numpy
    tapered = irfft(spec, n_fft) * g.constant(taper.astype(dtype))
    whole = overlap_add(tapered, hop) * g.constant(gain.astype(dtype))
    start = n_fft // 2 if center else 0
    retained = narrow(whole, start, max(0, total - 2 * start))
    if length is None:
        return retained
    # The end that center would cut off is still signal if more of it is requested.
    return fit(narrow(whole, start, total - start), length)


def fit(x: Node, n: int) -> Node:
    """The last axis cut, or continued with zeros, to n."""
    have = x.shape[-1]
    return narrow(x, 0, n) if n <= have else extend(x, 0, n - have)


def _length(x: Node, where: str, n: int | None) -> int:
    n = None if n is None else integer(where, "n", n, 0)
    if not x.shape or n is None or n < 1:
        raise ShapeError(f"[{where}] no samples", got=f"{x.shape}, n {n}", expected="n >= 1")
    return n

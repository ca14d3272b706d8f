"""``stft`` and ``istft`` as operations of a graph: references, and how other ops express them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rlx.ir.opdef import Array, Sample
from rlx.ops import all_ops as all_ops
from rlx.ops.declare import FLOAT_KERNELS, composite
from rlx.signal import fourier
from rlx.signal.window_functions import WindowLike, samples


@composite(
    lambda g, x, **settings: fourier.stft(x, **settings),
    dtypes=FLOAT_KERNELS,
    tolerance=fourier.TOLERANCE,
    samples=(
        Sample(((2, 100),), {"n_fft": 16, "hop": 8}),
        Sample(((2, 100),), {"n_fft": 15, "hop": 7, "center": True}),
        Sample(((3, 50),), {"n_fft": 20, "hop": 30, "window": ("kaiser", 5.0)}),
        Sample(((50,),), {"n_fft": 12, "hop": 4, "center": True, "pad_mode": "edge"}),
        Sample(((1, 1),), {"n_fft": 1, "hop": 1}),
        Sample(((0, 20),), {"n_fft": 8, "hop": 4}),
        Sample(((8, 16000),), {"n_fft": 400, "hop": 160}, bench=True),
    ),
)
def stft(
    x: Array,
    n_fft: int,
    hop: int,
    window: WindowLike = "hann",
    center: bool = False,
    pad_mode: Literal["reflect", "constant", "edge"] = "reflect",
) -> Array:
    """Short-time Fourier transform along the last axis; see ``rlx.signal.stft``.

    Args:
        x: ``[..., samples]``.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        window: A name, a tuple of a name and its parameters, or ``n_fft`` samples.
        center: Whether frame f is centred on sample f * hop.
        pad_mode: How ``center`` continues x: "reflect", "constant" or "edge".

    Returns:
        ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.
    """
    if center:
        sides = [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)]
        x = np.pad(x, sides, pad_mode)
    frames = np.lib.stride_tricks.sliding_window_view(x, n_fft, -1)[..., ::hop, :]
    z = np.fft.rfft(frames * samples(window, n_fft, "stft"))
    return np.concatenate([z.real, z.imag], -1)


@composite(
    lambda g, spec, **settings: fourier.istft(spec, **settings),
    dtypes=FLOAT_KERNELS,
    # Samples at the ends are divided by what a window leaves of them.
    tolerance={dtype: 10 * value for dtype, value in fourier.TOLERANCE.items()},
    samples=(
        Sample(((2, 9, 18),), {"n_fft": 16, "hop": 8, "center": True}),
        Sample(((9, 16),), {"n_fft": 15, "hop": 4, "window": "hamming"}),
        Sample(((2, 9, 18),), {"n_fft": 16, "hop": 6, "center": True, "length": 50}),
        Sample(((5, 18),), {"n_fft": 16, "hop": 6, "window": "boxcar", "length": 70}),
        Sample(((1, 1, 2),), {"n_fft": 1, "hop": 1}),
        Sample(((0, 3, 10),), {"n_fft": 8, "hop": 4}),
    ),
)
def istft(
    spec: Array,
    n_fft: int,
    hop: int,
    window: WindowLike = "hann",
    center: bool = False,
    length: int | None = None,
) -> Array:
    """The signal of a short-time Fourier transform; see ``rlx.signal.istft``.

    Args:
        spec: ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next, at most ``n_fft``.
        window: The window of the ``stft``.
        center: The ``center`` of the ``stft``.
        length: Samples wanted.

    Returns:
        ``[..., length]``.
    """
    bins, count = n_fft // 2 + 1, spec.shape[-2]
    taper = samples(window, n_fft, "istft")
    frames = np.fft.irfft(spec[..., :bins] + 1j * spec[..., bins:], n_fft) * taper
    total = (count - 1) * hop + n_fft
    signal, weight = np.zeros((*spec.shape[:-2], total)), np.zeros(total)
    for i in range(count):
        signal[..., i * hop : i * hop + n_fft] += frames[..., i, :]
        weight[i * hop : i * hop + n_fft] += taper**2
    known = weight > fourier.LEAST_OVERLAP
    signal = np.where(known, signal / np.where(known, weight, 1.0), 0.0)
    start = n_fft // 2 if center else 0
    if length is None:
        return signal[..., start : max(start, total - start)]
    cut = signal[..., start : start + length]
    return np.pad(cut, [(0, 0)] * (cut.ndim - 1) + [(0, length - cut.shape[-1])])

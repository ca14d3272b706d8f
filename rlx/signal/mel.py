"""Mel features: the filter bank, log-mel spectrograms and cepstral coefficients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np

from rlx.errors import InputError, UnknownNameError, describe, did_you_mean
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.resource_limits import charge
from rlx.signal.arrays import on_arrays
from rlx.signal.checks import integer, positive
from rlx.signal.fourier import fft_frequencies, stft
from rlx.signal.spectrum import power_of
from rlx.signal.window_functions import WindowLike

LOGS = ("log10", "ln", "db", "whisper")
_LEAST = 1e-10  # power below which levels are not told apart
_DB_RANGE = 80.0  # decibels kept below the loudest cell, as librosa does
# Slaney's scale: linear below 1 kHz, 15 mels there; above it 27 mels per factor of 6.4.
_LINEAR, _BREAK, _STEP = 200.0 / 3, 1000.0, math.log(6.4) / 27


def _slaney(hz: Array) -> Array:
    high = _BREAK / _LINEAR + np.log(np.maximum(hz, _BREAK) / _BREAK) / _STEP
    return np.where(hz < _BREAK, hz / _LINEAR, high)


def _slaney_hz(mel: Array) -> Array:
    corner = _BREAK / _LINEAR
    return np.where(mel < corner, mel * _LINEAR, _BREAK * np.exp(_STEP * (mel - corner)))


def _htk_hz(mel: Array) -> Array:
    return np.asarray(700.0 * (10 ** (mel / 2595.0) - 1))


# Hz to mel and back: Slaney 1998 (Auditory Toolbox), and the HTK Book (Young et al. 2006).
_SCALES: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "slaney": (_slaney, _slaney_hz),
    "htk": (lambda hz: np.asarray(2595.0 * np.log10(1 + hz / 700.0)), _htk_hz),
}


def mel_filterbank(
    sample_rate: float,
    n_fft: int,
    n_mels: int = 128,
    fmin: float = 0.0,
    fmax: float | None = None,
    mel: str = "slaney",
    norm: str | None = "slaney",
) -> Array:
    """Triangular filters evenly spaced in mel (``librosa.filters.mel``).

    Args:
        sample_rate: Samples per second.
        n_fft: Length of the transform.
        n_mels: Number of filters.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz; half the sample rate by default.
        mel: The scale, "slaney" or "htk".
        norm: "slaney" gives every filter area 1 over Hz; None gives every filter height 1.

    Returns:
        float64 ``[n_mels, n_fft // 2 + 1]``.

    Raises:
        UnknownNameError: There is no such scale.
        InputError: Another setting has no such value.

    Warns:
        UserWarning: A filter is narrower than the distance of two bins, and holds none.

    Example:
        >>> mel_filterbank(16000, 400, 80).shape
        (80, 201)
    """
    if mel not in _SCALES:
        raise UnknownNameError(
            f"no mel scale is named {mel!r}", hint=did_you_mean(str(mel), _SCALES)
        )
    positive("mel_filterbank", "sample_rate", sample_rate)
    if norm not in ("slaney", None):
        raise InputError("[mel_filterbank] norm", got=norm, expected="'slaney' or None")
    n_fft = integer("mel_filterbank", "n_fft", n_fft)
    n_mels = integer("mel_filterbank", "n_mels", n_mels)
    top = sample_rate / 2 if fmax is None else fmax
    if not 0 <= fmin < top < math.inf:
        raise InputError(
            "[mel_filterbank] frequencies",
            got=f"fmin {fmin}, fmax {top}",
            expected="0 <= fmin < fmax",
        )
    charge("[mel_filterbank]", elements=n_mels * (n_fft // 2 + 1))
    to_mel, to_hz = _SCALES[mel]
    low, high = to_mel(np.array([fmin, top], np.float64))
    corners = to_hz(np.linspace(low, high, n_mels + 2))
    bins = fft_frequencies(n_fft, sample_rate)
    # Each triangle rises between its first two corners and falls between its last two.
    width = np.diff(corners)[:, None]
    rise = (bins - corners[:-2, None]) / width[:-1]
    fall = (corners[2:, None] - bins) / width[1:]
    filters = np.maximum(0.0, np.minimum(rise, fall))
    empty = int(np.sum(~filters.any(1)))
    if empty:
        text = describe(
            f"[mel_filterbank] {empty} of {n_mels} filters hold no bin and give 0",
            got=f"n_mels {n_mels}, n_fft {n_fft}, fmin {fmin}, fmax {top}",
            hint="lower n_mels, raise n_fft, or keep fmax below half the sample rate",
        )
        warnings.warn(text, UserWarning, stacklevel=2)
    if norm == "slaney":
        filters *= (2.0 / (corners[2:] - corners[:-2]))[:, None]
    return np.asarray(filters)


@on_arrays
def log_mel(  # noqa: PLR0913 - a public signature
    x: Node,
    sample_rate: float,
    n_fft: int,
    hop: int,
    n_mels: int,
    fmin: float = 0.0,
    fmax: float | None = None,
    mel: str = "slaney",
    log: str = "log10",
    window: WindowLike = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    top_db: float | None = _DB_RANGE,
    axis: int = -1,
) -> Node:
    """Log-mel spectrogram of a signal.

    Args:
        x: Samples along ``axis``.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mels: Number of filters, see ``mel_filterbank``.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        log: Of m = max(filters @ power, 1e-10): "log10" log10(m); "ln" the natural logarithm; "db"
            10 log10(m), at least the signal's maximum - ``top_db`` (``librosa.power_to_db``); "whisper"
            (max(L, max(L) - 8) + 4) / 4 with L = log10(m) and the signal's maximum (Radford et al.
            2022).
        window: See ``stft``.
        center: See ``stft``.
        pad_mode: See ``stft``.
        top_db: Decibels that "db" keeps below the signal's maximum; None keeps all.
        axis: The axis of time. It goes; frames and filters are the last two axes.

    Returns:
        ``[..., frames, n_mels]``.

    Raises:
        UnknownNameError: There is no such scale or logarithm.
        ShapeError: The signal is shorter than a frame.
    """
    if log not in LOGS:
        raise UnknownNameError(f"no logarithm is named {log!r}", hint=did_you_mean(str(log), LOGS))
    g, dtype = x.graph, x.dtype.numpy
    filters = mel_filterbank(sample_rate, n_fft, n_mels, fmin, fmax, mel).T
    power = power_of(stft(x, n_fft, hop, window, center, pad_mode, axis))
    if top_db is not None:
        positive("log_mel", "top_db", top_db)
    natural = g.log(g.maximum(power @ g.constant(filters.astype(dtype)), _LEAST))
    unit = {"ln": 1.0, "db": 10 / math.log(10)}.get(log, 1 / math.log(10))
    level = natural * unit if unit != 1 else natural
    reach = {"db": top_db, "whisper": _DB_RANGE / 10}.get(log)
    if reach is None:
        return level
    floored = g.maximum(level, g.max(level, (-2, -1), keepdims=True) - reach)
    return floored if log == "db" else (floored + 4.0) * 0.25


@on_arrays
def mfcc(  # noqa: PLR0913 - a public signature
    x: Node,
    sample_rate: float,
    n_fft: int,
    hop: int,
    n_mfcc: int = 20,
    n_mels: int = 128,
    fmin: float = 0.0,
    fmax: float | None = None,
    mel: str = "slaney",
    window: WindowLike = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    top_db: float | None = _DB_RANGE,
    axis: int = -1,
) -> Node:
    """Mel-frequency cepstral coefficients (Davis & Mermelstein 1980; ``librosa.feature.mfcc``).

    Args:
        x: Samples along ``axis``.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mfcc: Coefficients kept, at most ``n_mels``.
        n_mels: Number of filters.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        window: See ``stft``.
        center: See ``stft``.
        pad_mode: See ``stft``.
        top_db: Decibels kept below the signal's maximum; None keeps all.
        axis: The axis of time. It goes; frames and coefficients are the last two axes.

    Returns:
        ``[..., frames, n_mfcc]``: the orthonormal DCT-II of the log-mel spectrogram in decibels.

    Raises:
        InputError: ``n_mfcc`` is not between 1 and ``n_mels``.
    """
    n_mels = integer("mfcc", "n_mels", n_mels)
    if integer("mfcc", "n_mfcc", n_mfcc) > n_mels:
        raise InputError("[mfcc] n_mfcc", got=n_mfcc, expected=f"1 to n_mels {n_mels}")
    settings = (n_mels, fmin, fmax, mel, "db", window, center, pad_mode, top_db, axis)
    level = log_mel(x, sample_rate, n_fft, hop, *settings)
    angle = math.pi / n_mels * (np.arange(n_mels)[:, None] + 0.5) * np.arange(n_mfcc)
    basis = np.cos(angle) * math.sqrt(2 / n_mels)
    basis[:, 0] = math.sqrt(1 / n_mels)
    result: Node = level @ x.graph.constant(basis.astype(x.dtype.numpy))
    return result

"""Families of transforms and spectra."""

import math

import numpy as np
from work import F32, Workload, by_rows, noise

import rlx
from rlx.signal.framing import complex_block, frame
from rlx.signal.window_functions import window

FS = 256.0
# Of windowed, averaged and filtered transforms: ten times the transform's own error.
SPECTRA = 4e-5


def _bound(n):
    """The error that a transform may have: roundings of 2^-24 in each of its log2(n) steps."""
    return 4e-7 * max(1.0, math.log2(n)) + 2e-7


def _blocks(z):
    """Complex rows in block layout."""
    return np.concatenate([z.real, z.imag], -1)


def fft(rng, rows, n, real=False):
    """Transforms of rows of n points, complex, or real and one-sided."""
    x = noise(rng, rows, n if real else 2 * n)

    def transformed(part):
        return _blocks(np.fft.rfft(part) if real else np.fft.fft(part[:, :n] + 1j * part[:, n:]))

    return Workload(
        {"x": x},
        lambda g, v: [g.rfft(v["x"]) if real else g.fft(v["x"])],
        by_rows(x, transformed),
        5.0 * rows * n * math.log2(max(2, n)) / (2 if real else 1),
        peer=("rfft" if real else "fft", {}),
        tolerance=_bound(n),
    )


def welch(rng, signals, segments, n_fft, k):
    """Signals to the strongest bins of their Welch spectra; half-overlapping segments, a Hann window."""
    x = noise(rng, signals, (segments + 1) * n_fft // 2)

    def reference(outputs):
        bins, power = _spectra(x, n_fft), outputs[0].reshape(signals, k, 2)
        strongest = -np.sort(-bins, axis=1)[:, :k]
        # Nearly equal bins may change places: each bin is compared by the power that it has.
        position = np.clip(power[..., 0], 0, n_fft // 2)
        named = np.take_along_axis(bins, position.astype(int), 1)
        named[power[..., 0] != position] = np.nan
        result = np.stack([power[..., 1], named])
        return result, np.stack([strongest, strongest])

    flops = signals * segments * 2.5 * n_fft * math.log2(n_fft)
    settings = {"segments": segments, "n_fft": n_fft, "k": k}
    return Workload(
        {"x": x},
        lambda g, v: [_peaks(g, v["x"], segments, n_fft, k)],
        reference,
        flops,
        peer=("welch", settings),
        tolerance=SPECTRA,
    )


def psd(rng, signals, samples, n_fft):
    """Welch's spectra, whole."""
    x = noise(rng, signals, samples)
    segments = (samples - n_fft // 2) // (n_fft // 2)
    return Workload(
        {"x": x},
        lambda g, v: [rlx.signal.welch(v["x"], FS, nperseg=n_fft)],
        by_rows(x, lambda part: _spectra(part, n_fft)),
        signals * segments * 2.5 * n_fft * math.log2(n_fft),
        peer=("psd", {"n_fft": n_fft}),
        tolerance=SPECTRA,
    )


def _peaks(g, x, segments, n_fft, k):
    """Builds the computation of ``rlx demo`` as nodes of a graph."""
    frames = frame(x, n_fft, n_fft // 2)
    w = window("hann", n_fft)
    taper = (w / np.sqrt(FS * np.sum(w * w))).astype(F32)
    tapered = (frames - g.mean(frames, -1, keepdims=True)) * g.constant(taper)
    rows = g.reshape(tapered, (x.shape[0] * segments, n_fft))
    return g.welch_peaks(g.fft(complex_block(rows)), k, segments)


def _spectra(x, n_fft):
    """One-sided densities in float64, as scipy.signal.welch scales them."""
    frames, w = _frames(x.astype(np.float64), n_fft, n_fft // 2), _hann(n_fft)
    spec = np.fft.rfft((frames - frames.mean(-1, keepdims=True)) * w)
    power = (spec.real**2 + spec.imag**2).mean(1) / (FS * np.sum(w * w))
    power[:, 1:-1] *= 2
    return power


def _frames(x, n_fft, hop):
    return np.lib.stride_tricks.sliding_window_view(x, n_fft, -1)[:, ::hop]


def _hann(n):
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n)


def stft(rng, signals, samples, n_fft, hop):
    """Spectra of overlapping frames."""
    x = noise(rng, signals, samples)
    frames = (samples - n_fft) // hop + 1
    return Workload(
        {"x": x},
        lambda g, v: [rlx.signal.stft(v["x"], n_fft, hop, center=False)],
        by_rows(x, lambda part: _blocks(np.fft.rfft(_frames(part, n_fft, hop) * _hann(n_fft)))),
        signals * frames * 2.5 * n_fft * math.log2(n_fft),
        peer=("stft", {"n_fft": n_fft, "hop": hop}),
        tolerance=SPECTRA,
    )


def log_mel(rng, signals, samples, n_fft, hop, mels):
    """Log-mel spectrograms as speech models take them."""
    x = noise(rng, signals, samples)
    frames = (samples - n_fft) // hop + 1
    filters = rlx.signal.mel_filterbank(16000, n_fft, mels)

    def features(part):
        spec = np.fft.rfft(_frames(part, n_fft, hop) * _hann(n_fft))
        return np.log10(np.maximum((spec.real**2 + spec.imag**2) @ filters.T, 1e-10))

    return Workload(
        {"x": x},
        lambda g, v: [rlx.signal.log_mel(v["x"], 16000, n_fft, hop, mels)],
        by_rows(x, features),
        signals * frames * (2.5 * n_fft * math.log2(n_fft) + 2.0 * mels * (n_fft // 2 + 1)),
        peer=("log_mel", {"n_fft": n_fft, "hop": hop, "filters": filters.astype(F32)}),
        tolerance=SPECTRA,
    )

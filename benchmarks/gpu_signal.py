"""Workloads of transforms and spectra: P7, P8."""

import math

import numpy as np
from gpu_products import wide
from gpu_work import F32, Goal, Row, Work, by_rows, noise

import rlx
from rlx.signal.frames import complex_block, frame
from rlx.signal.windows import window

POINTS = 1 << 24
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

    return Work(
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
        at = np.clip(power[..., 0], 0, n_fft // 2)
        named = np.take_along_axis(bins, at.astype(int), 1)
        named[power[..., 0] != at] = np.nan
        found = np.stack([power[..., 1], named])
        return found, np.stack([strongest, strongest])

    flops = signals * segments * 2.5 * n_fft * math.log2(n_fft)
    settings = {"segments": segments, "n_fft": n_fft, "k": k}
    return Work(
        {"x": x},
        lambda g, v: [_peaks(g, v["x"], segments, n_fft, k)],
        reference,
        flops,
        peer=("welch", settings),
        tolerance=SPECTRA,
    )


def _peaks(g, x, segments, n_fft, k):
    """What ``rlx demo`` computes, as nodes of a graph."""
    frames = frame(x, n_fft, n_fft // 2)
    w = window("hann", n_fft)
    taper = (w / np.sqrt(FS * np.sum(w * w))).astype(F32)
    tapered = (frames - g.mean(frames, -1, keepdims=True)) * g.constant(taper)
    rows = g.reshape(tapered, (x.shape[0] * segments, n_fft))
    return g.welch_peaks(g.fft(complex_block(rows)), k, segments)


def _spectra(x, n_fft):
    """One-sided densities in float64, as scipy.signal.welch scales them."""
    (wide_x,) = wide(x)
    frames, w = _frames(wide_x, n_fft, n_fft // 2), _hann(n_fft)
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
    return Work(
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

    return Work(
        {"x": x},
        lambda g, v: [rlx.signal.log_mel(v["x"], 16000, n_fft, hop, mels)],
        by_rows(x, features),
        signals * frames * (2.5 * n_fft * math.log2(n_fft) + 2.0 * mels * (n_fft // 2 + 1)),
        peer=("log_mel", {"n_fft": n_fft, "hop": hop, "filters": filters.astype(F32)}),
        tolerance=SPECTRA,
    )


LENGTHS = (256, 512, 1000, 1024, 4096, 4099, 16384, 65536)


def _transforms():
    for n in LENGTHS:
        goal = Goal(part=0.6 if n <= 4096 else 0.35, peers={"torch": 1 / 1.5})
        for real in (False, True):
            few = tuple(dict(rows=r, n=n, real=real) for r in ((3,) if n > 1024 else (1, 5)))
            yield Row(
                f"{'rfft' if real else 'fft'} {POINTS // n} x {n}", "P7", fft,
                dict(rows=POINTS // n, n=n, real=real), few, goal,
                quick=not real and n in (256, 1024, 4099, 16384),
            )  # fmt: skip


ROWS = (
    *_transforms(),
    Row("Welch peaks 8192 x 8 x 256, k 16", "P8", welch, dict(signals=8192, segments=8, n_fft=256, k=16),
        (dict(signals=5, segments=8, n_fft=256, k=16), dict(signals=1, segments=3, n_fft=256, k=4)),
        Goal(part=0.5, peers={"scipy": 10.0}), quick=True),
    Row("stft 64 x 30 s, 400/160", "", stft, dict(signals=64, samples=480000, n_fft=400, hop=160),
        (dict(signals=2, samples=1360, n_fft=400, hop=160),)),
    Row("stft 16 x 2^20, 1024/256", "", stft, dict(signals=16, samples=1 << 20, n_fft=1024, hop=256),
        (dict(signals=2, samples=2000, n_fft=1024, hop=256),)),
    Row("log-mel 64 x 30 s, 80 bands", "", log_mel,
        dict(signals=64, samples=480000, n_fft=400, hop=160, mels=80),
        (dict(signals=2, samples=1360, n_fft=400, hop=160, mels=80),), quick=True),
)  # fmt: skip

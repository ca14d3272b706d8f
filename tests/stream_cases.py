"""Streams beside the functions that they stand for, signals, and ways of cutting them."""

import functools

import numpy as np
import scipy

from rlx import signal

FS = 160


@functools.cache
def band():
    return scipy.signal.butter(4, (8, 30), "bandpass", fs=FS, output="sos")


@functools.cache
def low():
    return scipy.signal.butter(3, 0.3)


def recording(n, dtype=np.float32, outer=(3,)):
    rng = np.random.default_rng(n)
    wave = np.sin(2 * np.pi * 10 * np.arange(n) / FS)
    return (wave + rng.standard_normal((*outer, n))).astype(dtype)


def pieces_of(x, lengths):
    """The signal in pieces of these lengths, and then the rest of it."""
    position = 0
    for length in lengths:
        yield x[..., position : position + length]
        position += length
    yield x[..., position:]


def close(got, expected, tolerance=1e-6):
    assert got.shape == expected.shape
    if expected.size:
        assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


def joined(stream, x, lengths, axis):
    parts = [stream.push(piece) for piece in pieces_of(x, lengths)]
    if hasattr(stream, "flush"):
        parts.append(stream.flush())
    return np.concatenate(parts, axis)


def last(stream, x, lengths, axis):
    for piece in pieces_of(x, lengths):
        result = stream.push(piece)
    return result


MEL = {"sample_rate": FS, "n_fft": 64, "hop": 20, "n_mels": 8}


class StreamCase:
    """A stream, the function that it stands for, and how its results are put together."""

    def __init__(self, name, make, whole, axis=-2, results=joined, tolerance=1e-6):
        self.name, self.make, self.whole = name, make, whole
        self.axis, self.results, self.tolerance = axis, results, tolerance

    def __repr__(self):
        return self.name


def framed(name, kind, function, tolerance=1e-6, **arguments):
    return StreamCase(
        name,
        lambda **more: kind(3, **arguments, **more),
        lambda x, device: function(
            x, **{k: v for k, v in arguments.items() if k != "block"}, device=device
        ),
        tolerance=tolerance,
    )


def power(name, tolerance=1e-6, **arguments):
    offline = {k: v for k, v in arguments.items() if k != "block"}
    return StreamCase(
        name,
        lambda **more: signal.StreamingWelch(3, FS, **arguments, **more),
        lambda x, device: signal.welch(x, FS, **offline, device=device)[1],
        results=last,
        tolerance=tolerance,
    )


def filtered(name, block, tolerance=1e-6, **arguments):
    def whole(x, device):
        if "sos" in arguments:
            return signal.sosfilt(arguments["sos"], x, device=device)
        return signal.lfilter(arguments["b"], arguments.get("a", 1.0), x, device=device)

    return StreamCase(
        name,
        lambda **more: signal.StreamingFilter((3, block), **arguments, **more),
        whole,
        axis=-1,
        tolerance=tolerance,
    )


def resampled(up, down, **arguments):
    offline = {k: v for k, v in arguments.items() if k != "block"}
    return StreamCase(
        f"resampler {up}/{down} {arguments}",
        lambda **more: signal.StreamingResampler(3, up, down, **arguments, **more),
        lambda x, device: signal.resample_poly(x, up, down, -1, **offline, device=device),
        axis=-1,
    )


BANDS = [(4, 8), (8, 13), (13, 30)]
CASES = [
    framed("stft", signal.StreamingStft, signal.stft, n_fft=64, hop=16),
    framed("stft, hop no part of n_fft", signal.StreamingStft, signal.stft, n_fft=63, hop=20, block=100),
    framed("stft, gaps", signal.StreamingStft, signal.stft, n_fft=20, hop=33, block=66),
    framed("stft, no overlap", signal.StreamingStft, signal.stft, n_fft=32, hop=32),
    framed("stft, centred", signal.StreamingStft, signal.stft, n_fft=64, hop=20, center=True),
    framed("stft, centred at the edge", signal.StreamingStft, signal.stft, n_fft=51, hop=20, block=60, center=True, pad_mode="edge"),
    framed("stft, centred in zeros", signal.StreamingStft, signal.stft, n_fft=50, hop=60, center=True, pad_mode="constant"),
    framed("log_mel", signal.StreamingLogMel, signal.log_mel, **MEL),
    framed("log_mel, centred", signal.StreamingLogMel, signal.log_mel, **MEL, log="ln", center=True, block=80),
    framed("mfcc", signal.StreamingMfcc, signal.mfcc, **MEL, n_mfcc=5),
    power("welch"),
    power("welch, long blocks", nperseg=100, noverlap=70, nfft=128, detrend="linear", block=300),
    power("welch, no overlap", nperseg=64, noverlap=0, scaling="spectrum", detrend=False),
    StreamCase(
        "band power",
        lambda **more: signal.StreamingBandPower(3, BANDS, FS, nperseg=160, **more),
        lambda x, device: signal.band_power(x, BANDS, FS, nperseg=160, device=device),
        results=last,
    ),
    filtered("sos", 32, sos=band()),
    filtered("lfilter", 50, b=low()[0], a=low()[1]),
    filtered("finite", 16, b=np.hanning(33)),
    filtered("gain", 10, b=[2.0]),
    resampled(2, 5),
    resampled(5, 2, block=20),
    resampled(147, 160),
    resampled(6, 4, window="hamming"),
    resampled(1, 1),
    resampled(3, 7, window=[0.2, 0.5, 0.3, 0.1]),
    resampled(1, 9, window=[1.0]),
]  # fmt: skip

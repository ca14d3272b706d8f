"""rlx.signal has SciPy's names, order of arguments and results; what is easily mistaken is not silent."""

import doctest
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import scipy
from samples import looped

import rlx
from rlx import signal

pytestmark = pytest.mark.by_program

FS = 160.0
SOS = scipy.signal.butter(3, 0.3, output="sos")
B, A = scipy.signal.butter(3, 0.3)


def close(got, expected, tolerance=1e-5):
    assert got.shape == expected.shape
    assert got.dtype.kind == expected.dtype.kind
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


def noise(rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    return x, x.astype(np.float64)


SPECTRA = (
    {},
    {"nperseg": 100, "noverlap": 30, "window": "hamming"},
    {"nperseg": 64, "nfft": 101, "detrend": "linear"},
    {"window": np.hanning(77)},
    {"detrend": False, "nperseg": 128},
)


@looped("given", SPECTRA, ids=str)
def test_csd(device, rng, given):
    x, wide_x = noise(rng, (2, 3, 1000))
    y, wide_y = noise(rng, (3, 1000))
    y, wide_y = y + x[0], wide_y + wide_x[0]
    for more in ({}, {"scaling": "spectrum"}, {"average": "median"}):
        hz, power = signal.csd(x, y, FS, device=device, **given, **more)
        f, expected = scipy.signal.csd(wide_x, wide_y, FS, **given, **more)
        close(power, expected)
        np.testing.assert_allclose(hz, f)
    g = rlx.Graph()
    result = signal.csd(g.input("x", x.shape), g.input("y", y.shape), FS, **given)
    assert result.shape == (2, 3, 2 * len(hz))


@looped("given", SPECTRA, ids=str)
def test_coherence(device, rng, given):
    x, wide_x = noise(rng, (3, 2000))
    y, wide_y = noise(rng, (3, 2000))
    y, wide_y = y + x, wide_y + wide_x
    hz, result = signal.coherence(x, y, FS, device=device, **given)
    f, expected = scipy.signal.coherence(wide_x, wide_y, FS, **given)
    close(result, expected, 2e-5)
    np.testing.assert_allclose(hz, f)


@looped("q", [1, 2, 5, 13])
@looped("zero_phase", [True, False])
@looped("kind", [("iir", None), ("iir", 5), ("fir", None), ("fir", 31)])
def test_decimate(device, rng, q, zero_phase, kind):
    x, wide = noise(rng, (2, 611))
    ftype, n = kind
    if q == 1 and ftype == "fir":  # SciPy refuses a cutoff at half the sample rate
        assert (
            signal.decimate(x, q, n, ftype, zero_phase=zero_phase, device=device).shape == x.shape
        )
        return
    # f32 on a GPU: poles of radius r enlarge what is rounded by 1 / (1 - r)^2.
    tolerance = 2e-3 if device == "webgpu" and ftype == "iir" else 1e-5
    got = signal.decimate(x, q, n, ftype, zero_phase=zero_phase, device=device)
    expected = scipy.signal.decimate(wide, q, n, ftype, zero_phase=zero_phase)
    close(got, expected, tolerance)
    got = signal.decimate(x.T, q, n, ftype, 0, zero_phase, device=device)
    close(got.T, expected, tolerance)


@looped("order", [1, 2, 3, 4, 5, 8, 9, 12])
@looped("cutoff", [0.02, 0.16, 0.4, 0.8])
def test_chebyshev(order, cutoff):
    from rlx.signal.decimation import chebyshev

    w = np.linspace(0, np.pi, 500)
    _, got = scipy.signal.sosfreqz(chebyshev(order, 0.05, cutoff), w)
    _, expected = scipy.signal.sosfreqz(scipy.signal.cheby1(order, 0.05, cutoff, output="sos"), w)
    np.testing.assert_allclose(got, expected, atol=1e-9)


KINDS = ("butter", "cheby1", "cheby2", "ellip", "bessel")


@looped("ftype", KINDS)
@looped("btype", ["low", "high", "bandpass", "bandstop"])
@looped("order", [1, 2, 3, 5])
def test_filters_that_scipy_designs(rng, ftype, btype, order):
    x, wide = noise(rng, (2, 300))
    edges = 0.4 if btype in ("low", "high") else (0.2, 0.5)
    make = {"rp": 1, "rs": 40, "btype": btype, "ftype": ftype}
    sos = scipy.signal.iirfilter(order, edges, output="sos", **make)
    b, a = scipy.signal.iirfilter(order, edges, **make)
    close(signal.sosfilt(sos, x), scipy.signal.sosfilt(sos, wide))
    close(signal.lfilter(b, a, x), scipy.signal.lfilter(b, a, wide))
    close(signal.sosfiltfilt(sos, x), scipy.signal.sosfiltfilt(sos, wide), 1e-4)
    close(signal.filtfilt(b, a, x), scipy.signal.filtfilt(b, a, wide), 1e-4)
    zi = scipy.signal.sosfilt_zi(sos)
    np.testing.assert_allclose(signal.sosfilt_zi(sos), zi, atol=1e-9 * max(1, np.abs(zi).max()))
    zi = scipy.signal.lfilter_zi(b, a)
    np.testing.assert_allclose(signal.lfilter_zi(b, a), zi, atol=1e-9 * max(1, np.abs(zi).max()))


@looped("taps", [1, 2, 5, 80])
def test_filters_of_firwin(rng, taps):
    x, wide = noise(rng, (2, 300))
    b = scipy.signal.firwin(taps, 0.4)
    close(signal.lfilter(b, 1.0, x), scipy.signal.lfilter(b, 1.0, wide))
    close(signal.lfilter(b, 1, x), scipy.signal.lfilter(b, 1, wide))
    if taps == 1:  # SciPy knows no state of a filter without one
        assert signal.lfilter_zi(b, 1.0).shape == (0,)
        np.testing.assert_array_equal(signal.filtfilt(b, 1.0, x), x)
        return
    close(signal.filtfilt(b, 1.0, x), scipy.signal.filtfilt(b, 1.0, wide))
    zi = signal.lfilter_zi(b, 1.0)
    np.testing.assert_allclose(zi, scipy.signal.lfilter_zi(b, 1.0), atol=1e-12)


@looped("padtype", ["odd", "even", "constant", None])
def test_padtypes(device, rng, padtype):
    x, wide = noise(rng, (2, 200))
    got = signal.filtfilt(B, A, x, padtype=padtype, padlen=17, device=device)
    close(got, scipy.signal.filtfilt(B, A, wide, padtype=padtype, padlen=17), 2e-5)
    got = signal.sosfiltfilt(SOS, x, padtype=padtype, device=device)
    close(got, scipy.signal.sosfiltfilt(SOS, wide, padtype=padtype), 2e-5)


def along(function, x, axis):
    """Applies a function of the last axis along another one."""
    return np.moveaxis(function(np.moveaxis(x, axis, -1)), -1, axis)


AXES = {
    "sosfilt": (lambda x, **k: signal.sosfilt(SOS, x, **k), lambda x, a: scipy.signal.sosfilt(SOS, x, a)),
    "lfilter": (lambda x, **k: signal.lfilter(B, A, x, **k), lambda x, a: scipy.signal.lfilter(B, A, x, a)),
    "finite": (lambda x, **k: signal.lfilter(B, 1.0, x, **k), lambda x, a: scipy.signal.lfilter(B, 1.0, x, a)),
    "sosfiltfilt": (lambda x, **k: signal.sosfiltfilt(SOS, x, **k), lambda x, a: scipy.signal.sosfiltfilt(SOS, x, a)),
    "filtfilt": (lambda x, **k: signal.filtfilt(B, A, x, **k), lambda x, a: scipy.signal.filtfilt(B, A, x, a)),
    "hilbert": (signal.hilbert, lambda x, a: scipy.signal.hilbert(x, axis=a)),
    "envelope": (signal.envelope, lambda x, a: np.abs(scipy.signal.hilbert(x, axis=a))),
    "resample_poly": (lambda x, **k: signal.resample_poly(x, 3, 2, **k), lambda x, a: scipy.signal.resample_poly(x, 3, 2, a)),
    "decimate": (lambda x, **k: signal.decimate(x, 3, **k), lambda x, a: scipy.signal.decimate(x, 3, axis=a)),
    "welch": (lambda x, **k: signal.welch(x, nperseg=20, **k)[1], lambda x, a: scipy.signal.welch(x, nperseg=20, axis=a)[1]),
    "psd": (lambda x, **k: signal.psd(x, **k)[1], lambda x, a: scipy.signal.periodogram(x, axis=a)[1]),
    "csd": (lambda x, **k: signal.csd(x, x[::-1].copy(), nperseg=20, **k)[1], lambda x, a: scipy.signal.csd(x, x[::-1], nperseg=20, axis=a)[1]),
    "coherence": (lambda x, **k: signal.coherence(x, x**2, nperseg=20, **k)[1], lambda x, a: scipy.signal.coherence(x, x**2, nperseg=20, axis=a)[1]),
    "band_power": (lambda x, **k: signal.band_power(x, [(0.1, 0.3)], nperseg=20, **k), lambda x, a: along(lambda y: signal.band_power(y, [(0.1, 0.3)], nperseg=20), x, a)),
}  # fmt: skip


def test_defaults_of_axis_are_scipys(rng):
    x = rng.normal(size=(30, 12))
    close(signal.resample_poly(x, 3, 2), scipy.signal.resample_poly(x, 3, 2), 1e-9)
    close(signal.decimate(x, 3, ftype="fir"), scipy.signal.decimate(x, 3, ftype="fir"), 1e-9)
    close(signal.hilbert(x), scipy.signal.hilbert(x), 1e-9)
    close(signal.lfilter([0.5, 0.5], [1.0], x), scipy.signal.lfilter([0.5, 0.5], [1.0], x), 1e-9)


@looped("name", sorted(AXES))
@looped("axis", [0, 1, 2, -2, -3])
def test_axis(device, rng, name, axis):
    shape = [5, 17, 18]  # columns that fill vectors and that do not
    shape[axis] = 50
    x, wide = noise(rng, shape)
    ours, theirs = AXES[name]
    tolerance = 1e-3 if device == "webgpu" else 3e-5
    close(ours(x, axis=axis, device=device), theirs(wide, axis), tolerance)


def test_axis_of_states(device, rng):
    x, wide = noise(rng, (4, 60, 3))
    zi, wide_zi = noise(rng, (len(SOS), 4, 2, 3))
    for got, want in zip(signal.sosfilt(SOS, x, 1, zi, device=device), scipy.signal.sosfilt(SOS, wide, 1, wide_zi), strict=True):  # fmt: skip
        close(got, want)
    for b, a in ((B, A), (B, [1.0])):
        zi, wide_zi = noise(rng, (4, 3, 3))
        for got, want in zip(signal.lfilter(b, a, x, 1, zi, device=device), scipy.signal.lfilter(b, a, wide, 1, wide_zi), strict=True):  # fmt: skip
            close(got, want)


def test_axis_of_transforms(device, rng):
    x, wide = noise(rng, (40, 2, 3))
    spec = signal.rfft(x, 50, 0, device=device)
    real, imaginary = np.split(spec, 2, 0)
    close(real + 1j * imaginary, np.fft.rfft(wide, 50, 0))
    close(signal.irfft(spec, 50, 0, device=device)[:40], wide, 1e-5)
    moved = np.ascontiguousarray(np.moveaxis(x, 0, -1))
    for function, value in (
        (signal.stft, (16, 8)),
        (signal.log_mel, (FS, 16, 8, 3)),
        (signal.mfcc, (FS, 16, 8, 2, 3)),
    ):
        got = function(x, *value, axis=0, device=device)
        close(got, function(moved, *value, device=device), 1e-5)


SAME_ORDER = ("sosfilt", "lfilter", "sosfiltfilt", "welch", "csd", "coherence", "decimate", "sosfilt_zi", "lfilter_zi", "hilbert", "resample_poly")  # fmt: skip


@looped("name", SAME_ORDER)
def test_order_of_arguments(name):
    ours = list(inspect.signature(getattr(signal, name)).parameters)
    theirs = list(inspect.signature(getattr(scipy.signal, name)).parameters)
    positional = [n for n in ours if n != "device"]
    assert positional == theirs[: len(positional)]


def test_order_of_arguments_that_differ_at_the_end():
    ours = list(inspect.signature(signal.filtfilt).parameters)[:-1]
    theirs = list(inspect.signature(scipy.signal.filtfilt).parameters)
    assert ours == theirs[: len(ours)]
    ours = list(inspect.signature(signal.psd).parameters)[:-1]
    assert ours == list(inspect.signature(scipy.signal.periodogram).parameters)
    for name in ("rfft", "irfft"):
        ours = list(inspect.signature(getattr(signal, name)).parameters)
        assert ours[1:4] == ["n", "axis", "norm"]
    # SciPy's third argument is threshold, which there is not.
    with pytest.raises(TypeError, match="positional"):
        signal.find_peaks(np.zeros(9), 0.5, 3)


def test_results_with_and_without_a_state(rng):
    x, _ = noise(rng, (2, 50))
    assert isinstance(signal.lfilter(B, A, x), np.ndarray)
    assert len(signal.lfilter(B, A, x, zi=np.zeros((2, 3)))) == 2
    g = rlx.Graph()
    node = g.input("x", (2, 50))
    assert signal.sosfilt(SOS, node).shape == (2, 50)
    y, after = signal.sosfilt(SOS, node, zi=g.input("zi", (2, 2, 2)))
    assert y.shape == (2, 50)
    assert after.shape == (2, 2, 2)


def test_arrays_beside_nodes(rng):
    """A state or a second signal may be an array where the first one is a node."""
    x, wide = noise(rng, (2, 300))
    zi, g = rng.standard_normal((2, 3)), rlx.Graph()
    node = g.input("x", x.shape)
    outputs = [*signal.lfilter(B, A, node, zi=zi), *signal.lfilter(B, 1.0, node, zi=zi)]
    outputs.append(signal.coherence(node, wide[::-1] + wide, nperseg=64))
    g.set_outputs(outputs)
    with rlx.compile(g, device="cpu") as cg:
        got = cg.run_slots(x)
    expected = [
        *scipy.signal.lfilter(B, A, wide, zi=zi),
        *scipy.signal.lfilter(B, 1.0, wide, zi=zi),
        scipy.signal.coherence(wide, wide[::-1] + wide, nperseg=64)[1],
    ]
    for first, other in zip(got, expected, strict=True):
        close(first, other, 2e-5)


def test_two_signals_have_the_wider_dtype(rng):
    x, wide = noise(rng, (2, 300))
    assert signal.csd(x, x)[1].dtype == np.complex64
    for pair in ((x, wide), (wide, x)):
        expected = scipy.signal.csd(wide, wide.copy(), nperseg=64)[1]  # SciPy computes f32 in f32
        close(signal.csd(*pair, nperseg=64)[1], expected, 1e-12)
        assert signal.coherence(*pair)[1].dtype == np.float64


def test_band_power(device, rng):
    x, wide = noise(rng, (2, 3, 1000))
    f, power = scipy.signal.welch(wide, FS, nperseg=160)
    bands = [(4, 8), (8, 13), (30, 80)]
    expected = np.stack(
        [power[..., (f >= a) & ((f < b) | (f == b) & (b == 80))].sum(-1) for a, b in bands], -1
    )
    close(signal.band_power(x, bands, FS, nperseg=160, device=device), expected)
    for wrong in ([], [(8, 4)], [(1, 2, 3)], [(0, 100)], [("a", "b")], [(8.2, 8.4)], 5):
        with pytest.raises(rlx.InputError, match="band"):
            signal.band_power(x, wrong, FS, nperseg=160)


X = np.arange(300, dtype=np.float32) % 7
# Mistakes of new users: the call, and the words that the message has.
TRAPS = {
    "fs 0": (lambda: signal.welch(X, fs=0), r"\[welch\] fs"),
    "fs negative": (lambda: signal.psd(X, fs=-1.0), r"\[psd\] fs"),
    "fs NaN": (lambda: signal.csd(X, X, fs=np.nan), r"\[csd\] fs"),
    "fs text": (lambda: signal.coherence(X, X, fs="256"), r"\[coherence\] fs"),
    "fs of frequencies": (lambda: signal.welch_frequencies(300, 0.0), "fs"),
    "fs of bands": (lambda: signal.band_power(X, [(0, 1)], fs=0), "fs"),
    "fs of a stream": (lambda: signal.StreamingWelch(1, fs=0), r"\[StreamingWelch\] fs"),
    "rate of mel": (lambda: signal.log_mel(X, 0, 64, 16, 8), "sample_rate"),
    "rate of a stream": (lambda: signal.StreamingLogMel(1, -8000, 64, 16, 8), "sample_rate"),
    "sos last": (lambda: signal.sosfilt(X, SOS), r"sosfilt\(sos, x\)"),
    "sos last, a table": (lambda: signal.sosfilt(X.reshape(50, 6), SOS), r"sosfilt\(sos, x\)"),
    "sos last, forward and backward": (lambda: signal.sosfiltfilt(X, SOS), r"sosfilt\(sos, x\)"),
    "node for sos": (lambda: signal.sosfilt(rlx.Graph().input("x", (9,)), SOS), r"sosfilt\(sos, x\)"),
    "ba for sos": (lambda: signal.sosfilt((B, A), X), "sos"),
    "signal first": (lambda: signal.lfilter(np.stack([X, X]), B, A), r"lfilter\(b, a, x\)"),
    "node first": (lambda: signal.lfilter(rlx.Graph().input("x", (9,)), B, A), r"lfilter\(b, a, x\)"),
    "signal first, filtfilt": (lambda: signal.filtfilt(np.stack([X, X]), B, A), r"lfilter\(b, a, x\)"),
    "a[0] 0": (lambda: signal.lfilter(B, [0.0, 1.0], X), r"a\[0\]"),
    "a[0] 0, filtfilt": (lambda: signal.filtfilt(B, [0.0, 1.0], X), r"a\[0\]"),
    "a[0] 0, state": (lambda: signal.lfilter_zi(B, [0.0, 1.0]), r"a\[0\]"),
    "a[0] 0, stream": (lambda: signal.StreamingFilter((8,), b=B, a=[0.0, 1.0]), r"a\[0\]"),
    "a0 2": (lambda: signal.StreamingFilter((8,), sos=[[1, 0, 0, 2, 0, 0]]), "a0"),
    "NaN in b": (lambda: signal.lfilter([np.nan], A, X), r"\[lfilter\] b"),
    "infinity in a": (lambda: signal.filtfilt(B, [1.0, np.inf], X), r"\[filtfilt\] a"),
    "NaN in sos": (lambda: signal.sosfilt(SOS * np.nan, X), r"\[sosfilt\] sos"),
    "NaN in a stream's b": (lambda: signal.StreamingFilter((8,), b=[np.inf]), r"\[StreamingFilter\] b"),
    "complex b": (lambda: signal.lfilter(B + 0j, A, X), r"\[lfilter\] b"),
    "complex sos": (lambda: signal.StreamingFilter((8,), sos=SOS + 0j), "sos"),
    "text for b": (lambda: signal.lfilter("low", A, X), r"\[lfilter\] b"),
    "no b": (lambda: signal.lfilter([], A, X), r"\[lfilter\] b"),
    "pole at 1": (lambda: signal.lfilter_zi([1.0, 0.0], [1.0, -1.0]), "pole at 1"),
    "complex signal": (lambda: signal.welch(X + 0j), r"\[welch\] not real"),
    "complex signal, filter": (lambda: signal.sosfilt(SOS, X + 0j), r"\[sosfilt\] not real"),
    "complex signal, peaks": (lambda: signal.find_peaks(X + 0j), "real"),
    "complex signal, stream": (lambda: signal.StreamingFilter((8,), b=B).push(X + 0j), "real"),
    "complex window": (lambda: signal.welch(X, window=np.ones(64) + 0j), "window"),
    "NaN in a window": (lambda: signal.stft(X, 4, 2, [1, np.nan, 1, 1]), "window"),
    "NaN in a filter to resample": (lambda: signal.resample_poly(X, 2, 1, window=[1, np.nan]), "finite"),
    "factor 1.5": (lambda: signal.resample_poly(X, 1.5, 1), "up"),
    "factor 0": (lambda: signal.decimate(X, 0), "q"),
    "factor text": (lambda: signal.resample_poly(X, 1, "2"), "down"),
    "ftype": (lambda: signal.decimate(X, 2, ftype="irr"), "iir"),
    "two sides": (lambda: signal.welch(X, return_onesided=False), "return_onesided"),
    "scaling where return_onesided stands": (lambda: signal.welch(X, 1.0, "hann", 64, 32, 64, False, "density"), "return_onesided"),
    "nperseg 64.5": (lambda: signal.welch(X, nperseg=64.5), "nperseg"),
    "noverlap of a whole segment": (lambda: signal.welch(X, nperseg=64, noverlap=64), "noverlap"),
    "noverlap negative": (lambda: signal.csd(X, X, nperseg=64, noverlap=-1), "noverlap"),
    "nfft below nperseg": (lambda: signal.coherence(X, X, nperseg=64, nfft=32), "nfft"),
    "hop 0": (lambda: signal.stft(X, 64, 0), r"\[stft\] hop"),
    "hop text": (lambda: signal.stft(X, 64, "16"), r"\[stft\] hop"),
    "hop 16.5": (lambda: signal.StreamingStft(1, 64, 16.5), "hop"),
    "hop above n_fft": (lambda: signal.istft(signal.stft(X, 64, 65), 64, 65), "gaps"),
    "norm where axis stands": (lambda: signal.rfft(X, None, "ortho"), "axis"),
    "norm where n stands": (lambda: signal.rfft(X, "ortho"), r"\[rfft\] n"),
    "axis 2 of 1": (lambda: signal.lfilter(B, A, X, axis=2), "axis"),
    "axis 1.5": (lambda: signal.welch(X, axis=1.5), "axis"),
    "lengths differ": (lambda: signal.csd(X, X[:200]), "length"),
    "padtype": (lambda: signal.filtfilt(B, A, X, padtype="evne"), "even"),
    "padlen": (lambda: signal.filtfilt(B, A, X, padlen=-1), "padlen"),
    "padlen too long": (lambda: signal.sosfiltfilt(SOS, X[:5]), "padlen"),
    "fmax below fmin": (lambda: signal.log_mel(X, FS, 64, 16, 8, 50, 40), "fmin"),
    "top_db": (lambda: signal.mfcc(X, FS, 64, 16, 3, 4, top_db=-80), "top_db"),
}  # fmt: skip


@looped("name", sorted(TRAPS))
def test_traps(name):
    call, message = TRAPS[name]
    with pytest.raises((rlx.InputError, rlx.ShapeError, rlx.DTypeError), match=message):
        call()


WARNED = {
    "mel filters without a bin": (lambda: signal.mel_filterbank(16000, 256, 128), "n_mels 128, n_fft 256, fmin 0.0, fmax 8000"),
    "of a function": (lambda: signal.log_mel(X, 16000, 64, 16, 41), "filters hold no bin"),
    "of a stream": (lambda: signal.StreamingMfcc(1, 16000, 64, 16, 10, 43), "filters hold no bin"),
    "segment longer than the signal": (lambda: signal.welch(X[:99], nperseg=256), "nperseg 256"),
    "signal in the place of b": (lambda: signal.lfilter(X, B, A), r"lfilter\(b, a, x\)"),
}  # fmt: skip


@looped("name", sorted(WARNED))
def test_warnings(name):
    call, message = WARNED[name]
    with pytest.warns(UserWarning, match=message):
        call()


MODULES = sorted(m.name for m in pkgutil.walk_packages(signal.__path__, "rlx.signal."))


@looped("name", MODULES)
def test_examples_of_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0

"""Windows, transforms, spectra and mel features against SciPy and librosa, on arrays and nodes."""

from functools import partial

import numpy as np
import pytest
import scipy
from samples import looped
from side_by_side import side_by_side

import rlx
from rlx import signal
from rlx.ir.opdef import lookup
from rlx.signal import arrays, window_functions

pytestmark = pytest.mark.by_program


def cells(block):
    """Complex numbers from block layout."""
    n = block.shape[-1] // 2
    return block[..., :n] + 1j * block[..., n:]


def block(z):
    return np.concatenate([z.real, z.imag], -1)


def close(got, expected, tolerance=1e-5):
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


PARAMETERS = {
    "tukey": [(0.3,), (0.0,), (1.0,)],
    "gaussian": [(3.0,)],
    "general_gaussian": [(1.5, 3.0)],
    "general_hamming": [(0.6,)],
    "general_cosine": [((0.4, 0.4, 0.2),)],
    "exponential": [(None, 3.0)],
    "kaiser": [(8.0,), (0.0,)],
    "chebwin": [(60.0,)],
    "taylor": [(), (5, 35.0)],
}


@looped("n", [1, 2, 3, 7, 8, 256])
@looped("periodic", [True, False])
@looped("name", sorted(window_functions._WINDOWS))
def test_windows(name, n, periodic):
    for parameters in PARAMETERS.get(name, [()]):
        full = (name, *parameters) if parameters else name
        expected = scipy.signal.get_window(full, n, fftbins=periodic)
        np.testing.assert_allclose(signal.window(full, n, periodic), expected, atol=1e-12)


def test_window_errors():
    with pytest.raises(rlx.UnknownNameError, match="hann"):
        signal.window("han", 8)
    with pytest.raises(rlx.InputError, match="beta"):
        signal.window("kaiser", 8)
    with pytest.raises(rlx.InputError, match="parameters"):
        signal.window(("hann", 1.0), 8)
    with pytest.raises(rlx.InputError, match="at least 1"):
        signal.window("hann", 0)


@looped("norm", ["backward", "ortho", "forward"])
@looped("n", [None, 1, 2, 7, 64, 101, 150])
def test_rfft(device, rng, n, norm):
    x = rng.standard_normal((3, 100)).astype(np.float32)
    expected = np.fft.rfft(x.astype(np.float64), n, norm=norm)
    close(cells(signal.rfft(x, n, norm=norm, device=device)), expected)


@looped("norm", ["backward", "ortho", "forward"])
@looped("n", [None, 1, 2, 7, 64, 101, 150])
def test_irfft(device, rng, n, norm):
    spec = np.fft.rfft(rng.standard_normal((3, 100)), n, norm=norm)
    spec += 0.3j  # the imaginary part of bin 0 has no effect
    expected = np.fft.irfft(spec, n, norm=norm)
    close(signal.irfft(block(spec).astype(np.float32), n, norm=norm, device=device), expected)


def test_irfft_cuts_and_continues(rng):
    spec = np.fft.rfft(rng.standard_normal((2, 20)))
    for n in (7, 12, 30, 31):
        close(signal.irfft(block(spec), n), np.fft.irfft(spec, n), 1e-12)


@looped(("n_fft", "hop"), [(64, 16), (64, 25), (45, 15), (50, 7), (40, 40)])
@looped("center", [False, True])
@looped("mode", ["reflect", "constant", "edge"])
def test_stft(device, rng, n_fft, hop, center, mode):
    x = rng.standard_normal((2, 300)).astype(np.float32)
    wide = x.astype(np.float64)
    if center:
        wide = np.pad(wide, ((0, 0), (n_fft // 2, n_fft // 2)), mode)
    frames = np.lib.stride_tricks.sliding_window_view(wide, n_fft, -1)[:, ::hop]
    expected = np.fft.rfft(frames * signal.window("hann", n_fft))
    got = signal.stft(x, n_fft, hop, center=center, pad_mode=mode, device=device)
    close(cells(got), expected)


@looped(("n_fft", "hop"), [(64, 16), (64, 25), (45, 15), (50, 7)])
def test_istft_undoes_stft(device, rng, n_fft, hop):
    x = rng.standard_normal((2, 300)).astype(np.float32)
    spec = signal.stft(x, n_fft, hop, center=True, device=device)
    close(signal.istft(spec, n_fft, hop, center=True, length=260, device=device), x[:, :260])
    # Without center the ends are tapered to nothing, so the middle is compared.
    spec = signal.stft(x, n_fft, hop, window="hamming", device=device)
    got = signal.istft(spec, n_fft, hop, window="hamming", device=device)
    close(got, x[:, : got.shape[1]], 2e-5)
    assert signal.istft(spec, n_fft, hop, length=400).shape == (2, 400)


@pytest.mark.slow  # importing librosa compiles for half a minute
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("center", [False, True])
def test_stft_is_librosas(rng, center):
    import librosa

    x = rng.standard_normal((2, 4000))
    settings = {"n_fft": 400, "hop_length": 160, "center": center}
    spec = librosa.stft(x, **settings, pad_mode="reflect").transpose(0, 2, 1)
    close(cells(signal.stft(x, 400, 160, center=center)), spec, 1e-12)
    back = librosa.istft(spec.transpose(0, 2, 1), **settings)
    close(signal.istft(block(spec), 400, 160, center=center)[:, 5:-5], back[:, 5:-5], 1e-7)


WELCH = (
    {},
    {"window": ("kaiser", 8.0)},
    {"nperseg": 100},
    {"nperseg": 101, "noverlap": 30},
    {"nperseg": 64, "nfft": 100},
    {"nperseg": 63, "nfft": 101},
    {"detrend": "linear"},
    {"detrend": False},
    {"scaling": "spectrum"},
    {"nperseg": 50, "average": "median"},
    {"nperseg": 90, "average": "median"},
    {"fs": 250.0, "nperseg": 33, "noverlap": 0},
)


@looped("settings", WELCH, ids=str)
@looped("shape", [(1000,), (2, 3, 777)])
def test_welch(device, rng, shape, settings):
    drift = 3 + np.linspace(0, 4, shape[-1])
    x = (rng.standard_normal(shape) + drift).astype(np.float32)
    f, expected = scipy.signal.welch(x.astype(np.float64), **{"nperseg": 256, **settings})
    hz, power = signal.welch(x, device=device, **settings)
    close(power, expected)
    np.testing.assert_allclose(hz, f)
    inputs = {k: v for k, v in settings.items() if k in ("fs", "nperseg", "nfft")}
    np.testing.assert_allclose(signal.welch_frequencies(shape[-1], **inputs), f)


def test_welch_of_a_short_signal_and_psd(device, rng):
    x = rng.standard_normal((2, 200)).astype(np.float32)
    wide = x.astype(np.float64)
    close(signal.welch(x, device=device)[1], scipy.signal.welch(wide, nperseg=200)[1])
    for got, want in zip(
        signal.psd(x, fs=7.0, device=device), scipy.signal.periodogram(wide, fs=7.0), strict=True
    ):
        close(got, want)
    _, got = signal.psd(x, window="hann", nfft=256, detrend="linear", device=device)
    expected = scipy.signal.periodogram(wide, window="hann", nfft=256, detrend="linear")[1]
    close(got, expected)


def test_welch_median_shows_nan(rng):
    x = rng.standard_normal((2, 1000))
    x[0, 5] = np.nan
    _, power = signal.welch(x, nperseg=100, average="median")
    assert np.isnan(power[0]).all()
    assert np.isfinite(power[1]).all()


def test_welch_on_nodes_reads_back_the_result_only(device, rng):
    x, g = rng.standard_normal((4, 2048)).astype(np.float32), rlx.Graph()
    g.set_outputs(signal.welch(g.input("x", x.shape), fs=128.0, nperseg=512))
    with rlx.compile(g, device=device) as cg:
        (power,) = cg.run_slots(x)
        assert power.shape == (4, 257)
        close(power, scipy.signal.welch(x.astype(np.float64), fs=128.0, nperseg=512)[1])


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 1e-3), ("bf16", 8e-3)])
def test_half_types_are_computed_in_f32(rng, dtype, tolerance):
    g = rlx.Graph()
    x = g.input("x", (2, 1000))
    narrow = signal.welch(g.cast(x, dtype), average="median")
    assert narrow.dtype is rlx.DType.parse(dtype)
    g.set_outputs(
        [g.cast(narrow, "f32"), signal.welch(g.cast(g.cast(x, dtype), "f32"), average="median")]
    )
    with rlx.compile(g, device="cpu") as cg:
        got, expected = cg.run_slots(rng.standard_normal((2, 1000)).astype(np.float32))
    close(got, expected, tolerance)


@looped(
    ("settings", "message"),
    [
        ({"detrend": "constnat"}, "constant"),
        ({"detrend": True}, "detrend"),
        ({"scaling": "power"}, "scaling"),
        ({"average": "mode"}, "average"),
        ({"noverlap": 256}, "noverlap"),
        ({"nfft": 100}, "nfft"),
        ({"window": np.ones(7), "nperseg": 256}, "window"),
    ],
)
def test_welch_errors(settings, message):
    with pytest.raises(rlx.InputError, match=message):
        signal.welch(np.zeros(1000, np.float32), **settings)


def triangles(rate, n_fft, mels, low, high, mel, norm):
    """Triangles between points that are equally far apart in mels, over the frequencies of a spectrum."""
    high = rate / 2 if high is None else high
    if mel == "htk":
        marks = 2595 * np.log10(1 + np.array([low, high]) / 700)
        points = 700 * (10 ** (np.linspace(*marks, mels + 2) / 2595) - 1)
    else:  # linear below 1 kHz, 27 mels for each factor of 6.4 above
        hz = np.array([low, high])
        bent = 15 + 27 * np.log(np.maximum(hz, 1000) / 1000) / np.log(6.4)
        position = np.linspace(*np.where(hz < 1000, 3 * hz / 200, bent), mels + 2)
        points = np.where(
            position < 15, 200 * position / 3, 1000 * np.exp((position - 15) / 27 * np.log(6.4))
        )
    begin, middle, end = (points[k : k + mels, None] for k in range(3))
    f = np.fft.rfftfreq(n_fft, 1 / rate)
    result = np.maximum(0, np.minimum((f - begin) / (middle - begin), (end - f) / (end - middle)))
    return result * (2 / (end - begin) if norm else 1)


FILTERBANKS = (
    (16000, 400, 80, 0.0, None),
    (22050, 2048, 128, 20.0, 8000.0),
    (8000, 255, 13, 0.0, 3000.0),
)


@pytest.mark.parametrize("mel", ["slaney", "htk"])
@pytest.mark.parametrize("norm", ["slaney", None])
def test_mel_filterbank_has_triangles(mel, norm):
    for rate, n_fft, mels, low, high in FILTERBANKS:
        expected = triangles(rate, n_fft, mels, low, high, mel, norm)
        close(signal.mel_filterbank(rate, n_fft, mels, low, high, mel, norm), expected, 1e-6)


@pytest.mark.slow  # importing librosa compiles for half a minute
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mel", ["slaney", "htk"])
@pytest.mark.parametrize("norm", ["slaney", None])
def test_mel_filterbank_is_librosas(mel, norm):
    import librosa

    for rate, n_fft, mels, low, high in FILTERBANKS:
        expected = librosa.filters.mel(
            sr=rate, n_fft=n_fft, n_mels=mels, fmin=low, fmax=high, htk=mel == "htk", norm=norm
        )
        close(signal.mel_filterbank(rate, n_fft, mels, low, high, mel, norm), expected, 1e-6)


def loud_and_quiet(rng):
    return (rng.standard_normal((2, 6000)) * np.linspace(0, 1, 6000) ** 8).astype(np.float32)


@looped("log", ["log10", "ln", "db", "whisper"])
def test_log_mel(device, rng, log):
    x = loud_and_quiet(rng)
    power = np.abs(cells(signal.stft(x.astype(np.float64), 400, 160))) ** 2
    m = np.maximum(power @ signal.mel_filterbank(16000, 400, 40).T, 1e-10)
    ten = np.log10(m)
    top = ten.max((1, 2), keepdims=True)
    expected = {
        "log10": ten,
        "ln": np.log(m),
        "db": 10 * np.maximum(ten, top - 8),
        "whisper": (np.maximum(ten, top - 8) + 4) / 4,
    }[log]
    close(signal.log_mel(x, 16000, 400, 160, 40, log=log, device=device), expected)


@pytest.mark.slow  # importing librosa compiles for half a minute
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("htk", "center"), [(False, True), (True, False)])
def test_mfcc_is_librosas(rng, htk, center):
    import librosa

    x = loud_and_quiet(rng)
    settings = {"n_fft": 400, "hop_length": 160, "n_mels": 80, "htk": htk, "center": center}
    mels = librosa.feature.melspectrogram(
        y=x.astype(np.float64), sr=16000, pad_mode="reflect", **settings
    )
    level = [librosa.power_to_db(mel) for mel in mels]
    mel = "htk" if htk else "slaney"
    got = signal.log_mel(x, 16000, 400, 160, 80, mel=mel, log="db", center=center)
    close(got, np.stack(level).transpose(0, 2, 1))
    expected = np.stack([librosa.feature.mfcc(S=item, n_mfcc=13).T for item in level])
    close(signal.mfcc(x, 16000, 400, 160, 13, 80, mel=mel, center=center), expected)


def test_mel_errors():
    x = np.zeros(1000, np.float32)
    with pytest.raises(rlx.UnknownNameError, match="slaney"):
        signal.log_mel(x, 16000, 400, 160, 40, mel="slany")
    with pytest.raises(rlx.UnknownNameError, match="log10"):
        signal.log_mel(x, 16000, 400, 160, 40, log="log01")
    with pytest.raises(rlx.InputError, match="n_mfcc"):
        signal.mfcc(x, 16000, 400, 160, n_mfcc=200)
    with pytest.raises(rlx.InputError, match="fmin"):
        signal.mel_filterbank(16000, 400, fmin=9000.0)


@pytest.mark.parametrize("axes", ["last", "all"])
def test_log_mel_backward_by_differences(rng, axes):
    """The reference against finite differences of log_mel, its floor as the maximum left it."""
    backward = lookup("log_mel_backward").reference
    filters, dy = rng.uniform(0, 1, (4, 5)), rng.standard_normal((2, 3, 4))
    spec = rng.standard_normal((2, 3, 16)) * 10.0 ** rng.uniform(-6, 1, (2, 3, 1))

    def level(z):
        return np.log10(np.maximum((z[..., :5] ** 2 + z[..., 8:13] ** 2) @ filters.T, 1e-10))

    floor = level(spec).max(None if axes == "all" else -1, keepdims=True) - 8
    numeric = np.zeros_like(spec)
    for index in np.ndindex(spec.shape):
        step = 1e-5 * abs(spec[index])
        sides = []
        for sign in (1, -1):
            moved = spec.copy()
            moved[index] += sign * step
            sides.append(np.sum(np.maximum(level(moved), floor) * dy) / 4)
        numeric[index] = (sides[0] - sides[1]) / (2 * step)
    got = backward(spec, filters, dy, axes)
    # Rows differ by many orders of magnitude, and each has to be right.
    scale = np.abs(numeric).max(-1, keepdims=True)
    assert np.all(np.abs(got - numeric) <= 1e-5 * scale)


def test_frames_of_any_hop(device, rng):
    x = rng.standard_normal((2, 50)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view
    for length, hop in ((10, 5), (10, 3), (4, 9), (50, 1), (1, 1), (12, 8)):
        g = rlx.Graph()
        g.set_outputs(signal.frame(g.input("x", x.shape), length, hop))
        with rlx.compile(g, device=device) as cg:
            (got,) = cg.run_slots(x)
        np.testing.assert_array_equal(got, windows(x, length, -1)[:, ::hop])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "odd"])
def test_extend(rng, mode):
    x, g = rng.standard_normal((2, 9)).astype(np.float32), rlx.Graph()
    g.set_outputs(signal.extend(g.input("x", x.shape), 3, 5, mode))
    with rlx.compile(g, device="cpu") as cg:
        (got,) = cg.run_slots(x)
    numpy = {"odd": ("reflect", {"reflect_type": "odd"})}.get(mode, (mode, {}))
    np.testing.assert_allclose(got, np.pad(x, ((0, 0), (3, 5)), numpy[0], **numpy[1]), rtol=1e-6)


def test_shapes_that_do_not_fit():
    g = rlx.Graph()
    x = g.input("x", (2, 10))
    for call in (
        lambda: signal.frame(x, 11, 1),
        lambda: signal.frame(x, 5, 0),
        lambda: signal.extend(x, 10, 0, "reflect"),
        lambda: signal.stft(x, 16, 4),
        lambda: signal.istft(x, 16, 4),
        lambda: signal.irfft(g.input("odd", (3,))),
        lambda: signal.rfft(g.input("scalar", ())),
    ):
        with pytest.raises(rlx.ShapeError):
            call()
    with pytest.raises(rlx.UnknownNameError, match="reflect"):
        signal.extend(x, 1, 1, "reflct")


def test_empty_batches(device):
    x = np.zeros((0, 500), np.float32)
    assert signal.stft(x, 64, 16, device=device).shape == (0, 28, 66)
    assert signal.welch(x, device=device)[1].shape == (0, 129)
    assert signal.log_mel(x, 16000, 400, 160, 10, log="db", device=device).shape == (0, 1, 10)


def test_arrays_compile_once_per_shape_and_settings(monkeypatch):
    compiled = []
    monkeypatch.setattr(arrays, "compiled", lambda g, d: compiled.append(g) or rlx.compile(g, d))
    arrays._cache.clear()
    arrays._families.clear()
    x = np.ones(300, np.float32)
    for _ in range(3):
        signal.welch(x)
    assert len(compiled) == 1
    signal.welch(x, scaling="spectrum")
    signal.welch(x[:280])
    signal.welch(x.astype(np.float64))
    signal.welch(x, window=np.ones(256))
    assert len(compiled) == 5
    signal.welch(x, window=np.ones(256))
    assert len(compiled) == 5
    for n in range(arrays.CAPACITY + 5):
        signal.rfft(x, 2 + n)
    assert len(arrays._cache) == arrays.CAPACITY


def test_arrays_dtypes_and_threads(rng):
    assert signal.rfft([1, 2, 3]).dtype == np.float32
    assert signal.rfft(np.ones(4)).dtype == np.float64
    y, state = signal.lfilter([1.0], [1.0, 0.5], np.ones(4, np.float32), zi=np.zeros(1))
    assert y.dtype == state.dtype == np.float32
    with pytest.raises(rlx.DTypeError, match="block layout"):
        signal.rfft(np.ones(4, np.complex64))
    with pytest.raises(rlx.InputError, match="device"):
        signal.rfft(rlx.Graph().input("x", (4,)), device="cpu")
    x = rng.standard_normal((8, 4, 1000))
    expected = [signal.welch(item)[1] for item in x]
    results = [None] * 8

    def work(index):
        for _ in range(20):
            results[index] = signal.welch(x[index])[1]

    side_by_side(*(partial(work, index) for index in range(8)))
    np.testing.assert_array_equal(results, expected)


def test_large_integers_are_not_rounded():
    x = np.arange(64, dtype=np.int64) + 2**40
    assert rlx.signal.psd(x % 100)[1].dtype == np.float32
    assert rlx.signal.psd(x, detrend=False)[1].dtype == np.float64

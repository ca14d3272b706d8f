"""Filters, resampling and peaks against SciPy, on every device; and streams against one call."""

import functools

import numpy as np
import pytest
import scipy
from samples import looped

import rlx
from rlx import signal

pytestmark = pytest.mark.by_program


@functools.cache
def band():
    """Sections of a band pass. Not a constant: loading scipy.signal takes longer than collecting the tests."""
    return scipy.signal.butter(4, (0.1, 0.4), "band", output="sos")


@functools.cache
def low():
    """Numerator and denominator of a low pass."""
    return scipy.signal.butter(3, 0.3)


def close(got, expected, tolerance=1e-5):
    assert got.shape == expected.shape
    assert np.abs(got - expected).max(initial=0) <= tolerance * np.abs(expected).max(initial=0)


def noise(rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    return x, x.astype(np.float64)


@looped("shape", [(300,), (9, 301), (2, 2, 77), (0, 20), (3, 0), (1, 1)])
def test_sosfilt(device, rng, shape):
    x, wide = noise(rng, shape)
    zi, wide_zi = noise(rng, (len(band()), *shape[:-1], 2))
    expected = scipy.signal.sosfilt(band(), wide, zi=wide_zi) if x.size else (wide, wide_zi)
    for got, want in zip(signal.sosfilt(band(), x, zi=zi, device=device), expected, strict=True):
        close(got, want)
    if x.size:
        close(signal.sosfilt(band(), x, device=device), scipy.signal.sosfilt(band(), wide))


@looped("shape", [(300,), (9, 301), (2, 2, 77), (0, 20)])
def test_lfilter(device, rng, shape):
    x, wide = noise(rng, shape)
    zi, wide_zi = noise(rng, (*shape[:-1], 3))
    expected = scipy.signal.lfilter(*low(), wide, zi=wide_zi)
    for got, want in zip(signal.lfilter(*low(), x, zi=zi, device=device), expected, strict=True):
        close(got, want)


@looped("taps", [1, 2, 5, 64, 65, 101, 400])
def test_finite_filters(device, rng, taps):
    x, wide = noise(rng, (2, 3, 301))
    b = rng.standard_normal(taps)
    close(signal.lfilter(b, [2.0], x, device=device), scipy.signal.lfilter(b, [2.0], wide))
    if taps > 1:
        zi, wide_zi = noise(rng, (2, 3, taps - 1))
        expected = scipy.signal.lfilter(b, 2.0, wide, zi=wide_zi)
        for got, want in zip(
            signal.lfilter(b, 2.0, x, zi=zi, device=device), expected, strict=True
        ):
            close(got, want)


def test_long_signals_and_narrow_bands(rng):
    """On the CPU the recursion is in double precision, so that narrow bands cost no digits."""
    x, wide = noise(rng, (2, 70_000))
    for sos in (
        scipy.signal.butter(4, (0.004, 0.006), "band", output="sos"),
        scipy.signal.butter(2, 0.001, "high", output="sos"),
    ):
        close(signal.sosfilt(sos, x), scipy.signal.sosfilt(sos, wide), 1e-6)


@pytest.mark.webgpu
def test_long_signals_on_webgpu(webgpu, rng):
    """Rows are filtered in blocks side by side; the state before each comes from a matrix power."""
    x, wide = noise(rng, (2, 70_000))
    zi, wide_zi = noise(rng, (len(band()), 2, 2))
    for got, want in zip(
        signal.sosfilt(band(), x, zi=zi, device=webgpu),
        scipy.signal.sosfilt(band(), wide, zi=wide_zi),
        strict=True,
    ):
        close(got, want)
    # f32 recursion: about 1e-7 / (1 - r)^2 for poles of radius r, here 0.988.
    sos = scipy.signal.butter(4, 0.01, output="sos")
    close(signal.sosfilt(sos, x, device=webgpu), scipy.signal.sosfilt(sos, wide), 7e-4)


def test_filters_forward_and_backward(device, rng):
    x, wide = noise(rng, (2, 3, 200))
    close(
        signal.sosfiltfilt(band(), x, device=device), scipy.signal.sosfiltfilt(band(), wide), 2e-5
    )
    odd = scipy.signal.butter(3, 0.2, output="sos")
    close(signal.sosfiltfilt(odd, x, device=device), scipy.signal.sosfiltfilt(odd, wide), 2e-5)
    close(signal.filtfilt(*low(), x, device=device), scipy.signal.filtfilt(*low(), wide), 2e-5)
    mean = np.ones(7) / 7
    close(signal.filtfilt(mean, 1.0, x, device=device), scipy.signal.filtfilt(mean, 1.0, wide))
    got = signal.filtfilt(*low(), x, padlen=0, device=device)
    close(got, scipy.signal.filtfilt(*low(), wide, padlen=0), 2e-5)


def test_filter_errors():
    x = np.zeros((2, 50), np.float32)
    with pytest.raises(rlx.InputError, match="sos"):
        signal.sosfilt(np.ones((2, 5)), x)
    with pytest.raises(rlx.InputError, match="a0"):
        signal.sosfilt([[1, 0, 0, 2, 0, 0]], x)
    with pytest.raises(rlx.InputError, match=r"a\[0\]"):
        signal.lfilter([1.0], [0.0, 1.0], x)
    for taps in ([1.0, 2.0, 3.0], [1.0]):
        with pytest.raises(rlx.ShapeError, match="zi"):
            signal.lfilter(
                taps, [1.0] if len(taps) > 1 else [1.0, 0.5, 0.2], x, zi=np.zeros((2, 9))
            )
    with pytest.raises(rlx.ShapeError, match="too short"):
        signal.filtfilt(*low(), x[:, :10])


@looped("n", [1, 2, 64, 101])
def test_hilbert(device, rng, n):
    x, wide = noise(rng, (3, n))
    z = scipy.signal.hilbert(wide)
    close(signal.hilbert(x, device=device), z)
    close(signal.envelope(x, device=device), np.abs(z))
    close(signal.hilbert(x, 50, device=device), scipy.signal.hilbert(wide, 50))
    g = rlx.Graph()
    assert signal.hilbert(g.input("x", (3, n))).shape == (3, 2 * n)


FACTORS = [(1, 2), (2, 1), (3, 7), (7, 3), (160, 147), (1, 100), (100, 1), (6, 4), (5, 5)]


@looped(("up", "down"), FACTORS)
def test_resample_poly(device, rng, up, down):
    x, wide = noise(rng, (2, 501))
    expected = scipy.signal.resample_poly(wide, up, down, axis=-1)
    close(signal.resample_poly(x, up, down, -1, device=device), expected)
    expected = scipy.signal.resample_poly(wide, up, down, axis=-1, window="hamming")
    close(signal.resample_poly(x, up, down, -1, "hamming", device=device), expected)


@pytest.mark.parametrize("taps", [30, 31])
def test_resample_poly_with_coefficients(rng, taps):
    x, h = rng.standard_normal((2, 100)), rng.standard_normal(taps)
    expected = scipy.signal.resample_poly(x, 3, 2, axis=-1, window=h)
    close(signal.resample_poly(x, 3, 2, -1, window=h), expected, 1e-12)


def test_resample_poly_errors():
    with pytest.raises(rlx.InputError, match="at least 1"):
        signal.resample_poly(np.ones(10), 0, 1)
    assert signal.resample_poly(np.zeros((0, 30)), 2, 3, -1).shape == (0, 20)


CONDITIONS = (
    {},
    {"height": 0.3},
    {"height": (0, 1)},
    {"distance": 7},
    {"distance": 50.5, "height": 0},
    {"prominence": 1},
    {"prominence": (0.5, 3), "distance": 3},
    {"width": 2},
    {"width": (1, 5), "prominence": 0.2, "distance": 4, "height": (None, 2)},
    {"distance": 100_000},
)


def signals(rng, n):
    white = rng.standard_normal(n)
    yield white
    yield np.cumsum(white) * 0.1
    yield np.convolve(white, np.ones(15) / 4, "same")[:n]
    yield np.sin(np.arange(n) / 20) * np.linspace(0, 3, n)


@looped("conditions", CONDITIONS, ids=str)
@looped("n", [3, 10, 200, 3000])
def test_find_peaks(device, rng, n, conditions):
    for x in signals(rng, n):
        x = x.astype(np.float32)
        indices, properties = signal.find_peaks(x, device=device, **conditions)
        expected, wanted = scipy.signal.find_peaks(x, **conditions)
        np.testing.assert_array_equal(indices, expected)
        assert properties.keys() == wanted.keys()
        for name, values in wanted.items():
            np.testing.assert_allclose(properties[name], values, rtol=1e-4, atol=1e-5)


def test_find_peaks_on_plateaus(device, rng):
    x = np.repeat(rng.integers(0, 4, 400), 9).astype(np.float32)
    for conditions in ({}, {"prominence": 2}, {"height": 2, "width": 3}):
        expected, _ = scipy.signal.find_peaks(x, **conditions)
        np.testing.assert_array_equal(
            signal.find_peaks(x, device=device, **conditions)[0], expected
        )


def test_find_peaks_that_rise_one_after_the_other(device):
    """The order by height is then one chain; WebGPU decides it after its parallel rounds."""
    x = np.arange(2000, dtype=np.float32)
    x[::2] -= 5
    for distance in (3, 4, 100):
        expected, _ = scipy.signal.find_peaks(x, distance=distance)
        got, _ = signal.find_peaks(x, distance=distance, device=device)
        np.testing.assert_array_equal(got, expected)


def test_find_peaks_on_nodes(device, rng):
    x = rng.standard_normal((2, 3, 100)).astype(np.float32)
    g = rlx.Graph()
    g.set_outputs(signal.find_peaks(g.input("x", x.shape), prominence=1.0, max_peaks=8))
    with rlx.compile(g, device=device) as cg:
        indices, counts, prominences = cg.run_slots(x)
    assert indices.shape == prominences.shape == (2, 3, 8)
    for row in np.ndindex(2, 3):
        expected, properties = scipy.signal.find_peaks(x[row], prominence=1.0)
        assert counts[row] == len(expected)
        retained = min(8, len(expected))
        np.testing.assert_array_equal(indices[row][:retained], expected[:retained])
        assert np.all(indices[row][retained:] == -1)
        np.testing.assert_allclose(
            prominences[row][:retained], properties["prominences"][:retained], rtol=1e-6
        )


def test_find_peaks_errors():
    x = np.zeros(20, np.float32)
    with pytest.raises(rlx.InputError, match="distance"):
        signal.find_peaks(x, distance=0.5)
    with pytest.raises(rlx.InputError, match="height"):
        signal.find_peaks(x, height=(1, 2, 3))
    with pytest.raises(rlx.InputError, match="max_peaks"):
        signal.find_peaks(x, max_peaks=0)
    with pytest.raises(rlx.ShapeError, match="one signal"):
        signal.find_peaks(x.reshape(2, 10))

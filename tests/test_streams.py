"""Streams: however a signal is cut, the results are those of the function on the whole of it."""

import functools

import numpy as np
import pytest
import scipy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stream_cases import CASES, FS, MEL, band, close, joined, last, low, pieces_of, recording

import rlx
from rlx import signal
from rlx.signal import arrays

# Lengths of pieces: none, one sample, less than a hop, many blocks.
PIECES = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 400)), max_size=30)


@functools.cache
def stream_of(case, device, dtype):
    return CASES[case].make(device=device, dtype=dtype)


@pytest.fixture(scope="module", autouse=True)
def streams():
    """Streams are compiled once for all tests, and freed, like those of functions, while there is a device."""
    yield
    stream_of.cache_clear()
    arrays._cache.clear()


@functools.cache
def offline(case, device, n, dtype):
    return CASES[case].whole(recording(n, dtype), device)


def check_cuts(case, device, n, pieces, dtypes, examples):
    """Random cuts of a signal of n samples."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(pieces)
    def check(lengths):
        result = CASES[case]
        for dtype in dtypes:
            number = rlx.DType.parse(dtype).numpy
            stream = stream_of(case, device, dtype)
            stream.reset()
            got = result.results(stream, recording(n, number), lengths, result.axis)
            assert got.dtype == number
            close(got, offline(case, device, n, number), result.tolerance)

    check()


EVERY_CASE = pytest.mark.parametrize("case", range(len(CASES)), ids=[case.name for case in CASES])


@EVERY_CASE
def test_cuts(device, case):
    dtypes = ("f32",) if device == "webgpu" else ("f32", "f64")
    check_cuts(case, device, 1237, PIECES, dtypes, 8)


@pytest.mark.slow
@EVERY_CASE
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def test_cuts_of_ten_minutes(request, device, case):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    pieces = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 20_000)), max_size=60)
    check_cuts(case, device, 600 * FS, pieces, ("f32",), 5)


def test_results_come_as_soon_as_they_are_known(device):
    """A frame comes with its last sample; a filter gives as many samples as it takes."""
    stream = signal.StreamingStft((), 64, 20, block=60, device=device)
    counts = [stream.push(np.ones(n)).shape[-2] for n in (63, 1, 19, 0, 1, 200)]
    assert counts == [0, 1, 0, 0, 1, 10]
    smooth = signal.StreamingFilter((2, 16), sos=band(), device=device)
    assert [smooth.push(np.ones((2, n))).shape for n in (0, 1, 100)] == [(2, 0), (2, 1), (2, 100)]


def test_pieces_may_be_lists_and_integers():
    stream = signal.StreamingFilter((8,), b=[1.0, 1.0])
    assert stream.push([1, 2, 3]).tolist() == [1.0, 3.0, 5.0]
    assert stream.push(np.array([4], np.int64)).dtype == np.float32


@EVERY_CASE
def test_a_refused_piece_changes_nothing(case):
    x = recording(900)
    bad = x[:, 300:500].copy()
    bad[2, 70] = np.nan
    stream = CASES[case].make()
    got = [stream.push(x[:, :300])]
    for value in (bad, np.where(np.isnan(bad), np.inf, bad), np.where(np.isnan(bad), 1e300, bad.astype(np.float64))):  # fmt: skip
        with pytest.raises(rlx.InputError, match=r"\[Streaming\w+\] sample 370 of channel \[2\]"):
            stream.push(value)
    got.append(stream.push(x[:, 300:]))
    if CASES[case].results is last:
        close(got[-1], CASES[case].whole(x, "cpu"), CASES[case].tolerance)
        return
    again = CASES[case].make()
    got = np.concatenate(got, CASES[case].axis)
    np.testing.assert_array_equal(got, np.concatenate([again.push(x[:, :300]), again.push(x[:, 300:])], CASES[case].axis))  # fmt: skip


def test_frames_with_nan(device):
    x = recording(1000)
    x[0, 500] = np.nan
    whole = signal.stft(np.nan_to_num(x), 64, 16, device=device)
    hit = np.arange(whole.shape[1]) * 16
    hit = (hit <= 500) & (500 < hit + 64)
    stream = signal.StreamingStft(3, 64, 16, nan="propagate", device=device)
    got = np.concatenate([stream.push(piece) for piece in pieces_of(x, (100, 395, 10))], -2)
    assert np.isnan(got[0]).any(1).tolist() == hit.tolist()
    close(got[:, ~hit], whole[:, ~hit])
    stream = signal.StreamingStft(3, 64, 16, nan="skip", device=device, block=48)
    got = np.concatenate([stream.push(piece) for piece in pieces_of(x, (100, 395, 10))], -2)
    close(got, whole[:, ~hit])


def test_filters_with_nan(device):
    x = recording(400)
    x[1, 100:103] = np.nan
    x[2, 0] = -np.inf
    stored = x.copy()
    stored[1, 100:103] = x[1, 99]
    stored[2, 0] = 0
    stream = signal.StreamingFilter((3, 16), sos=band(), nan="skip", device=device)
    got = joined(stream, x, (1, 99, 1, 1, 20), -1)
    close(got, signal.sosfilt(band(), stored, device=device))
    stream = signal.StreamingFilter((3, 16), sos=band(), nan="propagate", device=device)
    got = joined(stream, x, (1, 99, 1, 1, 20), -1)
    assert np.isnan(got[1, 103:]).all()
    assert np.isfinite(got[0]).all()
    stream.reset()
    close(stream.push(stored), signal.sosfilt(band(), stored, device=device))


def test_resampler_with_nan():
    x = recording(400)
    x[1, 100] = np.nan
    stream = signal.StreamingResampler(3, 3, 2, nan="skip")
    close(joined(stream, x, (90, 9, 3), -1), signal.resample_poly(np.nan_to_num(x), 3, 2, -1))
    stream = signal.StreamingResampler(3, 3, 2, nan="propagate")
    got = joined(stream, x, (90, 9, 3), -1)
    assert np.isnan(got[1, 150])
    assert np.isfinite(got[1, 400:]).all()
    assert np.isfinite(got[[0, 2]]).all()


@pytest.mark.parametrize(("made", "zi"), [
    ({"sos": band()}, lambda x: scipy.signal.sosfilt_zi(band())[:, None] * x[:, :1]),
    ({"b": low()[0], "a": low()[1]}, lambda x: scipy.signal.lfilter_zi(*low()) * x[:, :1]),
    ({"b": np.hanning(9)}, lambda x: scipy.signal.lfilter_zi(np.hanning(9), 1.0) * x[:, :1]),
], ids=["sos", "recursive", "finite"])  # fmt: skip
def test_filters_start_from_a_state(device, made, zi):
    x = recording(200)
    zi = zi(x.astype(np.float64))
    filtered = scipy.signal.sosfilt if "sos" in made else scipy.signal.lfilter
    arguments = (made["sos"],) if "sos" in made else (made["b"], made.get("a", 1.0))
    expected, after = filtered(*arguments, x.astype(np.float64), zi=zi)
    stream = signal.StreamingFilter((3, 64), device=device, **made)
    for way in ("assigned", "written", "after a piece"):
        if way == "after a piece":
            stream.push(x)
        if way == "written":
            stream.state[...] = zi
        else:
            stream.state = zi
        close(stream.push(x), expected, 1e-5)
        close(stream.state, after, 1e-5)
    with pytest.raises(rlx.ShapeError, match="state"):
        stream.state = np.zeros((5, 5, 5))
    with pytest.raises(rlx.InputError, match="state"):
        stream.state = np.full(stream.state.shape, np.nan)
    with pytest.raises(rlx.DTypeError, match="real"):
        stream.state = np.zeros(stream.state.shape, complex)


def test_one_state_for_all_channels():
    stream = signal.StreamingFilter((3, 64), sos=band())
    stream.state = signal.sosfilt_zi(band())
    got = stream.push(np.ones((3, 70)))
    expected, _ = scipy.signal.sosfilt(band(), np.ones(70), zi=scipy.signal.sosfilt_zi(band()))
    np.testing.assert_allclose(got, np.tile(expected, (3, 1)), atol=1e-6)


def test_narrow_bands_do_not_depend_on_the_cuts():
    """The state is f64 on the CPU: poles near the unit circle would enlarge what f32 rounds off."""
    sos = scipy.signal.butter(4, (0.004, 0.006), "band", output="sos")
    x = recording(20_000)
    for lengths in ([1] * 3000, [7] * 1000):
        stream = signal.StreamingFilter((3, 64), sos=sos)
        close(joined(stream, x, lengths, -1), signal.sosfilt(sos, x))


def test_the_state_stays_on_the_device(webgpu):
    """A run moves only the block and the result, however large the state is."""
    stream = signal.StreamingWelch(2, nperseg=64, average="sliding", last=500, device=webgpu)
    stream.push(np.ones((2, 64)))
    runs = stream._runs
    before = runs.bytes_moved
    stream.push(np.ones((2, 32)))
    after = runs.bytes_moved
    assert after.read_back - before.read_back <= 4 * 2 * 33 + 256
    # Blocks, and for each kept segment its place and its weight.
    assert after.uploaded - before.uploaded <= 4 * (2 * 32 + 2 * 500) + 1024


def test_streams_of_a_signal_that_is_too_short():
    stream = signal.StreamingStft(2, 64, 16, center=True)
    assert stream.flush().shape == (2, 0, 66)
    stream.push(np.ones((2, 20)))
    with pytest.raises(rlx.ShapeError, match="reflect"):
        stream.flush()
    resampler = signal.StreamingResampler((), 3, 7)
    assert resampler.flush().shape == (0,)
    resampler.push([1.0])
    close(resampler.flush(), signal.resample_poly(np.float32([1.0]), 3, 7))


def test_what_streams_refuse():
    with pytest.raises(rlx.InputError, match="multiple of the hop"):
        signal.StreamingStft(2, 64, 32, block=33)
    with pytest.raises(rlx.InputError, match="at least 1"):
        signal.StreamingStft(2, 64, 0)
    with pytest.raises(rlx.InputError, match="either"):
        signal.StreamingFilter((2, 8))
    for shape in (2.5, "two", -1, (2, None), None):
        with pytest.raises(rlx.InputError, match="shape"):
            signal.StreamingStft(shape, 64, 32)
    assert signal.StreamingStft(np.int64(2), 64, 32).push(np.zeros((2, 64))).shape == (2, 1, 66)
    with pytest.raises(rlx.InputError, match="samples per run"):
        signal.StreamingFilter((2, 0), b=[1.0])
    with pytest.raises(rlx.InputError, match="propagate"):
        signal.StreamingStft(2, 64, 32, nan="propagat")
    with pytest.raises(rlx.InputError, match="f32 or f64"):
        signal.StreamingStft(2, 64, 32, dtype="f16")
    with pytest.raises(rlx.InputError, match="whisper"):
        signal.StreamingLogMel(2, **MEL, log="whisper")
    with pytest.raises(rlx.UnknownNameError, match="reflect"):
        signal.StreamingStft(2, 64, 32, center=True, pad_mode="reflct")
    for wrong in ({"average": "sliding"}, {"alpha": 0.5}, {"average": "exponential", "alpha": 0.0}, {"average": "sliding", "last": 2.5}, {"average": "median"}):  # fmt: skip
        with pytest.raises(rlx.InputError, match="StreamingWelch"):
            signal.StreamingWelch(2, **wrong)
    with pytest.raises(rlx.InputError, match=r"\[StreamingResampler\] up"):
        signal.StreamingResampler(2, 0, 1)
    stream = signal.StreamingStft(2, 64, 32)
    with pytest.raises(rlx.ShapeError, match="time is the last axis"):
        stream.push(np.zeros((31, 2), np.float32))
    for value in (np.zeros((2, 5), np.complex64), [["a", "b"], ["c", "d"]], None):
        with pytest.raises(rlx.DTypeError, match="real numbers"):
            stream.push(value)
    with pytest.raises(rlx.InputError, match="one length"):
        stream.push([[1.0, 2.0], [3.0]])


def test_streams_without_channels(device):
    stream = signal.StreamingStft(0, 16, 8, device=device)
    assert stream.push(np.zeros((0, 100))).shape == (0, 11, 18)
    stream = signal.StreamingFilter((0, 16), sos=band(), device=device)
    assert stream.push(np.zeros((0, 100))).shape == (0, 100)
    stream = signal.StreamingWelch((2, 0), nperseg=16, device=device)
    assert stream.push(np.zeros((2, 0, 100))).shape == (2, 0, 9)

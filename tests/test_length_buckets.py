"""Functions of ``rlx.signal`` on arrays of many lengths: they are compiled for ranges of lengths, with the same results."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.signal
from samples import looped

import rlx
from rlx.serving import length_buckets
from rlx.signal import arrays

pytestmark = pytest.mark.by_program

SOS = scipy.signal.butter(4, 0.2, output="sos")
B, A = scipy.signal.butter(3, 0.3)

# Ours, SciPy's, and the tolerance.
FUNCTIONS = {
    "welch": (
        lambda x, **index: rlx.signal.welch(x, 100.0, nperseg=64, **index)[1],
        lambda x: scipy.signal.welch(x, 100.0, nperseg=64)[1],
        1e-5,
    ),
    "welch of two channels": (
        lambda x, **index: rlx.signal.welch(
            np.stack([x, x[::-1]], 1), 100.0, nperseg=50, detrend="linear", axis=0, **index
        )[1],
        lambda x: scipy.signal.welch(
            np.stack([x, x[::-1]], 1), 100.0, nperseg=50, detrend="linear", axis=0
        )[1],
        1e-5,
    ),
    "csd": (
        lambda x, **index: rlx.signal.csd(x, np.roll(x, 3), 100.0, nperseg=64, **index)[1],
        lambda x: scipy.signal.csd(x, np.roll(x, 3), 100.0, nperseg=64)[1],
        1e-5,
    ),
    "coherence": (
        lambda x, **index: rlx.signal.coherence(x, np.roll(x, 3), 100.0, nperseg=64, **index)[1],
        lambda x: scipy.signal.coherence(x, np.roll(x, 3), 100.0, nperseg=64)[1],
        1e-4,
    ),
    "lfilter": (
        lambda x, **index: rlx.signal.lfilter(B, A, x, **index),
        lambda x: scipy.signal.lfilter(B, A, x),
        1e-4,
    ),
    "sosfilt": (
        lambda x, **index: np.concatenate(
            rlx.signal.sosfilt(SOS, x, zi=np.ones((2, 2), np.float32), **index), None
        ),
        lambda x: np.concatenate(scipy.signal.sosfilt(SOS, x, zi=np.ones((2, 2))), None),
        1e-4,
    ),
    # A transform of the whole signal, and one that reflects its end: no bucket serves these.
    "psd": (
        lambda x, **index: rlx.signal.psd(x, **index)[1],
        lambda x: scipy.signal.periodogram(x)[1],
        1e-4,
    ),
    "a median": (
        lambda x, **index: rlx.signal.welch(x, nperseg=64, average="median", **index)[1],
        lambda x: scipy.signal.welch(x, nperseg=64, average="median")[1],
        1e-4,
    ),
}


@pytest.fixture
def fresh():
    """No function was called before."""
    arrays._cache.clear()
    arrays._families.clear()


@pytest.fixture
def compiles(monkeypatch):
    """The graphs that are compiled."""
    results = []
    before = arrays.compiled
    monkeypatch.setattr(
        arrays, "compiled", lambda graph, device: (results.append(graph), before(graph, device))[1]
    )
    return results


def signal(length, dtype="f4"):
    return np.random.default_rng(length).standard_normal(length).astype(dtype)


@looped("name", FUNCTIONS)
def test_scipys_results_for_any_length(fresh, device, name):
    ours, scipys, tolerance = FUNCTIONS[name]
    for length in (700, 701, 702, 950, 400, 703, 957, 1024, 701):
        x = signal(length)
        wanted, result = scipys(x.astype("f8")), ours(x, device=device)
        assert result.shape == wanted.shape
        assert result.flags.owndata
        np.testing.assert_allclose(result, wanted, tolerance, tolerance * np.abs(wanted).max())


@looped("name,most", [("welch", 16), ("csd", 16), ("lfilter", 16), ("sosfilt", 16)])
def test_few_graphs_are_compiled(fresh, compiles, name, most):
    compiles.clear()
    arrays._cache.clear()
    arrays._families.clear()
    for length in np.random.default_rng(3).integers(400, 2000, 60):
        FUNCTIONS[name][0](signal(int(length)))
    assert 3 <= len(compiles) <= most


def test_a_function_that_has_no_buckets_is_asked_twice(fresh, compiles, monkeypatch):
    tried = []
    before = length_buckets.Bucket

    def bucket(*args):
        tried.append(args)
        return before(*args)

    monkeypatch.setattr(length_buckets, "Bucket", bucket)
    for length in range(640, 960, 32):
        FUNCTIONS["a median"][0](signal(length))
    assert len(compiles) == 10
    assert len(tried) == 2


def test_a_length_that_comes_often_is_compiled_exactly(fresh, compiles):
    welch = FUNCTIONS["welch"][0]
    for length in (600, 700, 800):
        welch(signal(length))
    assert len(compiles) == 3
    for _ in range(length_buckets._OFTEN + 3):
        welch(signal(800))
    assert len(compiles) == 4
    assert len(compiles[-1].input_names) == 1


def test_no_warnings_about_lengths_that_nobody_has(fresh):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in range(505, 515):
            rlx.signal.welch(signal(length), nperseg=505)
    with pytest.warns(UserWarning, match="exceeds the 500 samples"):
        rlx.signal.welch(signal(500), nperseg=505)


def test_the_end_of_a_bucket_may_come_first(fresh, compiles):
    """The dimension that varies is found all the same."""
    for length in (600, 700, 1024, 900, 950, 1000):
        result = FUNCTIONS["welch"][0](signal(length))
        np.testing.assert_allclose(result, FUNCTIONS["welch"][1](signal(length, "f8")), 1e-4)
    assert len(compiles) == 3, "600, 700, and 897 to 1024"


def test_lengths_whose_bucket_the_function_does_not_take(fresh, monkeypatch):
    """They are compiled as they are."""

    def none(*args):
        raise rlx.InputError("not for these shapes")

    monkeypatch.setattr(length_buckets, "Bucket", none)
    for length in (600, 700, 800, 900):
        result = FUNCTIONS["welch"][0](signal(length))
        np.testing.assert_allclose(result, FUNCTIONS["welch"][1](signal(length, "f8")), 1e-4)


def test_double_precision(fresh):
    for length in (900, 901, 902, 903):
        result = FUNCTIONS["welch"][0](signal(length, "f8"))
        wanted = FUNCTIONS["welch"][1](signal(length, "f8"))
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, wanted, 1e-10)


def test_many_threads(fresh):
    welch, scipys, tolerance = FUNCTIONS["welch"]
    lengths = list(range(600, 640))
    wanted = {length: scipys(signal(length, "f8")) for length in lengths}

    def work(seed):
        for length in np.random.default_rng(seed).permutation(lengths):
            result = welch(signal(int(length)))
            np.testing.assert_allclose(result, wanted[length], 1e-3, tolerance * 10)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))

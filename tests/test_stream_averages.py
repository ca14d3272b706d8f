"""Averages of streams: by their definition, without what is not finite, and without drift."""

import numpy as np
import pytest
import scipy
from stream_cases import close, last, pieces_of, recording

import rlx
from rlx import signal
from rlx.signal.streaming.averages import Ring, Sum

pytestmark = pytest.mark.by_program

AVERAGED = [{"average": "mean"}, {"average": "sliding", "last": 5}, {"average": "exponential", "alpha": 0.2}]  # fmt: skip


def segment_powers(x, nperseg, hop):
    parts = np.lib.stride_tricks.sliding_window_view(x, nperseg, -1)[..., ::hop, :]
    return scipy.signal.periodogram(parts, window="hann")[1]


def averaged(power, average, alpha=None, last=None):
    """The average over axis -2 by its definition, in float64."""
    if average != "exponential":
        return power[..., -(last or power.shape[-2]) :, :].mean(-2)
    mean = power[..., 0, :]
    for index in range(1, power.shape[-2]):
        mean = (1 - alpha) * mean + alpha * power[..., index, :]
    return mean


@pytest.mark.parametrize("given", AVERAGED, ids=lambda value: value["average"])
def test_averages(device, given):
    x = recording(3000)
    stream = signal.StreamingWelch(3, nperseg=64, block=96, device=device, **given)
    assert np.isnan(stream.push(x[:, :40])).all()
    assert np.isnan(stream.push(x[:, 40:41])).all()
    assert stream.segments == 0
    for start, end in ((41, 300), (300, 301), (301, 3000)):
        got = stream.push(x[:, start:end])
        power = segment_powers(x[:, :end].astype(np.float64), 64, 32)
        assert stream.segments == power.shape[-2]
        close(got, averaged(power, **given), 2e-6)


@pytest.mark.parametrize("given", AVERAGED, ids=lambda value: value["average"])
def test_averages_leave_out_what_is_not_finite(device, given):
    x = recording(3000)
    x[1, 777] = np.nan
    x[0, 2000] = np.inf
    stream = signal.StreamingWelch(3, nperseg=64, block=96, device=device, nan="skip", **given)
    for piece in pieces_of(x, (100, 650, 30, 1, 500)):
        got = stream.push(piece)
    with np.errstate(all="ignore"):
        power = segment_powers(x.astype(np.float64), 64, 32)
    good = np.isfinite(power).all((0, 2))
    assert stream.segments == good.sum() == len(good) - 4
    close(got, averaged(power[:, good], **given), 2e-6)


def test_a_sliding_average_forgets_nan(device):
    x = recording(1000)
    stream = signal.StreamingWelch(3, nperseg=64, average="sliding", last=3, nan="propagate", device=device)  # fmt: skip
    x[1, 300] = np.nan
    assert np.isnan(stream.push(x[:, :350])).any(1).tolist() == [False, True, False]
    got = stream.push(x[:, 350:])
    assert np.isfinite(got).all()
    count = (1000 - 64) // 32 + 1
    start = (count - 3) * 32
    expected = segment_powers(x[:, start : start + 128].astype(np.float64), 64, 32).mean(1)
    close(got, expected, 2e-6)


@pytest.mark.parametrize(
    "given",
    [
        {"average": "mean"},
        {"average": "sliding", "last": 500},
        {"average": "exponential", "alpha": 1e-3},
    ],
    ids=lambda value: value["average"],
)
def test_long_averages(device, given):
    """So many runs that sums in f32 are carried twice over, from level to level."""
    runs = 300 if device == "reference" else 1200
    x = recording(8 * runs, outer=(2,)) + 3
    stream = signal.StreamingWelch(2, nperseg=8, noverlap=0, detrend=False, device=device, **given)
    got = last(stream, x, (100, 3000), -1)
    assert stream.segments == runs
    power = scipy.signal.periodogram(x.astype(np.float64).reshape(2, runs, 8), window="hann", detrend=False)[1]  # fmt: skip
    close(got, averaged(power, **given), 2e-6)


class Simulated:
    """An average on the host, in f32, as the graph computes it."""

    def __init__(self, average, segments):
        self.average = average
        levels = average._levels
        sizes = dict.fromkeys(("kept", "carried", "target", "shares"), (levels, 1))
        sizes["weights"] = (segments, 1)
        self.views = {name: np.zeros(size, np.float32) for name, size in sizes.items()}
        self.sums = np.zeros((levels, 1), np.float32)

    def add(self, power):
        self.average.plan(self.views, range(len(power)))
        new = np.add.reduce(power * self.views["weights"], 0)
        over = np.add.reduce(self.sums * self.views["carried"], 0)
        self.sums = self.sums * self.views["kept"] + over * self.views["target"]
        self.sums[0] += new

    def result(self):
        return float(np.sum(self.sums * self.views["shares"]))


def test_a_mean_in_f32_does_not_drift():
    """Ten million segments; each of 1 / count added to a mean would be lost.

    In 40,000 runs: a level is carried on after 32, 1024 and 32,768 of them.
    """
    mean = Simulated(Sum(rlx.DType.F32, None), 250)
    rng, total = np.random.default_rng(0), 0.0
    for _ in range(40):
        powers = rng.exponential(0.1, (1000, 250, 1)).astype(np.float32)
        total += powers.sum(dtype=np.float64)
        for power in powers:
            mean.add(power)
    assert mean.average._count == 10_000_000
    assert mean.result() == pytest.approx(total / 1e7, rel=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 0.3, 1e-2, 1e-4])
def test_an_exponential_mean_in_f32_does_not_drift(alpha):
    """Its gain is 1 whatever alpha is; 1 - alpha in f32 alone would be wrong by 3e-8 / alpha."""
    mean = Simulated(Sum(rlx.DType.F32, alpha), 1)
    exact = None
    for power in np.random.default_rng(0).exponential(0.1, (40_000, 1, 1)).astype(np.float32):
        value = float(power[0, 0])
        exact = value if exact is None else (1 - alpha) * exact + alpha * value
        mean.add(power)
    assert mean.result() == pytest.approx(exact, rel=2e-6)


def test_a_ring_is_filled_and_goes_round():
    ring = Ring(3)
    views = {"ring_from": np.zeros(3, np.int32), "shares": np.zeros((3, 1))}
    ring.plan(views, [0])
    assert views["ring_from"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(views["shares"][:, 0], [0, 0, 1])
    ring.plan(views, range(4))
    assert views["ring_from"].tolist() == [4, 5, 6]
    np.testing.assert_allclose(views["shares"][:, 0], [1 / 3] * 3)

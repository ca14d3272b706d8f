"""Convolutions with 3x3 filters by tiles: against float64 on every instruction set."""

import numpy as np
import pytest
from samples import looped

import rlx
from rlx._ext import cpu as kernels
from rlx.abi import windows
from rlx.abi.constants import FILTER_SCALE
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import split
from rlx.backends.cpu.transformed import TileFilters
from rlx.ops.windows import winograd

RNG = np.random.default_rng(19)


pytestmark = pytest.mark.usefixtures("isa")


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Also for shapes that are faster without tiles; and threads share the smallest call."""
    monkeypatch.setattr(winograd, "_SAVED", 1 << 40)
    monkeypatch.setattr(split, "_WORTH", 1)
    monkeypatch.setattr(windows, "_TASK_PRODUCTS", 1)


def values(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def exactly(x, w, bias, groups, padding, dilation=1):
    """The sums in float64."""
    g = rlx.Graph()
    b = None if bias is None else g.constant(bias.astype(np.float64))
    weight, x = g.constant(w.astype(np.float64)), x.astype(np.float64)
    attrs = {"padding": padding, "dilation": dilation, "groups": groups}
    g.set_outputs([g.conv2d(g.input("x", x.shape, "f64"), weight, b, **attrs)])
    with rlx.compile(g, "reference") as compiled:
        return compiled.run({"x": x})[0]


def made(x, w, *, groups=1, padding=1, dilation=1, bias=None, threads=1, after=None):
    """A graph of one convolution on the CPU, which has to be made in tiles."""
    g = rlx.Graph()
    b = None if bias is None else g.constant(bias)
    attrs = {"padding": padding, "dilation": dilation, "groups": groups}
    y = g.conv2d(g.input("x", x.shape), g.param("w", w.shape), b, **attrs)
    g.set_outputs([after(g, y) if after else y])
    compiled = rlx.compile(g, "cpu", {"w": w}, CompileOptions(threads=threads))
    assert "winograd_last" in compiled.as_text("schedule")
    return compiled


def close(got, expected):
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 5e-6 * np.abs(expected).max()


@looped("seed", range(30))
def test_is_the_sum_that_defines_it(seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2, 3]))
    channels, outputs = groups * int(rng.integers(1, 70)), groups * int(rng.integers(4, 90))
    padding = [tuple(int(n) for n in rng.integers(0, 4, 2)) for _ in range(2)]
    size = (max(1, 3 - sum(pads)) + int(rng.choice([0, 1, 2, 3, 5, 8, 17, 35])) for pads in padding)
    x = rng.normal(size=(int(rng.integers(1, 4)), channels, *size)).astype(np.float32)
    w, bias = values(outputs, channels // groups, 3, 3), values(outputs) if seed % 2 else None
    expected = exactly(x, w, bias, groups, padding)
    for threads in (1, 3):
        with made(x, w, groups=groups, padding=padding, bias=bias, threads=threads) as compiled:
            close(compiled.run({"x": x})[0], expected)


@looped("seed", range(30))
def test_dilated_filters(seed):
    """Tiles whose results are apart, up to the length of a run of tiles; NaN stays in windows that meet it."""
    rng = np.random.default_rng(seed)
    dilation = tuple(int(n) for n in (rng.integers(1, 12), rng.integers(1, 9)))
    padding = [tuple(int(n) for n in rng.integers(0, 2 * d + 1, 2)) for d in dilation]
    size = (1 + 2 * d + int(rng.choice([0, 1, 2, 5, 17, 35])) for d in dilation)
    channels, outputs = int(rng.integers(1, 40)), int(rng.integers(4, 50))
    x = rng.normal(size=(int(rng.integers(1, 3)), channels, *size)).astype(np.float32)
    if seed % 5 == 0:
        x.reshape(-1)[rng.integers(0, x.size)] = np.nan
    w, bias = values(outputs, channels, 3, 3), values(outputs) if seed % 2 else None
    attrs = {"padding": padding, "dilation": dilation, "bias": bias}
    expected = exactly(x, w, bias, 1, padding, dilation)
    for threads in (1, 3):
        with made(x, w, threads=threads, **attrs) as compiled:
            got = compiled.run({"x": x})[0]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        close(np.nan_to_num(got), np.nan_to_num(expected))


def test_threads_share_blocks_where_there_are_many():
    """No team is needed then."""
    x, w = values(1, 12, 130, 131), values(17, 12, 3, 3)
    with made(x, w) as alone, made(x, w, threads=3) as shared:
        before = kernels.pool_counts()["phases"]
        np.testing.assert_array_equal(shared.run({"x": x})[0], alone.run({"x": x})[0])
        assert kernels.pool_counts()["phases"] == before


def test_more_channels_than_a_panel_has_rows():
    x, w = values(1, 530, 6, 7), values(20, 530, 3, 3)
    with made(x, w) as compiled:
        close(compiled.run({"x": x})[0], exactly(x, w, None, 1, 1))


@looped("act", ["relu", "silu", "none"])
@looped("added", [True, False])
def test_what_follows_is_part_of_the_kernel(added, act):
    x, w, bias, more = values(2, 10, 9, 41), values(21, 10, 3, 3), values(21), values(2, 21, 9, 41)

    def after(g, y):
        y = y + g.constant(more) if added else y
        return y if act == "none" else getattr(g, act)(y)

    with made(x, w, bias=bias, after=after) as compiled:
        assert compiled.as_text("schedule").count("winograd_last") == 1
        got = compiled.run({"x": x})[0]
    expected = exactly(x, w, bias, 1, 1) + (more if added else 0)
    if act == "relu":
        expected = np.maximum(expected, 0)
    if act == "silu":
        expected = expected / (1 + np.exp(-expected))
    close(got, expected)


@looped("special", [np.nan, np.inf, -np.inf])
@looped("at", [(0, 0), (5, 7), (11, 12)])
def test_what_is_not_finite_stays_where_windows_meet_it(at, special):
    """A transform spreads it over a tile."""
    x, w = values(1, 8, 12, 13), values(9, 8, 3, 3)
    x[0, 3, at[0], at[1]] = special
    with made(x, w) as compiled:
        got = compiled.run({"x": x})[0]
    expected = exactly(x, w, None, 1, 1)
    met = np.zeros(got.shape, bool)
    met[:, :, max(0, at[0] - 1) : at[0] + 2, max(0, at[1] - 1) : at[1] + 2] = True
    close(got[~met], expected[~met])
    np.testing.assert_array_equal(got[met], expected[met].astype(np.float32))


def test_weights_that_are_not_finite():
    """0 of the padding times infinity is NaN, as in the definition."""
    x, w = values(1, 8, 9, 9), values(12, 8, 3, 3)
    w[5, 2, 0, 0], w[6, 1, 1, 1] = np.inf, np.nan
    with np.errstate(invalid="ignore"), made(x, w) as compiled:
        got, expected = compiled.run({"x": x})[0], exactly(x, w, None, 1, 1)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(got[:, 5], expected[:, 5].astype(np.float32))
    plain = [o for o in range(12) if o not in (5, 6)]
    close(got[:, plain], expected[:, plain])


def test_sums_that_do_not_overflow_though_a_transform_does():
    x, w = np.float32(2e38) + 1e37 * values(1, 6, 10, 10), 1e-3 * values(8, 6, 3, 3)
    with made(x, w) as compiled:
        close(compiled.run({"x": x})[0], exactly(x, w, None, 1, 1))


def test_weights_that_change():
    x, first, second = values(1, 20, 14, 14), values(24, 20, 3, 3), values(24, 20, 3, 3)
    with made(x, first) as compiled:
        compiled.run({"x": x})
        compiled.set_param("w", second)
        close(compiled.run({"x": x})[0], exactly(x, second, None, 1, 1))


def test_weights_that_others_read_too():
    """A weight has one packed form; readers of another one read the plain weights."""
    x, small, w = values(1, 24, 20, 22), values(1, 24, 9, 9), values(24, 24, 3, 3)
    g = rlx.Graph()
    weight, inputs = g.param("w", w.shape), (g.input("x", x.shape), g.input("small", small.shape))
    wide = g.conv2d(g.input("wide", (1, 48, 12, 12)), weight, padding=1, groups=2)
    strided = g.conv2d(inputs[1], weight, stride=2)
    g.set_outputs([strided, g.conv2d(inputs[0], weight, padding=1), wide])
    feeds = {"x": x, "small": small, "wide": values(1, 48, 12, 12)}
    with rlx.compile(g, "cpu", {"w": w}) as single, rlx.compile(g, "reference", {"w": w}) as exact:
        assert single.as_text("schedule").count("winograd_last") == 2
        for got, expected in zip(single.run(feeds), exact.run(feeds), strict=True):
            close(got, expected)


def test_threads_do_not_change_results():
    x, w = values(3, 40, 30, 21), values(70, 40, 3, 3)
    results = []
    for threads in (1, 2, 5):
        with made(x, w, threads=threads) as compiled:
            results.append(compiled.run({"x": x})[0].copy())
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_fewer_images_than_were_compiled():
    x, w = values(12, 16, 9, 9), values(16, 16, 3, 3)
    with made(x, w) as compiled:
        whole = compiled.run({"x": x})[0].copy()
        compiled.set_active_extent((5, 12))
        np.testing.assert_array_equal(compiled.run({"x": x})[0][:5], whole[:5])


def test_filters_at_the_points():
    finite = np.array([0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5)])
    apart = (finite[:, None] - finite + np.eye(5)).prod(1, keepdims=True)
    points = np.vstack([finite[:, None] ** np.arange(3) / apart, [0, 0, 1]]) * FILTER_SCALE**0.5
    layout, w = TileFilters(2, 5, 16, 16, 8), values(32, 5, 3, 3)
    memory = np.zeros(layout.nbytes, "u1")
    layout.pack(w, memory)
    wanted = np.einsum("py,qx,goiyx->gpqio", points, points, w.reshape(2, 16, 5, 3, 3))
    np.testing.assert_allclose(memory.view("f4").reshape(wanted.shape), wanted, 1e-6)


# channels, outputs, size, whether the weights are known, stride, taps along an axis
CHOICES = (
    ((64, 64, 56, True, 1, 3), True),
    ((256, 256, 14, True, 1, 3), True),
    ((64, 64, 56, False, 1, 3), False),  # transforms of weights in every call
    ((64, 64, 56, True, 2, 3), False),
    ((64, 64, 56, True, 1, 5), False),
    ((512, 512, 7, True, 1, 3), False),  # 4 tiles for 9 million transformed weights
    ((640, 640, 32, True, 1, 3), False),  # weights take 59 MB
)


@looped(("shape", "tiles"), CHOICES)
def test_where_tiles_are_taken(shape, tiles, monkeypatch):
    monkeypatch.setattr(winograd, "_SAVED", 8)
    channels, outputs, size, fixed, stride, taps = shape
    g = rlx.Graph()
    weight = (g.param if fixed else g.input)("w", (outputs, channels, taps, taps))
    x = g.input("x", (1, channels, size, size))
    g.set_outputs([g.conv2d(x, weight, stride=stride, padding=taps // 2)])
    params = {"w": np.zeros((outputs, channels, taps, taps), np.float32)} if fixed else {}
    with rlx.compile(g, "cpu", params) as compiled:
        assert ("winograd_last" in compiled.as_text("schedule")) is tiles


def of_size(shape, size):
    """Normal numbers of one to two times a size, of either sign."""
    return (RNG.choice([-1.0, 1.0], shape) * RNG.uniform(1, 2, shape) * size).astype(np.float32)


# The smallest normal number is 1.2e-38.
SIZES = (
    (1, 1e-33),
    (1e20, 1e-34),
    (1e20, 1.3e-38),
    (1e-35, 1e20),
    (1.3e-38, 1e20),
    (1e-20, 1e-14),
    (1e15, 1e15),
)


@looped("sizes", SIZES)
def test_normal_numbers_of_any_size(sizes):
    """Transforms of tiny elements and tiny weights lose no digits where results are normal numbers."""
    x, w = of_size((1, 8, 9, 11), sizes[0]), of_size((16, 8, 3, 3), sizes[1])
    wanted = exactly(x, w, None, 1, 1)
    with made(x, w) as cg:
        (got,) = cg.run({"x": x})
    assert np.abs(got - wanted).max() <= 4e-6 * np.abs(wanted).max()


def test_channels_of_different_sizes():
    """A channel of large elements and tiny weights counts beside one of tiny elements and large weights."""
    x = np.concatenate([of_size((1, 4, 9, 9), 1e30), of_size((1, 4, 9, 9), 1e-20)], 1)
    w = np.concatenate([of_size((16, 4, 3, 3), 2e-38), of_size((16, 4, 3, 3), 1.0)], 1)
    wanted = exactly(x, w, None, 1, 1)
    with made(x, w) as cg:
        (got,) = cg.run({"x": x})
    assert np.abs(got - wanted).max() <= 4e-6 * np.abs(wanted).max()

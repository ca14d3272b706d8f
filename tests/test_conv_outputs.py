"""Convolutions whose vectors are outputs: images share a block of windows, and windows are read where they stand."""

import functools
import itertools

import numpy as np
import pytest
from joined import Joined
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import linker, split
from rlx.ops.windows import conv_no_padding, winograd

pytestmark = pytest.mark.usefixtures("isa")
NEAR = {np.float32: 1e-5, np.float64: 1e-13}


@looped("dtype", ["f32", "f64"])
@looped("groups", [1, 2])
@looped("padding", [0, 2])
@looped(("batch", "length"), [(1, 9), (2, 5), (7, 6), (33, 8), (20, 25), (3, 40)])
def test_images_that_share_a_panel(batch, length, padding, groups, dtype):
    rng = np.random.default_rng(batch + length)
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    g = rlx.Graph()
    x, w, b = (
        g.input("x", (batch, 6, length), dtype),
        g.input("w", (16, 6 // groups, 5), dtype),
        g.input("b", (16,), dtype),
    )
    g.set_outputs([g.conv1d(x, w, b, stride=1 + padding // 2, padding=padding, groups=groups)])
    feeds = {n.name: rng.normal(size=n.shape).astype(kind) for n in (x, w, b)}
    with rlx.compile(g, "cpu") as compiled, rlx.compile(g, "reference") as exact:
        (got,), (expected,) = compiled.run(feeds), exact.run(feeds)
    np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


def test_fewer_images_than_were_compiled():
    rng = np.random.default_rng(0)
    g = rlx.Graph()
    x = g.input("x", (12, 4, 3, 3))
    w = rng.normal(size=(16, 4, 3, 3)).astype(np.float32)
    g.set_outputs([g.conv2d(x, g.constant(w), padding=1)])
    values = rng.normal(size=(12, 4, 3, 3)).astype(np.float32)
    with rlx.compile(g, "cpu", options=CompileOptions(fuse=False)) as compiled:
        whole = compiled.run({"x": values})[0].copy()
        compiled.set_active_extent((5, 12))
        np.testing.assert_array_equal(compiled.run({"x": values})[0][:5], whole[:5])


def _padded(seed):
    """A convolution of which many taps are on padding: x, w, bias, attributes."""
    rng = np.random.default_rng(seed)
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2]))
    kernel = tuple(int(n) for n in rng.integers(1, 6, rank))
    channels, outputs = groups * int(rng.integers(1, 130)), groups * int(rng.integers(4, 140))
    attrs = {
        "stride": tuple(int(n) for n in rng.integers(1, 4, rank)),
        "dilation": tuple(int(n) for n in rng.integers(1, 4, rank)),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(1, 12, (rank, 2))),
        "groups": groups,
    }
    dims = tuple(
        max(1, (n - 1) * d + 1 - sum(pads) + int(rng.integers(0, 4)))
        for n, d, pads in zip(kernel, attrs["dilation"], attrs["padding"], strict=True)
    )
    x = rng.normal(size=(int(rng.integers(1, 20)), channels, *dims))
    w = rng.normal(size=(outputs, channels // groups, *kernel))
    return x, w, rng.normal(size=outputs), attrs


def test_taps_on_padding_are_left_out():
    _compare(_padded, tuple(itertools.product(range(8))), WAYS)


def _dilated(seed):
    """A convolution of a plane that is made a few lines at a time, and many of whose taps are on padding."""
    rng = np.random.default_rng(seed)
    apart = tuple(int(n) for n in rng.integers(5, 15, 2))
    attrs = {"dilation": apart, "padding": tuple((n, int(rng.integers(0, 2 * n))) for n in apart)}
    channels, outputs = rng.integers(1, 60), rng.integers(4, 70)
    x = rng.normal(size=(int(rng.integers(1, 3)), channels, *rng.integers(16, 40, 2)))
    return x, rng.normal(size=(outputs, channels, 3, 3)), rng.normal(size=outputs), attrs


def test_taps_on_padding_of_large_planes(monkeypatch):
    monkeypatch.setattr(conv_no_padding, "_LARGE", 1e9)
    monkeypatch.setattr(winograd, "share", lambda *_: 0)
    _compare(_dilated, tuple(itertools.product(range(6))), WAYS)
    samples = itertools.product((17,), ((0, 0, 0, 0), (69, 33, 4, 4)), (np.inf, np.nan))
    _compare(_not_finite, tuple(samples), [(True, 1)], (np.float32,))


def _not_finite(side, place, value):
    """A convolution with a weight that is not finite; 0 times infinity is NaN, also where the 0 is padding."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(70, 34, 5, 5))
    w[place] = value
    x = rng.normal(size=(3, 34, side, side))
    return x, w, np.zeros(70), {"padding": 2}


def test_padding_meets_weights_that_are_not_finite():
    places, values = ((0, 0, 0, 0), (69, 33, 4, 4), (12, 5, 2, 2)), (np.inf, np.nan)
    samples = tuple(itertools.product((1, 2, 4), places, values))
    _compare(_not_finite, samples, [(True, 1), (False, 1)], (np.float32,))


def test_weights_that_become_infinite():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(70, 4, 3, 3)).astype(np.float32)
    g = rlx.Graph()
    g.set_outputs(
        [g.conv2d(g.input("x", (1, 4, 2, 2)), g.param("w", w.shape, "f32", w), padding=1)]
    )
    feeds = {"x": rng.normal(size=(1, 4, 2, 2)).astype(np.float32)}
    with rlx.compile(g, "cpu") as compiled:
        assert np.isfinite(compiled.run(feeds)[0]).all()
        w[3, 1, 0, 0] = np.inf
        compiled.set_param("w", w)
        np.testing.assert_array_equal(
            np.isnan(compiled.run(feeds)[0][0, :, 0, 0]), np.arange(70) == 3
        )


def _drawn(seed):
    """A convolution of any geometry: x, w, bias, attributes."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    kernel = tuple(int(n) for n in rng.integers(1, 6 - rank, rank))
    groups = int(rng.choice([1, 1, 2, 3]))
    channels, outputs = groups * int(rng.integers(1, 60)), groups * int(rng.integers(4, 70))
    attrs = {
        "stride": tuple(int(n) for n in rng.integers(1, 4, rank)),
        "dilation": tuple(int(n) for n in rng.integers(1, 3, rank)),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (rank, 2))),
        "groups": groups,
    }
    if rng.random() < 0.4:
        attrs["padding"] = ((0, 0),) * rank
    dims = tuple(
        (n - 1) * d + 1 + int(rng.integers(0, 18))
        for n, d in zip(kernel, attrs["dilation"], strict=True)
    )
    x = rng.normal(size=(int(rng.integers(1, 6)), channels, *dims))
    w = rng.normal(size=(outputs, channels // groups, *kernel))
    return x, w, rng.normal(size=outputs), attrs


def test_any_geometry():
    _compare(_drawn, tuple(itertools.product(range(12))), WAYS)


# Weights that are known and packed, or given with each run; and how many threads there are.
WAYS = [(packed, threads) for packed in (True, False) for threads in (1, 3)]


@functools.cache
def _joined(draw, samples, kinds):
    """Graphs of convolutions with relu whose weights are given, and packed; what is expected of each, and how near.

    All instruction sets share them.
    """
    given, packed, checks = Joined(), Joined(), []
    for sample, kind in itertools.product(samples, kinds):
        *arrays, attrs = draw(*sample)
        x, w, bias = (array.astype(kind) for array in arrays)

        def build(g, x, *weight, w=w, bias=bias, attrs=attrs):
            op = getattr(g, f"conv{w.ndim - 2}d")
            return g.relu(op(x, *(weight or [g.constant(w)]), g.constant(bias), **attrs))

        given.add(build, x, w)
        packed.add(build, x)
        near = NEAR[kind]
        checks.append((near, near * np.sqrt(w[0].size) * 5, f"{sample}, {np.dtype(kind)}"))
    return given, packed, given.results("reference"), checks


def _compare(draw, samples, ways, kinds=tuple(NEAR)):
    """Runs convolutions on the CPU in some ways, and compares them with the reference."""
    with np.errstate(invalid="ignore"):
        given, packed, wanted, checks = _joined(draw, samples, kinds)
        for known, threads in ways:
            results = (packed if known else given).results(threads=threads)
            for (got,), (expected,), (*bounds, said) in zip(results, wanted, checks, strict=True):
                said += f", packed: {known}, {threads} threads"
                np.testing.assert_allclose(got, expected, *bounds, err_msg=said)


@looped("packed", [True, False])
@looped("outputs", [5, 16, 24, 37, 64, 150])
def test_threads_share_a_panel(outputs, packed, monkeypatch):
    monkeypatch.setattr(split, "_WORTH", 1e-9)
    monkeypatch.setattr(split, "usable_cores", lambda: 8)
    monkeypatch.setattr(conv_no_padding, "_OF_A_ROW", 1e9)
    monkeypatch.setattr(winograd, "share", lambda *_: 0)
    rng = np.random.default_rng(outputs)
    x = rng.normal(size=(2, 30, 4, 5)).astype(np.float32)
    w = (0.1 * rng.normal(size=(outputs, 30, 3, 3))).astype(np.float32)
    g = rlx.Graph()
    weight = g.constant(w) if packed else g.input("w", w.shape)
    y = g.conv2d(g.input("x", x.shape), weight, g.constant(w[:, 0, 0, 0].copy()), padding=1)
    g.set_outputs([g.relu(y)])
    feeds = {"x": x} | ({} if packed else {"w": w})
    results = []
    for threads in (1, 3, 8):
        with rlx.compile(g, "cpu", options=CompileOptions(threads=threads)) as compiled:
            assert "conv_inside" in compiled.as_text("schedule")
            results.append(np.array(compiled.run(feeds)[0]))
    with rlx.compile(g, "reference") as exact:
        np.testing.assert_allclose(results[0], exact.run(feeds)[0], 1e-4, 1e-5)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


# Outputs, channels, side of the image, kernel, stride, padding; and which lanes a vector has.
CHOICES = [
    ((64, 64, 32, 5, 1, 2), "conv_by_outputs"),
    ((64, 64, 32, 3, 1, 1), "conv_winograd"),
    ((4, 64, 32, 5, 1, 2), "conv"),  # most lanes would be empty
    ((18, 64, 32, 5, 1, 2), "conv"),
    ((64, 3, 65, 3, 2, 0), "conv"),  # filters of few elements
    ((8, 64, 33, 1, 2, 0), "conv"),  # of a copy of what windows meet
    ((64, 64, 32, 1, 1, 0), "conv"),  # windows are columns of the operand already
    ((8, 3, 4, 3, 1, 0), "conv_by_outputs"),  # few windows
    ((8, 3, 4, 3, 1, 1), "conv_by_outputs"),  # copied with their padding
    ((64, 64, 2, 3, 1, 1), "conv_inside"),  # of which many taps are on padding
    ((64, 64, 24, 7, 1, 12), "conv_inside"),  # lines of a large plane
    (
        (24, 64, 5, 5, 1, 2),
        "conv_by_outputs",
    ),  # hardly two windows meet the image with the same taps
    ((64, 64, 32, 3, 2, 1), "conv_by_outputs"),  # more windows than stay in the cache
]


@looped(("sizes", "kernel"), CHOICES)
def test_which_lanes_a_vector_has(sizes, kernel, monkeypatch):
    outputs, channels, side, taps, stride, padding = sizes
    calls = []
    monkeypatch.setattr(
        linker,
        "split_of",
        lambda call, count: calls.append(call.kernel) or split.split_of(call, count),
    )
    g = rlx.Graph()
    x, w = (
        g.input("x", (1, channels, side, side)),
        g.constant(np.ones((outputs, channels, taps, taps), np.float32)),
    )
    g.set_outputs([g.conv2d(x, w, stride=stride, padding=padding)])
    with rlx.compile(g, "cpu"):
        assert calls[-1] == kernel

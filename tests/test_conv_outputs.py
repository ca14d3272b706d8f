"""Convolutions whose vectors are outputs: windows are read where they stand, and taps on padding are left out."""

import functools
import itertools

import numpy as np
import pytest
from joined import Joined
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import split
from rlx.ops.windows import winograd

pytestmark = pytest.mark.usefixtures("isa")
NEAR = {np.float32: 1e-5, np.float64: 1e-13}


def test_fewer_images_than_were_compiled():
    rng, g = np.random.default_rng(0), rlx.Graph()
    x = g.input("x", (12, 4, 3, 3))
    w = rng.normal(size=(16, 4, 3, 3)).astype(np.float32)
    g.set_outputs([g.conv2d(x, g.constant(w), padding=1)])
    values = rng.normal(size=(12, 4, 3, 3)).astype(np.float32)
    with rlx.compile(g, "cpu", options=CompileOptions(fuse=False)) as compiled:
        whole = compiled.run({"x": values})[0].copy()
        compiled.set_active_extent((5, 12))
        np.testing.assert_array_equal(compiled.run({"x": values})[0][:5], whole[:5])


def _not_finite(side, place, value):
    """A convolution with a weight that is not finite; 0 times infinity is NaN, also where the 0 is padding."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(70, 34, 5, 5))
    w[place] = value
    return rng.normal(size=(3, 34, side, side)), w, np.zeros(70), {"padding": 2}


def test_padding_meets_weights_that_are_not_finite():
    places, values = ((0, 0, 0, 0), (69, 33, 4, 4), (12, 5, 2, 2)), (np.inf, np.nan)
    samples = tuple(itertools.product((1, 2, 4, 17), places, values))
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
    """A convolution of any geometry, every other one with many taps on padding: x, w, bias, attributes."""
    rng = np.random.default_rng(seed)
    rank, groups, padded = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3])), seed % 2
    kernel = tuple(int(n) for n in rng.integers(1, 6 if padded else 6 - rank, rank))
    channels, outputs = groups * int(rng.integers(1, 70)), groups * int(rng.integers(4, 80))
    pads = rng.integers(1, 12, (rank, 2)) if padded else rng.integers(0, 3, (rank, 2)) * (seed % 4)
    attrs = {
        "stride": tuple(int(n) for n in rng.integers(1, 4, rank)),
        "dilation": tuple(int(n) for n in rng.integers(1, 15 if seed % 4 == 1 else 4, rank)),
        "padding": tuple((int(a), int(b)) for a, b in pads),
        "groups": groups,
    }
    dims = tuple(
        max(1, (n - 1) * d + 1 - sum(pads) + int(rng.integers(0, 4 if padded else 18)))
        for n, d, pads in zip(kernel, attrs["dilation"], attrs["padding"], strict=True)
    )
    x = rng.normal(size=(int(rng.integers(1, 12)), channels, *dims))
    w = rng.normal(size=(outputs, channels // groups, *kernel))
    return x, w, rng.normal(size=outputs), attrs


def test_any_geometry():
    _compare(_drawn, tuple(itertools.product(range(20))), WAYS)


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
    monkeypatch.setattr(winograd, "share", lambda *_: 0)
    rng = np.random.default_rng(outputs)
    x = rng.normal(size=(2, 30, 4, 5)).astype(np.float32)
    w, g = (0.1 * rng.normal(size=(outputs, 30, 3, 3))).astype(np.float32), rlx.Graph()
    weight = g.constant(w) if packed else g.input("w", w.shape)
    y = g.conv2d(g.input("x", x.shape), weight, g.constant(w[:, 0, 0, 0].copy()), padding=1)
    g.set_outputs([g.relu(y)])
    feeds = {"x": x} | ({} if packed else {"w": w})
    results = []
    for threads in (1, 3, 8):
        with rlx.compile(g, "cpu", options=CompileOptions(threads=threads)) as compiled:
            assert "conv_last" in compiled.as_text("schedule")
            results.append(np.array(compiled.run(feeds)[0]))
    with rlx.compile(g, "reference") as exact:
        np.testing.assert_allclose(results[0], exact.run(feeds)[0], 1e-4, 1e-5)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


@looped(
    ("outputs", "taps", "kernel"),
    [(4, 5, "conv_last"), (64, 3, "winograd_last"), (64, 1, "conv_last"), (3, 3, "conv_direct")],
)
def test_which_kernel_makes_it(outputs, taps, kernel):
    g = rlx.Graph()
    w = g.constant(np.ones((outputs, 64, taps, taps), np.float32))
    g.set_outputs([g.conv2d(g.input("x", (1, 64, 32, 32)), w, padding=taps // 2)])
    with rlx.compile(g, "cpu") as compiled:
        assert f"= {kernel}(" in compiled.as_text("schedule")

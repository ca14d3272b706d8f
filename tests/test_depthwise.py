"""Convolutions with a filter for each plane: channels in the lanes of vectors, windows in them, and plain products."""

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import split

pytestmark = pytest.mark.usefixtures("isa")


def _built(x, w, bias, attrs, act="relu"):
    """A graph of a convolution, and what it is fed."""
    g = rlx.Graph()
    dtype = {"float32": "f32", "float64": "f64"}[str(x.dtype)]
    result = getattr(g, f"conv{x.ndim - 2}d")(
        g.input("x", x.shape, dtype), g.constant(w), g.constant(bias), **attrs
    )
    g.set_outputs([g.activation(act, result) if act else result])
    return g, {"x": x}


def _drawn(seed, dtype):
    """Planes, filters and a bias of any geometry, and attributes."""
    rng = np.random.default_rng(seed)
    rank, times = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    groups = int(rng.choice([1, 3, 8, 15, 16, 17, 33]))
    kernel = tuple(int(n) for n in rng.integers(1, 6, rank))
    attrs = {
        "stride": tuple(int(n) for n in rng.integers(1, 4, rank)),
        "dilation": tuple(int(n) for n in rng.integers(1, 3, rank)),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(0, 9, (rank, 2))),
        "groups": groups,
    }
    dims = tuple(
        max(1, (n - 1) * d + 1 - sum(pads) + int(rng.integers(0, 7)))
        for n, d, pads in zip(kernel, attrs["dilation"], attrs["padding"], strict=True)
    )
    x = rng.normal(size=(int(rng.integers(1, 4)), groups, *dims))
    w = rng.normal(size=(groups * times, 1, *kernel))
    return (*(a.astype(dtype) for a in (x, w, rng.normal(size=groups * times))), attrs)


@looped("dtype", ["float32", "float64"])
@looped("threads", [1, 3])
@looped("seed", range(30))
def test_any_geometry(seed, threads, dtype):
    g, feeds = _built(*_drawn(seed, dtype))
    options = CompileOptions(threads=threads)
    with rlx.compile(g, "cpu", options=options) as compiled, rlx.compile(g, "reference") as exact:
        (got,), (expected,) = compiled.run(feeds), exact.run(feeds)
    near = {"float32": 1e-5, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(got, expected, near, near * 10)


# Planes, sides, taps along each, stride, padding, dilation; and the kernel that makes the convolution.
CHOICES = [
    ((16, (5, 4), 7, 2, 3, 1), "depthwise_last"),
    ((16, (10, 10), 3, 1, 2, 2), "depthwise_last"),
    ((16, (40, 40), 3, 3, 1, 1), "depthwise_last"),
    ((16, (8,), 3, 1, 1, 1), "depthwise_last"),
    ((16, (8, 8, 8), 3, 1, 1, 1), "depthwise_last"),
    ((3, (10, 10), 3, 1, 1, 1), "conv_depthwise"),  # most lanes would be empty
    ((16, (14, 14), 3, 1, 1, 1), "conv_depthwise"),  # rows fill the lanes
    ((16, (200, 200), 3, 1, 2, 2), "conv_depthwise"),  # planes that do not stay in the cache
    ((16, (7, 7), 1, 1, 0, 1), "elementwise"),
    ((16, (7,), 1, 1, 0, 1), "elementwise"),
    ((16, (7, 7), 1, 2, 0, 1), "depthwise_last"),
    ((16, (7, 7), 1, 1, 1, 1), "depthwise_last"),
]


@looped(("sizes", "kernel"), CHOICES)
def test_which_kernel_makes_it(sizes, kernel):
    planes, sides, taps, stride, padding, dilation = sizes
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, planes, *sides)), rng.normal(size=(planes, 1, *[taps] * len(sides)))
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": planes}
    x, w, bias = (a.astype("float32") for a in (x, w, rng.normal(size=planes)))
    g, feeds = _built(x, w, bias, attrs)
    with rlx.compile(g, "cpu") as compiled, rlx.compile(g, "reference") as exact:
        assert f"= {kernel}(" in compiled.as_text("schedule")
        np.testing.assert_allclose(compiled.run(feeds)[0], exact.run(feeds)[0], 1e-5, 1e-5)


@looped("value", [np.inf, -np.inf, np.nan])
@looped("place", [(0, 0, 0), (17, 2, 2), (18, 1, 1)])
@looped("sides", [(1, 1), (2, 3), (5, 5)])
def test_padding_meets_weights_that_are_not_finite(sides, place, value):
    # 0 times infinity is NaN, also where the 0 is padding.
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(2, 19, *sides)), rng.normal(size=(19, 1, 3, 3))
    w[place[0], 0, place[1], place[2]] = value
    x, w, bias = (a.astype("float32") for a in (x, w, np.zeros(19)))
    g, feeds = _built(x, w, bias, {"padding": 1, "groups": 19}, act=None)
    with rlx.compile(g, "cpu") as compiled, rlx.compile(g, "reference") as exact:
        (got,), (expected,) = compiled.run(feeds), exact.run(feeds)
    np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


@looped("name", ["bias", "residual", "act"])
def test_products_with_what_follows(name):
    # Planes times numbers, with each part of what a fused convolution adds.
    rng, g = np.random.default_rng(2), rlx.Graph()
    x, r = g.input("x", (2, 5, 3, 4)), g.input("r", (2, 5, 3, 4))
    w, b = (g.constant(rng.normal(size=s).astype("float32")) for s in ((5, 1, 1, 1), (5,)))
    result = g.conv2d(x, w, b if name == "bias" else None, groups=5)
    result = result + r if name != "act" else result
    g.set_outputs([g.silu(result), g.abs(r)])
    feeds = {n.name: rng.normal(size=n.shape).astype("float32") for n in (x, r)}
    with rlx.compile(g, "cpu") as compiled, rlx.compile(g, "reference") as exact:
        for got, expected in zip(compiled.run(feeds), exact.run(feeds), strict=True):
            np.testing.assert_allclose(got, expected, 1e-5, 1e-6)


@looped("taps", [1, 3])
def test_fewer_images_than_were_compiled(taps):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(12, 20, 3, 3)), rng.normal(size=(20, 1, taps, taps))
    x, w, bias = (a.astype("float32") for a in (x, w, np.ones(20)))
    g, feeds = _built(x, w, bias, {"padding": taps // 2, "groups": 20})
    with rlx.compile(g, "cpu", options=CompileOptions(fuse=False)) as compiled:
        whole = compiled.run(feeds)[0].copy()
        compiled.set_active_extent((5, 12))
        np.testing.assert_array_equal(compiled.run(feeds)[0][:5], whole[:5])


@looped("each", [1, 2, 4, 8])
@looped("channels", [8, 40, 136])
def test_groups_of_few_channels(channels, each, monkeypatch):
    # An activation that is applied twice would show, which that of relu does not.
    monkeypatch.setattr(split, "_WORTH", 1e-9)
    monkeypatch.setattr(split, "usable_cores", lambda: 8)
    rng = np.random.default_rng(channels + each)
    x, w = rng.normal(size=(2, channels, 7, 9)), rng.normal(size=(channels, each, 3, 3))
    attrs = {"padding": (1, 2), "groups": channels // each, "stride": (1, 2)}
    x, w, bias = (a.astype("float32") for a in (x, w, rng.normal(size=channels)))
    g, feeds = _built(x, w, bias, attrs, act="hard_swish")
    with rlx.compile(g, "reference") as exact:
        expected = exact.run(feeds)[0]
    for threads in (1, 2, 5):
        with rlx.compile(g, "cpu", options=CompileOptions(threads=threads)) as compiled:
            np.testing.assert_allclose(compiled.run(feeds)[0], expected, 1e-5, 1e-5)

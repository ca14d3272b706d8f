"""Convolutions of images with few windows: several images share a panel of the product."""

import numpy as np
from samples import looped

import rlx
from rlx.backends.base import CompileOptions


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

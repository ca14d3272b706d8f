"""Graphs that compute sizes on a GPU: one program for all of them, and no wait for sizes that the host can compute."""

from functools import partial

import numpy as np
import pytest
from test_data_sizes import kept_boxes

import rlx
from rlx.compiler import sized
from rlx.ops.resize.taps import COORDINATES

pytestmark = pytest.mark.webgpu
N, M = rlx.Dim("n"), rlx.Dim("m")


@pytest.fixture
def steady(webgpu, monkeypatch):
    """Has graphs with dims be compiled as those that compute sizes."""
    monkeypatch.setattr(sized, "load_sized", partial(sized.load_sized, steady=True))


def segments(cg):
    """The segments of a graph with the host in front: which of them the host computes."""
    return [each.segment.ahead for each in cg._state.executable._segments]


def on_hosts(cg):
    return [each.executable.capabilities.host_memory for each in cg._state.executable._run]


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_the_host_computes_sizes_of_arrays(webgpu, rng):
    g = rlx.Graph()
    x, counts = g.input("x", (N, 3)), g.input("counts", (N,), "i64")
    g.set_outputs([x[x[:, 0] > 0.5], g.repeat_interleave(g.exp(x), counts, 0)])
    with rlx.compile(g, webgpu) as cg, rlx.compile(g, "cpu") as on_cpu:
        assert segments(cg) == on_hosts(cg) == [True, False]
        assert not any(segments(on_cpu))
        for n in (4, 0, 1, 700, 33):
            x, counts = floats(rng, n, 3), rng.integers(0, 4, n)
            rows, repeated = cg.run({"x": x, "counts": counts})
            np.testing.assert_array_equal(rows, x[x[:, 0] > 0.5])
            np.testing.assert_allclose(repeated, np.repeat(np.exp(x), counts, 0), 1e-6)


def test_the_device_computes_sizes_of_much_work(webgpu, rng):
    g = rlx.Graph()
    x, w = g.input("x", (N, 256)), g.param("w", (256, 256))
    y = g.tanh(x @ w)
    g.set_outputs([y[y[:, 0] > 0.0]])
    w = floats(rng, 256, 256) / 16
    with rlx.compile(g, webgpu, params={"w": w}) as cg:
        assert not any(segments(cg))
        for n in (40, 3, 90):
            x = floats(rng, n, 256)
            y = np.tanh(x @ w)
            np.testing.assert_allclose(cg.run({"x": x})[0], y[y[:, 0] > 0], 1e-4, 1e-4)


def test_the_device_computes_sizes_of_its_states(webgpu):
    g = rlx.Graph()
    rows = g.input("rows", (8, 2))
    written = g.update(rows, g.input("row", (1, 2)), g.input("at", (), "i64"))
    g.set_outputs([written[written[:, 0] > 0.0]])
    with rlx.compile(g, webgpu) as cg:
        assert not any(segments(cg))
        cg.bind_handle("rows", np.zeros((8, 2)))
        for at in range(3):
            result = cg.run({"row": np.full((1, 2), at + 1.0), "at": at})[0]
            assert result[:, 0].tolist() == list(range(1, at + 2))


def sort(g, x, y):
    return g.sort(x)


def few_of_many(g, x, y):
    return g.topk(g.concat([x, g.constant(np.arange(9, dtype=np.float32))], 0), 5)[0]


def sums(g, x, y):
    return g.sum(x, [0]), g.cumsum(x, 0), g.softmax(x), g.max(g.unsqueeze(x, 1) - y, [0, 1])


def products(g, x, y):
    column = g.unsqueeze(x, 1)
    return column @ g.unsqueeze(y, 0), g.unsqueeze(y, 0) @ g.unsqueeze(y, 1) + g.sum(x)


@pytest.mark.parametrize("build", [sort, few_of_many, sums, products])
def test_one_program_for_few_and_for_many(build, steady, webgpu, rng):
    g = rlx.Graph()
    results = build(g, g.input("x", (N,)), g.input("y", (M,)))
    g.set_outputs(results if isinstance(results, tuple) else [results])
    with rlx.compile(g, webgpu) as cg, rlx.compile(g, "reference") as reference:
        for n, m in ((3, 5), (700, 2), (5000, 40), (2, 2), (1025, 64), (4, 300)):
            x, y = np.round(floats(rng, n), 2), np.round(floats(rng, m), 2)
            expected = reference.run({"x": x, "y": y})
            for got, wanted in zip(cg.run({"x": x, "y": y}), expected, strict=True):
                np.testing.assert_allclose(got, wanted, 1e-4, 2e-3, err_msg=f"{n}, {m}")
        assert len(cg._state.sized._ranges) == 1


@pytest.mark.parametrize("limit", [3, 1 << 62])
def test_boxes_in_several_blocks(limit, webgpu, rng):
    g = rlx.Graph()
    scaled = g.input("boxes", (1, N, 4)) @ g.constant(np.eye(4, dtype=np.float32))
    scores = g.input("scores", (1, 2, N))
    g.set_outputs([g.non_max_suppression(scaled, scores, limit, 0.4, 0.2)])
    with rlx.compile(g, webgpu) as cg:
        for n in (5, 256, 1, 257, 1300):
            middle, side = floats(rng, n, 2) * 9, rng.random((n, 2), np.float32) + 0.5
            boxes = np.concatenate([middle - side, middle + side], 1)[None]
            scores = rng.random((1, 2, n), np.float32)
            wanted = kept_boxes(boxes, scores, min(limit, n), 0.4, 0.2)
            np.testing.assert_array_equal(cg.run({"boxes": boxes, "scores": scores})[0], wanted)
        compiles = rlx.cache_stats().lowered
        cg.run({"boxes": boxes[:, :900], "scores": scores[..., :900]})
        assert rlx.cache_stats().lowered == compiles


# By scales the coordinates whose positions are quotients of sizes.
QUOTIENTS = [c for c in COORDINATES if c != "tf_crop_and_resize"]
RESIZED = [
    (scales, coordinates)
    for scales in ((2.0, 2.0), (0.5, 1.5), None)
    for coordinates in QUOTIENTS
    if scales is None or coordinates != "half_pixel_symmetric"
]


@pytest.mark.parametrize(("scales", "coordinates"), RESIZED)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_pictures_of_any_size_are_resized_by_one_program(mode, coordinates, scales, webgpu, rng):
    g = rlx.Graph()
    sizes = (
        (2 * N, M + 3)
        if scales is None
        else (N * int(2 * scales[0]) // 2, M * int(2 * scales[1]) // 2)
    )
    asked = {} if scales is None else {"scales": (1.0, *scales)}
    x = g.input("x", (2, N, M))
    g.set_outputs([g.resize(x, (2, *sizes), mode, coordinates, **asked)])
    with rlx.compile(g, webgpu) as cg, rlx.compile(g, "reference") as reference:
        for n, m in ((6, 8), (17, 5), (2, 2), (40, 33), (7, 64)):
            x = floats(rng, 2, n, m)
            got, wanted = cg.run({"x": x})[0], reference.run({"x": x})[0]
            np.testing.assert_allclose(got, wanted, 1e-5, 2e-5, err_msg=f"{n}, {m}")
        assert len(cg._state.sized._ranges) == 1

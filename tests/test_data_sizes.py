"""Sizes that a graph computes: one executable for all of them, the right numbers, and errors for those that there are not."""

import pickle
import re

import numpy as np
import pytest

import rlx
from rlx.compiler import sized_cache


def lowered():
    """Counts the graphs that were lowered so far."""
    return rlx.cache_stats().lowered


def compiled_of(device, build, **inputs):
    """Compiles a graph of inputs, by name their shape and dtype."""
    g = rlx.Graph()
    nodes = {name: g.input(name, *spec) for name, spec in inputs.items()}
    result = build(g, **nodes)
    g.set_outputs(list(result) if isinstance(result, tuple) else [result])
    return rlx.compile(g, device)


def growing(g, x, k):
    """Segments in a row: a beginning of x, whose sum says how often a row is repeated."""
    n = g.read_size(k, max=5)
    first = g.narrow(x, 0, 0, n)
    times = g.read_size(g.cast(g.sum(first), "i64"))
    row = g.unsqueeze(g.sum(first), 0) + g.constant(np.arange(3, dtype=np.float32))
    return first, g.expand(row, (times, 3)), g.dim(first, 0) * 2


def grown(x, k):
    first = x[:k]
    row = first.sum() + np.arange(3, dtype=np.float32)
    return first, np.broadcast_to(row, (int(first.sum()), 3)), np.int64(2 * k)


X5 = np.arange(5, dtype=np.float32)


def test_sizes_of_sizes(device):
    with compiled_of(device, growing, x=((5,),), k=((), "i64")) as cg:
        for k in (2, 0, 5, 1, 3, 4, 0):
            for run in (
                lambda k: cg.run({"x": X5, "k": np.int64(k)}),
                lambda k: cg.run({"x": X5.tolist(), "k": k}),
                lambda k: cg.run_slots(X5, np.array(k)),
                lambda k: cg.run_raw({"x": X5, "k": np.array(k)}),
            ):
                for got, wanted in zip(run(k), grown(X5, k), strict=True):
                    np.testing.assert_array_equal(got, wanted)


def test_bounds_stay_where_lowering_needs_a_dim_as_a_number(monkeypatch):
    plain, n = sized_cache.lowered_for_sizes, rlx.Dim("n", max=6)
    monkeypatch.setattr(sized_cache, "lowered_for_sizes", lambda graph, *others: (
        int(graph.dims["n"]) if "n" in graph.dims else plain(graph, *others)))  # fmt: skip
    g = rlx.Graph()
    table, x, at = g.input("t", (10,)), g.input("x", (n,)), g.input("at", (), "i64")
    g.set_outputs([g.narrow(table, 0, g.read_size(at, max=10 - n), n) + x])
    with rlx.compile(g, "cpu") as cg:
        for count, start in ((3, 7), (6, 4), (6, 0), (3, 2)):
            given = {"t": np.arange(10.0), "x": np.zeros(count), "at": start}
            assert cg.run(given)[0].tolist() == list(range(start, start + count))


def test_nothing_is_compiled_after_the_first_run():
    for device in ("cpu",):
        with compiled_of(device, growing, x=((5,),), k=((), "i64")) as cg:
            cg.run({"x": X5, "k": 3})
            before = lowered()
            for k in (2, 4, 5, 3):
                cg.run({"x": X5 + np.float32(k), "k": k})
            assert lowered() == before


@pytest.mark.parametrize("k", [-1, 6, 1 << 40])
def test_a_size_that_the_dim_does_not_take(device, k):
    with compiled_of(device, growing, x=((5,),), k=((), "i64")) as cg:
        cg.run({"x": X5, "k": 2})
        with pytest.raises(rlx.SizesError, match=rf"out of range(.|\n)*= {k}\n(.|\n)*is 0 to 5"):
            cg.run({"x": X5, "k": np.int64(k)})
        assert cg.run({"x": X5, "k": 2})[0].tolist() == [0, 1], "nothing is lost"


def test_a_size_beyond_memory():
    def build(g, k):
        return g.expand(g.constant(1.0), (g.read_size(k),))

    with compiled_of("cpu", build, k=((), "i64")) as cg:
        assert cg.run({"k": 3})[0].shape == (3,)
        with pytest.raises((rlx.DeviceMemoryError, rlx.SizesError)):
            cg.run({"k": np.int64(1 << 40)})
        assert cg.run({"k": 2})[0].shape == (2,)


def test_sizes_that_have_to_be_equal(device):
    def build(g, a, b):
        x, y = (g.expand(g.constant(1.0), (g.read_size(n),)) for n in (a, b))
        return x + y

    with compiled_of(device, build, a=((), "i64"), b=((), "i64")) as cg:
        assert cg.run({"a": 4, "b": 4})[0].tolist() == [2] * 4
        with pytest.raises(rlx.SizesError, match="does not take the sizes") as error:
            cg.run({"a": 4, "b": 3})
        assert re.search(r"= 4 \(%\d+ input 'a'", str(error.value))


def test_a_value_that_is_read_twice_is_one_dim():
    g = rlx.Graph()
    x = g.input("x", (7,))
    first, second = (g.nonzero(x > 0.5) for _ in range(2))
    assert str(first.shape) == str(second.shape)
    assert g.read_size(g.input("k", (), "i64"), name="k").name == "k"
    with pytest.raises(rlx.ShapeError, match="taken"):
        g.read_size(g.input("m", (), "i64"), name="k")


def test_what_is_no_size():
    g = rlx.Graph()
    with pytest.raises(rlx.DTypeError, match="f32"):
        g.read_size(g.input("x", ()))
    with pytest.raises(rlx.ShapeError, match="not one number"):
        g.read_size(g.input("y", (2,), "i64"))
    inner = rlx.Graph("inner")
    inner.set_outputs([inner.narrow(inner.input("x", (4,)), 0, 0, 2)])
    inner.read_size(inner.input("k", (), "i64"))
    c, z, k = g.input("c", (), "bool"), g.input("z", (4,)), g.input("k", (), "i64")
    with pytest.raises(rlx.GraphError, match="computes sizes"):
        g.if_(c, inner, inner, z, k)


# --- the operations ----------------------------------------------------------------------------------


def boxes_of(rng, n):
    corner = rng.random((1, n, 2)) * 60
    return np.concatenate([corner, corner + rng.random((1, n, 2)) * 20], -1).astype(np.float32)


def each_time(rng, device, build, inputs, draw, wanted, times=12):
    """Runs one executable on new data each time."""
    with compiled_of(device, build, **inputs) as cg:
        for _ in range(times):
            args = draw()
            expected = wanted(**args)
            expected = expected if isinstance(expected, tuple) else (expected,)
            for got, right in zip(cg.run(args), expected, strict=True):
                assert got.dtype == right.dtype
                np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("shape", [(70,), (9, 13), (3, 1, 300), (1, 2, 3, 4)])
def test_nonzero(device, shape):
    rng = np.random.default_rng(0)
    share = lambda: rng.choice([0, 0.02, 0.5, 1])  # noqa: E731
    draw = lambda: {"x": (rng.random(shape) < share()).astype(np.float32)}  # noqa: E731
    each_time(
        rng, device, lambda g, x: g.nonzero(x), {"x": (shape,)}, draw, lambda x: np.argwhere(x)
    )


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_compress(device, axis):
    rng, shape = np.random.default_rng(1), (6, 4, 5)
    n = 120 if axis is None else shape[axis]
    each_time(
        rng, device, lambda g, c, x: g.compress(c, x, axis), {"c": ((n,), "bool"), "x": (shape,)},
        lambda: {"c": rng.random(n) < rng.random(), "x": rng.random(shape, np.float32)},
        lambda c, x: np.compress(c, x, axis),
    )  # fmt: skip


def test_unique(device):
    rng = np.random.default_rng(2)
    for sort in (True, False):
        each_time(
            rng, device, lambda g, x, s=sort: g.unique(x, sorted=s), {"x": ((rlx.Dim("n"),), "i64")},
            lambda: {"x": rng.integers(-9, 9, rng.integers(0, 300))},
            lambda x, s=sort: unique_of(x, s), times=6,
        )  # fmt: skip


def unique_of(x, sort):
    values, first, inverse, counts = np.unique(x, True, True, True)
    if not sort:
        order = np.argsort(first, kind="stable")
        values, first, counts = values[order], first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def test_repeat_interleave(device):
    rng = np.random.default_rng(3)
    each_time(
        rng, device, lambda g, x, r: g.repeat_interleave(x, r, 0),
        {"x": ((rlx.Dim("n"), 3),), "r": ((rlx.Dim("n"),), "i64")},
        lambda: (lambda n: {"x": rng.random((n, 3), np.float32), "r": rng.integers(0, 4, n)})(
            int(rng.integers(1, 40))
        ),
        lambda x, r: np.repeat(x, r, 0),
    )  # fmt: skip
    build = lambda g, x, r: g.repeat_interleave(x, r, total=9)  # noqa: E731
    with compiled_of(device, build, x=((2,),), r=((2,), "i64")) as cg:
        for wrong in ([3, -1], [5, 5]):
            with pytest.raises(rlx.SizesError, match="out of range"):
                cg.run({"x": [1, 2], "r": np.array(wrong)})


def kept_boxes(boxes, scores, limit, overlap, least):
    """The specification in a few lines: the best box of those left, without those that it covers."""
    rows = []
    for row, values in enumerate(scores[0]):
        left = [i for i in np.argsort(-values, kind="stable") if values[i] > least]
        kept = []
        while left and len(kept) < limit:
            best, *left = left
            kept.append(best)
            left = [i for i in left if covered(boxes[0, best], boxes[0, i]) <= overlap]
        rows += [(0, row, i) for i in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def covered(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    side = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    both = side.prod()
    whole = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both
    return both / whole if whole > 0 else 0


@pytest.mark.parametrize("classes", [1, 3])
def test_non_max_suppression(device, classes):
    rng = np.random.default_rng(4)
    n = rlx.Dim("n")

    def draw():
        count = int(rng.choice([1, 3, 40, 300, 700]))
        scores = rng.random((1, classes, count)).astype(np.float32)
        scores[rng.random(scores.shape) < 0.1] = np.nan
        limit, least = int(rng.choice([0, 2, 50, 10_000])), rng.choice([0.0, 0.6, 2.0])
        return {"boxes": boxes_of(rng, count), "scores": scores, "limit": np.array(limit),
                "overlap": np.float32(rng.choice([0.2, 0.6])), "least": np.float32(least)}  # fmt: skip

    each_time(
        rng, device,
        lambda g, boxes, scores, limit, overlap, least: g.non_max_suppression(
            boxes, scores, limit, overlap, least
        ),
        {"boxes": ((1, n, 4),), "scores": ((1, classes, n),), "limit": ((), "i64"), "overlap": ((),),
         "least": ((),)},
        draw, kept_boxes, times=8,
    )  # fmt: skip


def test_many_candidates_of_few_boxes():
    """So many that the best are sorted first, and the rest only where they are needed."""
    rng = np.random.default_rng(5)
    for limit in (20, 6000):
        each_time(
            rng, "cpu", lambda g, boxes, scores, n=limit: g.non_max_suppression(boxes, scores, n, 0.3),
            {"boxes": ((1, 6000, 4),), "scores": ((1, 1, 6000),)},
            lambda: {"boxes": boxes_of(rng, 6000) * 8, "scores": rng.random((1, 1, 6000), np.float32)},
            lambda boxes, scores, n=limit: kept_boxes(boxes, scores, n, 0.3, -np.inf), times=2,
        )  # fmt: skip


M = np.arange(20).reshape(4, 5) % 3 == 0


@pytest.mark.parametrize(
    ("key", "mask"),
    [
        (lambda m: m, M[:, 0]),
        (lambda m: m, M),
        (lambda m: (..., m), M[0, :3]),
        (lambda m: (slice(None), m), M[:, :3]),
        (lambda m: (1, m), M[1]),
        (lambda m: (None, m), M),
        (lambda m: (slice(1, 3), slice(None), m), M[0, :3]),
        (lambda m: (m, ..., 0), M[:, 0]),
    ],
)
def test_masks(device, key, mask):
    rng, shape = np.random.default_rng(6), (4, 5, 3)
    if mask.shape == (4, 3):
        mask = np.ones((5, 3), bool)
    each_time(
        rng, device, lambda g, x, m: (x[key(m)], x[key(mask)]),
        {"x": (shape,), "m": (mask.shape, "bool")},
        lambda: {"x": rng.random(shape, np.float32), "m": rng.random(mask.shape) < 0.5},
        lambda x, m: (x[key(m)], x[key(mask)]), times=4,
    )  # fmt: skip


# --- what executables of other graphs can do ---------------------------------------------------------


def kept(g, x, w):
    return x[x > 0.5] * g.sum(w)


def test_clones_params_and_pickles(device):
    g = rlx.Graph()
    x, w = g.input("x", (rlx.Dim("n"),)), g.param("w", (2,))
    g.set_outputs([kept(g, x, w @ w * 0.0 + w)])
    data = np.random.default_rng(7).random(40, np.float32)
    wanted = data[data > 0.5] * np.float32(3)
    with rlx.compile(g, device) as cg:
        with pytest.raises(rlx.InputError, match="never set"):
            cg.run({"x": data})
        cg.set_param("w", np.float32([1, 2]))
        np.testing.assert_allclose(cg.run({"x": data})[0], wanted, rtol=1e-6)
        for other in (cg.clone(), pickle.loads(pickle.dumps(cg))):
            np.testing.assert_allclose(
                other.run({"x": data[:7]})[0], wanted[: (data[:7] > 0.5).sum()], rtol=1e-6
            )
            other.close()
        assert "segment" in cg.as_text("kernels")
    again = rlx.Graph.from_json(g.to_json())
    assert str(again) == str(g)
    with rlx.compile(again, device, params={"w": np.float32([1, 2])}) as cg:
        np.testing.assert_allclose(cg.run({"x": data})[0], wanted, rtol=1e-6)


def test_handles_feeds_and_several_runs(device):
    def build(g, total, x):
        total = total + g.sum(x[x > 0.5])
        return total, x[x > 0.5]

    rng = np.random.default_rng(8)
    with compiled_of(device, build, total=((),), x=((9,),)) as cg:
        cg.bind_handle("total", np.float32(1))
        cg.set_gpu_handle_feed("total", 0)
        expected = 1.0
        for _ in range(4):
            x = rng.random(9, np.float32)
            expected += x[x > 0.5].sum()
            total, picked = cg.run({"x": x})
            np.testing.assert_allclose(total, expected, rtol=1e-5)
            np.testing.assert_array_equal(picked, x[x > 0.5])
        np.testing.assert_allclose(cg.read_handle("total"), expected, rtol=1e-5)
        batches = [{"x": rng.random(9, np.float32)} for _ in range(3)]
        for batch, outputs in zip(batches, cg.run_pipelined(batches), strict=True):
            np.testing.assert_array_equal(outputs[1], batch["x"][batch["x"] > 0.5])


def test_the_device_that_is_chosen():
    g = rlx.Graph()
    x = g.input("x", (50,))
    g.set_outputs([x[x > 0.5]])
    with rlx.compile(g, "auto") as cg:
        data = np.random.default_rng(9).random(50, np.float32)
        np.testing.assert_array_equal(cg.run({"x": data})[0], data[data > 0.5])

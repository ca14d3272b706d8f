"""Sizes that vary, in graphs of fixed sizes: buckets, padding and the active extent."""

import threading
from functools import partial

import numpy as np
import pytest
from samples import looped
from side_by_side import side_by_side

import rlx
from rlx.backends.base import CompileOptions
from rlx.compiler import compile_cache

X = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)


def build(rows):
    """Two outputs with rows, and a third without."""
    g = rlx.Graph(f"mlp of {rows}")
    x, w, scale = g.input("x", (rows, 8)), g.param("w", (8, 4)), g.input("scale", (3,))
    g.set_outputs([g.tanh(x @ w), g.sum(x, -1, keepdims=False), scale * 2.0])
    return g


def expected(rows):
    return [np.tanh(X[:rows] @ W), X[:rows].sum(-1), np.full(3, 2.0)]


def inputs(rows):
    return {"x": X[:rows], "scale": np.ones(3, np.float32)}


RANGES = [(1, 4), (5, 16), (20, 64)]


@looped(
    ("least", "most", "buckets"),
    [
        (1, 8, [(1, 1), (2, 2), (3, 4), (5, 8)]),
        (1, 1, [(1, 1)]),
        (16, 64, [(16, 16), (17, 32), (33, 64)]),
        (3, 20, [(3, 4), (5, 8), (9, 16), (17, 20)]),
        (9, 12, [(9, 12)]),
    ],
)
def test_power_of_two_ladder(least, most, buckets):
    cache = rlx.BucketedCompileCache.power_of_two_ladder("cpu", least, most)
    assert cache.buckets() == buckets
    assert cache.total_buckets == len(buckets)
    for key in range(least, most + 1):
        low, high = cache.bucket_for(key)
        assert low <= key <= high
    for key in (least - 1, most + 1):
        with pytest.raises(rlx.InputError):
            cache.bucket_for(key)


@looped("ends", [(0, 4), (5, 4), (-1, 2), (1.5, 4), (True, 4), ("1", 4)])
def test_no_ladder(ends):
    with pytest.raises(rlx.InputError, match=r"ladder|whole number"):
        rlx.BucketedCompileCache.power_of_two_ladder("cpu", *ends)


@looped(
    "ranges",
    [
        [],
        [(0, 4)],
        [(4, 1)],
        [(1, 4), (4, 8)],
        [(5, 8), (1, 4)],
        [(1, 4), (2, 3)],
        [(1, 2, 3)],
        [7],
        [(1, 2.5)],
        [("a", "b")],
    ],
    ids=str,
)
def test_ranges_that_are_none(ranges):
    with pytest.raises(rlx.InputError, match=r"bucket|whole number"):
        rlx.BucketedCompileCache("cpu", ranges)


def test_bucket_for():
    cache = rlx.BucketedCompileCache("cpu", RANGES)
    results = {key: cache.bucket_for(key) for key in (1, 4, 5, 16, 20, np.int64(64))}
    assert results == {1: (1, 4), 4: (1, 4), 5: (5, 16), 16: (5, 16), 20: (20, 64), 64: (20, 64)}
    for key in (0, -3, 17, 65, 2.0, True, None):
        with pytest.raises(rlx.InputError):
            cache.bucket_for(key)
    with pytest.raises(rlx.InputError, match=r"(?s)got: 17.*1 to 4, 5 to 16, 20 to 64"):
        cache.bucket_for(17)


def test_each_bucket_is_compiled_once(target_device):
    built = []

    def counting(upper):
        built.append(upper)
        return build(upper)

    with rlx.BucketedCompileCache(target_device, RANGES) as cache:
        assert cache.compiled_count == 0
        upper, first = cache.get_or_compile(2, counting)
        assert upper == 4
        assert cache.get_or_compile(4, counting) == (4, first)
        assert cache.get_or_compile(9, counting)[0] == 16
        assert (built, cache.compiled_count, cache.total_buckets) == ([4, 16], 2, 3)
        assert str(first.device) == target_device
    with pytest.raises(rlx.InputError, match="closed"):
        first.run({})
    assert cache.compiled_count == 0


def test_run_padded(target_device):
    """All sizes, larger and smaller ones by turns, so that each finds another's rows in memory."""
    with rlx.BucketedCompileCache(target_device, RANGES) as cache:
        for rows in (1, 4, 3, 1, 2, 16, 5, 12, 64, 20, 33, 63, 4):
            upper, outputs = cache.run_padded(rows, rows, build, inputs(rows), {"w": W})
            assert upper == cache.bucket_for(rows)[1]
            for got, want in zip(outputs, expected(rows), strict=True):
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        assert cache.compiled_count == 3


def test_the_key_need_not_be_the_rows(target_device):
    cache = rlx.BucketedCompileCache(target_device, RANGES)
    upper, outputs = cache.run_padded(16, 3, build, inputs(3), {"w": W})
    assert upper == 16
    np.testing.assert_allclose(outputs[0], expected(3)[0], rtol=1e-4, atol=1e-5)


def test_outputs_are_fresh(target_device):
    cache = rlx.BucketedCompileCache(target_device, RANGES)
    _, first = cache.run_padded(3, 3, build, inputs(3), {"w": W})
    retained = [item.copy() for item in first]
    cache.run_padded(2, 2, build, {"x": X[10:12], "scale": np.zeros(3, np.float32)})
    for item, like in zip(first, retained, strict=True):
        np.testing.assert_array_equal(item, like)
        item[...] = 0  # and the caller's own


def test_fewer_rows_are_computed(webgpu):
    """The saving of computing fewer rows, for a run that passes their number."""

    def wide(rows):
        g = rlx.Graph()
        g.set_outputs([g.exp(g.input("x", (rows, 1024)))])
        return g

    cache = rlx.BucketedCompileCache(webgpu, [(1, 64)])
    _, compiled = cache.get_or_compile(64, wide)
    whole = compiled._state.executable.workgroups
    cache.run_padded(8, 8, wide, {"x": np.ones((8, 1024), np.float32)})
    assert compiled._state.executable.workgroups == whole // 8
    # Whoever asks for the graph gets all of its rows.
    x = np.ones((64, 1024), np.float32)
    assert cache.get_or_compile(64, wide) == (64, compiled)
    assert compiled._state.executable.workgroups == whole
    np.testing.assert_allclose(compiled.run({"x": x})[0], np.exp(x), rtol=1e-5)


def test_numbers_of_rows_are_worked_out_once(target_device, monkeypatch):
    from rlx.passes import dynamic_batch as steps

    asked = []
    plain = steps.dynamic_rows_of
    monkeypatch.setattr(steps, "dynamic_rows_of", lambda *of: asked.append(of[1:]) or plain(*of))
    cache = rlx.BucketedCompileCache(target_device, RANGES)
    for rows in (5, 6, 5, 6, 16, 5, 6):
        _, outputs = cache.run_padded(rows, rows, build, inputs(rows), {"w": W})
        np.testing.assert_allclose(outputs[0], expected(rows)[0], rtol=1e-4, atol=1e-5)
    assert asked == [(5, 16)]


def test_an_input_that_only_happens_to_have_as_many_rows(target_device):
    """It is padded where the graph has rows, and nowhere else."""

    def graph(rows):
        g = rlx.Graph()
        x, table = g.input("x", (rows, 3)), g.input("table", (3, 3))
        g.set_outputs([x @ table])
        return g

    cache = rlx.BucketedCompileCache(target_device, [(1, 8)])
    table = np.arange(9, dtype=np.float32).reshape(3, 3)
    _, (y,) = cache.run_padded(3, 3, graph, {"x": np.eye(3, dtype=np.float32), "table": table})
    np.testing.assert_allclose(y, table, rtol=1e-5)


def test_inputs_of_the_full_size_are_taken_as_they_are(target_device):
    cache = rlx.BucketedCompileCache(target_device, RANGES)
    full = {"x": X[:16], "scale": np.ones(3, np.float32)}
    _, outputs = cache.run_padded(6, 6, build, full, {"w": W})
    np.testing.assert_allclose(outputs[0], expected(6)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "i64", "i32", "bool"])
def test_dtypes_are_padded(target_device, dtype):
    def graph(rows):
        g = rlx.Graph()
        x = g.input("x", (rows, 5), dtype)
        g.set_outputs([g.flip(x, (1,))])
        return g

    x = np.arange(15).reshape(3, 5)
    x = x.astype(np.float32 if dtype == "bf16" else rlx.DType.parse(dtype).numpy)
    cache = rlx.BucketedCompileCache(target_device, [(1, 7)])
    _, (y,) = cache.run_padded(3, 3, graph, {"x": x})
    reference = rlx.compile(graph(3), device="reference").run({"x": x})[0]
    np.testing.assert_array_equal(y, reference)


def test_params_are_set_once_and_when_they_are_others(target_device, monkeypatch):
    uploads = []
    plain = rlx.CompiledGraph.set_param

    def counting(self, name, array):
        uploads.append(name)
        plain(self, name, array)

    monkeypatch.setattr(rlx.CompiledGraph, "set_param", counting)
    cache = rlx.BucketedCompileCache(target_device, RANGES)
    with pytest.raises(rlx.InputError, match="never set"):
        cache.run_padded(3, 3, build, inputs(3))
    for rows in (3, 2, 4, 9, 16):
        cache.run_padded(rows, rows, build, inputs(rows), {"w": W})
    assert uploads == ["w", "w"]  # one for each of two buckets
    _, (y, *_) = cache.run_padded(3, 3, build, inputs(3), {"w": -W})
    np.testing.assert_allclose(y, -expected(3)[0], rtol=1e-4, atol=1e-5)
    _, (y, *_) = cache.run_padded(3, 3, build, inputs(3))
    np.testing.assert_allclose(y, -expected(3)[0], rtol=1e-4, atol=1e-5)
    assert len(uploads) == 3
    with pytest.raises(rlx.UnknownNameError, match="did you mean 'w'"):
        cache.run_padded(3, 3, build, inputs(3), {"W": W})


def test_what_run_padded_refuses(target_device):
    cache = rlx.BucketedCompileCache(target_device, RANGES)
    with pytest.raises(rlx.InputError, match="20 to 64"):
        cache.run_padded(100, 3, build, inputs(3), {"w": W})
    for rows in (0, 5, -1, 1.0):
        with pytest.raises(rlx.InputError, match="actual_rows"):
            cache.run_padded(3, rows, build, inputs(3), {"w": W})
    with pytest.raises(rlx.InputError, match="input 'x' does not fit"):
        cache.run_padded(3, 3, build, inputs(2), {"w": W})
    with pytest.raises(rlx.UnknownNameError, match="no input named 'X'"):
        cache.run_padded(3, 3, build, {"X": X[:3], "scale": np.ones(3, np.float32)}, {"w": W})
    with pytest.raises(rlx.InputError, match="missing"):
        cache.run_padded(3, 3, build, {"x": X[:3]}, {"w": W})
    # A refusal leaves nothing behind that the next run would trip over.
    _, outputs = cache.run_padded(3, 3, build, inputs(3), {"w": W})
    np.testing.assert_allclose(outputs[0], expected(3)[0], rtol=1e-4, atol=1e-5)


def test_policy(webgpu):
    denied = rlx.DevicePolicy(deny="webgpu")
    _, compiled = rlx.BucketedCompileCache("auto", [(1, 4)], denied).get_or_compile(1, build)
    assert str(compiled.device) == "cpu"
    only = rlx.DevicePolicy(allow="webgpu")
    ladder = rlx.BucketedCompileCache.power_of_two_ladder("auto", 1, 4, only)
    _, compiled = ladder.get_or_compile(1, build)
    assert str(compiled.device).startswith("webgpu")
    with pytest.raises(rlx.DeviceUnavailableError, match="cpu"):
        rlx.BucketedCompileCache(webgpu, [(1, 4)], denied).get_or_compile(1, build)
    with pytest.raises(rlx.InputError, match="policy"):
        rlx.BucketedCompileCache("cpu", [(1, 4)], CompileOptions())


def test_options():
    cache = rlx.BucketedCompileCache("cpu", [(1, 4)], options=CompileOptions(fuse=False))
    _, compiled = cache.get_or_compile(1, build)
    assert "region" not in compiled.as_text("fused")
    _, fused = rlx.BucketedCompileCache("cpu", [(1, 4)]).get_or_compile(1, build)
    assert "region" in fused.as_text("fused")


def test_threads_share_a_cache(target_device):
    cache, errors = rlx.BucketedCompileCache(target_device, RANGES), []
    together = threading.Barrier(4)

    def work(seed):
        try:
            together.wait()
            for rows in np.random.default_rng(seed).integers(1, 17, 20):
                _, outputs = cache.run_padded(rows, rows, build, inputs(rows), {"w": W})
                np.testing.assert_allclose(outputs[0], expected(rows)[0], rtol=1e-4, atol=1e-5)
        except BaseException as error:
            errors.append(error)

    side_by_side(*(partial(work, seed) for seed in range(4)))
    assert not errors
    assert cache.compiled_count == 2


def test_fewer_rows_of_a_graph_from_disk(target_device, tmp_path, monkeypatch):
    """A graph from disk has the same extent as a lowered one."""
    monkeypatch.setenv("RLX_CACHE", str(tmp_path))
    for _ in range(2):
        compile_cache._kept.clear()
        before = rlx.cache_stats()
        cache = rlx.BucketedCompileCache(target_device, RANGES)
        for rows in (12, 5, 16, 7):
            _, outputs = cache.run_padded(rows, rows, build, inputs(rows), {"w": W})
            for got, want in zip(outputs, expected(rows), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert rlx.cache_stats().disk_hits == before.disk_hits + 1
    compile_cache._kept.clear()

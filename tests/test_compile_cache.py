"""Compiled graphs under keys of the caller's, the bounded map behind them, and pipelines that devices keep."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from cached_graphs import mlp
from side_by_side import side_by_side

import rlx
from rlx.device import Device
from rlx.lru import ON_DEVICES, Lru

# --- the bounded map -------------------------------------------------------------------------------


def test_lru_bytes():
    retained = Lru(10, 100)
    retained.put("a", 1, 60)
    retained.put("b", 2, 30)
    assert retained.nbytes == 90
    assert retained.put("c", 3, 50) == [1]
    assert (retained.keys(), retained.nbytes) == (["b", "c"], 80)
    # A result that is too large alone evicts nothing.
    assert retained.put("d", 4, 101) == []
    assert (retained.keys(), retained.nbytes) == (["b", "c"], 80)
    retained.put("b", 5, 10)
    assert (retained.get("b"), retained.nbytes) == (5, 60)


@pytest.mark.parametrize("bounds", [(0, None), (1, 0)])
def test_lru_bounds(bounds):
    with pytest.raises(rlx.InputError, match="bound"):
        Lru(*bounds)


# --- CompileCache ----------------------------------------------------------------------------------


def test_compile_cache(target_device):
    weights = np.eye(8, dtype=np.float32)
    with rlx.CompileCache(target_device, 2) as cache:
        single = cache.get_or_compile(1, lambda: mlp(rows=1), {"w": weights})
        cache.get_or_compile(2, lambda: mlp(rows=2))
        assert cache.get_or_compile(1, pytest.fail) is single
        cache.get_or_compile(3, lambda: mlp(rows=3))
        assert cache.keys() == [1, 3]
        assert 2 not in cache
        assert (cache.hits, cache.misses, cache.evictions, len(cache)) == (1, 3, 1, 2)
        peaks = [cache.get_or_compile(key, pytest.fail).memory()["peak"] for key in (1, 3)]
        assert cache.nbytes == sum(peaks)
        assert single.run({"x": np.ones((1, 8), np.float32)})[0].shape == (1, 8)
    with pytest.raises(rlx.InputError, match="closed"):
        single.run({"x": np.ones((1, 8), np.float32)})
    with pytest.raises(rlx.InputError, match="closed"):
        cache.get_or_compile(1, mlp)


def test_compile_cache_bytes(target_device):
    size = rlx.compile(mlp(), device=target_device).memory()["peak"]
    cache = rlx.CompileCache(target_device, 10, max_bytes=2 * size)
    for key in range(3):
        cache.get_or_compile(key, mlp)
    assert cache.keys() == [1, 2]
    assert cache.nbytes == 2 * size
    small = rlx.CompileCache(target_device, 10, max_bytes=size - 1)
    assert small.get_or_compile(0, mlp).device == Device.parse(target_device)
    assert (len(small), small.nbytes) == (0, 0)


def test_an_evicted_graph_lives_as_long_as_its_holders(target_device):
    cache = rlx.CompileCache(target_device, 1)
    stored = cache.get_or_compile("held", mlp, {"w": np.eye(8, dtype=np.float32)})
    alive = weakref.ref(cache.get_or_compile("dropped", mlp)._state.executable)
    assert alive() is not None
    cache.get_or_compile("last", mlp)
    assert alive() is None
    stored.run({"x": np.zeros((4, 8), np.float32)})
    last = weakref.ref(cache.get_or_compile("last", mlp)._state.executable)
    cache.clear()
    assert last() is None


def test_one_compile_for_threads_that_ask_at_once():
    cache, built, result = rlx.CompileCache("cpu", 4), [], []
    together = threading.Barrier(8)

    def build():
        built.append(1)
        time.sleep(0.05)
        return mlp()

    def ask():
        together.wait()
        result.append(cache.get_or_compile("key", build))

    side_by_side(*[ask] * 8)
    assert (len(built), len(set(map(id, result))), len(result)) == (1, 1, 8)
    assert (cache.hits, cache.misses) == (7, 1)
    assert not cache._gates


def test_a_builder_that_fails_leaves_nothing():
    cache = rlx.CompileCache("cpu", 4)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compile("key", lambda: 1 // 0)
    assert (len(cache), cache.misses) == (0, 0)
    assert cache.get_or_compile("key", mlp) is cache.get_or_compile("key", pytest.fail)


# --- pipelines -------------------------------------------------------------------------------------


def test_pipelines_kept_per_device_are_bounded(webgpu, monkeypatch):
    from rlx.backends.webgpu.device import MAX_PIPELINES, gpu_device
    from rlx.device.names import info_of

    gpu = gpu_device(info_of(Device.parse(webgpu)))
    assert gpu._recent._count == MAX_PIPELINES
    monkeypatch.setattr(gpu, "_recent", Lru(2))
    gc.collect()
    before = set(gpu._pipelines)
    results = []
    plain = gpu._make
    monkeypatch.setattr(gpu, "_make", lambda dispatch: results.append(1) or plain(dispatch))

    def times(number):
        g = rlx.Graph()
        g.set_outputs([g.input("x", (3,)) * number])
        return rlx.compile(g, device=webgpu)

    graphs = {number: times(number) for number in (1.25, 2.25, 3.25, 4.25, 5.25)}
    x = np.ones(3, np.float32)
    for number, graph in graphs.items():
        assert graph.run({"x": x})[0].tolist() == [number] * 3
        assert graph.clone().run({"x": x})[0].tolist() == [number] * 3
    times(1.25)  # in use, so it is found
    assert len(results) == 5
    assert len(set(gpu._pipelines) - before) == 5
    graphs.clear()
    del graph
    gc.collect()
    # In use by nobody, and not among those used last.
    assert len(set(gpu._pipelines) - before) == 2
    times(2.25)
    assert len(results) == 6


def test_pipelines_that_nobody_uses_are_bounded_in_bytes_and_cleared(webgpu, monkeypatch, tmp_path):
    from rlx.backends.webgpu.device import GpuDevice, gpu_device
    from rlx.device.names import info_of

    monkeypatch.setenv("RLX_CACHE", str(tmp_path))
    info = info_of(Device.parse(webgpu))
    gpu, limit = gpu_device(info), 1 << 20
    monkeypatch.setenv("RLX_GPU_CACHE_BYTES", str(limit))
    bounded = GpuDevice(info)._recent
    assert bounded in ON_DEVICES
    monkeypatch.setattr(gpu, "_recent", bounded)
    gc.collect()
    before = set(gpu._pipelines)

    def shifted(number):
        g = rlx.Graph()
        g.set_outputs([g.input("x", (3,)) + number])
        return rlx.compile(g, device=webgpu)

    graphs = [shifted(index + 0.375) for index in range(9)]
    assert 0 < bounded.nbytes <= limit
    assert 1 < len(bounded) < 9
    retained = graphs.pop()
    graphs.clear()
    rlx.clear_cache()
    gc.collect()
    assert bounded.nbytes == len(bounded) == 0
    assert len(set(gpu._pipelines) - before) == 1  # in use
    assert retained.run({"x": np.zeros(3, np.float32)})[0].tolist() == [8.375] * 3

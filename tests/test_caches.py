"""What was compiled before is found again: in memory, on disk, by key; and only what is the same."""

import dataclasses
import gc
import os
import random
import subprocess
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import pytest

import rlx
from rlx.backends.base import CompileOptions
from rlx.compiler import memo
from rlx.compiler.build import lower
from rlx.compiler.decisions import KIND, sources_of
from rlx.compiler.disk import DiskCache
from rlx.compiler.target import Target
from rlx.device import Device
from rlx.ir import container
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.graph import Graph
from rlx.lru import Lru


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache folder of its own, and nothing in memory."""
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "kept"))
    memo._kept.clear()
    yield tmp_path / "kept"
    memo._kept.clear()


@pytest.fixture(params=["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def target_device(request):
    """Each device that has kernels."""
    return request.getfixturevalue("webgpu") if request.param == "webgpu" else "cpu"


def mlp(scale=0.5, rows=4, dtype="f32", name="mlp"):
    g = rlx.Graph(name)
    x, w = g.input("x", (rows, 8), dtype), g.param("w", (8, 8), dtype)
    table = g.constant(np.linspace(0, scale, 8).astype(np.float32))
    g.set_outputs([g.tanh(x @ w + g.cast(table, dtype)) * scale])
    return g


def counted(before):
    """What the caches did since ``before``."""
    now = rlx.cache_stats()
    pairs = dataclasses.asdict(now).items()
    done = {name: count - getattr(before, name) for name, count in pairs}
    return {name: count for name, count in done.items() if count}


def compiled_twice(graph, device, *, forget=True):
    """A fresh executable and one from a cache, and what the caches did for the second."""
    first = rlx.compile(graph, device=device)
    if forget:
        memo._kept.clear()
    before = rlx.cache_stats()
    return first, rlx.compile(graph, device=device), counted(before)


# --- the bounded map -------------------------------------------------------------------------------


def test_lru_forgets_what_was_used_longest_ago():
    kept = Lru(3)
    for key in "abc":
        kept.put(key, key.upper())
    assert kept.get("a") == "A"
    assert kept.put("d", "D") == ["B"]
    assert kept.keys() == ["c", "a", "d"]
    assert kept.get("b") is None
    assert kept.evictions == 1


def test_lru_bytes():
    kept = Lru(10, 100)
    kept.put("a", 1, 60)
    kept.put("b", 2, 30)
    assert kept.nbytes == 90
    assert kept.put("c", 3, 50) == [1]
    assert (kept.keys(), kept.nbytes) == (["b", "c"], 80)
    # What is too large alone takes nothing else away.
    assert kept.put("d", 4, 101) == []
    assert (kept.keys(), kept.nbytes) == (["b", "c"], 80)
    kept.put("b", 5, 10)
    assert (kept.get("b"), kept.nbytes) == (5, 60)


@pytest.mark.parametrize("bounds", [(0, None), (1, 0)])
def test_lru_bounds(bounds):
    with pytest.raises(rlx.InputError, match="bound"):
        Lru(*bounds)


# --- CompileCache ----------------------------------------------------------------------------------


def test_compile_cache(target_device):
    weights = np.eye(8, dtype=np.float32)
    with rlx.CompileCache(target_device, 2) as cache:
        one = cache.get_or_compile(1, lambda: mlp(rows=1), {"w": weights})
        cache.get_or_compile(2, lambda: mlp(rows=2))
        assert cache.get_or_compile(1, pytest.fail) is one
        cache.get_or_compile(3, lambda: mlp(rows=3))
        assert cache.keys() == [1, 3]
        assert 2 not in cache
        assert (cache.hits, cache.misses, cache.evictions, len(cache)) == (1, 3, 1, 2)
        peaks = [cache.get_or_compile(key, pytest.fail).memory()["peak"] for key in (1, 3)]
        assert cache.nbytes == sum(peaks)
        assert one.run({"x": np.ones((1, 8), np.float32)})[0].shape == (1, 8)
    with pytest.raises(rlx.InputError, match="closed"):
        one.run({"x": np.ones((1, 8), np.float32)})
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
    held = cache.get_or_compile("held", mlp, {"w": np.eye(8, dtype=np.float32)})
    alive = weakref.ref(cache.get_or_compile("dropped", mlp)._loaded.executable)
    assert alive() is not None
    cache.get_or_compile("last", mlp)
    assert alive() is None
    held.run({"x": np.zeros((4, 8), np.float32)})
    last = weakref.ref(cache.get_or_compile("last", mlp)._loaded.executable)
    cache.clear()
    assert last() is None


def test_one_compile_for_threads_that_ask_at_once():
    cache, built, found = rlx.CompileCache("cpu", 4), [], []
    together = threading.Barrier(8)

    def build():
        built.append(1)
        time.sleep(0.05)
        return mlp()

    def ask():
        together.wait()
        found.append(cache.get_or_compile("key", build))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(built), len(set(map(id, found))), len(found)) == (1, 1, 8)
    assert (cache.hits, cache.misses) == (7, 1)
    assert not cache._gates


def test_a_builder_that_fails_leaves_nothing():
    cache = rlx.CompileCache("cpu", 4)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compile("key", lambda: 1 // 0)
    assert (len(cache), cache.misses) == (0, 0)
    assert cache.get_or_compile("key", mlp) is cache.get_or_compile("key", pytest.fail)


# --- by content, in memory -------------------------------------------------------------------------


def test_equal_graphs_are_lowered_once(folder, target_device):
    """They share what was lowered, and nothing of what they run on."""
    before = rlx.cache_stats()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 8)).astype(np.float32)
    weights = [rng.normal(size=(8, 8)).astype(np.float32) for _ in range(3)]
    graphs = [rlx.compile(mlp(), device=target_device, params={"w": w}) for w in weights]
    assert counted(before) == {"lowered": 1, "stored": 1, "memory_hits": 2}
    assert graphs[0]._loaded.lowered is graphs[2]._loaded.lowered
    for _ in range(2):
        for one, w in zip(graphs, weights, strict=True):
            expected = 0.5 * np.tanh(x @ w + np.linspace(0, 0.5, 8))
            np.testing.assert_allclose(one.run({"x": x})[0], expected, rtol=1e-5, atol=1e-6)
        graphs[1].set_param("w", weights[1])
    graphs[0].close()
    graphs[1].run({"x": x})


def test_the_weights_of_a_graph_are_not_kept(folder):
    g = rlx.Graph()
    value = np.ones((2, 2), np.float32)
    g.set_outputs([g.input("x", (2, 2)) @ g.param("w", (2, 2), value=value)])
    alive = weakref.ref(value)
    assert rlx.compile(g, device="cpu").run({"x": np.eye(2, dtype=np.float32)})[0].sum() == 4
    assert len(memo._kept) == 1
    del g, value
    gc.collect()
    assert alive() is None


def test_an_equal_graph_from_elsewhere_keeps_its_own_lines(folder):
    def here():
        g = rlx.Graph("g")
        x = g.input("x", (4,))
        g.set_outputs([g.exp(x) + 0.0 * g.exp(x)])
        return g

    def there():
        g = rlx.Graph("g")
        x = g.input("x", (4,))
        g.set_outputs([g.exp(x) + 0.0 * g.exp(x)])
        return g

    assert content_hash(here()) == content_hash(there())
    assert sources_of(here()) != sources_of(there())
    for forget in (False, True):
        memo._kept.clear()
        rlx.compile(here(), device="cpu")
        if forget:
            memo._kept.clear()
        before = rlx.cache_stats()
        found = rlx.compile(there(), device="cpu")
        assert counted(before) == {"disk_hits" if forget else "memory_hits": 1}
        fresh = lower(there(), Target.of(Device.parse("cpu"), CompileOptions()))
        assert found._loaded.lowered.notes == fresh.notes
        assert any(".py:" in str(note) for note in fresh.notes)
        sources = [node.source for node in found._loaded.lowered.graph.nodes]
        assert sources == [node.source for node in fresh.graph.nodes]


def test_off_keeps_nothing(folder, monkeypatch):
    monkeypatch.setenv("RLX_CACHE", "off")
    before = rlx.cache_stats()
    for _ in range(2):
        rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"lowered": 2}
    assert len(memo._kept) == 0
    assert not folder.exists()
    assert rlx.clear_cache() == 0


def text_of(options=None, **changed):
    target = Target.of(Device.parse("cpu"), CompileOptions(**(options or {})))
    info = dataclasses.replace(target.info, **changed)
    return memo.target_text(dataclasses.replace(target, info=info))


def test_what_changes_the_key():
    graphs = [
        mlp(),
        mlp(scale=0.25),
        mlp(rows=5),
        mlp(dtype="f16"),
        mlp(name="other"),
        mlp().__class__.from_json(mlp().to_json().replace('"tanh"', '"sigmoid"')),
        mlp().__class__.from_json(mlp().to_json().replace('"name": "w"', '"name": "v"')),
    ]
    assert len({content_hash(one) for one in graphs}) == len(graphs)
    assert content_hash(mlp()) == content_hash(Graph.from_json(mlp().to_json()))
    options = [
        {},
        {"fuse": False},
        {"fold": False},
        {"cse": False},
        {"reuse_memory": False},
        {"arena_alignment": 512},
        {"memory_limit": 1 << 30},
        {"allow_host_fallback": False},
    ]
    texts = {text_of(one) for one in options}
    changed = [
        {"driver": "another 1.2"},
        {"adapter": "another"},
        {"api": "Metal"},
        {"limits": {"max-buffer-size": 1}},
        {"features": frozenset({"shader-f16"})},
    ]
    texts |= {text_of(**one) for one in changed}
    assert len(texts) == len(options) + len(changed)
    assert text_of() == text_of()


def test_numbers_that_are_equal_in_python_are_told_apart():
    def of(value, dtype):
        g = rlx.Graph()
        g.set_outputs([g.input("x", (2,), dtype) + g.constant(value, dtype)])
        return content_hash(g)

    assert len({of(0.0, "f32"), of(-0.0, "f32"), of(0, "i32"), of(1.0, "f32")}) == 4


def test_an_option_that_does_not_say_what_it_is():
    with pytest.raises(OpaqueError, match="io_gate"):
        text_of({"io_gate": object()})


def test_another_build_reads_no_entry_of_this_one(folder, monkeypatch):
    _, _, done = compiled_twice(mlp(), "cpu")
    assert done == {"disk_hits": 1}
    memo._kept.clear()
    monkeypatch.setattr(memo, "build_id", lambda kernel_set: "another build")
    before = rlx.cache_stats()
    rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"lowered": 1, "stored": 1}
    assert len(list(folder.iterdir())) == 2


# --- on disk ---------------------------------------------------------------------------------------


def running_sum(g):
    body = rlx.Graph("running sum")
    total = body.tanh(body.input("total", (3,)) + body.input("x", (3,)) * 1.5)
    body.set_outputs([total, total])
    _, sums = g.scan(body, 1, g.constant(np.zeros(3, np.float32)), g.input("x", (5, 3)) * 2.0)
    return sums


def halving(g):
    condition, body = rlx.Graph("condition"), rlx.Graph("body")
    condition.set_outputs([condition.sum(condition.input("y", (3,))) > 0.5])
    body.set_outputs([body.input("y", (3,)) * 0.5])
    return g.while_(condition, body, g.input("x", (3,)))


GRAPHS = {
    "a loop": running_sum,
    "a loop of unknown length": halving,
    "f64, on the host of a GPU": lambda g: g.cast(
        g.exp(g.cast(g.input("x", (3,)), "f64")) * 2.0, "f32"
    ),
    "i64": lambda g: g.input("x", (3,), "i64") * 3 + 1,
    "bf16 constant": lambda g: (
        g.input("x", (3,)) + g.cast(g.constant(np.float32([1, 2, 3]), "bf16"), "f32")
    ),
    "empty constant": lambda g: g.concat([g.input("x", (3,)), g.constant(np.zeros(0, "f4"))], 0),
    "table": lambda g: g.resize(g.input("x", (1, 1, 3)), (1, 1, 7), mode="cubic"),
    "infinite literal": lambda g: g.maximum(g.input("x", (3,)), float("-inf")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_same_results_from_disk(folder, target_device, name):
    g = rlx.Graph(name)
    g.set_outputs([GRAPHS[name](g)])
    first, second, done = compiled_twice(g, target_device)
    assert done == {"disk_hits": 1}
    view = first.input_views[0]
    x = np.arange(1, view.size + 1).reshape(view.shape).astype(view.dtype)
    expected = rlx.compile(g, device="reference").run({"x": x})[0]
    np.testing.assert_array_equal(first.run({"x": x})[0], second.run({"x": x})[0])
    np.testing.assert_allclose(second.run({"x": x})[0], expected, rtol=1e-5)
    for stage in ("graph", "fused", "schedule", "memory", "kernels"):
        assert first.as_text(stage) == second.as_text(stage)
    assert first.memory() == second.memory()
    assert first.host_fallbacks == second.host_fallbacks
    assert [str(one) for one in first.cost()] == [str(one) for one in second.cost()]
    again = second.clone()
    np.testing.assert_array_equal(first.run({"x": x})[0], again.run({"x": x})[0])


def test_what_is_found_is_not_compiled_again(folder, webgpu, monkeypatch):
    rlx.compile(mlp(), device=webgpu)
    memo._kept.clear()
    # Calls are rendered, but a call that was rendered before is not.
    monkeypatch.setattr("rlx.backends.webgpu.dispatch._source", lambda *_: pytest.fail("rendered"))
    monkeypatch.setattr("rlx.compiler.memo.lower", lambda *_: pytest.fail("lowered"))
    for _ in range(2):
        found = rlx.compile(mlp(), device=webgpu, params={"w": np.zeros((8, 8), np.float32)})
        assert found.run({"x": np.zeros((4, 8), np.float32)})[0][0, 0] == 0


def test_what_was_lowered_is_never_changed(folder, target_device):
    """Others may hold it: the choice of a device, compiles of equal graphs."""
    graph = mlp()
    graph.param_values["w"] = np.eye(8, dtype=np.float32)
    target = Target.of(Device.parse(target_device), CompileOptions())
    lowered = lower(graph, target)
    assert not lowered.graph.param_values
    assert list(graph.param_values) == ["w"], "the caller's own stay"
    notes = lowered.notes
    made, executable = memo.build(graph, target, lowered)
    executable.close()
    assert made.program is not None
    assert (lowered.program, lowered.notes) == (None, notes)
    noted = made.noted("cache", "why")
    assert str(noted.notes[-1]) == "cache: why"
    assert made.notes == notes
    for record in (made, made.plan):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.notes = ()


def test_entries_of_another_version_are_not_read(folder, target_device, monkeypatch):
    """They stay in the folder until they are the oldest; nothing asks for them."""
    with monkeypatch.context() as older:
        older.setattr(memo, "build_digest", lambda: "0" * 64)
        rlx.compile(mlp(), device=target_device).close()
    memo._kept.clear()
    before = rlx.cache_stats()
    rlx.compile(mlp(), device=target_device).close()
    assert counted(before) == {"lowered": 1, "stored": 1}


PROGRAM = """
import sys; sys.path.insert(0, {tests!r})
import numpy as np, rlx
from test_caches import mlp
cg = rlx.compile(mlp(), device={device!r}, params={{"w": np.eye(8, dtype=np.float32)}})
y = cg.run({{"x": np.ones((4, 8), np.float32)}})[0]
print(y.tobytes().hex(), rlx.cache_stats())
"""


def start(device):
    tests = str(__file__.rpartition("/test_caches")[0])
    code = PROGRAM.format(tests=tests, device=device)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Started by tests, but the conftest that turns the cache off has not been there.
    return subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)


def finished(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    result, _, stats = out.strip().partition(" ")
    return result, stats


def test_the_next_process_finds_it(folder, target_device):
    first, done = finished(start(target_device))
    assert "lowered=1, memory_hits=0, disk_hits=0, model_hits=0, stored=1" in done
    second, done = finished(start(target_device))
    assert "lowered=0, memory_hits=0, disk_hits=1, model_hits=0, stored=0" in done
    assert first == second


def test_processes_that_write_the_same_entry_at_once(folder):
    found = [finished(one) for one in [start("cpu") for _ in range(4)]]
    assert len({result for result, _ in found}) == 1
    assert all("damaged=0" in stats for _, stats in found)
    (entry,) = folder.iterdir()
    assert container.read(entry).kind == KIND


def test_threads_that_write_the_same_entry_at_once(folder):
    errors = []

    def work():
        try:
            for _ in range(10):
                memo._kept.clear()
                rlx.compile(mlp(), device="cpu")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    (entry,) = folder.iterdir()
    assert container.read(entry).kind == KIND


def mutated(raw, rng):
    """One way that a file is damaged."""
    kind = rng.choice(["flip", "truncate", "extend", "zero", "swap"])
    damaged = bytearray(raw)
    at = rng.randrange(len(raw))
    if kind == "flip":
        damaged[at] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        del damaged[at:]
    elif kind == "extend":
        damaged += rng.randbytes(rng.randrange(1, 200))
    elif kind == "zero":
        damaged[at : at + 64] = bytes(len(damaged[at : at + 64]))
    else:
        other = rng.randrange(len(raw))
        damaged[at], damaged[other] = damaged[other], damaged[at]
    return bytes(damaged)


def test_damaged_entries_are_made_again(folder):
    params, x = {"w": np.eye(8, dtype=np.float32)}, {"x": np.ones((4, 8), np.float32)}
    expected = rlx.compile(mlp(), device="cpu", params=params).run(x)[0]
    (entry,) = folder.iterdir()
    raw = entry.read_bytes()
    rng = random.Random(0)
    tried = 0
    while tried < 200:
        damaged = mutated(raw, rng)
        if damaged == raw:
            continue
        tried += 1
        entry.write_bytes(damaged)
        memo._kept.clear()
        before = rlx.cache_stats()
        with pytest.warns(RuntimeWarning) as said:
            found = rlx.compile(mlp(), device="cpu", params=params)
        assert len(said) == 1
        assert entry.name in str(said[0].message)
        assert said[0].filename == __file__
        assert counted(before) == {"damaged": 1, "lowered": 1, "stored": 1}
        assert entry.read_bytes() == raw
        np.testing.assert_array_equal(found.run(x)[0], expected)


def test_a_valid_container_that_is_not_the_entry(folder):
    """Checksums hold for all of these; what is inside does not."""
    rlx.compile(mlp(), device="cpu")
    (entry,) = folder.iterdir()
    held = container.read(entry)
    raw, name = entry.read_bytes(), held.data["name"]
    lowered = held.data["lowered"]
    assert lowered["graphs"]

    def changed(**parts):
        return {"name": name, "lowered": {**lowered, **parts}}

    def node(*record):
        return changed(graphs=[["g", [list(record)], [0]], *lowered["graphs"][1:]])

    wrong = {
        "another kind": ("model", held.data),
        "another name": (KIND, {**held.data, "name": "0" * 64}),
        "a list": (KIND, []),
        "no graph": (KIND, {"name": name, "lowered": {}}),
        "no such op": (KIND, node("nope", "n", [], {}, "")),
        "no such graph": (KIND, changed(graph=99)),
        "no such tag": (KIND, node("input", "x", [], {"a": {"b": 1}}, "")),
        "another outside": (KIND, node("input", "x", [], {"shape": [2], "dtype": {"dtype": "f32"}}, "")),
        "too many offsets": (KIND, changed(offsets=[*lowered["offsets"], 0])),
        "an offset outside": (KIND, changed(offsets=[1 << 40] * len(lowered["offsets"]) or [0])),
    }  # fmt: skip
    for what, (kind, data) in wrong.items():
        entry.write_bytes(container.dump(kind, data, held.arrays))
        memo._kept.clear()
        before = rlx.cache_stats()
        with pytest.warns(RuntimeWarning, match=entry.name):
            rlx.compile(mlp(), device="cpu")
        assert counted(before) == {"refused": 1, "lowered": 1, "stored": 1}, what
        assert entry.read_bytes() == raw


def test_the_folder_is_bounded(folder, monkeypatch):
    for rows in range(1, 5):
        rlx.compile(mlp(rows=rows), device="cpu")
        time.sleep(0.02)
    sizes = {path: path.stat().st_size for path in folder.iterdir()}
    first, second = sorted(sizes, key=lambda path: path.stat().st_mtime)[:2]
    memo._kept.clear()
    rlx.compile(mlp(rows=1), device="cpu")  # used last, so the second is now the oldest
    monkeypatch.setenv("RLX_CACHE_BYTES", str(sum(sizes.values())))
    stray = folder / "notes.txt"
    stray.write_text("not an entry")
    memo._kept.clear()
    rlx.compile(mlp(rows=7), device="cpu")
    left = set(folder.iterdir())
    assert sum(p.stat().st_size for p in left - {stray}) <= sum(sizes.values())
    assert first in left
    assert second not in left
    assert stray in left
    monkeypatch.setenv("RLX_CACHE_BYTES", "100")
    before = rlx.cache_stats()
    rlx.compile(mlp(rows=8), device="cpu")
    assert counted(before) == {"lowered": 1}


def test_clear_cache(folder):
    rlx.compile(mlp(), device="cpu")
    (entry,) = folder.iterdir()
    size = entry.stat().st_size
    stray = folder / "notes.txt"
    stray.write_text("not an entry")
    assert rlx.clear_cache() == size
    assert list(folder.iterdir()) == [stray]
    before = rlx.cache_stats()
    rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"lowered": 1, "stored": 1}


def test_a_folder_where_nothing_may_be_written(tmp_path, monkeypatch, caplog):
    memo._kept.clear()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "file" / "below"))
    before = rlx.cache_stats()
    with caplog.at_level("DEBUG", logger="rlx"), warnings.catch_warnings():
        warnings.simplefilter("error")
        rlx.compile(mlp(), device="cpu")
        rlx.compile(mlp(), device="cpu")
        assert rlx.clear_cache() == 0
    assert counted(before) == {"lowered": 1, "memory_hits": 1}
    assert "nothing is stored" in caplog.text


def test_files_left_by_writers_that_died_are_removed(folder):
    folder.mkdir()
    old, new = (folder / f"{number * 64}.rlxc.1-{number}.tmp" for number in "12")
    for path in (old, new):
        path.write_bytes(b"part")
    os.utime(old, (1, 1))
    rlx.compile(mlp(), device="cpu")
    assert not old.exists()
    assert new.exists()


def test_the_folder_is_not_looked_through_at_every_entry(folder, monkeypatch):
    looks = []
    plain = DiskCache._prune
    monkeypatch.setattr(DiskCache, "_prune", lambda self: looks.append(1) or plain(self))
    disk = DiskCache(folder, 10_000)
    for number in range(130):
        disk.put(f"{number:064}", bytes(10))
    assert len(looks) == 3
    # What others stored meanwhile is seen at the latest when the own share fills the folder.
    (folder / f"{'f' * 64}.rlxc").write_bytes(bytes(9_000))
    os.utime(folder / f"{'f' * 64}.rlxc", (1, 1))
    for number in range(130, 260):
        disk.put(f"{number:064}", bytes(10))
    assert not (folder / f"{'f' * 64}.rlxc").exists()
    assert disk.nbytes() == 2_600
    disk.put("a" * 64, bytes(9_000))
    assert disk.nbytes() <= 10_000


def test_graphs_with_custom_ops_are_not_kept(folder):
    def axpy():
        g = rlx.Graph("custom")
        x = g.input("x", (2, 3))
        g.set_outputs([g.custom("axpy", [x, x], {"alpha": 2.0})])
        return g

    before = rlx.cache_stats()
    found = [rlx.compile(axpy(), device="cpu") for _ in range(2)]
    assert counted(before) == {"lowered": 2, "refused": 2}
    assert "# cache: the compiled graph is not stored, because of custom op 'axpy'" in (
        found[0].as_text("fused")
    )
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("RLX_CACHE", "onn", "on, off or the absolute path"),
        ("RLX_CACHE_BYTES", "1 GB", "a whole number of bytes"),
        ("RLX_CACHE_BYTES", "0", "a whole number of bytes"),
    ],
)
def test_variables_that_do_not_parse(folder, monkeypatch, name, text, expected):
    monkeypatch.setenv(name, text)
    with pytest.raises(rlx.InputError, match=f"(?s){name}.*{expected}"):
        rlx.compile(mlp(), device="cpu")


# --- pipelines -------------------------------------------------------------------------------------


def test_pipelines_kept_per_device_are_bounded(webgpu, monkeypatch):
    from rlx.backends.webgpu.device import MOST_PIPELINES, gpu_device
    from rlx.device.names import info_of

    gpu = gpu_device(info_of(Device.parse(webgpu)))
    assert gpu._recent._count == MOST_PIPELINES
    monkeypatch.setattr(gpu, "_recent", Lru(2))
    gc.collect()
    before = set(gpu._pipelines)
    made = []
    plain = gpu._make
    monkeypatch.setattr(gpu, "_make", lambda dispatch: made.append(1) or plain(dispatch))

    def times(number):
        g = rlx.Graph()
        g.set_outputs([g.input("x", (3,)) * number])
        return rlx.compile(g, device=webgpu)

    graphs = {number: times(number) for number in (1.25, 2.25, 3.25, 4.25, 5.25)}
    x = np.ones(3, np.float32)
    for number, one in graphs.items():
        assert one.run({"x": x})[0].tolist() == [number] * 3
        assert one.clone().run({"x": x})[0].tolist() == [number] * 3
    times(1.25)  # in use, so it is found
    assert len(made) == 5
    assert len(set(gpu._pipelines) - before) == 5
    graphs.clear()
    del one
    gc.collect()
    # In use by nobody, and not among those used last.
    assert len(set(gpu._pipelines) - before) == 2
    times(2.25)
    assert len(made) == 6

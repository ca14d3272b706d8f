"""Compiled graphs are found again: in memory, on disk, by key; and only equal ones."""

import dataclasses
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
from cached_graphs import compiled_twice, counted, mlp
from side_by_side import side_by_side

import rlx
from rlx.backends.base import CompileOptions
from rlx.compiler import compile_cache, signed_cache
from rlx.compiler.lowering import lower
from rlx.compiler.plan_codec import sources_of
from rlx.compiler.target import Target
from rlx.device import Device
from rlx.ir import container
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.graph import Graph

# --- by content, in memory -------------------------------------------------------------------------


def test_equal_graphs_are_lowered_once(folder, target_device):
    """They share what was lowered, and nothing of what they run on."""
    before = rlx.cache_stats()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 8)).astype(np.float32)
    weights = [rng.normal(size=(8, 8)).astype(np.float32) for _ in range(3)]
    graphs = [rlx.compile(mlp(), device=target_device, params={"w": w}) for w in weights]
    assert counted(before) == {"lowered": 1, "stored": 1, "memory_hits": 2}
    assert graphs[0]._state.lowered is graphs[2]._state.lowered
    for _ in range(2):
        for graph, w in zip(graphs, weights, strict=True):
            expected = 0.5 * np.tanh(x @ w + np.linspace(0, 0.5, 8))
            np.testing.assert_allclose(graph.run({"x": x})[0], expected, rtol=1e-5, atol=1e-6)
        graphs[1].set_param("w", weights[1])
    graphs[0].close()
    graphs[1].run({"x": x})


def test_the_weights_of_a_graph_are_not_kept(folder):
    g, value = rlx.Graph(), np.ones((2, 2), np.float32)
    g.set_outputs([g.input("x", (2, 2)) @ g.param("w", (2, 2), value=value)])
    alive = weakref.ref(value)
    assert rlx.compile(g, device="cpu").run({"x": np.eye(2, dtype=np.float32)})[0].sum() == 4
    assert len(compile_cache._kept) == 1
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
        compile_cache._kept.clear()
        rlx.compile(here(), device="cpu")
        if forget:
            compile_cache._kept.clear()
        before = rlx.cache_stats()
        result = rlx.compile(there(), device="cpu")
        assert counted(before) == {"disk_hits" if forget else "memory_hits": 1}
        fresh = lower(there(), Target.of(Device.parse("cpu"), CompileOptions()))
        assert result._state.lowered.notes == fresh.notes
        assert any(".py:" in str(note) for note in fresh.notes)
        sources = [node.source for node in result._state.lowered.graph.nodes]
        assert sources == [node.source for node in fresh.graph.nodes]


def test_off_keeps_nothing(folder, monkeypatch):
    monkeypatch.setenv("RLX_CACHE", "off")
    before = rlx.cache_stats()
    for _ in range(2):
        rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"lowered": 2}
    assert len(compile_cache._kept) == 0
    assert not folder.exists()
    assert rlx.clear_cache() == 0


def text_of(options=None, **changed):
    target = Target.of(Device.parse("cpu"), CompileOptions(**(options or {})))
    info = dataclasses.replace(target.info, **changed)
    return compile_cache.target_text(dataclasses.replace(target, info=info))


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
    assert len({content_hash(graph) for graph in graphs}) == len(graphs)
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
    texts = {text_of(option) for option in options}
    changed = [
        {"driver": "another 1.2"},
        {"adapter": "another"},
        {"api": "Metal"},
        {"limits": {"max-buffer-size": 1}},
        {"features": frozenset({"shader-f16"})},
    ]
    texts |= {text_of(**item) for item in changed}
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
    compile_cache._kept.clear()
    monkeypatch.setattr(compile_cache, "build_id", lambda kernel_set: "another build")
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
    assert [str(item) for item in first.cost()] == [str(item) for item in second.cost()]
    again = second.clone()
    np.testing.assert_array_equal(first.run({"x": x})[0], again.run({"x": x})[0])


def test_what_is_found_is_not_compiled_again(folder, webgpu, monkeypatch):
    rlx.compile(mlp(), device=webgpu)
    compile_cache._kept.clear()
    # Calls are rendered, but a call that was rendered before is not.
    monkeypatch.setattr("rlx.backends.webgpu.codegen._source", lambda *_: pytest.fail("rendered"))
    monkeypatch.setattr("rlx.compiler.lowering.lower", lambda *_: pytest.fail("lowered"))
    for _ in range(2):
        result = rlx.compile(mlp(), device=webgpu, params={"w": np.zeros((8, 8), np.float32)})
        assert result.run({"x": np.zeros((4, 8), np.float32)})[0][0, 0] == 0


def test_what_was_lowered_is_never_changed(folder, target_device):
    """Others may hold it: the choice of a device, compiles of equal graphs."""
    graph = mlp()
    graph.param_values["w"] = np.eye(8, dtype=np.float32)
    target = Target.of(Device.parse(target_device), CompileOptions())
    lowered = lower(graph, target)
    assert not lowered.graph.param_values
    assert list(graph.param_values) == ["w"], "the caller's own stay"
    notes = lowered.notes
    result, executable, _ = compile_cache.build(graph, target, lowered)
    executable.close()
    assert result.program is not None
    assert (lowered.program, lowered.notes) == (None, notes)
    noted = result.noted("cache", "why")
    assert str(noted.notes[-1]) == "cache: why"
    assert result.notes == notes
    for record in (result, result.plan):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.notes = ()


PROGRAM = """
import sys; sys.path.insert(0, {tests!r})
import numpy as np, rlx
from cached_graphs import mlp
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
    results = [finished(item) for item in [start("cpu") for _ in range(4)]]
    assert len({result for result, _ in results}) == 1
    assert all("damaged=0" in stats for _, stats in results)
    (entry,) = folder.iterdir()
    assert container.read(entry).kind == signed_cache.KIND


def test_threads_that_write_the_same_entry_at_once(folder):
    errors = []

    def work():
        try:
            for _ in range(10):
                compile_cache._kept.clear()
                rlx.compile(mlp(), device="cpu")
        except BaseException as error:
            errors.append(error)

    side_by_side(*[work] * 4)
    assert not errors
    (entry,) = folder.iterdir()
    assert container.read(entry).kind == signed_cache.KIND


def test_graphs_with_custom_ops_are_not_kept(folder):
    def axpy():
        g = rlx.Graph("custom")
        x = g.input("x", (2, 3))
        g.set_outputs([g.custom("axpy", [x, x], {"alpha": 2.0})])
        return g

    before = rlx.cache_stats()
    results = [rlx.compile(axpy(), device="cpu") for _ in range(2)]
    assert counted(before) == {"lowered": 2, "refused": 2}
    assert "# cache: the compiled graph is not stored, because of custom op 'axpy'" in (
        results[0].as_text("fused")
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

"""Nodes of params alone are computed when they are set; results take over the memory of their operands."""

import numpy as np
import pytest
from fused_graphs import close, fed, values

import rlx
from rlx.backends.base import CompileOptions


def layered():
    """Weights that are transposed, scaled and joined before they meet an input."""
    g = rlx.Graph("layered")
    x = g.input("x", (4, 6))
    w, v, s = g.param("w", (8, 6)), g.param("v", (8, 6)), g.param("s", (8, 1))
    joined = g.concat([w * s, v], axis=0)
    g.set_outputs([x @ g.transpose(joined, (1, 0)), g.sum(w)])
    return g


def layered_by_hand(x, w, v, s):
    return x @ np.concatenate([w * s, v]).T, w.sum()


def test_params_are_prepared_when_they_are_set(device):
    graph = layered()
    arguments = values(graph)
    x = arguments.pop("x")
    with rlx.compile(graph, device) as compiled:
        with pytest.raises(rlx.InputError, match="never set"):
            compiled.run({"x": x})
        for name, value in arguments.items():
            compiled.set_param(name, value)
        close(compiled.run({"x": x}), layered_by_hand(x, **arguments))
        if device != "reference":
            assert " transpose '" not in compiled.as_text("schedule")
            assert "hoist: " in compiled.as_text("fused")
            assert len(compiled.as_text("schedule").splitlines()) <= 3
        other = compiled.clone()
        arguments["s"] = 3 * arguments["s"]
        other.set_param("s", arguments["s"])
        close(compiled.run({"x": x}), layered_by_hand(x, **arguments))
        close(other.run_slots(x), layered_by_hand(x, **arguments))
        compiled.recover()
        close(compiled.run({"x": x}), layered_by_hand(x, **arguments))
        np.testing.assert_array_equal(compiled._state.read_param("w"), arguments["w"])


def test_hoisting_can_be_left_out(device):
    graph = layered()
    arguments = values(graph)
    x = arguments.pop("x")
    options = CompileOptions(hoist=False)
    with rlx.compile(graph, device, arguments, options) as compiled:
        close(compiled.run({"x": x}), layered_by_hand(x, **arguments))
        assert "hoist: " not in compiled.as_text("fused")


def test_prepared_graphs_come_back_from_the_caches(device, tmp_path, monkeypatch):
    monkeypatch.setenv("RLX_CACHE", str(tmp_path))
    rlx.clear_cache()
    arguments = values(layered())
    x = arguments.pop("x")
    for _ in range(2):
        for _ in range(2):
            with rlx.compile(layered(), device, arguments) as compiled:
                close(compiled.run({"x": x}), layered_by_hand(x, **arguments))
        from rlx.compiler import compile_cache

        compile_cache._kept.clear()  # what comes next is read from the folder


def test_sums_and_norms_take_over_the_memory_of_what_they_read(device):
    """Blocks on values that nobody reads again need no more memory than these values."""
    if device == "reference":
        device = "cpu"
    g = rlx.Graph()
    x = g.input("x", (16, 256))
    h, r = g.exp(x), g.layer_norm(x)
    for _ in range(5):
        total = h + r
        h, r = g.rms_norm(g.layer_norm(total)), total
    g.set_outputs([h * r])
    arguments, _, expected = fed(g)
    with rlx.compile(g, device) as compiled:
        close(compiled.run(arguments), expected)
        # The first sum is part of a chain; of the others each takes over two values.
        assert compiled.as_text("schedule").count("residual_norm") == 4
        assert compiled.memory()["arena"] == 4 * x.type.nbytes  # input, output, two values


@pytest.mark.webgpu
@pytest.mark.parametrize("shape", [(64, 64), (33, 1023), (5, 7), (1, 1)])
@pytest.mark.parametrize("steps", [2, 12])
def test_threads_of_several_vectors(webgpu, shape, steps, monkeypatch):
    """A large elementwise region gives a thread several vectors; here, a small one does."""
    from rlx.backends.webgpu import codegen, elementwise_wgsl
    from rlx.lru import Lru

    g = rlx.Graph()
    x, row = g.input("x", shape), g.input("row", shape[1:])
    column = g.input("column", (shape[0], 1))
    y = x * row + column
    for _ in range(steps):
        y = g.tanh(y) + x
    g.set_outputs([y])
    arguments = values(g)
    with rlx.compile(g, webgpu) as compiled:
        expected = compiled.run(arguments)[0].copy()
    monkeypatch.setattr(elementwise_wgsl, "_MANY", 0)
    monkeypatch.setattr(codegen, "_sources", Lru(8))  # texts with the other number
    result, write = list[int](), elementwise_wgsl._vectors
    monkeypatch.setattr(elementwise_wgsl, "_vectors", lambda *a: result.append(a[-1]) or write(*a))
    with rlx.compile(g, webgpu) as compiled:
        assert np.array_equal(compiled.run(arguments)[0], expected)
    assert max(result) == (4 if steps == 2 else 2)

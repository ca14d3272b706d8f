"""Weights of the CPU that are equal in several graphs are kept once, and stay apart when one of them changes."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import rlx
from rlx.backends.cpu import weights
from rlx.backends.cpu.layouts import Panels

RNG = np.random.default_rng(0)
# 256 KB each: as it is, and packed.
W = RNG.normal(size=(256, 256)).astype(np.float32)
V = RNG.normal(size=(256, 256)).astype(np.float32)


def product(rows, *, given=True):
    g = rlx.Graph()
    x, w, v = g.input("x", (rows, 256)), g.param("w", W.shape), g.param("v", V.shape)
    g.set_outputs([g.relu(x @ w) @ v])
    return rlx.compile(g, "cpu", {"w": W, "v": V} if given else {})


def expected(x, w, v=V):
    return np.maximum(x @ w, 0) @ v


def blocks():
    gc.collect()
    return {id(block) for block in weights._BLOCKS.values()}


def test_graphs_for_several_shapes_keep_weights_once():
    before = blocks()
    compiled = [product(rows) for rows in (1, 3, 20)]
    assert len(blocks() - before) == 2
    for rows, item in zip((1, 3, 20), compiled, strict=True):
        x = RNG.normal(size=(rows, 256)).astype(np.float32)
        np.testing.assert_allclose(item.run({"x": x})[0], expected(x, W), 1e-3, 1e-2)
        np.testing.assert_array_equal(item._state.read_param("w"), W)
    del compiled, item
    assert not blocks() - before


def test_many_weights_that_were_widened_are_kept_once():
    """Two bytes of each number are 0, in all of them."""
    wide = [RNG.normal(size=(256, 256)).astype(np.float16).astype(np.float32) for _ in range(3)]
    before, compiled = blocks(), []
    for rows in (2, 9):
        g = rlx.Graph()
        x = g.input("x", (rows, 256))
        for index, w in enumerate(wide):
            x = x @ g.param(f"w{index}", w.shape, value=w)
        g.set_outputs([x])
        compiled.append(rlx.compile(g, "cpu"))
    assert len(blocks() - before) == 3
    del compiled


def sized():
    """Products of rows behind attention, which has a kernel for few of them and another for many; and a vector."""
    g = rlx.Graph()
    x = g.input("x", (1, rlx.Dim("rows", min=1, max=64), 256))
    y = g.attention(x, x, x, num_heads=1)
    g.set_outputs([y @ g.param("w", W.shape) @ g.param("v", V.shape) + g.param("b", (1, 256))])
    return rlx.compile(g, "cpu")


def test_programs_of_a_graph_pack_a_weight_once(monkeypatch):
    packed, pack = [], Panels.pack
    monkeypatch.setattr(Panels, "pack", lambda *args: packed.append(1) or pack(*args))
    plain = np.zeros((1, 256), np.float32)
    seen = plain.view()
    seen.flags.writeable = False
    with sized() as cg:
        for times in (1, 2, 3):
            plain[:] = times
            cg.set_params({"w": W * times, "v": V, "b": seen})
            plain[:] = 0  # the graph has a copy
            for rows in (2, 40):
                x = RNG.normal(size=(1, rows, 256)).astype(np.float32)
                weights = np.exp(x[0] @ x[0].T / 16)
                y = weights / weights.sum(1, keepdims=True) @ x[0]
                wanted = y @ (W * times) @ V + times
                np.testing.assert_allclose(cg.run({"x": x})[0][0], wanted, 1e-3, 0.1)
        assert len(cg._state.executable._ranges) == 2
    assert len(packed) == 2 * 3


def test_a_weight_that_is_set_moves_away_from_the_others():
    first, other = product(4), product(8)
    clone = first.clone()
    first.set_active_extent((2, 4))
    x = RNG.normal(size=(8, 256)).astype(np.float32)
    first.set_param("w", W * 2)
    first.set_active_extent(None)
    np.testing.assert_allclose(first.run({"x": x[:4]})[0], expected(x[:4], W * 2), 1e-3, 2e-2)
    np.testing.assert_allclose(clone.run({"x": x[:4]})[0], expected(x[:4], W * 2), 1e-3, 2e-2)
    np.testing.assert_allclose(other.run({"x": x})[0], expected(x, W), 1e-3, 1e-2)
    # Set again it stays where it is, and the first graph's change has not reached a third one.
    first.set_param("w", W * 3)
    np.testing.assert_allclose(first.run({"x": x[:4]})[0], expected(x[:4], W * 3), 1e-3, 3e-2)
    third = product(8)
    np.testing.assert_allclose(third.run({"x": x})[0], expected(x, W), 1e-3, 1e-2)


def test_what_is_offered_and_then_changed_is_not_taken():
    first = product(4)
    first.set_param("v", V + 1)
    other = product(4)
    x = RNG.normal(size=(4, 256)).astype(np.float32)
    np.testing.assert_allclose(other.run({"x": x})[0], expected(x, W), 1e-3, 1e-2)
    np.testing.assert_allclose(first.run({"x": x})[0], expected(x, W, V + 1), 1e-3, 1e-1)


def test_nearly_equal_weights_are_not_shared():
    other = W.copy()
    other[3, 5] += 1
    g = rlx.Graph()
    x, w = g.input("x", (4, 256)), g.param("w", W.shape)
    g.set_outputs([x @ w])
    first, two = (rlx.compile(g, "cpu", {"w": values}) for values in (W, other))
    np.testing.assert_array_equal(first._state.read_param("w"), W)
    np.testing.assert_array_equal(two._state.read_param("w"), other)


def test_params_that_are_set_later_are_shared_too():
    before, first = blocks(), product(4)
    other = product(8, given=False)
    for name, values in (("w", W), ("v", V)):
        other.set_param(name, values)
    assert len(blocks() - before) == 2
    x = RNG.normal(size=(8, 256)).astype(np.float32)
    np.testing.assert_allclose(other.run({"x": x})[0], expected(x, W), 1e-3, 1e-2)
    first.run({"x": x[:4]})


_STARTED, _GO_ON = threading.Event(), threading.Event()


def _waiting(x):
    _STARTED.set()
    assert _GO_ON.wait(30)
    return x


rlx.register_custom_op("waiting", shape=lambda x: x, numpy=_waiting)


def test_a_weight_is_set_while_a_clone_runs():
    """The run that is under way ends with the old weight; all later ones have the new one."""
    g = rlx.Graph()
    x, w = g.input("x", (4, 256)), g.param("w", W.shape)
    g.set_outputs([g.custom("waiting", [x @ w]) * 1.0 + x @ w])
    first, other = (rlx.compile(g, "cpu", {"w": W}) for _ in range(2))
    clone, values = first.clone(), np.ones((4, 256), np.float32)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: clone.run({"x": values})[0])
        assert _STARTED.wait(30)
        first.set_param("w", W + 1)
        _GO_ON.set()
        np.testing.assert_allclose(running.result(), 2 * (values @ W), 1e-3, 1e-2)
    for graph, weight in ((first, W + 1), (clone, W + 1), (other, W)):
        np.testing.assert_array_equal(graph._state.read_param("w"), weight)
        result = graph.run({"x": values})[0]
        np.testing.assert_allclose(result, 2 * (values @ weight), 1e-3, 1e-2)

"""Fusion by pattern and its gate; what depends on params alone is computed when they are set."""

import math
from dataclasses import replace

import numpy as np
import pytest

import rlx
from rlx.backends.base import CompileOptions
from rlx.cost.gate import IoFusionGate
from rlx.passes.patterns import PATTERNS

ANY = replace(IoFusionGate.webgpu(), min_gain_ns=-math.inf)
NEVER = replace(IoFusionGate.webgpu(), min_gain_ns=math.inf)


def product(g):
    y = g.input("x", (5, 7)) @ g.param("w", (7, 6)) + g.param("b", (6,))
    return [g.gelu(y)]


def product_without_activation(g):
    return [g.param("b", (6,)) + g.input("x", (2, 5, 7)) @ g.param("w", (7, 6))]


def products_in_a_row(g):
    y = g.input("x", (3, 7))
    for at in range(3):
        y = g.relu(y @ g.param(f"w{at}", (7, 7)) + g.param(f"b{at}", (7,)))
    return [y]


def attention(g):
    q, k, v = (g.input(name, (2, 3, 5, 8)) for name in "qkv")
    scores = q @ g.transpose(k, (0, 1, 3, 2)) * (1 / math.sqrt(8))
    return [g.softmax(scores + g.input("mask", (5, 5))) @ v]


def attention_of_a_scaled_query(g):
    q, k, v = (g.input(name, (1, 2, 4, 8)) for name in "qkv")
    return [g.softmax((q / 2.0) @ g.transpose(k, (0, 1, 3, 2)), -1) @ v]


def conv_bias(g):
    y = g.conv2d(g.input("x", (2, 3, 6, 6)), g.param("w", (4, 3, 3, 3)), padding=1)
    return [g.relu(y + g.param("b", (4, 1, 1)))]


def batch_norm(g):
    y = g.conv2d(g.input("x", (2, 3, 6, 6)), g.param("w", (4, 3, 3, 3)), g.param("b", (4,)))
    names = ("scale", "shift", "mean", "var")
    return [g.relu(g.batch_norm(y, *(g.param(name, (4,)) for name in names)))]


def batch_norm_1d(g):
    y = g.conv1d(g.input("x", (2, 3, 9)), g.param("w", (5, 3, 3)), stride=2)
    names = ("scale", "shift", "mean", "var")
    return [g.batch_norm(y, *(g.param(name, (5,)) for name in names))]


def turned(g):
    x, y = g.input("x", (2, 5, 7)), g.input("y", (2, 6, 7))
    return [g.exp(x @ g.transpose(y, (0, 2, 1)))]


def weights(g, n, *names):
    return {name: g.param(name, (n,)) for name in names}


def sum_normed(g):
    x, r = g.input("x", (5, 9)), g.input("r", (5, 9))
    return [g.tanh(g.layer_norm(x + r, **weights(g, 9, "weight", "bias")))]


def sum_normed_and_read(g):
    """Two blocks of a pre-norm transformer: each sum goes on as the next residual."""
    h = g.input("x", (2, 5, 7))
    r = g.input("r", (2, 5, 7))
    for at in range(2):
        h = r + h
        y = g.layer_norm(h, g.param(f"scale{at}", (7,)), g.param(f"shift{at}", (7,)) * 2.0)
        r = y @ g.param(f"w{at}", (7, 7))
    return [r + h]


def sum_normed_and_an_output(g):
    total = g.input("x", (4, 300)) + g.input("r", (4, 300))
    return [total, g.layer_norm(total, None, g.param("bias", (300,)), eps=1e-3)]


def sum_rms_normed(g):
    x, r = g.input("x", (1, 6)), g.input("r", (1, 6))
    return [g.rms_norm(x + r, **weights(g, 6, "weight"))]


def sum_rms_normed_and_read(g):
    h = g.input("x", (2, 3, 8)) + g.input("r", (2, 3, 8))
    return [g.rms_norm(h) * h]


def sum_normed_without_weights(g):
    x = g.input("x", (2, 4, 10))
    return [g.layer_norm(g.relu(x) @ g.param("w", (10, 10)) + x)]


# Each pattern by the name in the table, and how many nodes of which op are left.
CASES = {
    product: ("product, bias and activation", "fused_matmul_bias_act"),
    product_without_activation: ("product, bias and activation", "fused_matmul_bias_act"),
    products_in_a_row: ("product, bias and activation", "fused_matmul_bias_act"),
    attention: ("attention", "attention"),
    attention_of_a_scaled_query: ("attention", "attention"),
    conv_bias: ("convolution and bias", "conv2d"),
    batch_norm: ("convolution and batch norm", "conv2d"),
    batch_norm_1d: ("convolution and batch norm", "conv1d"),
    turned: ("product and transpose", "matmul"),
    sum_normed: ("residual and norm", "residual_norm"),
    sum_normed_and_read: ("residual and norm", "residual_norm"),
    sum_normed_and_an_output: ("residual and norm", "residual_norm"),
    sum_rms_normed: ("residual and norm", "residual_norm"),
    sum_rms_normed_and_read: ("residual and norm", "residual_norm"),
    sum_normed_without_weights: ("residual and norm", "residual_norm"),
}


def made(build):
    g = rlx.Graph(build.__name__)
    g.set_outputs(build(g))
    return g


def values(graph, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for node in graph.nodes:
        if node.op in ("input", "param"):
            found[node.name] = rng.normal(size=node.shape).astype(np.float32)
    if "var" in found:
        found["var"] = np.abs(found["var"]) + 0.5
    return found


def test_every_pattern_has_a_case():
    assert {name for name, _ in CASES.values()} == {pattern.name for pattern in PATTERNS}


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_pattern(build, device):
    graph, (name, op) = made(build), CASES[build]
    given = values(graph)
    params = {k: given.pop(k) for k in graph.param_names}
    with rlx.compile(graph, "reference", params, CompileOptions(fuse=False)) as exact:
        expected = exact.run(given)
    for gate, takes in ((None, True), (ANY, True), (NEVER, False)):
        with rlx.compile(graph, device, params, CompileOptions(io_gate=gate)) as compiled:
            for got, want in zip(compiled.run(given), expected, strict=True):
                np.testing.assert_allclose(got, want, 1e-4, 1e-4)
            if device == "reference":
                continue
            text = compiled.as_text("fused")
            assert f"fuse: {'took' if takes else 'refused'} {name}" in text, text
            assert " ns" in text
            assert (f" {op}" in compiled.as_text("schedule")) or not takes


@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_what_is_an_output_stays(build, device):
    """Every node that the pattern would swallow is declared an output."""
    graph = made(build)
    inner = [n for n in graph.nodes if n.op not in ("input", "param", "constant")]
    graph.set_outputs(inner)
    given = values(graph)
    params = {k: given.pop(k) for k in graph.param_names}
    with rlx.compile(graph, "reference", params, CompileOptions(fuse=False)) as exact:
        expected = exact.run(given)
    with rlx.compile(graph, device, params) as compiled:
        found = compiled.run(given)
    assert len(found) == len(inner)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


@pytest.mark.parametrize("reads", [1, 2])
def test_a_sum_that_joins_a_chain_stays_in_it(reads, device):
    """One pass makes the chain with its sum; with the norm instead there would be no kernel less."""
    if device == "reference":
        device = "cpu"
    g = rlx.Graph()
    x, r = g.input("x", (4, 8)), g.input("r", (4, 8))
    total = g.gelu(x) * 0.5 + r
    normed = g.layer_norm(total)
    g.set_outputs([normed, total][:reads])
    given = values(g)
    with rlx.compile(g, "reference", options=CompileOptions(fuse=False)) as exact:
        expected = exact.run(given)
    with rlx.compile(g, device) as compiled:
        close(compiled.run(given), expected)
        assert "residual_norm" not in compiled.as_text("schedule")
        assert compiled.as_text("schedule").count(" = ") == 2


def test_the_kernels_of_a_pre_norm_block(device):
    """Two kernels a block, and one for the last sum, which nothing normalises."""
    if device == "reference":
        device = "cpu"
    graph = made(sum_normed_and_read)
    given = values(graph)
    params = {k: given.pop(k) for k in graph.param_names}
    with rlx.compile(graph, device, params) as compiled:
        text = compiled.as_text("schedule")
    assert text.count("residual_norm") == text.count("= matmul") == 2, text
    assert text.count(" = ") == 5, text


def test_elementwise_chains_are_gated(device):
    if device == "reference":
        device = "cpu"
    g = rlx.Graph()
    x = g.input("x", (64, 64))
    g.set_outputs([g.tanh(x * 2.0) + x])
    counts = {}
    for gate in (None, NEVER):
        with rlx.compile(g, device, options=CompileOptions(io_gate=gate)) as compiled:
            counts[gate] = compiled.as_text("schedule").count(" = ")
            assert "fuse: " + ("took" if gate is None else "refused") in compiled.as_text("fused")
    assert counts[None] == 1
    assert counts[NEVER] == 3


# --- hoisting --------------------------------------------------------------------------------------------


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


def close(found, want):
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(got, expected, 1e-4, 1e-4)


def test_params_are_prepared_when_they_are_set(device):
    graph = layered()
    given = values(graph)
    x = given.pop("x")
    with rlx.compile(graph, device) as compiled:
        with pytest.raises(rlx.InputError, match="never set"):
            compiled.run({"x": x})
        for name, value in given.items():
            compiled.set_param(name, value)
        close(compiled.run({"x": x}), layered_by_hand(x, **given))
        if device != "reference":
            assert compiled.as_text("schedule").count("transpose") == 0
            assert "hoist: " in compiled.as_text("fused")
            assert len(compiled.as_text("schedule").splitlines()) <= 3
        other = compiled.clone()
        given["s"] = 3 * given["s"]
        other.set_param("s", given["s"])
        close(compiled.run({"x": x}), layered_by_hand(x, **given))
        close(other.run_slots(x), layered_by_hand(x, **given))
        compiled.recover()
        close(compiled.run({"x": x}), layered_by_hand(x, **given))
        np.testing.assert_array_equal(compiled._executable.read_param("w"), given["w"])


def test_hoisting_can_be_left_out(device):
    graph = layered()
    given = values(graph)
    x = given.pop("x")
    options = CompileOptions(hoist=False)
    with rlx.compile(graph, device, given, options) as compiled:
        close(compiled.run({"x": x}), layered_by_hand(x, **given))
        assert "hoist: " not in compiled.as_text("fused")


def test_prepared_graphs_come_back_from_the_caches(device, tmp_path, monkeypatch):
    monkeypatch.setenv("RLX_CACHE", str(tmp_path))
    rlx.clear_cache()
    given = values(layered())
    x = given.pop("x")
    for _ in range(2):
        for _ in range(2):
            with rlx.compile(layered(), device, given) as compiled:
                close(compiled.run({"x": x}), layered_by_hand(x, **given))
        from rlx.runtime import memo

        memo._kept.clear()  # what comes next is read from the folder


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
    given = values(g)
    with rlx.compile(g, "reference", options=CompileOptions(fuse=False)) as exact:
        expected = exact.run(given)
    with rlx.compile(g, device) as compiled:
        close(compiled.run(given), expected)
        # The first sum is part of a chain; of the others each takes over two values.
        assert compiled.as_text("schedule").count("residual_norm") == 4
        assert compiled.memory()["arena"] == 4 * x.type.nbytes  # input, output, two values

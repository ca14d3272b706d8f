"""The cost of compiling: it grows with the number of nodes, and passes that change nothing copy nothing."""

import sys

import numpy as np
import pytest

import rlx
from rlx.passes.pipeline import PIPELINE, run_pipeline


def layers(count):
    """A graph of so many layers: products, norms, activations and residuals, each with weights of its own."""
    g = rlx.Graph("layers")
    x = y = g.input("x", (8, 16))
    for index in range(count):
        w = g.constant(np.eye(16, dtype=np.float32) * (index + 1))
        y = g.gelu(g.matmul(y, w) + x)
        y = g.softmax(g.transpose(g.transpose(y, (1, 0)), (1, 0)), axis=-1)
        y = g.mul(y, g.sigmoid(y + index)) + g.mean(y, axes=-1, keepdims=True)
        y = g.layer_norm(
            y, g.constant(np.ones(16, np.float32)), g.constant(np.zeros(16, np.float32))
        )
    g.set_outputs([y])
    return g


def lines_of(work):
    """Lines of Python that a call runs: unlike its time the same on every machine."""
    count = 0

    def line(frame, event, arg):
        nonlocal count
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: line)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "device", ["cpu", "null", pytest.param("webgpu", marks=pytest.mark.webgpu)]
)
def test_it_grows_with_the_number_of_nodes(device, monkeypatch, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    monkeypatch.setenv("RLX_CACHE", "off")

    def compiled(count):
        graph = layers(count)
        return len(graph.nodes), lines_of(lambda: rlx.compile(graph, device).close())

    compiled(4)  # what is imported and kept at first use
    (few, cheap), (many, dear) = compiled(25), compiled(100)
    assert np.log(dear / cheap) / np.log(many / few) < 1.1


def test_passes_that_change_nothing_give_back_their_graph():
    g = rlx.Graph()
    x = g.input("x", (3, 4))
    g.set_outputs([g.softmax(g.matmul(x, g.param("w", (4, 4))))])
    notes = []
    for step in PIPELINE:
        if not step.specialise:
            assert step.run(g, notes) is g, step.name
    assert not notes


def test_the_callers_graph_is_never_the_one_that_is_compiled():
    g = rlx.Graph()
    x = g.input("x", (4,))
    g.set_outputs([g.softmax(x)])
    result, _ = run_pipeline(g, lambda option: True, "cpu")
    assert result is not g
    assert not {id(node) for node in g.nodes} & {id(node) for node in result.nodes}
    compiled = rlx.compile(g, "cpu")
    g.set_outputs([g.exp(x), g.sqrt(x)])
    with compiled, compiled.clone() as twin:
        for item in (compiled, twin):
            (output,) = item.run({"x": np.zeros(4, np.float32)})
            np.testing.assert_allclose(output, 0.25)

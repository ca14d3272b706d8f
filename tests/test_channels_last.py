"""Channels as the last axis, on the CPU: operations between convolutions take that form, and give the same results."""

import numpy as np
import pytest
from samples import looped

import rlx

# What stands between two convolutions, and the copies that it takes; the first turns the input, the last the result.
BETWEEN = {
    "max_pool": (lambda g, y: g.max_pool(y, 3, stride=2, padding=1), 2),
    "avg_pool": (lambda g, y: g.avg_pool(y, (2, 3), padding=(0, 1)), 2),
    "concat": (lambda g, y: g.concat([y, g.relu(y)], axis=1), 4),
    "joined": (lambda g, y: g.concat([_more(g, y, 9), y, g.silu(_more(g, y, 20))], axis=1), 3),
    "narrow": (lambda g, y: g.narrow(y, 1, 3, 8), 3),
    "slice": (lambda g, y: g.slice(y, (1, 2), (9, 7), axes=(2, 1)), 3),
    "pad": (lambda g, y: g.pad(y, ((0, 0), (1, 0), (2, 3), (0, 1))), 2),
    "reflect": (lambda g, y: g.pad(y, ((0, 0), (0, 0), (2, 3), (1, 1)), mode="reflect"), 2),
    "linear": (lambda g, y: g.resize(y, (*y.shape[:2], 17, 20), mode="linear"), 2),
    "nearest": (lambda g, y: g.resize(y, (*y.shape[:2], 20, 24), mode="nearest"), 2),
    "softmax": (lambda g, y: g.softmax(y, axis=1), 2),
    "mean": (lambda g, y: y * g.sigmoid(g.mean(y, (2, 3), keepdims=True)), 2),
    "row": (lambda g, y: y + g.constant(np.arange(11, dtype=np.float32)), 2),
    "plane": (lambda g, y: y * g.constant(np.arange(110, dtype=np.float32).reshape(10, 11)), 2),
    "shuffle": (lambda g, y: _shuffled(g, y), 3),
    "tokens": (lambda g, y: _normed(g, y), 2),
    "depthwise": (lambda g, y: g.conv2d(y, _weight(g, 12, 1), padding=1, groups=12), 2),
    "last": (lambda g, y: g.transpose(g.exp(g.transpose(y, (0, 2, 3, 1))), (0, 3, 1, 2)), 2),
}


def _more(g, y, outputs):
    return g.conv2d(y, _weight(g, outputs, 12), padding=1)


def _shuffled(g, y):
    return g.reshape(g.transpose(g.reshape(y, (2, 4, 3, 10, 11)), (0, 2, 1, 3, 4)), y.shape)


def _normed(g, y):
    tokens = g.layer_norm(g.transpose(g.reshape(y, (2, 12, 110)), (0, 2, 1)))
    return g.reshape(g.transpose(tokens, (0, 2, 1)), y.shape)


def _weight(g, outputs, channels):
    rng = np.random.default_rng(outputs + channels)
    return g.constant((0.1 * rng.normal(size=(outputs, channels, 3, 3))).astype(np.float32))


def _graph(between, shape):
    g = rlx.Graph()
    y = between(g, g.conv2d(g.input("x", shape), _weight(g, 12, 5), padding=1))
    g.set_outputs([g.relu(g.conv2d(y, _weight(g, 9, y.shape[1])))])
    return g


@looped("name", BETWEEN)
@pytest.mark.parametrize("dims", [False, True])
def test_operations_between_convolutions(name, dims):
    between, copies = BETWEEN[name]
    shape = (rlx.Dim("n"), 5, 10, 11) if dims else (2, 5, 10, 11)
    x = np.random.default_rng(0).normal(size=(2, 5, 10, 11)).astype(np.float32)
    if dims and name in ("shuffle", "tokens"):
        return
    with rlx.compile(_graph(between, (2, 5, 10, 11)), "reference") as exact:
        expected = exact.run({"x": x})[0]
    with rlx.compile(_graph(between, shape), "cpu") as compiled:
        np.testing.assert_allclose(compiled.run({"x": x})[0], expected, 1e-4, 1e-5)
        if not dims:
            assert compiled.as_text("schedule").count("= strided_copy(") <= copies


def test_a_value_that_is_read_in_both_forms():
    g = rlx.Graph()
    y = g.conv2d(g.input("x", (2, 5, 10, 11)), _weight(g, 12, 5))
    g.set_outputs([y, g.reshape(y, (2, -1)), g.conv2d(y, _weight(g, 9, 12)), g.max(y, (2, 3))])
    x = np.random.default_rng(0).normal(size=(2, 5, 10, 11)).astype(np.float32)
    with rlx.compile(g, "cpu") as compiled, rlx.compile(g, "reference") as exact:
        for got, wanted in zip(compiled.run({"x": x}), exact.run({"x": x}), strict=True):
            np.testing.assert_allclose(got, wanted, 1e-4, 1e-5)

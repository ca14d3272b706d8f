"""The smoke test: one graph, every stage, in a second."""

import numpy as np

import rlx


def mlp():
    g = rlx.Graph("mlp")
    x, w, b = g.input("x", (2, 4)), g.param("w", (4, 3)), g.param("b", (3,))
    g.set_outputs([g.gelu(x @ w + b)])
    return g


WEIGHT = np.vstack([np.eye(3), np.zeros((1, 3))]).astype(np.float32)
BIAS = np.float32([0.5, -0.5, 0.0])
X = np.float32([[1, 0, 0, 0], [0, 1, 0, 0]])
# Known answer (e) of the specification.
EXPECTED = [[1.399, -0.154, 0.0], [0.346, 0.346, 0.0]]


def test_mlp(device):
    with rlx.compile(mlp(), device, params={"w": WEIGHT, "b": BIAS}) as compiled:
        (y,) = compiled.run_slots(X)
        np.testing.assert_allclose(y, EXPECTED, atol=1e-3)
        np.testing.assert_allclose(compiled.run({"x": X})[0], EXPECTED, atol=1e-3)
        compiled.input_views[0][...] = X
        assert rlx.run_slots(compiled)[0] is y

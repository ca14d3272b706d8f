"""The graphs whose calls tests/test_state_machine.py makes up, and the model that says what they hold."""

import numpy as np

import rlx

ROWS, WIDTH = 3, 8
KINDS = ("plain", "hosted", "custom")
# Functions that the custom operation "meddles" calls before it returns: each call takes one out.
ACTIONS = []


def _meddle(x):
    if ACTIONS:
        ACTIONS.pop()()
    return x


rlx.register_custom_op("meddles", shape=lambda x: x, numpy=_meddle)


def matrix(seed, rows=ROWS):
    return np.random.default_rng(seed).integers(-4, 5, (rows, WIDTH)).astype(np.float32)


def graph(kind):
    """y = x @ w + s and t = x - s."""
    g = rlx.Graph(kind)
    x, s, w = (
        g.input("x", (ROWS, WIDTH)),
        g.input("s", (ROWS, WIDTH)),
        g.param("w", (WIDTH, WIDTH)),
    )
    y = x @ w
    if kind == "hosted":  # on a GPU, f64 is computed on the host between two submissions
        y = g.cast(g.cast(y, "f64") * 1.0, "f32")
    if kind == "custom":
        y = g.custom("meddles", [y])
    g.set_outputs([y + s, x - s])
    return g


class CloneFamily:
    """Graphs that share their params: a compiled graph, and its clones."""

    def __init__(self, device, kind, weight):
        self.device, self.kind, self.weight = device, kind, weight


class Live:
    """A compiled graph and what it should hold."""

    def __init__(self, cg, family):
        self.cg, self.family = cg, family
        # Clones share the params until one of them recovers.
        self.state = None  # the value of a handle on s
        self.bound = None  # what it was last bound to
        self.fed = False
        self.taken = cg.run_slots

    def outputs(self, x, s):
        return x @ self.family.weight + s, x - s

    def check(self, result, x, s):
        for item, want in zip(result, self.outputs(x, s), strict=True):
            assert np.array_equal(item, want), (self.family.device, self.family.kind, item, want)
        if self.fed:
            self.state = x - s

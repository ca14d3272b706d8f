"""Nodes of params alone in a branch are computed when they are set, not in every run."""

import numpy as np
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.passes.branch_hoist import lift


def branch(weights, op, n=4, nested=None):
    """A subgraph of x and w: x @ f(w), by an op on the weights."""
    g = rlx.Graph(op)
    x, w = g.input("x", (3, n)), g.input("w", weights)
    y = x @ g.transpose(w, (1, 0))
    if op == "tanh":
        y = y + g.tanh(g.sum(w, 1))
    if nested is not None:
        y2 = g.if_(g.gt(g.sum(x), 0.0), nested, branch(weights, "plain", n), x, w)
        y = y + y2
    g.set_outputs([y])
    return g


def model(nested=False):
    g = rlx.Graph("model")
    x, w = g.input("x", (3, 4)), g.param("w", (5, 4))
    inner = branch((5, 4), "tanh") if nested else None
    sides = branch((5, 4), "tanh", nested=inner), branch((5, 4), "plain")
    y = g.if_(g.gt(g.mean(x), 0.1), *sides, x, w)
    g.set_outputs([y])
    return g


def by_hand(x, w, nested):
    def tanh():
        return x @ w.T + np.tanh(w.sum(1))

    if x.mean() <= 0.1:
        return x @ w.T
    return tanh() + ((tanh() if x.sum() > 0 else x @ w.T) if nested else 0)


@looped("nested", [False, True])
def test_branches_read_what_was_prepared(nested, device, rng):
    weights = [rng.normal(size=(5, 4)).astype(np.float32) for _ in range(2)]
    with rlx.compile(model(nested), device, {"w": weights[0]}) as compiled:
        for w in weights:
            compiled.set_param("w", w)
            for shift in (-1.0, 0.5):
                x = rng.normal(shift, 0.1, (3, 4)).astype(np.float32)
                (got,) = compiled.run({"x": x})
                np.testing.assert_allclose(got, by_hand(x, w, nested), 1e-4, 1e-5)
        if device != "reference":
            assert "lift: " in compiled.as_text("fused")
            assert "tanh" not in compiled.as_text("schedule")


def test_nothing_is_lifted_without_hoisting(rng):
    w = rng.normal(size=(5, 4)).astype(np.float32)
    x = rng.normal(0.5, 0.1, (3, 4)).astype(np.float32)
    options = CompileOptions(hoist=False)
    with rlx.compile(model(), "cpu", {"w": w}, options) as compiled:
        assert "lift: " not in compiled.as_text("fused")
        np.testing.assert_allclose(compiled.run({"x": x})[0], by_hand(x, w, False), 1e-4, 1e-5)


def test_what_varies_stays():
    g = rlx.Graph("varies")
    x, w = g.input("x", (3, 4)), g.input("w", (5, 4))
    sides = branch((5, 4), "tanh"), branch((5, 4), "plain")
    g.set_outputs([g.if_(g.gt(g.mean(x), 0.1), *sides, x, w)])
    notes = []
    lifted = lift(g, notes)
    assert not notes
    lifted.verify()
    plain = rlx.Graph()
    plain.set_outputs([plain.input("x", (2,)) + 1.0])
    assert lift(plain, notes) is plain


def test_what_may_fail_stays_in_its_branch(rng):
    """A branch that is never taken may ask for a row that is not there."""
    taken, never = rlx.Graph("taken"), rlx.Graph("never")
    for g, row in ((taken, 1), (never, 7)):
        g.input("x", (4,))
        w = g.input("w", (5, 4))
        g.set_outputs([g.gather(w, g.constant(np.int32(row))) * 2.0])
    g = rlx.Graph()
    x = g.input("x", (4,))
    g.set_outputs([g.if_(g.lt(g.sum(x), 1e9), taken, never, x, g.param("w", (5, 4)))])
    w = rng.normal(size=(5, 4)).astype(np.float32)
    with rlx.compile(g, "cpu", {"w": w}) as compiled:
        np.testing.assert_array_equal(compiled.run({"x": w[0]})[0], w[1] * 2)

"""Large values of a graph that computes sizes stay on the GPU between its segments."""

import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.webgpu
N = rlx.Dim("n", max=2000)
WIDE = 256  # columns: 64 rows are 64 KiB


def products(g):
    """Whole numbers that the host does not compute: a product by a param."""
    return g.input("x", (N, WIDE)) @ g.param("w", (WIDE, WIDE))


def numbers(rng, *shape):
    return rng.integers(-3, 4, shape).astype(np.float32)


@pytest.fixture
def w(rng):
    return numbers(rng, WIDE, WIDE)


def counts_of(n):
    """Rows of different numbers, most first: the hints of dims come from the first."""
    return (n, 40, 1, 0, n + 1, 3, n)


def moved(cg):
    return np.array(cg._state.executable.moved())


def test_chosen_rows_of_a_large_value(webgpu, rng, w):
    g = rlx.Graph()
    y = products(g)
    g.set_outputs([y[y[:, 0] > 0.0]])
    with rlx.compile(g, webgpu, params={"w": w}) as cg:
        for n in counts_of(1000):
            x, before = numbers(rng, n, WIDE), moved(cg)
            y = x @ w
            wanted = y[y[:, 0] > 0]
            np.testing.assert_array_equal(cg.run({"x": x})[0], wanted)
            uploaded, read_back, copied = moved(cg) - before
            assert copied == y.nbytes
            assert uploaded < x.nbytes + 9 * n + 4096
            assert read_back < wanted.nbytes + 9 * n + 4096


def test_a_value_that_the_caller_takes_as_well(webgpu, rng, w):
    g = rlx.Graph()
    y = products(g)
    g.set_outputs([y, g.sum(y[y[:, 0] > 0.0], [0])])
    with rlx.compile(g, webgpu, params={"w": w}) as cg:
        for n in counts_of(300):
            x = numbers(rng, n, WIDE)
            y = x @ w
            whole, total = cg.run({"x": x})
            np.testing.assert_array_equal(whole, y)
            np.testing.assert_array_equal(total, y[y[:, 0] > 0].sum(0))


def test_the_beginning_of_a_large_value(webgpu, rng, w):
    """Its length is computed, and so is one of its own beginning."""
    g = rlx.Graph()
    y = products(g)
    count = g.read_size(g.nonzero_count(g.maximum(y[:, 0], 0.0)), max=2000)
    first = g.narrow(y, 0, 0, count)
    fewer = g.read_size(g.nonzero_count(g.maximum(first[:, 1], 0.0)), max=2000)
    g.set_outputs([g.sum(first, [0]), g.abs(g.narrow(first, 0, 0, fewer))])
    with rlx.compile(g, webgpu, params={"w": w}) as cg:
        for n in counts_of(500):
            x = numbers(rng, n, WIDE)
            first = (x @ w)[: int(((x @ w)[:, 0] > 0).sum())]
            wanted = np.abs(first[: int((first[:, 1] > 0).sum())])
            total, shown = cg.run({"x": x})
            np.testing.assert_array_equal(total, first.sum(0))
            np.testing.assert_array_equal(shown, wanted)


def test_recorded_runs_clones_and_slots(webgpu, rng, w):
    g = rlx.Graph()
    y = products(g)
    g.set_outputs([y[y[:, 0] > 0.0]])
    x = numbers(rng, 300, WIDE)
    wanted = (x @ w)[(x @ w)[:, 0] > 0]
    with rlx.compile(g, webgpu, params={"w": w}) as cg:
        assert cg.profile({"x": x}).rows
        with cg.clone() as other:
            np.testing.assert_array_equal(other.run({"x": x})[0], wanted)
        np.testing.assert_array_equal(cg.run_slots(x)[0], wanted)
        np.testing.assert_array_equal(cg.run({"x": x[:1]})[0], (x[:1] @ w)[(x[:1] @ w)[:, 0] > 0])


def test_a_state_beside_a_large_value(webgpu, rng, w):
    g = rlx.Graph()
    y = products(g)
    rows = g.input("rows", (2000, WIDE))
    chosen = y[y[:, 0] > 0.0]
    written = g.update(rows, chosen, g.constant(np.int64(0)))
    g.set_outputs([g.sum(written, [0])])
    with rlx.compile(g, webgpu, params={"w": w}) as cg:
        cg.bind_handle("rows", np.zeros((2000, WIDE)))
        held = np.zeros((2000, WIDE), np.float32)
        for n in counts_of(400):
            x = numbers(rng, n, WIDE)
            chosen = (x @ w)[(x @ w)[:, 0] > 0]
            held[: len(chosen)] = chosen
            np.testing.assert_array_equal(cg.run({"x": x})[0], held.sum(0))

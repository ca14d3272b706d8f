"""Random graphs of operations whose results are as many as the data say, beside NumPy.

Numbers stay small and whole, so that all decisions and results are exact.
"""

import numpy as np
import pytest
from samples import ALL

import rlx

SEEDS = range(500) if ALL else range(36)
WIDTH = 3


def small(g, x):
    """Whole numbers from -3 to 3."""
    return g.mod(x, 7.0) - 3.0


def row_sums(g, x):
    return g.sum(x, [1])


def first_of(x):
    return np.round(np.abs(x[:, 0])).astype(np.int64)


def counts_of(g, x):
    return g.cast(g.abs(g.reshape(x[:, 0:1], (x.shape[0],))), "i64")


def unique_rows(g, x):
    values = g.unique(counts_of(g, x), sorted=False)[0]
    return g.expand(g.cast(g.unsqueeze(values, 1), "f32"), (values.shape[0], WIDTH))


def np_unique_rows(x):
    values, first = np.unique(first_of(x), return_index=True)
    return np.repeat(values[np.argsort(first)][:, None], WIDTH, 1)


def top_rows(g, x):
    k = g.read_size(g.cast(g.nonzero_count(row_sums(g, x) > 0.0), "i64"), max=x.shape[0])
    return g.gather(x, g.topk(row_sums(g, x), k, 0)[1], 0)


def np_top_rows(x):
    sums = x.sum(1)
    return x[np.argsort(-sums, kind="stable")[: (sums > 0).sum()]]


def first_rows(g, x):
    k = g.minimum(g.sum(counts_of(g, x)), g.dim(x, 0))
    return g.narrow(x, 0, 0, g.read_size(k, max=x.shape[0]))


def picked(g, x):
    places = g.nonzero(x > 1.0)
    return g.gather(x, g.reshape(g.narrow(places, 1, 0, 1), (places.shape[0],)), 0)


def numbered(g, x):
    n = g.read_size(g.sum(counts_of(g, x)), max=2 * x.shape[0] + 100)
    return g.expand(g.cast(g.unsqueeze(g.arange(0, n, 1, "i64"), 1), "f32"), (n, WIDTH))


# A step on a graph, and on an array.
STEPS = (
    (lambda g, x, y: x[row_sums(g, x) > 0.0], lambda x, y: x[x.sum(1) > 0]),
    (lambda g, x, y: g.compress(x[:, 1] < 1.0, x, 0), lambda x, y: x[x[:, 1] < 1]),
    (lambda g, x, y: unique_rows(g, x), lambda x, y: np_unique_rows(x)),
    (lambda g, x, y: g.repeat_interleave(x, counts_of(g, x), 0), lambda x, y: np.repeat(x, first_of(x), 0)),
    (lambda g, x, y: top_rows(g, x), lambda x, y: np_top_rows(x)),
    (lambda g, x, y: first_rows(g, x), lambda x, y: x[: first_of(x).sum()]),
    (lambda g, x, y: picked(g, x), lambda x, y: x[np.argwhere(x > 1)[:, 0]]),
    (lambda g, x, y: numbered(g, x), lambda x, y: np.repeat(np.arange(first_of(x).sum())[:, None], WIDTH, 1)),
    (lambda g, x, y: g.concat([x, y], 0), lambda x, y: np.concatenate([x, y])),
    (lambda g, x, y: x + g.sum(y, [0], keepdims=True), lambda x, y: x + y.sum(0, keepdims=True)),
    (lambda g, x, y: g.cumsum(x, 0), lambda x, y: np.cumsum(x, 0)),
    (lambda g, x, y: x @ g.transpose(y) @ y, lambda x, y: x @ y.T @ y),
    (lambda g, x, y: g.flip(x, [0]) * x, lambda x, y: x[::-1] * x),
)  # fmt: skip


def chosen(seed):
    """The steps of a graph, with the numbers of their operands."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 9))
    return [
        (int(rng.integers(len(STEPS))), int(rng.integers(i + 2)), int(rng.integers(i + 2)))
        for i in range(count)
    ]


def built(seed):
    g = rlx.Graph(f"random {seed}")
    pool = [g.input("a", (rlx.Dim("n"), WIDTH)), g.input("b", (5, WIDTH))]
    for step, x, y in chosen(seed):
        pool.append(small(g, STEPS[step][0](g, pool[x], pool[y])))
    g.set_outputs([pool[-1], g.sum(pool[-2], [0]), g.dim(pool[-1], 0)])
    return g


def wanted(seed, a, b):
    pool = [a, b]
    for step, x, y in chosen(seed):
        pool.append(np.mod(STEPS[step][1](pool[x], pool[y]), 7) - 3)
    return pool[-1], pool[-2].sum(0), np.int64(len(pool[-1]))


def rows(rng, n):
    return rng.integers(-3, 4, (n, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
def test_as_numpy(seed, device):
    rng = np.random.default_rng(seed)
    with rlx.compile(built(seed), device) as cg:
        for n in (6, 0, 1, 17, int(rng.integers(2, 40))):
            a, b = rows(rng, n), rows(rng, 5)
            for got, right in zip(cg.run({"a": a, "b": b}), wanted(seed, a, b), strict=True):
                np.testing.assert_array_equal(got, right)

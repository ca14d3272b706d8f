"""Random graphs with one and two dims: one executable gives for each size what a graph of that size gives."""

import numpy as np
import pytest
from samples import ALL

import rlx

SEEDS, FEW = (range(200), 40) if ALL else (range(24), 5)
WIDTH = 6


# By the graph, rows, their count, some other rows and a drawn matrix: as many rows as the first has.
STEPS = (
    lambda g, x, n, y, w: g.tanh(x @ w),
    lambda g, x, n, y, w: g.softmax(x, axis=0),
    lambda g, x, n, y, w: g.softmax(x @ g.transpose(y, (1, 0)), axis=1) @ y,
    lambda g, x, n, y, w: x - g.mean(x, [0], keepdims=True),
    lambda g, x, n, y, w: g.layer_norm(x, g.constant(np.ones(WIDTH, np.float32)), None),
    lambda g, x, n, y, w: g.cumsum(x, 0) * 0.1,
    lambda g, x, n, y, w: g.concat([x, y], 0)[:n],
    lambda g, x, n, y, w: g.tanh(x) * g.sum(y, [0], keepdims=True) * 0.1,
    lambda g, x, n, y, w: g.reshape(g.transpose(g.reshape(x, (n, 2, 3)), (0, 2, 1)), (n, WIDTH)),
    lambda g, x, n, y, w: g.flip(x, [0]),
    lambda g, x, n, y, w: g.pad(x, [(1, 2), (0, 0)])[2 : n + 2],
    lambda g, x, n, y, w: g.where(x > 0.0, x, g.exp(g.minimum(x, 0.0)) - 1.0),
    lambda g, x, n, y, w: g.attention(x[None], y[None], y[None], num_heads=2)[0],
)


def grown(seed, n, m):
    """A graph over rows of ``n`` and of ``m``, which are numbers or dims; the steps depend on the seed alone."""
    rng, g = np.random.default_rng(seed), rlx.Graph(f"random {seed}")
    pool = [(g.input("a", (n, WIDTH)), n), (g.input("b", (m, WIDTH)), m)]
    for _ in range(int(rng.integers(4, 14))):
        (x, count), (y, _) = (pool[int(rng.integers(len(pool)))] for _ in range(2))
        w = g.constant(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 3)
        pool.append((STEPS[int(rng.integers(len(STEPS)))](g, x, count, y, w), count))
    first, second = pool[-1][0], pool[-2][0]
    g.set_outputs([first, g.max(second, [0]), g.reshape(first, (-1,)) * 2.0])
    return g


def sizes_of(seed, compiled):
    """Sizes that no step asks for, and those next to which a range of them ends."""
    rng = np.random.default_rng(seed + 1)
    few = [(5, 3), (1, 1), (2, 40), *zip(*rng.integers(1, 70, (2, 3)).tolist(), strict=True)]
    for program in getattr(compiled._state.executable, "_ranges", ())[:1]:
        served = [
            program.serves(*(size, 7)[: len(compiled._state.graph.dims)]) for size in range(130)
        ]
        ends = [size for size in range(2, 130) if served[size] != served[size - 1]]
        few += [(size + by, 7) for size in ends[:4] for by in (-1, 0)]
    return few


def check(seed, dims, device):
    second = 7 if dims == 1 else rlx.Dim("m")
    with rlx.compile(grown(seed, rlx.Dim("n"), second), device) as compiled:
        for n, m in sizes_of(seed, compiled):
            m = 7 if dims == 1 else m
            rng = np.random.default_rng(n)
            values = {
                name: rng.standard_normal((size, WIDTH)).astype(np.float32)
                for name, size in (("a", n), ("b", m))
            }
            with rlx.compile(grown(seed, n, m), "cpu") as static:
                expected = static.run(values)
            for result, wanted in zip(compiled.run(values), expected, strict=True):
                if device == "cpu":
                    np.testing.assert_array_equal(result, wanted, f"{n}, {m}")
                else:
                    np.testing.assert_allclose(result, wanted, 2e-5, 2e-5, err_msg=f"{n}, {m}")


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes_of_one_executable(seed):
    for dims, device in ((1, "reference"), (2, "reference"), (1, "cpu"), (2, "cpu")):
        check(seed, dims, device)


@pytest.mark.webgpu
@pytest.mark.parametrize("seed", SEEDS[:FEW])
def test_webgpu(seed, webgpu):
    check(seed, 1, webgpu)
    check(seed, 2, webgpu)

"""Products of few rows or few columns, and matrices whose rows are no whole vectors, in batches and on threads."""

import itertools

import numpy as np
import pytest
from joined import Joined
from samples import ALL, looped

import rlx

KINDS = {"f32": (np.float32, 2e-6), "f64": (np.float64, 1e-14)}


pytestmark = pytest.mark.usefixtures("isa")


def _made(a, b, fixed=False, threads=1):
    """a @ b on the CPU; b is a constant if ``fixed``, else an input."""
    graph = Joined()
    if fixed:
        graph.add(lambda g, a: g.matmul(a, g.constant(b)), a)
    else:
        graph.add(lambda g, a, b: g.matmul(a, b), a, b)
    return graph.results(threads=threads)[0][0]


@looped("dtype", ["f32", "f64"])
@looped("fixed", [False, True])
@looped("n", [1, 2, 9, 17, 33, 65, 77, 129])
def test_any_sizes(n, fixed, dtype):
    kind, near = KINDS[dtype]
    graph, checks = Joined(), []
    for m, k in itertools.product((1, 2, 3, 7, 13, 70), (0, 1, 7, 16, 33, 100, 600)):
        rng = np.random.default_rng(n * m + k)
        a, b, bias = (rng.normal(size=s).astype(kind) for s in ((m, k), (k, n), n))
        expected = a.astype(np.float64) @ b.astype(np.float64) + bias
        acts = {"none": expected, "relu": np.maximum(expected, 0)}
        # Normally each size of either axis meets both ways.
        for act in acts if ALL else [("none", "relu")[(m + k) % 2]]:

            def build(g, a, *given, b=b, bias=bias, act=act):
                result = g.matmul(a, *(given or [g.constant(b)])) + g.constant(bias)
                return result if act == "none" else g.activation(act, result)

            graph.add(build, a, *([] if fixed else [b]))
            checks.append((acts[act], near * np.sqrt(k + 1) * 4, f"{m} x {k}, {act}"))
    for (got,), (expected, limit, said) in zip(graph.results(threads=1), checks, strict=True):
        np.testing.assert_allclose(got, expected, limit, limit, err_msg=said)


@looped(("left", "right"), [
    ((3, 1, 5, 40), (2, 40, 1)), ((4, 5, 40), (4, 40, 1)), ((2, 3, 7, 20), (1, 3, 20, 17)), ((5, 1, 40), (5, 40, 1)),
    ((5, 2, 40), (5, 40, 33)), ((40,), (40,)), ((6, 40), (40,)), ((3, 6, 40), (3, 40, 49)),
])  # fmt: skip
def test_batches(left, right):
    rng = np.random.default_rng(len(left))
    a, b = (rng.normal(size=s).astype(np.float32) for s in (left, right))
    # Vectors reach beyond rows: into rows of the next matrix, which must not matter.
    if len(right) > 2:
        b[-1] = np.inf
    with np.errstate(invalid="ignore"):
        expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(_made(a, b), expected, 1e-5, 1e-5)


@looped("fixed", [False, True])
@looped(
    ("m", "k", "n"),
    [(1024, 1000, 1), (700, 300, 17), (3, 700, 2049), (2, 2000, 1000), (1025, 64, 129)],
)
def test_threads_give_the_same_bits(m, k, n, fixed):
    rng = np.random.default_rng(m)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n)))
    alone = _made(a, b, fixed=fixed)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(_made(a, b, fixed=fixed, threads=threads), alone)


@looped("m", [1, 3, 5])
def test_turned_matrices_without_elements(m):
    g = rlx.Graph()
    a, b = g.input("a", (m, 0)), g.input("b", (4, 0))
    g.set_outputs([a @ g.transpose(b)])
    with rlx.compile(g, "cpu") as cg:
        feeds = {"a": np.empty((m, 0), np.float32), "b": np.empty((4, 0), np.float32)}
        np.testing.assert_array_equal(cg.run(feeds)[0], np.zeros((m, 4)))


def test_columns_of_half_precision():
    # Weights that the kernel widens are packed, one column of them too.
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 70)).astype(np.float32), rng.normal(size=(70, 1)).astype(np.float16)
    g = rlx.Graph()
    g.set_outputs([g.matmul(g.input("a", a.shape), g.cast(g.constant(b), "f32"))])
    with rlx.compile(g, "cpu") as cg:
        np.testing.assert_allclose(cg.run({"a": a})[0], a @ b.astype(np.float32), 1e-5, 1e-5)

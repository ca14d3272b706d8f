"""Products that threads share in tiles: every result is made once, with the same bits, for any shape and number of parts."""

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import split


@pytest.fixture(autouse=True)
def all_are_split(monkeypatch):
    monkeypatch.setattr(split, "_WORTH", 1e-9)
    monkeypatch.setattr(split, "usable_cores", lambda: 64)


def same_bits(g, feeds, counts):
    """Checks that any number of threads gives what one gives."""
    with rlx.compile(g, "cpu", options=CompileOptions(threads=1)) as alone:
        expected = [array.tobytes() for array in alone.run(feeds)]
    for count in counts:
        with rlx.compile(g, "cpu", options=CompileOptions(threads=int(count))) as shared:
            assert [array.tobytes() for array in shared.run(feeds)] == expected


def sizes(rng, *limit):
    """Sizes on a logarithmic scale."""
    return [int(np.exp(rng.uniform(0, np.log(n)))) for n in limit]


@looped("dtype", ["f32", "f64", "i8"])
@looped("seed", range(12))
def test_products(seed, dtype):
    rng = np.random.default_rng([seed, len(dtype)])
    batch, m, k, n = sizes(rng, 20, 400, 90, 700)
    packed = seed % 2
    integers = dtype == "i8"
    kind = {"f32": np.float32, "f64": np.float64, "i8": np.int8}[dtype]
    shapes = (batch, m, k), (k, n) if seed % 3 else (batch, k, n)
    # Numbers whose sums depend on their order, for the types that round.
    draw = rng.integers if integers else rng.normal
    a, b = (draw(-9, 9, shape).astype(kind) for shape in shapes)
    g = rlx.Graph()
    x = g.input("x", a.shape, dtype)
    w = g.constant(b) if packed else g.input("w", b.shape, dtype)
    g.set_outputs([g.matmul_integer(x, w) if integers else x @ w])
    same_bits(g, {"x": a} | ({} if packed else {"w": b}), [2, *rng.integers(3, 24, 2)])


@looped("dtype", ["f32", "f64"])
@looped("seed", range(16))
def test_convolutions(seed, dtype):
    rng, groups = np.random.default_rng([seed, len(dtype)]), (1, 1, 1, 2, 3)[seed % 5]
    batch, inputs, outputs, high, wide = sizes(rng, 9, 70, 90, 40, 60)
    taps = int(rng.choice([1, 3, 5]))
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    w = rng.normal(size=(outputs * groups, inputs, taps, taps)).astype(kind)
    x, g = rng.normal(size=(batch, inputs * groups, high, wide)).astype(kind), rlx.Graph()
    weight = g.constant(w) if seed % 2 else g.input("w", w.shape, dtype)
    result = g.conv2d(g.input("x", x.shape, dtype), weight, padding=taps // 2, groups=groups)
    g.set_outputs([result])
    same_bits(g, {"x": x} | ({} if seed % 2 else {"w": w}), [2, *rng.integers(3, 24, 2)])

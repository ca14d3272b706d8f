"""Pools, transposed convolutions and resizing on random shapes: every instruction set, with the same bits on any number of threads."""

import itertools

import numpy as np
import pytest
from joined import Joined

from rlx._ext import cpu
from rlx.backends.cpu import split

ISAS = [name for name in ("plain", "neon", "avx2", "avx512") if name in cpu.isas()]
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
BOUND = {"f32": 2e-6, "f64": 1e-12, "i32": 0.0}
# Rows of a few windows, around vectors, and longer than a strip of windows.
WIDTHS = (1, 2, 3, 5, 7, 10, 15, 16, 17, 20, 31, 33, 48, 65, 130, 600, 1100)


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    """Every call is shared by the threads that there are."""
    monkeypatch.setattr(split, "_WORTH", 1e-9)


def compare(samples, dtype):
    """Each sample beside the reference, on every instruction set; more threads give the same bits.

    A sample is a function that builds its part of the graph, and an operand.
    """
    graph = Joined()
    for build, x in samples:
        graph.add(build, x)
    with np.errstate(all="ignore"):
        wanted = [expected for (expected,) in graph.results("reference")]
    for isa in ISAS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RLX_CPU_ISA", isa)
            alone, *others = (graph.results(threads=threads) for threads in (1, 2, 3))
        for index, ((stored,), expected) in enumerate(zip(alone, wanted, strict=True)):
            said = f"sample {index}, {isa}"
            for other in others:
                np.testing.assert_array_equal(other[index][0], stored, err_msg=said)
            largest = np.max(np.abs(expected[np.isfinite(expected)]), initial=1.0)
            bounds = BOUND[dtype], BOUND[dtype] * float(largest)
            np.testing.assert_allclose(stored, expected, *bounds, err_msg=said)


def numbers(rng, shape, dtype, special):
    if dtype == "i32":
        return rng.integers(-99, 99, shape).astype(np.int32)
    x = rng.normal(size=shape).astype(NUMPY[dtype])
    if special and x.size:
        flat = x.reshape(-1)
        flat[rng.integers(0, x.size, 1 + x.size // 40)] = rng.choice([np.nan, np.inf, -np.inf])
    return x


def window(rng, rank):
    """Attributes of a pool whose windows see something, and the smallest sizes that they fit in."""
    kernel = [int(rng.choice((1, 2, 3, 5, 7))) for _ in range(rank)]
    dilation = [int(rng.choice((1, 1, 1, 2, 3))) for _ in range(rank)]
    stride = [int(rng.choice((1, 1, 2, 2, 3, 4, 9))) for _ in range(rank)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads = tuple(tuple(int(integer) for integer in rng.integers(0, r, 2) // 2) for r in reach)
    attrs = {"kernel": tuple(kernel), "stride": tuple(stride), "dilation": tuple(dilation)}
    return {**attrs, "padding": pads, "ceil_mode": bool(rng.integers(2))}, reach


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*itertools.product(["max_pool", "avg_pool"], ["f32", "f64"]), ("max_pool", "i32")],
)
def test_pools(kind, dtype, rng):
    samples = []
    for index in range(50):
        rank = int(rng.integers(1, 4))
        attrs, reach = window(rng, rank)
        sizes = [
            int(rng.choice(WIDTHS[: 17 if axis == rank - 1 and rank < 3 else 8]))
            for axis in range(rank)
        ]
        sizes = [max(n, r) for n, r in zip(sizes, reach, strict=True)]
        x = numbers(
            rng, (int(rng.integers(1, 3)), int(rng.integers(0, 5)), *sizes), dtype, index % 3 == 0
        )
        if kind == "avg_pool":
            attrs["count_include_pad"] = bool(rng.integers(2))
        samples.append((lambda g, x, attrs=attrs: getattr(g, kind)(x, **attrs), x))
    compare(samples, dtype)


@pytest.mark.parametrize("shape", [(2, 3, 900), (1, 2, 40, 37), (1, 1, 3, 2000)])
def test_pools_of_large_windows(shape, rng):
    samples = []
    for part in (1, 2, 5):
        kernel = tuple(max(1, n // part) for n in shape[2:])
        x = numbers(rng, shape, "f32", False)
        samples.append((lambda g, x, kernel=kernel: g.max_pool(x, kernel, 1), x))
        samples.append((lambda g, x, kernel=kernel: g.avg_pool(x, kernel, 3), x))
    compare(samples, "f32")


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_transposed_convolutions(dtype, rng):
    """Few outputs, of which threads share the rows, and many; windows that overlap, touch and leave gaps."""
    samples = []
    for index in range(60):
        rank, groups = int(rng.integers(1, 3)), int(rng.choice((1, 1, 2)))
        kernel, stride = ([int(n) for n in rng.integers(1, 5, rank)] for _ in range(2))
        dilation = [int(rng.choice((1, 1, 2))) for _ in range(rank)]
        sizes = [int(rng.choice(WIDTHS[:14])) for _ in range(rank)]
        full = zip(sizes, kernel, stride, dilation, strict=True)
        results = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in full]
        pads = tuple(
            tuple(int(integer) for integer in rng.integers(0, 1 + (n - 1) // 2, 2)) for n in results
        )
        channels, outputs = groups * int(rng.integers(1, 20)), int(rng.choice((1, 1, 2, 3, 9)))
        x = numbers(rng, (int(rng.integers(1, 3)), channels, *sizes), dtype, False)
        w = numbers(rng, (channels, outputs, *kernel), dtype, False)
        bias = numbers(rng, groups * outputs, dtype, False) if index % 2 else None
        attrs = {"stride": tuple(stride), "dilation": tuple(dilation), "padding": pads}

        def build(g, x, w=w, bias=bias, groups=groups, attrs=attrs):
            fixed = None if bias is None else g.constant(bias)
            result = getattr(g, f"conv_transpose{w.ndim - 2}d")
            return result(x, g.constant(w), fixed, groups=groups, **attrs)

        samples.append((build, x))
    compare(samples, dtype)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_resizing(mode, dtype, rng):
    samples = []
    for index in range(40):
        rank = int(rng.integers(1, 4))
        shape = [int(rng.choice(WIDTHS[: 16 if rank < 3 else 9])) for _ in range(rank)]
        size = [
            n if rng.random() < 0.4 else int(rng.choice(WIDTHS[: 16 if rank < 3 else 9]))
            for n in shape
        ]
        coordinates = str(
            rng.choice(["half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"])
        )
        roi = tuple(
            float(item) for item in (*rng.uniform(-0.2, 0.3, rank), *rng.uniform(0.5, 1.2, rank))
        )
        more = (
            {"roi": roi, "extrapolation_value": 2.5} if coordinates == "tf_crop_and_resize" else {}
        )
        more |= {"antialias": bool(rng.integers(2))} if mode != "nearest" else {}
        x = numbers(rng, shape, dtype, index % 4 == 0 and mode == "nearest")
        more["coordinates"] = coordinates
        samples.append((lambda g, x, size=size, more=more: g.resize(x, size, mode, **more), x))
    compare(samples, dtype)

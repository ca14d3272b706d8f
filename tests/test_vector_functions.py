"""The vector functions of the CPU, in units in the last place against float64 on every instruction set.

``BOUNDS`` is what docs/explanation/numerics.md states. A float64 reference is off by less than a thousandth of a unit.
"""

import ctypes
import math
import os

import numpy as np
import pytest
from samples import looped

from rlx._ext import cpu
from rlx.ops.elementwise.table import VECTOR_FUNCTIONS

# Largest error in units in the last place.
BOUNDS = (
    dict.fromkeys(sorted(VECTOR_FUNCTIONS), 4.0)
    | {"gelu": 4.5}
    | dict.fromkeys(("sinh", "tan", "acosh", "atanh"), 2.5)
    | dict.fromkeys(("expm1", "log1p", "softplus", "sin", "cos", "asin", "asinh", "cosh"), 2.0)
    | dict.fromkeys(("exp", "exp2", "log", "acos", "atan"), 1.5)
)
# Without fused multiply-add some functions round once too often.
PLAIN = {"gelu": 5.0, "erf": 5.0}
# The sweep over all floats takes one in so many, from a start that differs in each run; 1 takes every one, which
# is a quarter of an hour for each function.
STEP = int(os.environ.get("RLX_TEST_STEP", "29"))
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
LOOP = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 4, ctypes.c_int64)

_erf, _erfc = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)


def _logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _normal(x):
    return 0.5 * _erfc(-x / math.sqrt(2)).astype(np.float64)


def _mish(x):
    e = np.exp(-np.abs(x))
    below, above = e * (e + 2), 1 + 2 * e
    return x * np.where(x < 0, below / (below + 2), above / (above + 2 * e * e))


def _gelu_approx(x):
    return x * _logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


REFERENCES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "tanh": np.tanh,
    "erf": lambda x: _erf(x).astype(np.float64),
    "sigmoid": _logistic,
    "gelu": lambda x: x * _normal(x),
    "gelu_approx": _gelu_approx,
    "silu": lambda x: x * _logistic(x),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "mish": _mish,
}


def run(isa, name, x):
    """The loop of a function over x."""
    y = np.empty_like(x)
    LOOP(cpu.loops(isa)[f"{name}_f32"])(y.ctypes.data, x.ctypes.data, None, None, x.size)
    return y


def units(got, expected):
    """Returns the distance of f32 results from float64 ones, in units in the last place of the latter."""
    _, exponent = np.frexp(expected)
    unit = np.exp2(np.maximum(exponent, -125).astype(np.float64) - 24)
    largest = 2.0**128  # where f32 has an infinity
    got, expected = (np.clip(np.float64(item), -largest, largest) for item in (got, expected))
    return np.abs(got - expected) / unit


def check(isa, name, x):
    with np.errstate(all="ignore"):
        expected = REFERENCES[name](x.astype(np.float64))
        got = run(isa, name, x)
        known = np.isfinite(x) & ~np.isnan(expected)
        assert np.array_equal(np.isnan(got[np.isfinite(x)]), np.isnan(expected[np.isfinite(x)]))
        off = units(got[known], expected[known])
    if not off.size:  # of the floats of some exponents nothing is a number
        return
    worst = int(np.argmax(off))
    bound = PLAIN.get(name, BOUNDS[name]) if isa == "plain" else BOUNDS[name]
    assert off[worst] <= bound, f"{name}({x[known][worst]!r}) is {off[worst]:.2f} units off"


def everywhere():
    """Both signs of every exponent, with mantissas at the edges and others."""
    rng = np.random.default_rng(8)
    edges = np.array([0, 1, 2, 0x3504F3, 0x3FFFFF, 0x400000, 0x7FFFFE, 0x7FFFFF], np.uint32)
    mantissas = np.concatenate([edges, rng.integers(0, 1 << 23, 100, np.uint32)])
    heads = np.arange(512, dtype=np.uint32) << 23
    return (heads[:, None] | mantissas).reshape(-1).view(np.float32)


def around():
    """Floats around the places where a function changes its way, and between."""
    middles = [0.35, 0.5, 0.63, 0.92, 1.0, 2.0, 4.0, 9.0, 10.0, 11.0, 14.3, 14.8, 17.3, 18.0, 65.0]
    middles += [1e-4, 89.4, 89.5, 2.0**30]
    middles += [87.3, 88.0, 88.7, 89.0, 95.0, 103.0, 104.0, 105.0, 127.5, 130.0, 149.0, 2e4]
    middles += [k * math.pi / 4 for k in (*range(1, 12), 1001, 12730, 25459)]
    bits = np.array(middles, np.float32).view(np.int32)[:, None] + np.arange(
        -400, 400, dtype=np.int32
    )
    near = bits.reshape(-1).view(np.float32)
    return np.concatenate([near, -near, np.linspace(-110, 110, 60_000, dtype=np.float32)])


@looped("name", sorted(VECTOR_FUNCTIONS))
@looped("isa", cpu.isas())
def test_within_its_bound_for_every_exponent_and_around_its_branches(isa, name):
    check(isa, name, everywhere())
    check(isa, name, around())


@looped("name", sorted(VECTOR_FUNCTIONS))
@looped("isa", cpu.isas())
def test_zeros_infinities_and_nan_follow_numpy(isa, name):
    limits = {"gelu": [np.inf, np.nan], "gelu_approx": [np.inf, np.nan]}  # x * 0 of minus infinity
    got = run(isa, name, SPECIAL)
    with np.errstate(all="ignore"):
        expected = REFERENCES[name](SPECIAL.astype(np.float64)).astype(np.float32)
    expected[2:4] = limits.get(name, expected[2:4])
    np.testing.assert_array_equal(got, expected)


@looped("name", sorted(VECTOR_FUNCTIONS))
@looped("isa", cpu.isas())
def test_an_entry_is_the_same_wherever_it_stands_and_nothing_after_the_last_is_written(isa, name):
    x = np.linspace(-3, 3, 70, dtype=np.float32)
    whole = run(isa, name, x)
    for n in (*range(1, 34), 63, 65):
        y = np.full(72, 7.0, np.float32)
        LOOP(cpu.loops(isa)[f"{name}_f32"])(y.ctypes.data, x.ctypes.data, None, None, n)
        np.testing.assert_array_equal(y[:n], whole[:n])
        assert np.all(y[n:] == 7.0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(VECTOR_FUNCTIONS))
def test_every_float_is_within_the_bound(name):
    """On the best instruction set and on the plain one; erf and gelu, whose references are slow, at larger steps."""
    step = max(STEP, 61) if name in {"erf", "gelu"} else STEP
    start = int(np.random.default_rng().integers(step))
    print(f"every {step}th float from {start}", flush=True)
    for head in range(start, 1 << 32, step << 16):
        bits = np.arange(head, min(head + (step << 16), 1 << 32), step, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        for isa in {cpu.isas()[0], cpu.isas()[-1]}:
            check(isa, name, x)


def powers():
    """Bases and exponents: all pairs of edges, then random ones."""
    rng = np.random.default_rng(9)
    ends = [0.0, 1.0, 2.0, 0.5, 3.0, 2.5, 1e-45, 3e38, 16777215.0, 33554431.0, 33554432.0, np.inf]
    edges = np.array([*ends, *(-end for end in ends), np.nan], np.float32)
    x, y = (item.reshape(-1) for item in np.meshgrid(edges, edges))
    count = 200_000
    any_bits = rng.integers(0, 1 << 32, 2 * count, np.uint32).view(np.float32)
    any_bits[np.isnan(any_bits)] = np.nan
    middle = np.exp(rng.normal(size=count)).astype(np.float32)
    near_one = (1 + 1e-4 * rng.normal(size=count)).astype(np.float32)
    exponents = (
        3 * rng.normal(size=count),
        rng.integers(-9, 9, count),
        20 * rng.normal(size=count),
        1e5 * rng.normal(size=count),
    )
    return (
        np.concatenate([x, any_bits, middle, near_one]),
        np.concatenate([y, *exponents]).astype(np.float32),
    )


@looped("isa", cpu.isas())
def test_powers(isa):
    """All of C's rules for zeros, infinities, NaN and signs, and the stated error elsewhere."""
    x, y = powers()
    got = np.empty_like(x)
    loop = LOOP(cpu.loops(isa)["pow_f32"])
    loop(got.ctypes.data, x.ctypes.data, y.ctypes.data, None, x.size)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64))
        rounded = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    known = ~np.isnan(rounded)
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(rounded)[known])
    special = known & ((rounded == 0) | np.isinf(rounded))
    np.testing.assert_array_equal(got[special], rounded[special])
    off = units(got[known], np.clip(expected[known], -(2.0**128), 2.0**128))
    # The C library's own on the instruction set without wide vectors.
    assert off.max() <= (1.0 if isa == "plain" else 0.51)


@looped("isa", cpu.isas())
def test_powers_that_are_floats_are_exact(isa):
    x = np.arange(1, 256, dtype=np.float32)
    for exponent, expected in ((2, x * x), (1, x), (-1, 1 / x), (0, np.ones_like(x))):
        y, got = np.full_like(x, exponent), np.empty_like(x)
        loop = LOOP(cpu.loops(isa)["pow_f32"])
        loop(got.ctypes.data, x.ctypes.data, y.ctypes.data, None, x.size)
        np.testing.assert_array_equal(got, expected)

"""Powers by constants: products and roots in their place, with the results that IEEE 754 gives for powers."""

import numpy as np
from samples import looped

import rlx
from rlx.passes.powers import _POWERS

EXPONENTS = sorted(_POWERS)
# The largest relative error: some units in the last place, after three roundings.
BOUNDS = {"f64": 2.5 * 2.0**-52, "f32": 2.5 * 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
EDGES = (0.0, -0.0, 1.0, -1.0, -2.5, np.inf, -np.inf, np.nan, 3e18, -3e18, 2e-12, 1e12, 70.0, 0.02)


def powers(x, exponent, dtype, device, shape=()):
    """Returns a graph's result, and the changes of its passes."""
    g = rlx.Graph()
    power = g.constant(np.full(shape, exponent), dtype)
    y = g.pow(g.input("x", x.shape, dtype), power)
    g.set_outputs([g.cast(y, "f32") if dtype in ("f16", "bf16") else y])
    with rlx.compile(g, device) as compiled:
        return np.array(compiled.run({"x": x})[0]), compiled.as_text("fused")


def bases(dtype):
    """Edges and random numbers; narrow types hold all of them and their powers."""
    rng = np.random.default_rng(11)
    x = np.concatenate([EDGES, rng.normal(size=300), np.exp(4 * rng.normal(size=300))])
    if dtype in ("f16", "bf16"):
        whole = np.round(np.clip(x, -15, 15) * 4) / 4
        x = np.where(np.isfinite(x), np.where(whole == 0, 0.25, whole), x)
    return x.astype(np.float64 if dtype == "f64" else np.float32)


@looped("exponent", EXPONENTS)
@looped("dtype", BOUNDS)
def test_powers_are_those_of_ieee_754(device, dtype, exponent):
    x = bases(dtype)
    result, text = powers(x, exponent, dtype, device)
    with np.errstate(all="ignore"):
        expected = np.float_power(x, exponent)
        limit = 2.0**128 if dtype in ("f32", "bf16") else np.inf
        expected = np.where(np.abs(expected) >= limit, np.copysign(np.inf, expected), expected)
    result = result.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(expected[known]))
    np.testing.assert_array_equal(np.isinf(result[known]), np.isinf(expected[known]))
    normal = known & np.isfinite(expected) & ((np.abs(expected) > 1.2e-38) | (expected == 0))
    np.testing.assert_allclose(result[normal], expected[normal], BOUNDS[dtype], 0)
    assert (" to the power " in text) == (device != "reference")


@looped("exponent", [0, 1, 2, 3, 4, 5])
@looped("dtype", ["i32", "i64", "u32"])
def test_powers_of_integers_wrap_around(device, dtype, exponent):
    x = np.array([0, 1, 2, 3, 7, 300, 70_000, 2**31 - 1], f"{dtype[0]}{int(dtype[1:]) // 8}")
    result, _ = powers(x, exponent, dtype, device)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, np.power(x, x.dtype.type(exponent)))


def test_other_exponents_stay(device):
    x = np.array([0.5, 2.0, 3.0], np.float32)
    for exponent in (0.0, 2.2, 5.0, -3.0):
        result, text = powers(x, exponent, "f32", device)
        np.testing.assert_allclose(result, x.astype(np.float64) ** exponent, 1e-5)
        assert " to the power " not in text


def test_an_exponent_that_shapes_the_result_stays(device):
    result, text = powers(np.array([3.0], np.float32), 2.0, "f32", device, (4,))
    np.testing.assert_array_equal(result, np.full(4, 9.0))
    assert " to the power " not in text

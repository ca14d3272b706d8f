"""Loops of the CPU that are written in vectors or stand for several steps, on each instruction set beside NumPy."""

import numpy as np
import pytest

import rlx
from rlx.backends.base import CompileOptions

SPECIAL = np.float32([
    0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, 0.75, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3e38, -3e38, 1.17549435e-38,
    1e-30, 16777215, 16777216, 16777217, -16777217, 33554432, 1.00000012, 0.99999994, 2147483648, 128, -149, -126, 0.33333334,
])  # fmt: skip


def computed(build, *operands):
    """Computes a graph of these operands; subnormal numbers are kept."""
    g = rlx.Graph()
    names = {"f4": "f32", "f8": "f64", "f2": "f16", "i4": "i32", "i8": "i64", "u1": "u8"}
    inputs = [
        g.input(f"x{index}", operand.shape, names[operand.dtype.str[1:]])
        for index, operand in enumerate(operands)
    ]
    g.set_outputs([build(g, *inputs)])
    options = CompileOptions(threads=1, denormals="keep")
    with rlx.compile(g, "cpu", options=options) as compiled:
        return np.array(compiled.run_slots(*operands)[0])


def test_powers_of_special_numbers_follow_c(isa):
    x, y = (np.ascontiguousarray(item) for item in np.meshgrid(SPECIAL, SPECIAL))
    result = computed(lambda g, x, y: g.pow(x, y), x, y)
    with np.errstate(all="ignore"):
        expected = np.float_power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_allclose(result, expected, 1.3e-7, 1.5e-45)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(result[zero]), np.signbit(expected[zero]))


def test_a_power_does_not_depend_on_its_neighbours(isa):
    """Vectors with special numbers among them take another way."""
    rng = np.random.default_rng(5)
    x = rng.uniform(0.01, 9, 1600).astype(np.float32)
    y = rng.uniform(-3, 3, 1600).astype(np.float32)
    plain = computed(lambda g, x, y: g.pow(x, y), x, y)
    mixed = x.copy()
    mixed[::16] = -2
    result = computed(lambda g, x, y: g.pow(x, y), mixed, y)
    others = np.arange(1600) % 16 != 0
    assert result[others].tobytes() == plain[others].tobytes()


def test_every_half_is_widened_and_rounded_exactly(isa):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = computed(lambda g, x: g.cast(x, "f32"), halves)
    with np.errstate(invalid="ignore"):  # ARM reports signalling NaN
        np.testing.assert_array_equal(wide, halves.astype(np.float32))
    # Every half, what lies between neighbours, and the floats beside the middle.
    finite = np.sort(wide[np.isfinite(wide)])
    middle = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate([
        wide, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf)),
        np.float32([65519, 65520, 1e9, -1e9, 1e-9, -1e-9, 1e-45]),
    ])  # fmt: skip
    for shape in ((x.size,), (7,), (1,), (0,)):
        some = np.resize(x, shape)
        result = computed(lambda g, x: g.cast(x, "f16"), some)
        with np.errstate(over="ignore", invalid="ignore"):
            np.testing.assert_array_equal(result, some.astype(np.float16))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "bounds", [(-0.5, 0.5), (0.0, 6.0), (-0.0, 0.0), (1.0, -1.0), (2.0, 2.0), (-np.inf, 1.0)]
)
def test_clips(bounds, dtype, isa):
    rng = np.random.default_rng(6)
    x = np.concatenate([SPECIAL, rng.normal(size=1500).astype(np.float32)]).astype(dtype)
    low, high = (np.asarray(bound, x.dtype) for bound in bounds)
    result = computed(lambda g, x: g.minimum(g.maximum(x, bounds[0]), bounds[1]), x)
    expected = np.minimum(np.maximum(x, low), high)
    np.testing.assert_array_equal(result, expected)
    # The maximum is read twice.
    both = computed(
        lambda g, x: (lambda m: g.minimum(m, bounds[1]) + m)(g.maximum(x, bounds[0])), x
    )
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(both, expected + np.maximum(x, low))


def test_operands_that_a_block_reads_one_element_of(isa):
    """Axes longer than a block, shorter ones, and blocks that reach into the next row."""
    rng = np.random.default_rng(7)
    for shape, other in (
        ((3, 5000), (3, 1)),
        ((4, 3, 2048), (3, 1)),
        ((5, 900), (5, 1)),
        ((2, 6, 70, 30), (1, 6, 1, 1)),
    ):
        x, y = rng.normal(size=shape).astype(np.float32), rng.normal(size=other).astype(np.float32)
        result = computed(lambda g, x, a, b: x * a + b, x, y, -y)
        np.testing.assert_allclose(result, x * y - y, 1e-6, 1e-6)


@pytest.mark.parametrize("own", [(1, 1, 7), (1, 40, 1), (130, 1, 7), (130, 40, 1), (1, 40, 7)])
def test_operands_that_repeat_in_rows_of_any_length(own, isa):
    rng = np.random.default_rng(8)
    x = rng.integers(-99, 99, (130, 40, 7)).astype(np.int32)
    y, z = (rng.integers(-99, 99, shape).astype(np.int32) for shape in (own, (1, 1, 7)))
    np.testing.assert_array_equal(computed(lambda g, x, y, z: x * y + z, x, y, z), x * y + z)

"""Operations that share a kernel round as they do in kernels of their own, and keep NaN and infinity."""

import itertools

import numpy as np
import pytest

import rlx
from rlx.ops.elementwise.table import TABLE

pytestmark = pytest.mark.by_program

# Numbers that cancel, that are lost beside larger ones, and that are none.
NUMBERS = np.float32(
    [
        0.0, -0.0, 1.0, -1.0, 3.0, -7.25, 0.1, -2.5, 1e-3, 12582912.0, 16777217.0, 4097.0, 1e30, -1e30, 1e-30,
        np.inf, -np.inf, np.nan,
    ]
)  # fmt: skip
FLOATS = [row for row in TABLE if "f" in row.kinds and row.result == "same"]
# Those that compilers know laws of: (x + y) - y, sqrt(x) * sqrt(x), exp(log(x)).
ALGEBRA = "neg abs exp exp2 log sqrt rsqrt reciprocal add sub mul div maximum fma".split()
# Operations that are left out: they have no builder.
BUILDERS = [row.name for row in FLOATS if hasattr(rlx.ops, row.name)]
PAIRS = list(itertools.product(BUILDERS, repeat=2))
GRAPH = 24


def build(g, names, x, y):
    """Each operation of the result of the one before; the second operands are x or y, in turn."""
    value, others = x, itertools.cycle((y, x))
    for name in names:
        count = next(row.operands for row in FLOATS if row.name == name)
        value = getattr(g, name)(value, *(next(others) for _ in range(count - 1)))
    return value


def bits(arrays):
    """Arrays of f32 as integers; all NaNs are one."""
    return [
        np.where(np.isnan(array), np.uint32(0x7FC00000), array.view(np.uint32)) for array in arrays
    ]


def compare(device, chains):
    """The bits of chains of operations in one kernel each, and in kernels of their own."""
    x, y = (np.ascontiguousarray(item.ravel()) for item in np.meshgrid(NUMBERS, NUMBERS))
    for index in range(0, len(chains), GRAPH):
        some = chains[index : index + GRAPH]
        results = []
        for fuse in (True, False):
            g = rlx.Graph()
            a, b = g.input("x", x.shape), g.input("y", y.shape)
            g.set_outputs([build(g, names, a, b) for names in some])
            # Without cse no two chains have a node in common, which would be computed by itself.
            options = rlx.CompileOptions(fuse=fuse, cse=False)
            with rlx.compile(g, device, options=options) as cg:
                results.append(bits(cg.run({"x": x, "y": y})))
        for names, joined, apart in zip(some, *results, strict=True):
            differ = joined != apart
            assert not differ.any(), (
                names,
                x[differ][:4],
                y[differ][:4],
                joined[differ][:4],
                apart[differ][:4],
            )


def algebraic(count):
    return list(itertools.product(ALGEBRA, repeat=count))


def test_pairs(webgpu):
    """All pairs of those operations that compilers know laws of."""
    compare(webgpu, algebraic(2))


def test_some_triples(webgpu, rng):
    """Some of three such operations, and of two of all operations."""
    triples = algebraic(3)
    compare(webgpu, [PAIRS[index] for index in rng.choice(len(PAIRS), 48, False)])
    compare(webgpu, [triples[index] for index in rng.choice(len(triples), 48, False)])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_all_pairs_and_triples(webgpu, part):
    """All pairs of operations, and all of three that compilers know laws of."""
    compare(webgpu, [*PAIRS, *algebraic(3)][part::8])


MAGIC, SPLIT = np.float32(12582912), np.float32(4097)
# Chains of steps, in the same words for nodes and for arrays.
STEPS = {
    "rounding by a large number": lambda x, y: (x + MAGIC) - MAGIC,
    "error of a sum": lambda x, y: y - ((x + y) - x),
    "upper half of the digits": lambda x, y: (x * SPLIT) - ((x * SPLIT) - x),
    "there and back by a third": lambda x, y: (x * np.float32(3)) / np.float32(3),
    "above the range and back": lambda x, y: (x * np.float32(1e30)) * np.float32(1e-30),
    "one more, and x less": lambda x, y: (x + np.float32(1)) - x,
    "x less x": lambda x, y: x - x,
    "x by x": lambda x, y: x / x,
    "no x": lambda x, y: x * np.float32(0),
    "no x and one": lambda x, y: x * np.float32(0) + np.float32(1),
    "none by x": lambda x, y: np.float32(0) / x,
    "x and its negative": lambda x, y: x + (-x),
    "negative": lambda x, y: -x,
    "equal squares": lambda x, y: x * x - x * x,
    "x and no y": lambda x, y: x + y * np.float32(0),
}


# A GPU's quotients may be 2.5 units in the last place off (WGSL, accuracy of division).
DIVIDING = {"there and back by a third", "x by x", "none by x"}


def differing(result, wanted, units):
    """Marks differences of two arrays: more than so many units in the last place, NaN, infinity, the sign of 0."""
    same = bits([result])[0] == bits([wanted])[0]
    with np.errstate(all="ignore"):
        return ~(same | (np.abs(result - wanted) <= units * np.spacing(np.abs(wanted))))


@pytest.mark.parametrize("device", ["reference", "cpu", "webgpu"])
def test_steps_are_taken_as_written(device, request, rng):
    """The results are those of NumPy in f32, bit by bit."""
    quotient = 0
    if device == "webgpu" and request.getfixturevalue("hardware"):
        quotient = 5  # two roundings of 2.5 units
    x = np.concatenate([rng.uniform(-1e3, 1e3, 200).astype(np.float32), NUMBERS])
    y = np.concatenate([rng.uniform(-1, 1, 200).astype(np.float32), NUMBERS[::-1]])
    g = rlx.Graph()
    a, b = g.input("x", x.shape), g.input("y", y.shape)
    # The last reads one place of memory by two names.
    again = g.reshape(g.reshape(a, (2, x.size // 2)), x.shape)
    g.set_outputs([*(steps(a, b) for steps in STEPS.values()), a - again])
    wrong = {}
    with np.errstate(all="ignore"), rlx.compile(g, device) as cg:
        wanted = [*(steps(x, y) for steps in STEPS.values()), x - x]
        results = zip([*STEPS, "two names"], cg.run({"x": x, "y": y}), wanted, strict=True)
        for name, first, other in results:
            position = differing(first, other, quotient if name in DIVIDING else 0)
            if position.any():
                wrong[name] = (
                    x[position][:3],
                    y[position][:3],
                    first[position][:3],
                    other[position][:3],
                )
    assert not wrong


@pytest.mark.parametrize("device", ["reference", "cpu", "webgpu"])
def test_square_of_a_root(device, request, rng):
    """The square of a root is no absolute value: of a negative number it is NaN."""
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    x = np.concatenate(
        [rng.uniform(0, 1e3, 200).astype(np.float32), np.float32([-1, -np.inf, np.nan])]
    )
    g = rlx.Graph()
    root = g.sqrt(g.input("x", x.shape))
    g.set_outputs([root * root])
    with np.errstate(all="ignore"), rlx.compile(g, device) as cg:
        (result,) = cg.run({"x": x})
        wanted = np.sqrt(x) * np.sqrt(x)
    # Roots may be units in the last place off.
    np.testing.assert_allclose(result, wanted, 1e-6)
    assert (result[:200] != x[:200]).any()

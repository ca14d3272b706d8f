"""Sizes that are known only at a call: arithmetic against that of ints, assumptions, and JSON values."""

import math
import operator
import pickle
import random

import numpy as np
import pytest

import rlx
from rlx.sizes import (
    Assumptions,
    SizeExpr,
    ceil_divide,
    current,
    deciding,
    divides,
    inferring,
    is_steady,
    largest,
    may_exceed,
    pinned,
    preferring,
    smallest,
    value_of,
)
from rlx.sizes.as_data import guard_from, guard_to, size_from, size_to
from rlx.sizes.program import SizeProgram, holds

N, M, T = rlx.Dim("n"), rlx.Dim("m", max=100, min=1), rlx.Dim("t", max=4096, multiple_of=8)
VALUES = [
    {"n": 0, "m": 1, "t": 0}, {"n": 7, "m": 100, "t": 64}, {"n": 123, "m": 17, "t": 4096},
    {"n": 1, "m": 2, "t": 8},
]  # fmt: skip
STEPS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "min": smallest, "max": largest,
    "//": lambda a, b: a // (largest(b, 0) + 1), "%": lambda a, b: a % (largest(b, 0) + 1),
    "//c": lambda a, _: a // 12, "%c": lambda a, _: a % 6, "up": lambda a, _: ceil_divide(a, 5),
    "/": lambda a, b: math.ceil((a * 3 + 1) / (largest(b, 1) + 2)), "<<": lambda a, _: (a << 3) >> 2,
}  # fmt: skip


def made(rng, leaves, depth):
    """A random expression of some leaves."""
    if depth == 0:
        return rng.choice([*leaves, rng.randint(-5, 70)])
    step = STEPS[rng.choice(list(STEPS))]
    return step(made(rng, leaves, depth - 1), made(rng, leaves, depth - 1))


def compiled(sizes, names):
    """A function of values of dims that computes sizes by compiled steps."""
    program = SizeProgram(names)
    added = [program.add(size) for size in sizes]
    places, table = [program.place(each).above for each in added], program.steps()
    return lambda *values: table.numbers(places, *values)


@pytest.mark.parametrize("seed", range(40))
def test_arithmetic_is_that_of_ints(seed):
    for part in range(10):
        size = made(random.Random(100 * seed + part), (N, M, T), 3)
        for values in VALUES:
            expected = made(random.Random(100 * seed + part), (*values.values(),), 3)
            assert value_of(size, values) == expected, f"{size} of {values}"
            if isinstance(size, SizeExpr):
                low, high = size.bounds()
                assert low is None or low <= expected, f"{size} of {values}"
                assert high is None or high >= expected, f"{size} of {values}"
        if isinstance(size, SizeExpr):
            for copied in (size_from(size_to(size)), pickle.loads(pickle.dumps(size))):
                assert copied.terms == size.terms, str(size)
                assert hash(copied) == hash(size)


@pytest.mark.parametrize("seed", range(20))
def test_compiled_arithmetic_is_that_of_python(seed):
    rng = random.Random(seed)
    sizes = [made(rng, (N, M, T), rng.randint(1, 4)) for _ in range(30)]
    numbers = compiled(sizes, ["n", "m", "t"])
    for values in [*VALUES, {"n": 1 << 20, "m": 99, "t": 4000}]:
        expected = [value_of(size, values) for size in sizes]
        if max(map(abs, expected)) < 1 << 50:
            assert numbers(*values.values()) == expected, values


def test_compiled_arithmetic_never_wraps_around():
    most = (1 << 63) - 1
    exact = compiled([N * N, N * most, -N * most - N, 5 - N * 3], ["n"])
    assert exact(1) == [1, most, -most - 1, 2]
    for sizes, values in (
        ([N * most], (2,)), ([N * N * N], (1 << 22,)), ([N * most + 1], (1,)), ([-N * most - 2], (1,)),
        ([smallest(N * N, 5)], (1 << 32,)), ([(N * N) // (N + 1)], (1 << 40,)),
    ):  # fmt: skip
        with pytest.raises(rlx.SizesError, match="a number beyond 64 bits"):
            compiled(sizes, ["n"])(*values)
    for number in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(rlx.UnknownSizeError, match="beyond 64 bits"):
            compiled([N * number], ["n"])


def test_guards_of_floats_fit_words():
    for hint in (200, 151, 149, 90_000):
        assumptions = Assumptions({"n": hint, "m": 1})
        with deciding(assumptions):
            assert (N * 0.1 >= 15.05) == (hint > 150)
            assert (N * M * 0.7 > 7e5) is False
        (first, _), names = assumptions.guards, ["n", "m"]
        assert max(abs(factor) for _, factor in first.terms) > 1 << 50
        serves = holds([first], names)
        for n in (0, 3, 149, 151, 152, 100_000, 1 << 30):
            assert serves(n, 1) == (n * 0.1 >= 15.05 if hint > 150 else n * 0.1 < 15.05), (hint, n)
        assert holds(list(assumptions.guards), names)(hint, 1)


def test_compiled_divisions_by_zero_are_errors():
    quotient = compiled([(N + 5) // M], ["n", "m"])
    assert quotient(6, 4) == [2]
    for below in (0, -1):
        with pytest.raises(rlx.SizesError, match="a division by 0"):
            quotient(6, below)
    assert quotient(7, 3) == [4]
    with pytest.raises(ValueError, match="1 values of 2 dims"):
        quotient(7)


def test_equal_parts_are_computed_once():
    few, many = SizeProgram(["n", "m"]), SizeProgram(["n", "m"])
    size = (N * M + 3) // (M + 1)
    few.add(size * 2)
    for factor in range(2, 40):
        many.add(size * factor)
    assert len(many._steps) == len(few._steps) + 37


def test_equal_sizes_have_one_form():
    pairs = [
        (N * 64 // 64, N), ((64 * N + 3) // 64, N), (T // 8 * 8, T), (T % 8, 0), (N - smallest(N, 1), largest(N - 1, 0)),
        (-(-N // 4), (N + 3) // 4), ((N + M) * 2 - N - N, 2 * M), (math.ceil(N / 4), (N + 3) // 4), (M // M, 1),
        (N * M // M, N), (largest(N, 0), N), (smallest(M, 100), M), (abs(N), N), (N % 1, 0),
    ]  # fmt: skip
    for a, b in pairs:
        assert str(a) == str(b)
        assert a == b


def test_what_bounds_decide_needs_no_guard():
    assert N >= 0
    assert N + 1 > N
    assert N != -1
    assert M <= 100
    assert T != 4
    assert not N + 5 < 5
    assert M
    assert current() is None


@pytest.mark.parametrize(
    "read",
    [int, float, range, operator.index, lambda n: n > 5, bool, lambda n: n == 3, lambda n: [0] * n, np.zeros, round, "ab".__getitem__],
)  # fmt: skip
def test_a_size_is_no_number(read):
    with pytest.raises((rlx.UnknownSizeError, TypeError)):
        read(N)
    assert not isinstance(N, int)


def test_numpy_leaves_the_arithmetic_to_sizes():
    for result in (
        np.int64(3) + N,
        np.int32(3) * N,
        np.int64(9) // (N + 1),
        N - np.int64(2),
        np.float64(0.5) * N,
    ):
        assert not isinstance(result, np.ndarray)
    assert str(np.int64(3) + N) == "n + 3"


def test_decisions_are_guards():
    assumptions = Assumptions({"n": 10, "m": 3, "t": 16})
    with deciding(assumptions):
        assert (N == 1, N > 5, N < 5, N * 1.5 >= 15, not N) == (False, True, False, True, False)
        assert M // N < 5
        with inferring(assumptions):
            assert pinned(M) == 3
    said = {"n - 1 != 0", "n - 5 > 0", "n - 4 > 0", "3*n - 29 > 0", "n != 0"}
    assert said <= set(map(str, assumptions.guards))
    assert list(map(str, assumptions.inferred)) == ["m - 3 == 0"]
    assert assumptions.hold({"n": 10, "m": 49, "t": 0})
    # A quotient by 0 is no error, in whatever order guards are looked at.
    for values in ({"n": 9, "m": 3, "t": 0}, {"n": 0, "m": 3, "t": 0}):
        assert not assumptions.hold(values)
        assert not holds(list(assumptions.guards)[::-1], list(values))(*values.values())
    for guard in assumptions.guards:
        assert guard_from(guard_to(guard)) == guard


@pytest.mark.parametrize("seed", range(20))
def test_guards_say_what_was_decided(seed):
    rng = random.Random(seed)
    sizes = [made(rng, (N, M, T), 2) for _ in range(6)]
    compares = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    for hints in VALUES:
        assumptions = Assumptions(hints)
        with deciding(assumptions):
            taken = [c(a, b) for c in compares for a in sizes for b in sizes]
        for values in VALUES:
            numbers = [value_of(size, values) for size in sizes]
            same = taken == [c(a, b) for c in compares for a in numbers for b in numbers]
            assert assumptions.hold(values) == same


def test_steady_assumptions_keep_what_is_needed_alone():
    steady, usual = Assumptions({"n": 8, "t": 64}, steady=True), Assumptions({"n": 8, "t": 64})
    for assumptions in (steady, usual):
        with deciding(assumptions):
            with preferring():
                assert N > 5
                assert T // N == 8  # n is above 0
                assert pinned(N + 1) == 9
            assert divides(8, T)
            assert not may_exceed(M, 100)
            assert may_exceed(N, 4)
    with deciding(usual):
        assert divides(4, N)
        assert not may_exceed(N, 8)
    with deciding(steady):
        # 4 does not divide all numbers that n may be, and n may be above each.
        assert not divides(4, N)
        assert may_exceed(N, 8)
    assert [str(guard) for guard in steady.guards] == ["n > 0", "n - 8 == 0"]
    assert len(usual.guards) > 4
    assert is_steady() is False
    assert divides(4, 8)
    assert may_exceed(9, 8)


def test_dims_check_themselves():
    for make in (
        lambda: rlx.Dim("two words"), lambda: rlx.Dim("n", max=2, min=3), lambda: rlx.Dim("n", min=-1),
        lambda: rlx.Dim("n", multiple_of=0), lambda: rlx.Dim("n", max=10, multiple_of=4), lambda: rlx.Dim("n", max=2.0),
        lambda: rlx.Dim(3), lambda: rlx.Dim("n", max=1 << 41),
    ):  # fmt: skip
        with pytest.raises(rlx.ShapeError, match=r"\[Dim\] not a dim"):
            make()
    assert (T.hint, M.hint, rlx.Dim("k", max=5).hint, rlx.Dim("k", min=90).hint) == (64, 64, 5, 90)


def test_other_data_is_no_size():
    for data in (
        None,
        3,
        [[1, "x"]],
        [[1.5, []]],
        [[1, [["dim", "a b", 0, None, 1]]]],
        [[1, [["//", [], []]]]],
        [[1, [["?"]]]],
    ):
        with pytest.raises((rlx.GraphError, ValueError, TypeError)):
            size_from(data)

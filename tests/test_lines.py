"""Operations along any axis: every way in which kernels see lines, beside NumPy, with the same bits on more threads."""

import itertools

import numpy as np
import pytest

import rlx
from rlx._ext import cpu
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import split

# [outer, n, inner]: long rows, short rows that are brought side by side, columns that fill vectors and that do not,
# few neighbouring columns that are long, more columns than one strip, and lines of no elements.
SHAPES = (
    (1, 1, 1), (1, 700, 1), (3, 2051, 1), (7, 3, 1), (8, 3, 1), (50, 7, 1), (33, 15, 1), (33, 16, 1), (19, 17, 1),
    (9, 130, 1), (50, 5, 3), (17, 16, 8), (100, 2, 15), (3, 5, 4), (2, 300, 5), (2, 701, 2), (1, 999, 13),
    (2, 65, 48), (1, 130, 33), (4, 9, 16), (3, 70, 17), (2, 66, 257), (1, 3, 1000), (2, 1, 300), (5, 6, 64),
    (0, 4, 3), (4, 3, 0), (4, 0, 3), (20, 0, 1), (1, 4097, 3), (1, 130, 1500), (40, 1, 1), (70, 1, 3), (5, 77, 4),
    (9, 60, 5), (9, 40, 15), (3, 20, 13), (30, 300, 5), (12, 37, 1), (9, 30, 9), (2, 16, 30), (2, 17, 41),
)  # fmt: skip
ISAS = [name for name in ("plain", "neon", "avx2", "avx512") if name in cpu.isas()]
EXTREMES = {"max", "min", "argmax", "argmin"}
FLOATS, NUMBERS = ("f4", "f8"), ("f4", "f8", "i4", "u4", "i8")


def numbers(shape, dtype, special):
    """Normal numbers, or small whole ones of integer types; `special`: with NaN and infinities among them."""
    rng = np.random.default_rng(list(shape))
    if np.dtype(dtype).kind != "f":
        return rng.integers(0 if dtype == "u4" else -9, 9, shape).astype(dtype)
    x = rng.normal(size=shape).astype(dtype)
    if special:
        flat = x.reshape(-1)
        for value in (np.nan, np.inf, -np.inf):
            flat[rng.integers(0, max(flat.size, 1), flat.size // 50 + 1)[: flat.size]] = value
    return x


def bits(x):
    """The bytes of an array, with the same bits in every NaN."""
    return np.where(np.isnan(x), np.nan, x).tobytes() if x.dtype.kind == "f" else x.tobytes()


def graph(op, x, **attrs):
    g = rlx.Graph()
    result = getattr(g, op)(g.input("x", x.shape, f"{x.dtype.kind}{8 * x.itemsize}"), **attrs)
    g.set_outputs(list(result) if isinstance(result, tuple) else [result])
    return g


def each_result(op, arrays, threads, **attrs):
    """The results for each of some arrays of one shape and type."""
    options = CompileOptions(threads=threads, fold=False)
    with rlx.Session("cpu", options=options).compile(graph(op, arrays[0], **attrs)) as compiled:
        return [[np.array(slot) for slot in compiled.run_slots(x)] for x in arrays]


def results(op, x, threads, **attrs):
    return each_result(op, [x], threads, **attrs)[0]


def reference(op, x, **attrs):
    return rlx.compile(graph(op, x, **attrs), "reference").run_slots(x)


@pytest.fixture
def shared(monkeypatch):
    """Every call that can be shared among threads is."""
    monkeypatch.setattr(split, "_WORTH", 1e-9)


@pytest.fixture(params=ISAS)
def isa(request, shared, monkeypatch):
    """The same on one instruction set."""
    monkeypatch.setenv("RLX_CPU_ISA", request.param)


def check(op, dtypes, tolerance, specials=(False, True), **attrs):
    """Compares an operation on every shape with the reference, and its bits on three threads with those on one.

    That is done on every instruction set.
    """
    for shape, dtype in itertools.product(SHAPES, dtypes):
        if op in EXTREMES and shape[1] == 0:
            continue  # refused where the graph is made
        # Integers are the same numbers again.
        chosen = [item for item in specials if not item or np.dtype(dtype).kind == "f"]
        arrays = [numbers(shape, dtype, special) for special in chosen]
        with np.errstate(all="ignore"):
            expected = [reference(op, x, **attrs) for x in arrays]
        bound = tolerance if dtype == "f4" else 1e-9 * tolerance
        for isa in ISAS:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RLX_CPU_ISA", isa)
                alone, shared = (each_result(op, arrays, n, **attrs) for n in (1, 3))
            for special, *slots in zip(chosen, alone, shared, expected, strict=True):
                said = f"{op} {attrs} of {shape} {dtype}, special: {special}, {isa}"
                for one, three, wanted in zip(*slots, strict=True):
                    if one.dtype.kind != "f" or not tolerance:
                        np.testing.assert_array_equal(one, wanted, err_msg=said)
                    else:
                        np.testing.assert_allclose(one, wanted, bound, bound, err_msg=said)
                    assert bits(three) == bits(one), said


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_softmax(op, shared):
    check(op, FLOATS, 5e-6, axis=1)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_the_largest_score_may_stand_anywhere(op, isa):
    """Its exponential is infinite in either type, so it has to be found to be taken off first."""
    for dtype in FLOATS:
        for n in (1, 3, 5, 9, 15, 17, 19, 35, 67, 131):
            x = np.zeros((n, n), dtype)
            np.fill_diagonal(x, 900)
            (result,), (expected,) = results(op, x, 1, axis=1), reference(op, x, axis=1)
            np.testing.assert_allclose(result, expected, 1e-6, 1e-6, err_msg=f"{n} {dtype}")


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "max", "min"])
def test_reductions(op, shared):
    # NumPy's own sums of many numbers are less precise.
    tolerance = 0 if op in ("max", "min") else 2e-5
    dtypes = FLOATS if op == "mean" else NUMBERS
    check(op, dtypes, tolerance, specials=(False, True), axes=(1,))


def test_a_product_may_leave_the_range_of_f32_on_the_way(isa):
    for shape in ((1, 4, 1), (30, 4, 1), (2, 4, 3), (2, 4, 70), (1, 4000, 1), (1, 4000, 3)):
        x = np.ones(shape, np.float32)
        x[:, :4] = np.float32([1e30, 1e30, 1e-30, 1e-30])[:, None]
        np.testing.assert_allclose(results("prod", x, 1, axes=(1,))[0], 1, 1e-5)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions_of_extremes(op, last, shared):
    check(op, NUMBERS, 0, axis=1, select_last=last)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_running_totals(op, exclusive, reverse, shared):
    check(op, NUMBERS, 2e-5, axis=1, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.3, 0.6, 1.0])
def test_the_first_of_rows(share, largest, isa):
    """The k first, of short rows and of long ones: one, few, most and all, with ties, NaN and zeros of both signs."""
    for rows, n in (
        (1, 1),
        (5, 3),
        (7, 16),
        (3, 17),
        (4, 64),
        (3, 65),
        (2, 400),
        (1, 3001),
        (0, 4),
        (40, 1),
        (33, 2),
        (50, 4),
        (19, 31),
        (37, 32),
        (20, 33),
    ):
        for dtype in NUMBERS:
            x = numbers((rows, n), dtype, special=True)
            if np.dtype(dtype).kind == "f":
                x = np.where(np.abs(x) < 0.3, np.copysign(x.dtype.type(0), x), np.round(x, 1))
            attrs = {"k": min(n, 1 + int(share * n)), "largest": largest}
            expected, result = reference("topk", x, **attrs), results("topk", x, 1, **attrs)
            for first, other, again in zip(
                result, expected, results("topk", x, 3, **attrs), strict=True
            ):
                np.testing.assert_array_equal(
                    first, other, err_msg=f"{attrs} of {rows} x {n} {dtype}"
                )
                assert bits(first) == bits(again)


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "l1", "l2"])
def test_long_lines_are_cut_into_pieces(isa, kind, monkeypatch):
    """Few lines of many elements: the same bits on any number of threads, close to the reference, NaN included."""
    monkeypatch.setattr(split, "_WORTH", 1e-9)
    for shape, axis in (((100_003,), 0), ((3, 70_001), 1), ((40_000, 5), 0), ((2, 33_000, 3), 1)):
        for special in (False, True):
            x = numbers(shape, "f4", special)
            if special and kind in ("sum", "mean", "l1", "l2"):
                x[np.isinf(x)] = 1
            with np.errstate(all="ignore"):
                (expected,) = reference(kind, x, axes=(axis,))
            first, *others = (results(kind, x, threads, axes=(axis,))[0] for threads in (1, 2, 3))
            np.testing.assert_allclose(first, expected, 1e-5, 2e-3)
            assert all(bits(other) == bits(first) for other in others)


def test_a_long_line_has_a_call_for_its_pieces_and_one_that_joins_them():
    g = graph("sum", np.empty(1_000_000, np.float32), axes=(0,))
    with rlx.compile(g, "cpu") as compiled:
        assert compiled.as_text("kernels").count("reduce_sum_f32") == 2


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_squares_and_sizes_are_taken_while_they_are_added_up(kind):
    g = graph(kind, np.empty((30, 50), np.float32), axes=(1,))
    with rlx.compile(g, "cpu") as compiled:
        text = compiled.as_text("kernels")
    assert ("reduce_sum_abs_f32" if kind == "l1" else "reduce_sum_squares_f32") in text
    assert "elementwise" not in text.partition("reduce_")[0]


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_norms_of_short_rows(op, isa):
    """Rows that are normalised side by side, and those that are just too long: with NaN, weights and a residual."""
    rng = np.random.default_rng(3)
    for rows, n in ((1, 1), (5, 2), (16, 3), (17, 4), (40, 7), (33, 16), (40, 17), (0, 4)):
        for dtype in FLOATS:
            for present in ((), ("weight",), ("weight", "bias")[: 2 if op == "layer_norm" else 1]):
                for residual in (False, True):
                    name = "f32" if dtype == "f4" else "f64"
                    g = rlx.Graph()
                    x = g.input("x", (rows, n), name)
                    more = [g.input(item, (n,), name) for item in present]
                    arguments = dict(zip(present, more, strict=True))
                    summed = x + g.input("r", (rows, n), name) if residual else x
                    g.set_outputs([getattr(g, op)(summed, **arguments), summed])
                    shapes = [(rows, n), *[(n,)] * len(present), *[(rows, n)] * residual]
                    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
                    if rows > 4 and n > 1:
                        arrays[0][3, 1] = np.nan
                    with np.errstate(all="ignore"):
                        expected = rlx.compile(g, "reference").run_slots(*arrays)
                    first, other = (
                        [
                            np.array(slot)
                            for slot in rlx.compile(
                                g, "cpu", options=CompileOptions(threads=threads)
                            ).run_slots(*arrays)
                        ]
                        for threads in (1, 3)
                    )
                    for left, again, right in zip(first, other, expected, strict=True):
                        bound = 2e-5 if dtype == "f4" else 1e-12
                        np.testing.assert_allclose(left, right, bound, bound)
                        assert bits(left) == bits(again)

"""Operations along any axis: every way in which kernels see lines, beside NumPy, with the same bits on more threads."""

import itertools

import numpy as np
import pytest
from joined import Joined

import rlx
from rlx._ext import cpu
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


def joined(op, items):
    """The operation on each of some arrays, with the attributes of each."""
    result = Joined()
    for x, attrs in items:
        result.add(lambda g, x, attrs=attrs: getattr(g, op)(x, **attrs), x)
    return result


def results(op, x, threads, **attrs):
    return joined(op, [(x, attrs)]).results(threads=threads, fold=False)[0]


def reference(op, x, **attrs):
    return joined(op, [(x, attrs)]).results("reference")[0]


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
    for dtype in dtypes:
        # Extremes of nothing are refused where the graph is made.
        shapes = [shape for shape in SHAPES if op not in EXTREMES or shape[1]]
        # Integers are the same numbers again.
        chosen = [item for item in specials if not item or np.dtype(dtype).kind == "f"]
        first, *others = ([numbers(shape, dtype, item) for shape in shapes] for item in chosen)
        graph = joined(op, [(x, attrs) for x in first])

        def each(device, graph=graph, others=others, **options):
            found = graph.results(device, *others, **options)
            return [item for items in found for item in items] if others else found

        with np.errstate(all="ignore"):
            expected = each("reference")
        bound = tolerance if dtype == "f4" else 1e-9 * tolerance
        for isa in ISAS:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RLX_CPU_ISA", isa)
                alone, shared = (each("cpu", threads=n, fold=False) for n in (1, 3))
            samples = itertools.product(chosen, shapes)
            for (special, shape), *slots in zip(samples, alone, shared, expected, strict=True):
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
    sizes = (1, 3, 5, 9, 15, 17, 19, 35, 67, 131)
    squares = [np.diag(np.full(n, 900, dtype)) for dtype in FLOATS for n in sizes]
    graph = joined(op, [(x, {"axis": 1}) for x in squares])
    pairs = zip(graph.results(threads=1, fold=False), graph.results("reference"), strict=True)
    for x, ((result,), (expected,)) in zip(squares, pairs, strict=True):
        said = f"{len(x)} {x.dtype}"
        np.testing.assert_allclose(result, expected, 1e-6, 1e-6, err_msg=said)


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
    shapes = (
        (1, 1), (5, 3), (7, 16), (3, 17), (4, 64), (3, 65), (2, 400), (1, 3001), (0, 4), (40, 1), (33, 2), (50, 4),
        (19, 31), (37, 32), (20, 33),
    )  # fmt: skip
    samples = []
    for shape, dtype in itertools.product(shapes, NUMBERS):
        x = numbers(shape, dtype, special=True)
        if np.dtype(dtype).kind == "f":
            x = np.where(np.abs(x) < 0.3, np.copysign(x.dtype.type(0), x), np.round(x, 1))
        n = shape[1]
        samples.append((x, {"k": min(n, 1 + int(share * n)), "largest": largest}))
    graph = joined("topk", samples)
    ways = graph.results("reference"), *(graph.results(threads=n, fold=False) for n in (1, 3))
    for (x, attrs), *slots in zip(samples, *ways, strict=True):
        for other, first, again in zip(*slots, strict=True):
            said = f"{attrs} of {x.shape} {x.dtype}"
            np.testing.assert_array_equal(first, other, err_msg=said)
            assert bits(first) == bits(again), said


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "l1", "l2"])
def test_long_lines_are_cut_into_pieces(isa, kind, monkeypatch):
    """Few lines of many elements: the same bits on any number of threads, close to the reference, NaN included."""
    monkeypatch.setattr(split, "_WORTH", 1e-9)
    cases = (((100_003,), 0), ((3, 70_001), 1), ((40_000, 5), 0), ((2, 33_000, 3), 1))
    samples = []
    for (shape, axis), special in itertools.product(cases, (False, True)):
        x = numbers(shape, "f4", special)
        if special and kind in ("sum", "mean", "l1", "l2"):
            x[np.isinf(x)] = 1
        samples.append((x, {"axes": (axis,)}))
    graph = joined(kind, samples)
    with np.errstate(all="ignore"):
        wanted = graph.results("reference")
    ways = [graph.results(threads=threads, fold=False) for threads in (1, 2, 3)]
    for (expected,), *found in zip(wanted, *ways, strict=True):
        first, *others = (items[0] for items in found)
        np.testing.assert_allclose(first, expected, 1e-5, 2e-3)
        assert all(bits(other) == bits(first) for other in others)


def test_a_long_line_has_a_call_for_its_pieces_and_one_that_joins_them():
    g = rlx.Graph()
    g.set_outputs([g.sum(g.input("x", (1_000_000,)), (0,))])
    with rlx.compile(g, "cpu") as compiled:
        assert compiled.as_text("kernels").count("reduce_sum_f32") == 2


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_squares_and_sizes_are_taken_while_they_are_added_up(kind):
    g = rlx.Graph()
    g.set_outputs([getattr(g, kind)(g.input("x", (30, 50)), (1,))])
    with rlx.compile(g, "cpu") as compiled:
        text = compiled.as_text("kernels")
    assert ("reduce_sum_abs_f32" if kind == "l1" else "reduce_sum_squares_f32") in text
    assert "elementwise" not in text.partition("reduce_")[0]


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_norms_of_short_rows(op, isa):
    """Rows that are normalised side by side, and those that are just too long: with NaN, weights and a residual."""
    rng = np.random.default_rng(3)
    graph, dtypes = Joined(), []
    sizes = ((1, 1), (5, 2), (16, 3), (17, 4), (40, 7), (33, 16), (40, 17), (0, 4))
    kinds = ((), ("weight",), ("weight", "bias")[: 2 if op == "layer_norm" else 1])
    for (rows, n), dtype, present, residual in itertools.product(
        sizes, FLOATS, kinds, (False, True)
    ):
        shapes = [(rows, n), *[(rows, n)] * residual, *[(n,)] * len(present)]
        arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
        if rows > 4 and n > 1:
            arrays[0][3, 1] = np.nan

        def build(g, x, *more, present=present, residual=residual):
            summed = x + more[0] if residual else x
            arguments = dict(zip(present, more[residual:], strict=True))
            return [getattr(g, op)(summed, **arguments), summed]

        graph.add(build, *arrays)
        dtypes.append(dtype)
    with np.errstate(all="ignore"):
        expected = graph.results("reference")
    ways = (graph.results(threads=threads) for threads in (1, 3))
    for dtype, *slots in zip(dtypes, *ways, expected, strict=True):
        bound = 2e-5 if dtype == "f4" else 1e-12
        for left, again, right in zip(*slots, strict=True):
            np.testing.assert_allclose(left, right, bound, bound)
            assert bits(left) == bits(again)

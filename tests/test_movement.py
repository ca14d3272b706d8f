"""Operations that move elements, on random shapes: every size of element, instruction set and number of threads."""

import itertools

import numpy as np
import pytest
from joined import Joined
from samples import ALL

import rlx
from rlx._ext import cpu
from rlx.backends.cpu import split

DTYPES = {"u8": np.uint8, "f16": np.float16, "f32": np.float32, "i64": np.int64}
# Around the sides of tiles and vectors.
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65)


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    """Every call is shared by the threads that there are."""
    monkeypatch.setattr(split, "_WORTH", 1e-9)


class ExactlyJoined(Joined):
    """Samples whose results are known exactly."""

    def __init__(self):
        super().__init__()
        self.expected = []

    def same(self, build, operands, expected):
        """Adds a sample: a function that builds its part of the graph, operands, and what is expected."""
        self.add(build, *operands)
        self.expected.append(expected)

    def check(self):
        """Compares the results on every instruction set, on any number of threads."""
        for isa, threads in itertools.product(cpu.isas(), (1, 2, 3) if ALL else (1, 3)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RLX_CPU_ISA", isa)
                found = self.results(threads=threads)
            for index, pair in enumerate(zip(found, self.expected, strict=True)):
                for result, item in zip(*pair, strict=True):
                    said = f"sample {index}, {isa}, {threads} threads"
                    np.testing.assert_array_equal(result, item, err_msg=said)


@pytest.fixture
def exact():
    return ExactlyJoined()


def random_array(rng, dtype, most=5):
    rank = int(rng.integers(1, most + 1))
    shape = rng.choice(SIZES if rank < 4 else SIZES[:9], rank)
    return rng.integers(0, 200, shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposes(exact, dtype, rng):
    for _ in range(40):
        x = random_array(rng, dtype)
        perm = [int(axis) for axis in rng.permutation(x.ndim)]
        exact.same(lambda g, x, perm=perm: [g.transpose(x, perm)], [x], [x.transpose(perm)])
    exact.check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_turned_planes(exact, dtype, rng):
    for shape in itertools.product((1, 2, 3, 16, 33, 70), repeat=2):
        x = rng.integers(0, 200, shape).astype(DTYPES[dtype])
        exact.same(lambda g, x: [g.transpose(x), g.flip(x, (1,))], [x], [x.T, np.flip(x, 1)])
    empty = np.zeros((0, 3, 5), DTYPES[dtype])
    exact.same(lambda g, x: [g.transpose(x, (2, 0, 1))], [empty], [empty.transpose(2, 0, 1)])
    exact.check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_slices_of_any_step(exact, dtype, rng):
    for _ in range(20):
        x = random_array(rng, dtype, most=4)
        steps = [int(item) for item in rng.choice([-3, -2, -1, 1, 2, 3], x.ndim)]
        starts = [0 if step > 0 else n - 1 for step, n in zip(steps, x.shape, strict=True)]
        stops = [n if step > 0 else -n - 1 for step, n in zip(steps, x.shape, strict=True)]
        expected = x[tuple(slice(None, None, step) for step in steps)]
        exact.same(
            lambda g, x, a=starts, b=stops, s=steps: [g.slice(x, a, b, steps=s)], [x], [expected]
        )
    exact.check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_joined_parts_and_repeated_ones(exact, dtype, rng):
    for _ in range(20):
        x = random_array(rng, dtype, most=4)
        axis = int(rng.integers(x.ndim))
        repeats = [int(integer) for integer in rng.integers(1, 4, x.ndim)]
        exact.same(
            lambda g, x, axis=axis, repeats=repeats: [
                g.concat([x, g.flip(x, (axis,)), x], axis),
                g.tile(x, repeats),
            ],
            [x],
            [np.concatenate([x, np.flip(x, axis), x], axis), np.tile(x, repeats)],
        )
    exact.check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_gathers(exact, dtype, index_dtype, rng):
    for count in (1, 5, 130, 600):
        x = random_array(rng, dtype, most=4)
        for axis, n in enumerate(x.shape):
            index = rng.integers(-n, n, count).astype(index_dtype)
            expected = np.take(x, index, axis)
            exact.same(
                lambda g, x, index, axis=axis: [g.gather(x, index, axis)], [x, index], [expected]
            )
    exact.check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gathers_of_single_elements(exact, dtype, rng):
    for _ in range(8):
        x = random_array(rng, dtype, most=4)
        for axis, n in enumerate(x.shape):
            shape = list(x.shape)
            shape[axis] = int(rng.choice([1, 3, 600]))
            index = rng.integers(-n, n, shape)
            expected = np.take_along_axis(x, index, axis)
            exact.same(
                lambda g, x, index, axis=axis: [g.gather_elements(x, index, axis)],
                [x, index],
                [expected],
            )
    exact.check()


@pytest.mark.parametrize("wrong", [-6, 5])
@pytest.mark.parametrize("where", [0, 511, 512, 699])
def test_a_wrong_index_anywhere_is_refused(wrong, where, isa):
    x, index = np.zeros((3, 5), np.float32), np.zeros(700, np.int32)
    index[where] = wrong
    for axis, shape in ((0, (5, 3)), (1, (3, 5))):
        for threads in (1, 3):
            graph = Joined()
            graph.add(lambda g, *nodes, axis=axis: g.gather(*nodes, axis), x.reshape(shape), index)
            with pytest.raises(rlx.InputError, match="range"):
                graph.results(threads=threads)


@pytest.mark.parametrize("reduction", [None, "add", "max"])
def test_scatters(exact, reduction, rng):
    """Slices, single elements and elements along any axis; indices repeat, so that the order counts."""
    for position in range(40):
        x = random_array(rng, "f32", 3)
        if position % 2:
            axis, count = int(rng.integers(x.ndim)), int(rng.integers(1, 40))
            shape = [
                count if a == axis else int(rng.integers(1, n + 1)) for a, n in enumerate(x.shape)
            ]
            index = rng.integers(-x.shape[axis], x.shape[axis], shape)
            attrs = {"axis": axis, "reduction": reduction}
            name = "scatter_elements"
        else:
            depth, name, attrs = (
                int(rng.integers(1, x.ndim + 1)),
                "scatter_nd",
                {"reduction": reduction},
            )
            index = np.stack([rng.integers(-n, n, 30) for n in x.shape[:depth]], -1)
            shape = (30, *x.shape[depth:])
        updates = rng.integers(0, 200, shape).astype(np.float32)
        exact.add(
            lambda g, *nodes, name=name, attrs=attrs: getattr(g, name)(*nodes, **attrs),
            *(x, index, updates),
        )
    exact.expected = exact.results("reference")
    exact.check()


def test_pads_of_several_axes(exact, rng):
    for dtype in DTYPES:
        for _ in range(25):
            x = random_array(rng, dtype)
            pads = [
                tuple(int(item) for item in rng.choice((0, 0, 1, 2, 17, -1), 2)) for _ in x.shape
            ]
            pads = [
                pair if n > 1 else (abs(pair[0]), abs(pair[1]))
                for n, pair in zip(x.shape, pads, strict=True)
            ]
            cut = tuple(
                slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(x.shape, pads, strict=True)
            )
            extra = [(max(0, b), max(0, a)) for b, a in pads]
            expected = np.pad(x[cut], extra, constant_values=3)
            exact.same(lambda g, x, pads=pads: [g.pad(x, pads, value=3)], [x], [expected])
    exact.check()


def test_operands_that_are_repeated_along_some_axes(exact, rng):
    """Blocks of a result begin in the middle of rows of a broadcast operand."""
    for shape in ((4, 25, 52), (3, 7, 5, 11), (2, 900, 3), (5, 1, 1300), (40, 33)):
        for _ in range(6):
            other = [n if rng.integers(2) else 1 for n in shape]
            x, y = (rng.integers(0, 99, item).astype(np.float32) for item in (shape, other))
            exact.same(lambda g, x, y: [g.sub(x, y)], [x, y], [x - y])
    exact.check()


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_borders_that_repeat(exact, mode, rng):
    """Any axes, borders longer than the axis, and neighbouring elements that are moved together."""
    for dtype in DTYPES:
        for _ in range(15):
            x, pads = random_array(rng, dtype), None
            # Long borders of all axes would be millions of elements.
            while pads is None or np.prod(pads.sum(1) + x.shape) > 300_000:
                pads = rng.choice((0, 0, 1, 3, 40), (x.ndim, 2))
            pads = pads.tolist()
            exact.same(lambda g, x, pads=pads: [g.pad(x, pads, mode)], [x], [np.pad(x, pads, mode)])
    line = rng.integers(0, 99, 3000).astype(np.float32)
    for pads in ((700, 2500), (0, 3), (9000, 1)):
        exact.same(
            lambda g, x, pads=pads: [g.pad(x, [pads], mode)], [line], [np.pad(line, [pads], mode)]
        )
    exact.check()


def test_a_border_is_one_call():
    g = rlx.Graph()
    g.set_outputs([g.pad(g.input("x", (3, 4, 5)), [(1, 1), (0, 2), (2, 0)], "reflect")])
    with rlx.compile(g, "cpu") as compiled:
        text = compiled.as_text("kernels")
    assert text.count("pad_repeat_b4") == 1
    assert "gather" not in text


def test_repetitions_of_short_rows(exact, rng):
    """Rows of a few elements, of which many lie along an axis that is not the one before."""
    for dtype in DTYPES:
        for shape, repeats in (
            ((40, 25, 2), (1, 1, 3)), ((300, 3), (2, 5)), ((7, 600, 1), (1, 2, 3)), ((2, 3, 4, 5), (3, 2, 1, 2)),
            ((50, 8), (1, 3)), ((50, 9), (1, 3)), ((0, 4), (2, 3)),
        ):  # fmt: skip
            x = rng.integers(0, 200, shape).astype(DTYPES[dtype])
            exact.same(lambda g, x, r=repeats: [g.tile(x, r)], [x], [np.tile(x, repeats)])
    exact.check()


def test_gathers_of_short_rows(exact, rng):
    """A place for each row: more rows than are looked up at a time, every width, one index for several rows."""
    for width in (1, 2, 3, 4, 5, 7, 8, 9, 24, 40, 200):
        x = rng.integers(0, 200, (3, 37, width)).astype(np.float32)
        index = rng.integers(-37, 37, 1100)
        exact.same(lambda g, x, i: [g.gather(x, i, 1)], [x, index], [np.take(x, index, 1)])
        few = index[:5].astype(np.int32)
        exact.same(lambda g, x, i: [g.gather(x, i, 1)], [x, few], [np.take(x, few, 1)])
    exact.check()

"""Every micro-kernel of every instruction set, forced on every tail: against float64, or exact in integers."""

import functools
import itertools

import numpy as np
import pytest
from samples import looped

import rlx
from rlx._ext import cpu as compiled
from rlx.backends.cpu import weight_packing
from rlx.ops import decode_blocks, quantize_blocks

WAYS = [(isa, "") for isa in compiled.isas()]
WAYS += [
    (isa, variant)
    for isa in compiled.isas()
    for variant in compiled.variants(isa)
    if f"matmul_integer_{variant}" in compiled.kernels(isa)
]
# Both sides of every edge: vectors of 4, 8 and 16, panels of 8, 16 and 64 columns, tiles of 6 rows, 4 bytes at a time.
SIZES = (*range(1, 19), 23, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 96, 97, 127, 128, 129, 130)
OTHERS = ((7, 37, 69), (3, 66, 21), (1, 7, 130))


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(filter(None, way)))
def way(request, monkeypatch):
    isa, variant = request.param
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    monkeypatch.setattr(weight_packing, "variants", lambda isa: (variant,) if variant else ())
    return isa


def swept(sizes, others):
    """Each dimension in turn, with the others at odd values; and some of all together."""
    for index in range(3):
        for size in sizes:
            for other in others:
                shape = list(other)
                shape[index] = size
                yield tuple(shape)
    rng = np.random.default_rng(8)
    yield from map(tuple, rng.integers(1, 131, (len(sizes) // 2, 3)).tolist())


def rotated(sizes):
    """Each size of each dimension twice, beside other sizes of the other dimensions each time."""
    count = len(sizes)  # shares no factor with those below
    for index, (k, n) in itertools.product(range(count), ((2, 3), (11, 13))):
        yield sizes[index], sizes[(k * index + 3) % count], sizes[(n * index + 8) % count]


def bytes_of(rng, shape, dtype):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def short(array):
    return str(array.dtype).replace("uint", "u").replace("int", "i").replace("float", "f")


class Products:
    """A graph of products, with what each has to be."""

    def __init__(self):
        self.graph, self.values, self.params = rlx.Graph(), {}, {}
        self.outputs, self.expected = [], []

    def input(self, array):
        name = f"x{len(self.values)}"
        self.values[name] = array
        return self.graph.input(name, array.shape, dtype=short(array))

    def param(self, array, dtype=None):
        name = f"w{len(self.params)}"
        self.params[name] = array
        return self.graph.param(name, array.shape, dtype=dtype or short(array))

    def add(self, node, expected):
        self.outputs.append(node)
        self.expected.append(expected)

    def compile(self, **options):
        self.graph.set_outputs(self.outputs)
        return rlx.compile(self.graph, "cpu", self.params, rlx.CompileOptions(**options))

    def check(self, **options):
        cg = self.compile(**options)
        result = cg.run_slots(*self.values.values())
        for y, expected in zip(result, self.expected, strict=True):
            if expected.dtype == np.int32:
                np.testing.assert_array_equal(y, expected)
            else:
                scale = max(1.0, float(np.abs(expected).max(initial=0)))
                np.testing.assert_allclose(y, expected, rtol=0, atol=3e-6 * scale)
        for name, array in self.params.items():
            np.testing.assert_array_equal(cg._state.read_param(name), array)
        return cg


@functools.cache
def every_kind(*shapes, seed=0):
    """A product of each kind of operands, for each of some shapes: one graph for all instruction sets."""
    result = Products()
    for shape in shapes:
        add_every_kind(result, *shape, seed)
    return result


def add_every_kind(result, m, k, n, seed):
    rng, g = np.random.default_rng([seed, m, k, n]), result.graph
    a = rng.normal(size=(m, k)).astype(np.float32)
    b = rng.normal(size=(k, n)).astype(np.float32)
    bias = rng.normal(size=n).astype(np.float32)
    exact = a.astype(np.float64) @ b
    x = result.input(a)
    result.add(x @ result.param(b), exact)
    result.add(g.relu(x @ result.param(b) + result.param(bias)), np.maximum(exact + bias, 0))
    result.add(x @ result.input(b), exact)
    result.add(x @ g.transpose(result.input(np.ascontiguousarray(b.T)), (1, 0)), exact)
    wide = result.input(a.astype(np.float64))
    result.add(wide @ result.param(b.astype(np.float64)), exact)
    half = b.astype(np.float16)
    result.add(
        x @ g.cast(result.param(half), "f32"), a.astype(np.float64) @ half.astype(np.float64)
    )
    bits = (b.view(np.uint32) >> 16).astype(np.uint16)
    cut = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    result.add(x @ g.cast(result.param(bits, "bf16"), "f32"), a.astype(np.float64) @ cut)
    for left in (np.int8, np.uint8):
        u = bytes_of(rng, (m, k), left)
        single = result.input(u)
        for right in (np.int8, np.uint8):
            v = bytes_of(rng, (k, n), right)
            product = u.astype(np.int32) @ v.astype(np.int32)
            result.add(g.matmul_integer(single, result.param(v)), product)
            result.add(g.matmul_integer(single, result.input(v)), product)
    blocks = -(-k // 32) * 32
    many = rng.normal(size=(m, blocks)).astype(np.float32)
    row = result.input(many)
    for scheme in ("Q4_0", "Q8_0"):
        packed = quantize_blocks(rng.normal(size=(n, blocks)).astype(np.float32), scheme)
        weights = decode_blocks(packed, scheme).astype(np.float64)
        result.add(
            g.dequant_matmul(row, result.param(packed), scheme), many.astype(np.float64) @ weights.T
        )


def test_tails(way):
    every_kind(*rotated(SIZES)).check()


@pytest.mark.slow
def test_every_tail(way):
    for shape in swept(range(1, 131), OTHERS):
        every_kind(shape, seed=1).check()


@looped("shape", [(200, 1100, 70), (7, 1100, 200), (12, 513, 129), (50, 40, 64)])
def test_blocks_of_the_cache(way, shape):
    every_kind(shape).check()


@looped("shape", [(0, 5, 7), (5, 0, 70), (5, 7, 0), (1, 0, 1)])
def test_nothing(way, shape):
    m, k, n = shape
    result = Products()
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    x = result.input(a)
    result.add(x @ result.param(b), a @ b)
    result.add(x @ result.input(b), a @ b)
    result.add(result.graph.matmul_integer(result.input(a.astype(np.int8)), result.param(b.astype(np.int8))),
             np.zeros((m, n), np.int32))  # fmt: skip
    result.check()


@looped("m", [1, 2, 6, 7, 8, 13])
@looped("kind", ["packed", "loose", "transposed", "f16", "q8"])
def test_what_is_not_finite_stays_in_its_row_and_column(way, m, kind):
    rng = np.random.default_rng(3)
    k, n, row, column = 64, 83, m // 2, 82
    a = rng.normal(size=(m, k)).astype(np.float32)
    b = rng.normal(size=(k, n)).astype(np.float32)
    a[row, 5] = np.nan
    if kind != "q8":
        b[7, column] = np.inf
    result = Products()
    g, x = result.graph, result.input(a)
    if kind == "packed":
        y = x @ result.param(b)
    elif kind == "loose":
        y = x @ result.input(b)
    elif kind == "transposed":
        y = x @ g.transpose(result.input(np.ascontiguousarray(b.T)), (1, 0))
    elif kind == "f16":
        y = x @ g.cast(result.param(b.astype(np.float16)), "f32")
    else:
        y = g.dequant_matmul(
            x, result.param(quantize_blocks(np.ascontiguousarray(b.T), "Q8_0")), "Q8_0"
        )
    result.add(y, np.zeros((m, n)))
    (output,) = result.compile().run_slots(*result.values.values())
    finite = np.ones((m, n), bool)
    finite[row] = False
    if kind != "q8":
        finite[:, column] = False
    np.testing.assert_array_equal(np.isfinite(output), finite)
    assert np.isnan(output[row]).all()


@looped("shape", [(1, 2048, 1100), (130, 300, 700), (64, 64, 64), (700, 64, 96)])
def test_the_same_bits_on_any_number_of_threads(way, shape):
    result = every_kind(shape)
    alone, two, three = (
        result.compile(threads=t).run_slots(*result.values.values()) for t in (1, 2, 3)
    )
    for first, *others in zip(alone, two, three, strict=True):
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_packed_weights_are_kept_once_and_come_back(way):
    rng = np.random.default_rng(4)
    w = rng.normal(size=(96, 128)).astype(np.float32)
    g = rlx.Graph()
    x, p = g.input("x", (5, 96)), g.param("w", w.shape)
    g.set_outputs([x @ p])
    cg = rlx.compile(g, "cpu", {"w": w})
    assert cg.memory()["params"] == w.nbytes
    twin, a = cg.clone(), rng.normal(size=(5, 96)).astype(np.float32)
    other = rng.normal(size=w.shape).astype(np.float32)
    cg.set_param("w", other)
    np.testing.assert_array_equal(twin._state.read_param("w"), other)
    for first in (cg, twin):
        np.testing.assert_allclose(first.run_slots(a)[0], a @ other, atol=1e-4)


def test_a_weight_that_others_read_is_kept_besides(way):
    rng = np.random.default_rng(5)
    w = rng.normal(size=(96, 128)).astype(np.float32)
    g = rlx.Graph()
    x, p = g.input("x", (5, 96)), g.param("w", w.shape)
    g.set_outputs([x @ p, g.sum(p, [0])])
    cg = rlx.compile(g, "cpu", {"w": w}, rlx.CompileOptions(fold=False))
    a = rng.normal(size=(5, 96)).astype(np.float32)
    for values in (w, w[::-1]):
        cg.set_param("w", values)
        product, total = cg.run_slots(a)
        np.testing.assert_allclose(product, a @ values, atol=1e-4)
        np.testing.assert_allclose(total, values.sum(0), atol=1e-4)
        np.testing.assert_array_equal(cg._state.read_param("w"), values)


def test_matrices_of_a_batch_are_packed_each(way):
    rng = np.random.default_rng(6)
    for shape in ((3, 40, 33), (2, 3, 40, 70)):
        w = rng.normal(size=shape).astype(np.float32)
        a = rng.normal(size=(*shape[:-2], 9, 40)).astype(np.float32)
        result = Products()
        result.add(result.input(a) @ result.param(w), a.astype(np.float64) @ w)
        result.check()


def test_equal_columns_give_equal_results(way):
    """Equal columns of one row: otherwise a softmax of large equal numbers prefers some of them."""
    rng = np.random.default_rng(3)
    x, column = rng.random((1, 131), np.float32), rng.random((131, 1), np.float32)
    for n in (*SIZES, 200, 1000):
        g = rlx.Graph()
        g.set_outputs([g.input("x", x.shape) @ g.constant(np.repeat(column, n, 1))])
        result = rlx.compile(g, "cpu").run({"x": x})[0]
        np.testing.assert_array_equal(result, np.repeat(result[:, :1], n, 1), err_msg=str(n))

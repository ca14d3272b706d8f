"""The representation of each dtype on each device: i64 in two words, narrow types that share words, f64 on the host."""

from __future__ import annotations

import numpy as np
import pytest
from samples import looped
from shapes import case, values

import rlx
from rlx.backends.base import CompileOptions
from rlx.ir.dtype import DType, store, widen
from rlx.ops.conformance_cases import EDGES
from rlx.ops.elementwise.table import TABLE

pytestmark = pytest.mark.by_program

DEVICES = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)], indirect=True
)
I64 = np.iinfo(np.int64)

# --- i64 ----------------------------------------------------------------------------------------------


def doubled(dtype="i64"):
    g = rlx.Graph("doubled")
    x = g.input("ids", (3,), dtype)
    g.set_outputs([x, g.reshape(g.where(x > 0, x, 0), (3, 1)), g.argmax(g.cast(x, "f32"), 0)])
    return g


@DEVICES
def test_i64_comes_back_as_i64(device):
    with rlx.compile(doubled(), device) as compiled:
        ids = np.array([I64.min, 5, I64.max])
        for _ in range(2):
            same, positive, position = compiled.run({"ids": ids})
            assert same.dtype == positive.dtype == np.int64
            np.testing.assert_array_equal(same, ids)
            np.testing.assert_array_equal(positive, [[0], [5], [I64.max]])
            assert position == 2
        views = compiled.run_slots(ids)
        assert views[0].dtype == np.int64
        assert compiled.input_views[0].dtype == np.int64
        assert not views[0].flags.writeable


@DEVICES
def test_i64_is_whole_in_params_constants_handles_and_pipelines(device):
    large, g = np.array([2**40 + 1, -(2**62), I64.max]), rlx.Graph()
    x = g.input("x", (3,), "i64")
    g.set_outputs([x + g.param("offset", (3,), "i64") - g.constant(large), x])
    offset = np.array([7, I64.min, 2**33])
    with rlx.compile(g, device, params={"offset": offset}) as compiled:
        expected = large + offset - large
        np.testing.assert_array_equal(compiled.run({"x": large})[0], expected)
        np.testing.assert_array_equal(compiled.read_output_row(1, 2), I64.max)
        many = compiled.run_pipelined([{"x": large}, {"x": -large}])
        np.testing.assert_array_equal([item[1] for item in many], [large, -large])
        compiled.set_param("offset", large)
        np.testing.assert_array_equal(compiled.run({"x": large})[0], large)
        compiled.bind_gpu_handle("x", offset)
        np.testing.assert_array_equal(compiled.run({})[1], offset)
        np.testing.assert_array_equal(compiled.read_gpu_handle("x"), offset)


INTEGER_ROWS = [row for row in TABLE if "i" in row.kinds]


@DEVICES
@looped("row", INTEGER_ROWS, ids=lambda row: row.name)
def test_i64_operations_are_exact(row, device):
    """Every pair of edges, against Python's integers where those say it, else against NumPy."""
    edges = np.array(EDGES)
    a, b = (x.ravel() for x in np.meshgrid(edges, edges, indexing="ij"))
    operands = [a, b, b[::-1].copy()][: row.operands]
    single = case(row.name, operands, [DType.I64] * row.operands)
    graph = single.graph()
    with rlx.compile(graph, device) as compiled:
        assert not compiled.host_fallbacks
        got = compiled.run_slots(*operands)[0]
    np.testing.assert_array_equal(got, single.expected(graph, operands)[0])
    if row.name not in EXACT:
        return
    wanted = [EXACT[row.name](int(x), int(y)) for x, y in zip(a, b, strict=True)]
    wrapped = [(n + 2**63) % 2**64 - 2**63 for n in wanted]
    np.testing.assert_array_equal(got, np.array(wrapped, np.int64))


def truncated(x, y):
    """The quotient without what is behind the point; 0 for y = 0."""
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": truncated,
    "fmod": lambda x, y: x - y * truncated(x, y) if y else 0,
    "mod": lambda x, y: x % y if y else 0,
    "pow": lambda x, y: pow(x, y, 2**64) if y >= 0 else {1: 1, -1: 1 - 2 * (y & 1)}.get(x, 0),
    "shift_left": lambda x, y: x << y if 0 <= y < 64 else 0,
    "shift_right": lambda x, y: x >> (y if 0 <= y < 64 else 63),
}


@DEVICES
@looped("literal", [2**40, -(2**63), 2**63 - 1, 2**32, -1, -(2**31) - 1])
def test_i64_literals_are_whole(literal, device):
    x, g = np.array([1, -5, 2**35, I64.min, I64.max]), rlx.Graph()
    node = g.input("x", x.shape, "i64")
    g.set_outputs([g.bit_xor(node + literal, node * literal)])
    with np.errstate(all="ignore"), rlx.compile(g, device) as compiled:
        expected = (x + np.int64(literal)) ^ (x * np.int64(literal))
        np.testing.assert_array_equal(compiled.run({"x": x})[0], expected)


@DEVICES
@looped("dtype", [d for d in DType if d not in (DType.F64, DType.I64)], ids=str)
def test_i64_casts_both_ways(dtype, device):
    rng = np.random.default_rng(3)
    random = rng.integers(I64.min, I64.max, 4097) >> rng.integers(0, 63, 4097)
    # Halves of the step of f32 and its neighbours, where rounding decides.
    ties = (2**24 + np.arange(-9, 9))[:, None] << np.arange(0, 39) | 1 << np.arange(0, 39) >> 1
    wide = np.concatenate([random, EDGES, ties.ravel(), -ties.ravel()])
    if dtype.is_float:
        fractions = np.concatenate(
            [wide.astype(np.float64), wide / 2.0**40, [-0.0, 1e-40, 0.99, -0.99]]
        )
        with np.errstate(over="ignore"):
            back = store(fractions, dtype)
        # Values out of range have no integer.
        back = back[np.abs(widen(back, dtype)) < 2.0**63]
    else:
        back = wide.astype(dtype.numpy)
    for operand, to in ((wide, dtype), (back, DType.I64)):
        arguments = DType.I64 if to is dtype else dtype
        single = case("cast", [operand], [arguments], {"dtype": to})
        graph = single.graph()
        with rlx.compile(graph, device) as compiled:
            assert not compiled.host_fallbacks
            got = compiled.run_slots(operand)[0]
        with np.errstate(over="ignore"):
            expected = single.expected(graph, [operand])[0]
        np.testing.assert_array_equal(got, expected)


@pytest.mark.webgpu
def test_floats_without_an_i64_give_the_least_one(webgpu):
    g = rlx.Graph()
    g.set_outputs([g.cast(g.input("x", (6,)), "i64")])
    x = np.float32([np.inf, -np.inf, np.nan, 2.0**63, -(2.0**63), 3e38])
    with rlx.compile(g, webgpu) as compiled:
        assert compiled.run({"x": x})[0].tolist() == [I64.min] * 6


FAR = np.array([2**32, 2**32 + 1, -(2**32), -(2**32) - 1, I64.max, I64.min, 2**33 - 2, -1, 1])
# The nearest of three entries.
NEAREST = np.array([2, 2, 0, 0, 2, 0, 2, 2, 1])


@pytest.mark.webgpu
def test_far_i64_indices_stay_out_of_range(webgpu):
    """The high word counts: an index of 2^32 does not become 0."""
    x, g = np.arange(12, dtype=np.float32).reshape(3, 4), rlx.Graph()
    node, position = g.input("x", (3, 4)), g.input("at", FAR.shape, "i64")
    weights = g.constant(np.arange(12, dtype=np.float32).reshape(3, 4, 1))
    g.set_outputs([
        g.gather(node, position),
        g.gather_elements(g.transpose(node), g.expand(g.reshape(position, (1, -1)), (4, len(FAR))), 1),
        g.gather_nd(node, g.reshape(position, (-1, 1))),
        g.scatter_elements(g.narrow(node, 1, 0, 1), g.reshape(position, (-1, 1)), g.constant(np.ones((9, 1), "f4")), 0, "add"),
        g.scatter_nd(node, g.reshape(position, (-1, 1)), g.constant(np.ones((9, 4), "f4")), "add"),
        g.grouped_matmul(g.constant(np.ones((9, 4), np.float32)), weights, position),
        g.one_hot(position, 3),
        g.scatter_elements(g.cast(node, "i64"), g.reshape(position, (-1, 1)), g.constant(np.full((9, 1), 2**40)), 0),
    ])  # fmt: skip
    with rlx.compile(g, webgpu) as compiled:
        assert not compiled.host_fallbacks
        a, b, c, d, e, f, hot, h = compiled.run({"x": x, "at": FAR})
    np.testing.assert_array_equal(a, x[NEAREST])
    np.testing.assert_array_equal(b, x.T[:, NEAREST])
    np.testing.assert_array_equal(c, x[NEAREST])
    added = np.array([[0], [1], [1]], np.float32)  # by the two that are in range
    np.testing.assert_array_equal(d, x[:, :1] + added)
    np.testing.assert_array_equal(e, x + added)
    # An expert is not counted from the end.
    np.testing.assert_array_equal(f, x.sum(1)[np.where(FAR < 0, 0, NEAREST)][:, None])
    np.testing.assert_array_equal(hot, (np.where(FAR < 0, FAR + 3, FAR)[:, None] == np.arange(3)))
    np.testing.assert_array_equal(h[:, 0], [0, 2**40, 2**40])


@DEVICES
def test_far_i64_lengths_are_whole_sequences(device):
    rng = np.random.default_rng(1)
    x, w, r = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((4, 3, 2), (1, 6, 2), (1, 6, 2)))
    lengths = np.array([2**32 + 1, -(2**40), 3])
    results = []
    for value, dtype in ((lengths, "i64"), (np.int32([4, 0, 3]), "i32")):
        g = rlx.Graph()
        nodes = [g.input(f"x{index}", item.shape) for index, item in enumerate((x, w, r))]
        g.set_outputs([g.gru(*nodes, seq_lens=g.input("lengths", (3,), dtype))[0]])
        with rlx.compile(g, device) as compiled:
            results.append(compiled.run({"x0": x, "x1": w, "x2": r, "lengths": value})[0])
    np.testing.assert_array_equal(*results)


# --- narrow types through every op that moves ---------------------------------------------------------

# Sizes that end in the middle of a 32-bit word, offsets that begin there.
MOVES = {
    "reshape": (((3, 5),), {"shape": (5, -1)}),
    "transpose": (((3, 5, 7),), {"perm": (2, 0, 1)}),
    "narrow": (((7, 9),), {"axis": 1, "start": 3, "length": 5}),
    "slice": (((11, 7),), {"starts": (9, 1), "stops": (0, 6), "steps": (-2, 3)}),
    "expand": (((3, 1),), {"shape": (2, 3, 5)}),
    "concat": (((3, 5), (3, 2), (3, 7)), {"axis": 1}),
    "split": (((3, 9),), {"sizes": (2, 3, 4), "axis": 1}),
    "squeeze": (((1, 5, 1, 3),), {"axes": (0, 2)}),
    "unsqueeze": (((5, 3),), {"axes": (0, -1)}),
    "flip": (((5, 7),), {"axes": (1,)}),
    "tile": (((3, 5),), {"repeats": (2, 3)}),
    "depth_to_space": (((1, 8, 3, 5),), {"block": 2}),
    "space_to_depth": (((1, 2, 6, 4),), {"block": 2}),
    "pad": (((3, 5),), {"pads": ((1, 2), (3, 0)), "mode": "reflect"}),
    "trilu": (((5, 7),), {"k": 1}),
    "copy": (((3, 7),), {}),
    "where": (((5, 7), (7,)), {}),
    "gather": (((5, 7),), {"axis": 1}),
    "gather_elements": (((5, 7),), {"axis": 1}),
    "gather_nd": (((5, 7),), {}),
    "scatter_elements": (((5, 7), (5, 3)), {"axis": 1}),
    "scatter_nd": (((5, 7), (2, 7)), {}),
}
INDICES = {
    "gather": np.array([[3, -1, 0]], np.int32),
    "gather_elements": np.arange(15, dtype=np.int32).reshape(5, 3) % 7,
    "gather_nd": np.array([[4, -1], [0, 3], [2, 2]], np.int32),
    "scatter_elements": np.arange(15, dtype=np.int32).reshape(5, 3) % 7,
    "scatter_nd": np.array([[3], [-5]], np.int32),
}
NARROW = (DType.F16, DType.BF16, DType.I8, DType.U8, DType.BOOL)


def patterns(shape, dtype, seed):
    """Values of every bit pattern that the type has, infinities, NaN and subnormals among them."""
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    raw = rng.integers(0, 1 << 8 * dtype.itemsize, shape)
    return raw.astype(f"u{dtype.itemsize}").view(dtype.numpy)


def canonical(array, dtype):
    """The bits of an array, every NaN the same."""
    bits = np.ascontiguousarray(array).view(f"u{dtype.itemsize}")
    return np.where(np.isnan(widen(array, dtype)), 0x7FFF, bits) if dtype.is_float else bits


def move(name, dtype, seed):
    result, attrs = MOVES[name]
    operands = [patterns(s, dtype, [seed, index]) for index, s in enumerate(result)]
    dtypes = [dtype] * len(result)
    if name in INDICES:
        operands.insert(1, INDICES[name])
        dtypes.insert(1, DType.I32)
    if name == "where":
        operands.insert(0, patterns((5, 1), DType.BOOL, seed))
        dtypes.insert(0, DType.BOOL)
    return case(name, operands, dtypes, attrs)


@DEVICES
@looped("dtype", NARROW, ids=str)
@looped("name", MOVES)
@looped("seed", range(3))
def test_narrow_types_keep_their_bits(name, dtype, seed, device):
    single = move(name, dtype, seed)
    graph = single.graph()
    with rlx.compile(graph, device) as compiled:
        assert not compiled.host_fallbacks
        got = compiled.run_slots(*single.operands())
        expected = single.expected(graph, single.operands())
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype == dtype.numpy
            np.testing.assert_array_equal(canonical(a, dtype), canonical(b, dtype))


@DEVICES
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_halves_round_once(dtype, device):
    """A sum of halves is the exact sum, rounded: each bit is that of the reference."""
    a, b = (values(seed, (4097,), dtype, -9, 9) for seed in (1, 2))
    g = rlx.Graph()
    g.set_outputs([g.input("a", a.shape, dtype) + g.input("b", b.shape, dtype)])
    with rlx.compile(g, device) as compiled:
        got = compiled.run_slots(a, b)[0]
    # The sum of two halves is exact in double precision, and here in f32 as well or rounds the same.
    expected = store((widen(a, dtype) + widen(b, dtype)).astype(np.float32), dtype)
    np.testing.assert_array_equal(canonical(got, dtype), canonical(expected, dtype))


# --- bf16 from floats and from bits -------------------------------------------------------------------


def scaled_bf16():
    g = rlx.Graph("scaled")
    g.set_outputs([g.input("x", (3,), "bf16") * g.param("w", (3,), "bf16")])
    return g


@looped(
    "form",
    [
        lambda x: store(x, DType.BF16), lambda x: x, lambda x: x.astype(np.float32),
        lambda x: x.astype(np.float16), lambda x: x.tolist(),
    ],
    ids=["uint16", "float64", "float32", "float16", "list"],
)  # fmt: skip
def test_bf16_is_taken_in_storage_or_as_floats(form, device):
    x, w = np.array([1.0, -2.5, 0.15625]), np.array([2.0, 3.0, -0.5])
    with rlx.compile(scaled_bf16(), device, params={"w": form(w)}) as compiled:
        (got,) = compiled.run({"x": form(x)})
        assert got.dtype == np.uint16
        np.testing.assert_array_equal(widen(got, DType.BF16), x * w)


def test_bf16_rounds_floats_to_even(device):
    g = rlx.Graph()
    g.set_outputs([g.cast(g.param("w", (4,), "bf16"), "f32")])
    w = np.float32([1 + 2**-8, 1 + 3 * 2**-8, np.inf, np.nan])
    with rlx.compile(g, device, params={"w": w}) as compiled:
        np.testing.assert_array_equal(
            compiled.run({})[0], np.float32([1, 1 + 2**-6, np.inf, np.nan])
        )


@looped(
    ("dtype", "value", "says"),
    [
        ("bf16", np.int32([1, 2, 3]), "floats or bf16 in uint16"),
        ("bf16", np.array([1j, 2, 3]), "floats or bf16 in uint16"),
        ("bf16", np.float32([1, 2]), r"got: float32\[2\]"),
        ("f16", np.array([1j, 2, 3]), "expected: float16"),
        ("i8", np.array([1, 200, 3]), "int8 can't"),
        ("i8", np.float32([1, 2, 3]), "astype"),
        ("u8", np.array([1, -2, 3]), "uint8"),
        ("bool", np.array([1, 0, 1]), "bool"),
        ("i32", np.array([1, 2**40, 3]), "int32 can't"),
    ],
)
def test_what_does_not_convert_is_refused(dtype, value, says, device):
    g = rlx.Graph()
    x, w = g.input("x", (3,), dtype), g.param("w", (3,), dtype)
    g.set_outputs([g.concat([x, w], 0)])
    with rlx.compile(g, device) as compiled:
        with pytest.raises(rlx.InputError, match=says) as caught:
            compiled.set_param("w", value)
        assert "param 'w'" in str(caught.value)
        zeros = np.zeros(3, DType.parse(dtype).numpy)
        compiled.set_param("w", zeros)
        with pytest.raises(rlx.InputError, match=says) as caught:
            compiled.run({"x": value})
        assert "input 'x'" in str(caught.value)
        assert not compiled.run({"x": zeros})[0].any()


# --- f64 on WebGPU ------------------------------------------------------------------------------------


def mixed():
    """f32 on the device around a part in f64."""
    g = rlx.Graph("mixed")
    x = g.input("x", (5, 3))
    wide = g.cast(g.exp(x), "f64")
    total = g.sum(wide * wide, axes=1)
    y = g.cast(g.sqrt(total), "f32") + 1.0
    g.set_outputs([y, total])
    return g


@pytest.mark.webgpu
def test_f64_runs_on_the_host_and_is_listed(webgpu, rng):
    x = rng.standard_normal((5, 3)).astype(np.float32)
    with rlx.compile(mixed(), webgpu) as compiled:
        listed = [text.partition(": ") for text in compiled.host_fallbacks]
        assert {op for op, _, _ in listed} >= {"mul", "sum", "sqrt", "cast"}
        assert {reason for _, _, reason in listed} == {"f64 is not computed on WebGPU"}
        y, total = compiled.run({"x": x})
        assert total.dtype == np.float64
        expected = np.sum(np.exp(x.astype(np.float64)) ** 2, axis=1)
        np.testing.assert_allclose(y, np.sqrt(expected) + 1, rtol=2e-6)
        # The device rounded to f32 before; nothing more is lost.
        np.testing.assert_allclose(total, expected, rtol=1e-6)
        schedule = compiled.as_text("schedule")
        (host,) = (line for line in schedule.splitlines() if "= host(" in line)
        assert "sum: f64 is not computed on WebGPU" in host
        assert "test_dtypes.py:" in host
        assert "on the host" in compiled.as_text("kernels")


@pytest.mark.webgpu
def test_f64_is_refused_without_the_host(webgpu):
    options = CompileOptions(allow_host_fallback=False)
    with pytest.raises(rlx.UnsupportedOpError) as caught:
        rlx.compile(mixed(), webgpu, options=options)
    text = str(caught.value)
    for part in ("mul: f64", "sum: f64", "sqrt: f64", "cast: f64", "test_dtypes.py:", "hint"):
        assert part in text, text


@pytest.mark.webgpu
def test_f64_moves_on_the_device(webgpu):
    """Nodes that only move need no host: their bits come back."""
    x = patterns((7, 5), DType.F32, 0).astype(np.float64)
    x.view(np.uint64).flat[3] = 0x7FF0DEADBEEF0001
    g = rlx.Graph()
    node = g.input("x", x.shape, "f64")
    g.set_outputs([g.transpose(node), g.concat([node, node], 0), node])
    with rlx.compile(g, webgpu) as compiled:
        assert not compiled.host_fallbacks
        for got, expected in zip(
            compiled.run_slots(x), (x.T, np.concatenate([x, x]), x), strict=True
        ):
            assert got.tobytes() == expected.tobytes()

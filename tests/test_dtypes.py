"""What each dtype is on each device: i64 carried in 32 bits, narrow types that share words, f64 on the host."""

from __future__ import annotations

import numpy as np
import pytest
from samples import looped
from shapes import case, values

import rlx
from rlx.backends.base import CompileOptions
from rlx.ir.dtype import DType, store, widen

DEVICES = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)], indirect=True
)
I32 = np.iinfo(np.int32)

# --- i64 ----------------------------------------------------------------------------------------------


def doubled(dtype="i64"):
    g = rlx.Graph("doubled")
    x = g.input("ids", (3,), dtype)
    g.set_outputs([x, g.reshape(g.where(x > 0, x, 0), (3, 1)), g.argmax(g.cast(x, "f32"), 0)])
    return g


@DEVICES
def test_i64_comes_back_as_i64(device):
    with rlx.compile(doubled(), device) as compiled:
        ids = np.array([I32.min, 5, I32.max], np.int64)
        for _ in range(2):
            same, positive, at = compiled.run({"ids": ids})
            assert same.dtype == positive.dtype == np.int64
            np.testing.assert_array_equal(same, ids)
            np.testing.assert_array_equal(positive, [[0], [5], [I32.max]])
            assert at == 2
        views = compiled.run_slots(ids)
        assert views[0].dtype == np.int64
        assert compiled.input_views[0].dtype == np.int64
        assert not views[0].flags.writeable


@pytest.mark.webgpu
@pytest.mark.parametrize("wrong", [I32.max + 1, I32.min - 1, 2**62])
def test_i64_that_webgpu_can_not_carry_is_refused(wrong, webgpu):
    good, bad = np.array([1, 2, 3]), np.array([1, wrong, 3])
    with rlx.compile(doubled(), webgpu) as compiled:
        for call in (lambda x: compiled.run({"ids": x}), lambda x: compiled.run_slots(x)):
            with pytest.raises(rlx.InputError, match="input 'ids'") as caught:
                call(bad)
            assert str(wrong) in str(caught.value)
            assert "run it on the CPU" in str(caught.value)
            np.testing.assert_array_equal(call(good)[0], good)


@pytest.mark.webgpu
def test_i64_params_and_constants_are_named(webgpu):
    g = rlx.Graph()
    x = g.input("x", (1,), "i64")
    g.set_outputs([x + g.param("offset", (1,), "i64")])
    with rlx.compile(g, webgpu, params={"offset": np.array([7])}) as compiled:
        with pytest.raises(rlx.InputError, match="param 'offset'"):
            compiled.set_param("offset", np.array([2**40]))
        assert compiled.run({"x": np.array([1])})[0].tolist() == [8]
    g = rlx.Graph()
    g.set_outputs([g.input("x", (1,), "i64") + g.constant(np.array([2**40]))])
    with pytest.raises(rlx.InputError, match="constant"):
        rlx.compile(g, webgpu)


def test_i64_on_the_cpu_is_whole():
    large = np.array([2**62, -(2**62), 2**40])
    with rlx.compile(doubled(), "cpu") as compiled:
        np.testing.assert_array_equal(compiled.run({"ids": large})[0], large)


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
    made, attrs = MOVES[name]
    operands = [patterns(s, dtype, [seed, at]) for at, s in enumerate(made)]
    dtypes = [dtype] * len(made)
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
def test_narrow_types_keep_their_bits(name, dtype, device):
    for seed in range(3):
        one = move(name, dtype, seed)
        graph = one.graph()
        with rlx.compile(graph, device) as compiled:
            assert not compiled.host_fallbacks
            got = compiled.run_slots(*one.operands())
            expected = one.expected(graph, one.operands())
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
        # What the device rounded to f32 before is all that is lost.
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
    """What only moves needs no host: its bits come back."""
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

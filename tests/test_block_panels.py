"""Block-quantised weights in panels on the CPU: packing, exact products, and products of rows rounded to 8 bits."""

import numpy as np
import pytest
from samples import looped

import rlx
from rlx._ext import cpu as compiled
from rlx.abi.products import PANEL_SCHEMES
from rlx.backends.cpu import weight_packing
from rlx.backends.cpu.layouts import BlockPanels
from rlx.ops import decode_blocks
from rlx.ops.block_formats import FORMATS, row_bytes, scrambled_blocks

pytestmark = pytest.mark.by_program

# Every instruction set, without the instructions that only some of its processors have, and with them.
WAYS = [
    (isa, variant)
    for isa in compiled.isas()
    for variant in ("", *compiled.variants(isa))
    if not variant or f"dequant_matmul_f32_{variant}" in compiled.kernels(isa)
]
# Columns on both sides of a panel's 16, and rows on both sides of the 1, 2, 4, 8 and 16 that a kernel takes at once.
SIZES = ((1, 1), (1, 16), (2, 17), (3, 15), (5, 64), (7, 33), (8, 130), (13, 80), (20, 5), (35, 150))  # fmt: skip


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(filter(None, way)))
def way(request, monkeypatch):
    isa, variant = request.param
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    monkeypatch.setattr(weight_packing, "variants", lambda isa: (variant,) if variant else ())


def near_one(scheme, exponents):
    """The top bytes of scales near 1."""
    return exponents & 3 | 0x7C if scheme == "MXFP4" else exponents & 0x83 | 0x38


def weights(rng, scheme, n, k):
    """Rows with codes of all values, and scales near 1."""
    form = FORMATS[scheme]
    blocks = rng.integers(0, 256, (n * k // form.weights, form.nbytes), np.uint8)
    blocks[:, form.exponents] = near_one(scheme, blocks[:, form.exponents])
    return blocks.reshape(n, row_bytes(scheme, k, where="weights"))


def compiled_product(packed, scheme, k, m=None, **options):
    g = rlx.Graph("product")
    x = g.input("x", (rlx.Dim("m", max=64) if m is None else m, k))
    g.set_outputs([g.dequant_matmul(x, g.param("w", packed.shape, "u8"), scheme)])
    return rlx.Session("cpu", **options).compile(g, {"w": packed})


def product(x, packed, scheme, **options):
    with compiled_product(packed, scheme, x.shape[1], len(x), **options) as cg:
        return cg.run({"x": x})[0]


def rounded(x):
    """The rows that products read: 8 bits and a scale for every 32 elements."""
    parts = x.reshape(len(x), -1, 32)
    top = np.abs(parts).max(2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(top > 0, np.rint(parts * (np.float32(127) / top)), np.float32(0))
    return (codes.astype("f8") * (top / np.float32(127))).reshape(x.shape)


@looped("scheme", PANEL_SCHEMES)
@looped("n", [1, 15, 16, 17, 50])
@looped("blocks", [1, 2, 5])
def test_packed_weights_are_unpacked_to_the_same_bytes(rng, scheme, n, blocks):
    k = blocks * FORMATS[scheme].weights
    plain = rng.integers(0, 256, (n, row_bytes(scheme, k, where="test")), np.uint8)
    layout = BlockPanels(scheme, n, k)
    memory, result = np.full(layout.nbytes, 99, np.uint8), np.full_like(plain, 99)
    layout.pack(plain, memory)
    layout.unpack(memory, result)
    np.testing.assert_array_equal(result, plain)
    assert layout.nbytes <= 1.06 * plain.nbytes * (-(-n // 16) * 16 / n) * (1 + blocks % 2)


def test_a_format_without_panels_is_read_as_it_is(rng):
    assert BlockPanels("Q8_K", 3, 256).nbytes == 0
    packed, x = scrambled_blocks("Q8_K", 3, 256), rng.standard_normal((2, 256)).astype("f4")
    assert (product(x, packed, "Q8_K", precision="int8") == product(x, packed, "Q8_K")).all()


@looped("scheme", PANEL_SCHEMES)
@looped("m,n", SIZES)
@looped("blocks", [1, 3])
def test_products_are_exact_in_f32_and_of_rounded_rows(way, rng, scheme, m, n, blocks):
    k = blocks * FORMATS[scheme].weights
    packed, x = weights(rng, scheme, n, k), rng.standard_normal((m, k)).astype("f4")
    decoded, near = decode_blocks(packed, scheme), rounded(x)
    wanted, terms = x.astype("f8") @ decoded.T, np.abs(x.astype("f8")) @ np.abs(decoded).T
    assert (np.abs(product(x, packed, scheme) - wanted) <= 1e-6 * terms).all()
    error = np.abs(product(x, packed, scheme, precision="int8") - near @ decoded.T)
    terms = np.abs(near) @ np.abs(decoded).T
    either = np.abs(x).max() / 127 * np.abs(decoded).max(1) * 2  # a tie may round either way
    assert (error <= 2e-6 * terms + either).all()
    assert np.median(error / terms) < 1e-6


@looped("scheme", PANEL_SCHEMES)
def test_the_error_of_rounded_rows(rng, scheme):
    packed, x = weights(rng, scheme, 96, 2048), rng.standard_normal((16, 2048)).astype("f4")
    wanted = x.astype("f8") @ decode_blocks(packed, scheme).T
    error = product(x, packed, scheme, precision="int8") - wanted
    assert np.sqrt(np.mean(error**2)) < 8e-3 * np.sqrt(np.mean(wanted**2))


def test_rows_without_finite_numbers_are_nan_and_rows_of_zeros_are_zero(way, rng):
    x = rng.standard_normal((11, 256)).astype("f4")
    x[1, 255], x[2, 0], x[3], x[4] = np.nan, -np.inf, 0, 1e-39
    for scheme in ("Q4_0", "Q4_K", "Q6_K"):
        result = product(x, weights(rng, scheme, 40, 256), scheme, precision="int8")
        assert np.isnan(result[1:3]).all(), scheme
        assert (result[3:5] == 0).all(), scheme
        assert np.isfinite(result[5:]).all(), scheme


def test_the_largest_codes_do_not_overflow(way):
    for scheme in PANEL_SCHEMES:
        form = FORMATS[scheme]
        for byte in (0, 255, 0x55, 0xAA):
            packed = np.full((16, form.nbytes), byte, np.uint8)
            packed[:, form.exponents] = near_one(scheme, packed[:, form.exponents])
            for x in (np.ones((1, form.weights), "f4"), -np.ones((9, form.weights), "f4")):
                wanted = x @ decode_blocks(packed, scheme).T
                result = product(x, packed, scheme, precision="int8")
                np.testing.assert_allclose(result, wanted, 1e-5, 1e-5, err_msg=f"{scheme} {byte}")


def test_bits_do_not_depend_on_threads_and_other_rows(rng):
    for scheme in ("Q5_1", "Q4_K", "Q3_K"):
        packed, x = weights(rng, scheme, 700, 512), rng.standard_normal((13, 512)).astype("f4")
        first = product(x, packed, scheme, precision="int8", options=rlx.CompileOptions(threads=1))
        again = product(x, packed, scheme, precision="int8", options=rlx.CompileOptions(threads=3))
        np.testing.assert_array_equal(first, again)
        for row in (0, 7, 12):
            alone = product(x[row : row + 1], packed, scheme, precision="int8")
            np.testing.assert_array_equal(alone[0], first[row])


@looped("precision", ["f32", "int8"])
@looped("m", [3, 61, 200])
def test_rows_of_experts_are_those_by_each_matrix(rng, precision, m):
    for scheme, n, k in (("Q4_K", 48, 256), ("Q8_0", 1040, 96), ("Q6_K", 37, 512)):
        packed, idx = weights(rng, scheme, 3 * n, k).reshape(3, n, -1), rng.integers(0, 3, m)
        x, g = rng.standard_normal((m, k)).astype("f4"), rlx.Graph()
        rows = g.grouped_dequant_matmul(
            g.input("x", x.shape), g.constant(packed), g.constant(idx), scheme
        )
        g.set_outputs([rows])
        one, three = (rlx.CompileOptions(threads=n, precision=precision) for n in (1, 3))
        with rlx.Session("cpu", options=one).compile(g) as cg:
            (got,) = cg.run({"x": x})
        with rlx.Session("cpu", options=three).compile(g) as cg:
            np.testing.assert_array_equal(cg.run({"x": x})[0], got)
        for row in range(0, m, 7):
            alone = product(
                x[row : row + 1],
                packed[idx[row]],
                scheme,
                precision=precision if n % 16 == 0 else "f32",
            )
            np.testing.assert_allclose(got[row], alone[0], 1e-5, 1e-5 * np.abs(alone).max())


def in_bf16(x):
    bits = np.ascontiguousarray(x, "f4").view("u4").astype("u8")
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return rounded.astype("u4").view("f4").astype("f8")


@looped("m", [1, 8, 9, 35])
def test_nine_rows_and_more_are_in_bf16_where_a_processor_has_tiles(rng, m):
    x, g = rng.standard_normal((m, 328)).astype("f4"), rlx.Graph()
    w, bias = rng.standard_normal((328, 83)).astype("f4"), rng.standard_normal(83).astype("f4")
    packed = weights(rng, "Q5_0", 83, 320)
    row, more = g.input("x", x.shape), (g.constant(w), g.constant(bias), "relu")
    g.set_outputs([g.fused_matmul_bias_act(row, *more), row @ g.cast(g.constant(w, "f16"), "f32")])
    g.set_outputs([*g.outputs, g.dequant_matmul(row[:, :320], g.constant(packed), "Q5_0")])
    if "tiles" not in compiled.variants(compiled.isas()[0]):
        with pytest.raises(rlx.CompileError, match="processors with AMX"):
            rlx.Session("cpu", precision="bf16").compile(g)
        return
    near = in_bf16 if m > 8 else lambda values: values.astype("f8")
    with rlx.Session("cpu", precision="bf16").compile(g) as cg:
        dense, half, blocks = cg.run({"x": x})
    wanted = np.maximum(near(x) @ near(w) + bias, 0), near(x) @ near(w.astype("f2").astype("f4"))
    np.testing.assert_allclose(dense, wanted[0], 1e-5, 1e-4)
    np.testing.assert_allclose(half, wanted[1], 1e-5, 1e-4)
    first = in_bf16(x[:, :320]) if m > 8 else rounded(x[:, :320])
    decoded = decode_blocks(packed, "Q5_0")
    wanted = first @ (in_bf16(decoded) if m > 8 else decoded).T
    np.testing.assert_allclose(blocks, wanted, 1e-3, 1e-4 * np.abs(wanted).max())


def test_large_convolutions_are_in_bf16_where_a_processor_has_tiles(rng):
    tiles = "tiles" in compiled.variants(compiled.isas()[0])
    x = rng.standard_normal((1, 160, 40, 40))
    for taps, stride in ((1, 1), (3, 2)) if tiles else ():
        w, g = rng.standard_normal((64, 160, taps, taps)).astype("f4"), rlx.Graph()
        xs, weight, more = g.input("x", x.shape), g.param("w", w.shape), {"padding": taps // 2}
        # The second one is small, and has filters in other panels.
        sizes = (xs, xs[:, :, :9, :9])
        y, small = (g.conv2d(value, weight, stride=stride, **more) for value in sizes)
        rest = g.constant(rng.standard_normal(y.shape).astype("f4"))
        g.set_outputs([g.silu(y + rest), small])
        wanted = []
        for turn, each in enumerate((in_bf16, np.float32)):
            with rlx.compile(g, "reference", params={"w": each(w).astype("f4")}) as exact:
                wanted.append(exact.run({"x": each(x).astype("f4")})[turn])
        with rlx.Session("cpu", precision="bf16").compile(g, {"w": w}) as cg:
            assert "round_" in cg.as_text("schedule")
            for got, value in zip(cg.run({"x": x.astype("f4")}), wanted, strict=True):
                np.testing.assert_allclose(got, value, 1e-4, 1e-3)


def test_any_number_of_rows_by_one_program(rng):
    packed = weights(rng, "Q4_K", 50, 512)
    with compiled_product(packed, "Q4_K", 512, precision="int8") as cg:
        for m in (0, 1, 6, 64, 3):
            x = rng.standard_normal((m, 512)).astype("f4")
            wanted = product(x, packed, "Q4_K", precision="int8") if m else np.empty((0, 50))
            np.testing.assert_array_equal(cg.run({"x": x})[0], wanted)


@pytest.mark.parametrize("m", [1, 9])
def test_products_of_the_same_rows_are_one_call(rng, m):
    # The last weight is read in two formats, so that one of them is not in panels.
    parts = [("q", "Q4_K"), ("k", "Q8_0"), ("v", "Q6_K"), ("w", "IQ4_NL"), ("w", "Q4_0")]
    packed = {name: weights(rng, s, 300 + 16 * i, 512) for i, (name, s) in enumerate(parts[:4])}
    x, g = rng.standard_normal((m, 512)).astype("f4"), rlx.Graph("joined")
    row = g.input("x", x.shape)
    w = {name: g.param(name, packed[name].shape, "u8") for name in packed}
    g.set_outputs([g.dequant_matmul(row, w[name], scheme) + 1.0 for name, scheme in parts])
    with rlx.Session("cpu", precision="int8").compile(g, packed) as cg:
        text, results = cg.as_text("schedule"), cg.run({"x": x})
    assert (text.count("round_rows"), text.count("dequant_products")) == (2, 2), text
    for i, (result, (name, scheme)) in enumerate(zip(results, parts, strict=True)):
        wanted = product(x, packed[name], scheme, precision="int8" if i < 3 else "f32") + 1
        assert np.abs(result - wanted).max() <= (i > 2) * 0.02 * np.abs(wanted).max()


def test_a_table_of_rows_and_the_product_share_their_weights(rng):
    packed = weights(rng, "Q6_K", 300, 512)
    g = rlx.Graph("tied")
    table, ids = g.param("w", packed.shape, "u8"), g.input("ids", (4,), "i32")
    rows = g.dequantize_blocks(table, "Q6_K", rows=ids)
    g.set_outputs([rows, g.dequant_matmul(rows, table, "Q6_K")])
    with rlx.compile(g, "cpu", {"w": packed}) as cg:
        some = np.array([299, 0, -1, 17], np.int32)
        rows, result = cg.run({"ids": some})
        decoded = decode_blocks(packed, "Q6_K").astype("f4")
        np.testing.assert_array_equal(rows, decoded[some])
        picked = decoded[some]
        wanted, terms = picked.astype("f8") @ decoded.T, np.abs(picked) @ np.abs(decoded).T
        assert (np.abs(result - wanted) <= 4e-6 * terms).all()
        assert cg.memory()["params"] <= 1.1 * packed.nbytes
        with pytest.raises(rlx.InputError):
            cg.run({"ids": np.array([0, 1, 2, 300], np.int32)})
        other = weights(rng, "Q6_K", 300, 512)
        cg.set_params({"w": other})
        wanted = decode_blocks(other, "Q6_K").astype("f4")[some]
        np.testing.assert_array_equal(cg.run({"ids": some})[0], wanted)


def test_other_devices_refuse_the_precision_by_name(webgpu):
    g = rlx.Graph("product")
    g.set_outputs([g.dequant_matmul(g.input("x", (1, 32)), g.param("w", (4, 18), "u8"), "Q4_0")])
    for device in (webgpu, "reference"):
        with pytest.raises(rlx.CompileError, match="int8") as error:
            rlx.Session(device, precision="int8").compile(g, {"w": np.zeros((4, 18), np.uint8)})
        assert "cpu" in str(error.value)

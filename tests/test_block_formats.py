"""Block formats: against the gguf package, round trips, products on both devices, and errors."""

import re
from pathlib import Path

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.abi.products import SCHEMES
from rlx.backends.base import CompileOptions
from rlx.errors import DTypeError, InputError, ShapeError, UnknownNameError
from rlx.ops import decode_blocks, quantize_blocks, quantize_groups
from rlx.ops.block_formats import FORMATS, GROUPED, scrambled_blocks

pytestmark = pytest.mark.by_program

# Largest error of a round trip, relative to the largest weight: half a step of the coarsest code,
# with what the rounding of the scales adds.
STEP = {"Q4_0": 0.13, "Q4_1": 0.07, "Q5_0": 0.07, "Q5_1": 0.04, "Q8_0": 0.005, "Q2_K": 0.5,
        "Q3_K": 0.28, "Q4_K": 0.09, "Q5_K": 0.06, "Q6_K": 0.04, "Q8_K": 0.005, "IQ4_NL": 0.12, "IQ4_XS": 0.15,
        "MXFP4": 0.26}  # fmt: skip


@looped("scheme", [s for s in FORMATS if s != "Q8_K"])
def test_decoders_equal_gguf(scheme):
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[scheme]
    form = FORMATS[scheme]
    assert gguf.constants.GGML_QUANT_SIZES[kind] == (form.weights, form.nbytes)
    raw = scrambled_blocks(scheme, 5, 3 * form.weights)
    ours = decode_blocks(raw, scheme).astype(np.float32)
    assert np.isfinite(ours).all()
    np.testing.assert_array_equal(ours, gguf.quants.dequantize(raw, kind))


def test_q8_k_by_hand():
    block = np.zeros(292, np.uint8)
    block[:4] = np.array([0.25], "<f4").view(np.uint8)
    block[4:7] = (1, 255, 128)
    weights = decode_blocks(block[None], "q8_k")
    assert weights.shape == (1, 256)
    assert weights[0, :4].tolist() == [0.25, -0.25, -32.0, 0.0]


@looped("scheme", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_encoders_equal_gguf(scheme, rng):
    gguf = pytest.importorskip("gguf")
    x = np.float32(rng.standard_normal((4, 96)))
    x[0, :32] = 0
    x[1, :32] = -3
    kind = gguf.GGMLQuantizationType[scheme]
    np.testing.assert_array_equal(quantize_blocks(x, scheme), gguf.quants.quantize(x, kind))


@looped("scheme", FORMATS)
def test_round_trip(scheme, rng):
    x = np.float32(rng.standard_normal((3, 2, 512)))
    x[0, 0, :256] = 0
    x[1, 0] = np.abs(x[1, 0]) + 1
    x[1, 1] = -np.abs(x[1, 1])
    x[2] *= 1e-3
    packed = quantize_blocks(x, scheme)
    assert packed.shape == (3, 2, 512 // FORMATS[scheme].weights * FORMATS[scheme].nbytes)
    back = decode_blocks(packed, scheme)
    assert not back[0, 0, :256].any()
    limit = STEP[scheme] * np.abs(x).max(-1, keepdims=True)
    assert (np.abs(back - x) <= limit).all()


@looped("scheme", FORMATS)
def test_decoded_weights_are_fixed_points_of_codes(scheme, rng):
    """The encoder's bytes hold what it meant: decoding and encoding again moves nothing far."""
    x = decode_blocks(quantize_blocks(rng.standard_normal((2, 512)), scheme), scheme)
    again = decode_blocks(quantize_blocks(x, scheme), scheme)
    assert np.abs(again - x).max() <= STEP[scheme] * np.abs(x).max()


@looped("scheme", GROUPED)
@looped("group", [16, 32, 64, 128, 256])
def test_groups(scheme, group, rng):
    x = np.float32(rng.uniform(-1, 3, (2, 3, 512)))
    packed, scales, zeros = quantize_groups(x, scheme, group)
    assert packed.shape == (2, 3, 512 * GROUPED[scheme] // 8)
    assert scales.shape == zeros.shape == (2, 3, 512 // group)
    back = decode_blocks(packed, scheme, scales, zeros)
    assert np.abs(back - x).max() <= 1.01 * scales.max()


def test_int4_low_half_first():
    scales = np.ones((1, 1), np.float32)
    packed = np.array([[0x21, 0xF0] + [0x88] * 14], np.uint8)
    weights = decode_blocks(packed, "int4", scales)
    assert weights[0, :5].tolist() == [-7, -6, -8, 7, 0]
    assert decode_blocks(packed, "int4", scales, np.ones((1, 1)))[0, :2].tolist() == [0, 1]


@looped("scheme", FORMATS)
def test_empty(scheme):
    for shape in ((0, 512), (3, 0)):
        packed = quantize_blocks(np.zeros(shape, np.float32), scheme)
        assert decode_blocks(packed, scheme).shape == shape


def test_encoder_errors():
    with pytest.raises(ShapeError, match="multiple of 32"):
        quantize_blocks(np.zeros((2, 33)), "Q4_0")
    with pytest.raises(UnknownNameError, match="did you mean 'Q4_K'"):
        quantize_blocks(np.zeros((2, 256)), "Q4_KK")
    with pytest.raises(ShapeError, match="quantize_groups"):
        quantize_blocks(np.zeros((2, 256)), "int4")
    with pytest.raises(InputError, match="finite"):
        quantize_blocks(np.full((1, 32), np.nan), "Q4_0")
    with pytest.raises(InputError, match="f16"):
        quantize_blocks(np.full((1, 32), 1e9), "Q4_0")
    with pytest.raises(ShapeError, match="group"):
        quantize_groups(np.zeros((1, 64)), "int4", 48)
    with pytest.raises(ShapeError, match="whole number of blocks"):
        decode_blocks(np.zeros((2, 19), np.uint8), "Q4_0")
    with pytest.raises(DTypeError, match="uint8"):
        decode_blocks(np.zeros((2, 18), np.int8), "Q4_0")
    with pytest.raises(ShapeError, match="needs scales"):
        decode_blocks(np.zeros((2, 16), np.uint8), "int4")
    with pytest.raises(ShapeError, match="scales do not fit"):
        decode_blocks(np.zeros((2, 16), np.uint8), "int4", np.ones((2, 3)))
    assert len(SCHEMES) == 16


# --- in graphs ------------------------------------------------------------------------------------


def run(device, build, *arrays):
    """One op on its own, subnormal results kept: ``build`` gets the graph and an input per array."""
    g = rlx.Graph("one")
    inputs = [g.input(f"x{index}", a.shape, a.dtype) for index, a in enumerate(arrays)]
    g.set_outputs(build(g, *inputs))
    options = rlx.CompileOptions(denormals="keep")
    with rlx.compile(g, device=device, options=options) as cg:
        assert not cg.host_fallbacks
        (y,) = cg.run_slots(*arrays)
        return np.array(y)


@looped("scheme", FORMATS)
def test_decoding_is_exact(scheme, device):
    packed = scrambled_blocks(scheme, 7, 512)
    y = run(device, lambda g, p: g.dequantize_blocks(p, scheme), packed)
    expected = decode_blocks(packed, scheme).astype(np.float32)
    if device == "webgpu":
        # WGSL may take a scale that is a subnormal number for 0: 127 weights of 2^-126 at the most.
        flushed = (y == 0) & (np.abs(expected) < 128 * 2.0**-126)
        expected = np.where(flushed, 0, expected)
    np.testing.assert_array_equal(y, expected)


@looped("scheme", FORMATS)
def test_any_bytes_on_the_cpu(scheme, rng):
    """Scales that are infinite or no numbers give what NumPy gives."""
    packed = rng.integers(0, 256, (40, 4 * FORMATS[scheme].nbytes)).astype(np.uint8)
    packed[:, FORMATS[scheme].exponents[0]] = 0x7C
    packed[::2, FORMATS[scheme].exponents[-1]] = 0xFF
    with np.errstate(all="ignore"):
        expected = decode_blocks(packed, scheme).astype(np.float32)
    y = run("cpu", lambda g, p: g.dequantize_blocks(p, scheme), packed)
    np.testing.assert_array_equal(y, expected)


@looped("scheme", SCHEMES)
@looped("number", range(4))
def test_products_of_any_size(scheme, number, device):
    rng = np.random.default_rng([SCHEMES.index(scheme), number])
    m, n = int(rng.choice([1, 2, 5, 8, 9, 17, 33, 70])), int(rng.integers(1, 80))
    k = 256 * int(rng.integers(1, 5))
    x, w = np.float32(rng.standard_normal((m, k))), np.float32(rng.standard_normal((n, k)))
    if scheme in GROUPED:
        parts = quantize_groups(w, scheme, int(rng.choice([16, 32, 64, 128, 256])))
    else:
        parts = (quantize_blocks(w, scheme),)
    y = run(device, lambda g, x, p, *rest: g.dequant_matmul(x, p, scheme, *rest), x, *parts)
    expected = x.astype(np.float64) @ decode_blocks(parts[0], scheme, *parts[1:]).T
    assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_nan_stays_in_its_row(device, rng):
    x = np.float32(rng.standard_normal((20, 64)))
    x[3, 5] = np.nan
    packed = quantize_blocks(rng.standard_normal((70, 64)) + 4, "Q8_0")
    y = run(device, lambda g, x, p: g.dequant_matmul(x, p, "Q8_0"), x, packed)
    assert np.isnan(y[3]).all()
    assert np.isfinite(np.delete(y, 3, 0)).all()


def test_more_columns_than_one_grid_dimension(device):
    packed = scrambled_blocks("Q4_0", 270_001, 32)
    x = np.ones((1, 32), np.float32)
    y = run(device, lambda g, x, p: g.dequant_matmul(x, p, "Q4_0"), x, packed)
    expected = decode_blocks(packed, "Q4_0").sum(1)
    assert np.abs(y[0] - expected).max() <= 1e-5 * np.abs(expected).max()


def test_embedding(device, rng):
    table = quantize_blocks(rng.standard_normal((50, 256)), "Q6_K")
    rows = np.array([[3, 49, -1], [0, -50, 3]], np.int32)
    y = run(device, lambda g, t, r: g.dequantize_blocks(t, "Q6_K", rows=r), table, rows)
    np.testing.assert_array_equal(y, decode_blocks(table, "Q6_K")[rows].astype(np.float32))


def test_embedding_row_out_of_range():
    table = quantize_blocks(np.ones((5, 32)), "Q4_0")
    for row in (5, -6):
        with pytest.raises(InputError):
            run("cpu", lambda g, t, r: g.dequantize_blocks(t, "Q4_0", rows=r), table,
                np.array([row], np.int32))  # fmt: skip


def test_weights_stay_packed(device):
    """No temporary as large as the decoded matrix is made."""
    n = k = 2048
    g = rlx.Graph("packed")
    packed = g.constant(scrambled_blocks("Q4_K", n, k))
    g.set_outputs(g.dequant_matmul(g.input("x", (17, k)), packed, "Q4_K"))
    # Each further thread has a panel of scratch memory of its own.
    with rlx.compile(g, device=device, options=CompileOptions(threads=2)) as cg:
        assert cg.memory()["peak"] < n * k


def test_errors():
    g = rlx.Graph("wrong")
    x = g.input("x", (2, 256))
    packed = g.input("packed", (4, 144), "u8")
    with pytest.raises(UnknownNameError, match="did you mean 'Q4_K'"):
        g.dequant_matmul(x, packed, "Q4_K_M")
    with pytest.raises(ShapeError, match="multiple of 210"):
        g.dequant_matmul(x, packed, "Q6_K")
    with pytest.raises(ShapeError, match="do not fit"):
        g.dequant_matmul(g.input("z", (2, 128)), packed, "Q4_0")
    with pytest.raises(ShapeError, match="blocks of 256"):
        g.dequant_matmul(g.input("y", (2, 250)), packed, "Q4_K")
    with pytest.raises(DTypeError, match="bytes"):
        g.dequant_matmul(x, g.input("floats", (4, 144)), "Q4_K")
    with pytest.raises(DTypeError, match="f64"):
        g.dequant_matmul(g.input("wide", (2, 256), "f64"), packed, "Q4_K")
    with pytest.raises(ShapeError, match="needs scales"):
        g.dequant_matmul(x, g.input("codes", (4, 128), "u8"), "int4")
    with pytest.raises(ShapeError, match="in the blocks"):
        g.dequant_matmul(x, packed, "Q4_K", g.input("scales", (4, 8)))
    codes, scales = g.input("codes2", (4, 128), "u8"), g.input("scales2", (4, 8))
    with pytest.raises(ShapeError, match="scales do not fit"):
        g.dequant_matmul(x, codes, "int4", g.input("few", (4, 3)))
    with pytest.raises(ShapeError, match="zero points"):
        g.dequant_matmul(x, codes, "int4", scales, g.input("zeros", (4, 4), "u8"))
    with pytest.raises(DTypeError, match="zeros"):
        g.dequant_matmul(x, codes, "int4", scales, g.input("zeros2", (4, 8), "i32"))
    with pytest.raises(ShapeError, match="N, bytes"):
        g.dequant_matmul(x, g.input("cube", (2, 4, 144), "u8"), "Q4_K")
    with pytest.raises(DTypeError, match="indices"):
        g.dequantize_blocks(packed, "Q4_K", rows=g.input("rows", (3,)))
    with pytest.raises(ShapeError, match="picked"):
        g.dequantize_blocks(g.input("none", (0, 144), "u8"), "Q4_K",
                            rows=g.input("rows2", (3,), "i32"))  # fmt: skip


def test_the_page_runs():
    page = (Path(__file__).parent.parent / "docs" / "guides" / "quantization.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert blocks
    exec(compile("".join(blocks), "docs/guides/quantization.md", "exec"), {})

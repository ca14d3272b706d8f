"""Block formats: against the gguf package, round trips, products on both devices, and errors."""

import numpy as np
import pytest

from rlx.errors import DTypeError, InputError, ShapeError, UnknownNameError
from rlx.ops.block_encoders import quantize_blocks, quantize_groups
from rlx.ops.block_formats import FORMATS, GROUPED, SCHEMES, decode_blocks, scrambled_blocks

# Largest error of a round trip, relative to the largest weight: half a step of the coarsest code,
# with what the rounding of the scales adds.
STEP = {"Q4_0": 0.13, "Q4_1": 0.07, "Q5_0": 0.07, "Q5_1": 0.04, "Q8_0": 0.005, "Q2_K": 0.5,
        "Q3_K": 0.28, "Q4_K": 0.09, "Q5_K": 0.06, "Q6_K": 0.04, "Q8_K": 0.005}  # fmt: skip


@pytest.mark.parametrize("scheme", [s for s in FORMATS if s != "Q8_K"])
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


@pytest.mark.parametrize("scheme", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_encoders_equal_gguf(scheme, rng):
    gguf = pytest.importorskip("gguf")
    x = np.float32(rng.standard_normal((4, 96)))
    x[0, :32] = 0
    x[1, :32] = -3
    kind = gguf.GGMLQuantizationType[scheme]
    np.testing.assert_array_equal(quantize_blocks(x, scheme), gguf.quants.quantize(x, kind))


@pytest.mark.parametrize("scheme", FORMATS)
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


@pytest.mark.parametrize("scheme", FORMATS)
def test_decoded_weights_are_fixed_points_of_codes(scheme, rng):
    """The encoder's bytes hold what it meant: decoding and encoding again moves nothing far."""
    x = decode_blocks(quantize_blocks(rng.standard_normal((2, 512)), scheme), scheme)
    again = decode_blocks(quantize_blocks(x, scheme), scheme)
    assert np.abs(again - x).max() <= STEP[scheme] * np.abs(x).max()


@pytest.mark.parametrize("scheme", GROUPED)
@pytest.mark.parametrize("group", [16, 32, 64, 128, 256])
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


@pytest.mark.parametrize("scheme", FORMATS)
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
    assert len(SCHEMES) == 13

"""Quantisers: float weights to the block formats, rounded to the nearest code.

They are simple on purpose: scales come from the largest weights of a block, nothing is searched for.
The formats of 32 weights give the bytes that ggml's own reference quantisers give; the others stay
within half a step, up to the rounding of their scales.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from rlx.errors import InputError, ShapeError
from rlx.ir.opdef import Array
from rlx.ops.block_formats import (
    FORMATS,
    GROUP_SIZES,
    GROUPED,
    VALUES_IQ4,
    VALUES_MXFP4,
    parse_scheme,
    row_bytes,
)


def _bytes(values: Array, dtype: str) -> Array:
    """Numbers of each block as bytes: ``[B, n]`` -> u8 ``[B, n * itemsize]``."""
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint8).reshape(len(values), -1)


def _half(values: Array) -> tuple[Array, Array]:
    """A column as f16: its bytes, and its exact values in float32."""
    with np.errstate(over="ignore"):
        stored = values.astype(np.float16)
    if not np.isfinite(stored).all():
        raise InputError(
            "[quantize_blocks] a scale does not fit f16",
            got=float(np.abs(values).max()),
            expected="at most 65504",
            hint="scale the weights down",
        )
    return _bytes(stored, "<f2"), stored.astype(np.float32)


def _join(fields: Array, bits: int) -> Array:
    """Fields of ``bits`` bits into bytes, lowest first: ``[B, 8 / bits, n]`` -> ``[B, n]``."""
    shifts = np.arange(0, 8, bits)[None, :, None]
    return (fields.astype(np.uint32) << shifts).sum(1).astype(np.uint8)


def _over(x: Array, scale: Array) -> Array:
    """The quotient as ggml takes it, by the reciprocal; 0 where the scale is 0."""
    return x * np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def _extreme(x: Array) -> Array:
    """The entry of the last axis that is largest in size, with its sign."""
    return np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)


def _nearest(x: Array, low: int, high: int) -> Array:
    """The nearest whole numbers within a range, halves upwards."""
    return np.clip(np.floor(x + x.dtype.type(0.5)), low, high)


# --- 32 weights to a block ------------------------------------------------------------------------


def _codes_32(codes: Array, fifth: bool) -> Array:
    """Codes of 4 bits; in front of them a fifth bit of each."""
    whole = codes.astype(np.uint8)
    low = _join((whole & 15).reshape(-1, 2, 16), 4)
    return np.hstack([np.packbits(whole >> 4, axis=1, bitorder="little"), low]) if fifth else low


def _centred(x: Array, half: int, fifth: bool) -> Array:
    """Q4_0 and Q5_0: the extreme weight becomes -half, so that the range is used in full."""
    scale = _extreme(x) / np.float32(-half)
    codes = _nearest(_over(x, scale) + np.float32(half), 0, 2 * half - 1)
    return np.hstack([_half(scale)[0], _codes_32(codes, fifth)])


def _ranged(x: Array, top: int, fifth: bool) -> Array:
    """Q4_1 and Q5_1: from the least weight to the largest."""
    low = x.min(1, keepdims=True)
    scale = (x.max(1, keepdims=True) - low) / np.float32(top)
    codes = _nearest(_over(x - low, scale), 0, top)
    return np.hstack([_half(scale)[0], _half(low)[0], _codes_32(codes, fifth)])


def _q8_0(x: Array) -> Array:
    scale = np.abs(x).max(1, keepdims=True) / np.float32(127)
    steps = _over(x, scale)
    codes = np.sign(steps) * np.floor(np.abs(steps) + np.float32(0.5))
    return np.hstack([_half(scale)[0], _bytes(codes, "i1")])


def _nearest_place(x: Array, values: Array) -> Array:
    """The places of the nearest values in a table of 16."""
    order = np.argsort(values, kind="stable")
    return order[np.searchsorted((values[order][1:] + values[order][:-1]) / 2, x)].astype(np.uint8)


def _iq4_nl(x: Array) -> Array:
    """The extreme weight becomes the first of the values."""
    block, d = _half(_extreme(x) / np.float32(VALUES_IQ4[0]))
    return np.hstack([block, _codes_32(_nearest_place(_over(x, d), VALUES_IQ4), False)])


def _mxfp4(x: Array) -> Array:
    """The scale is the power of two that leaves the largest weight below 8, of values up to 6."""
    _, exponents = np.frexp(np.abs(x).max(1, keepdims=True))
    stored = np.clip(exponents + 124, 0, 254)
    codes = _nearest_place(np.ldexp(x.astype(np.float64), 128 - stored), VALUES_MXFP4)
    return np.hstack([stored.astype(np.uint8), _codes_32(codes, False)])


# --- 256 weights to a block -----------------------------------------------------------------------


def _with_minima(x: Array, parts: int, top: int, scale_top: int) -> tuple[Array, ...]:
    """Codes of weights that are scale * code - minimum in each of ``parts`` sub-blocks.

    Returns:
        Bytes of the two block scales, scales and minima ``[B, parts]``, codes ``[B, 256]``.
    """
    sub = x.reshape(len(x), parts, -1)
    low = np.minimum(sub.min(2), 0)
    scale = (sub.max(2) - low) / np.float32(top)
    scale_bytes, d = _half(scale.max(1, keepdims=True) / np.float32(scale_top))
    low_bytes, dmin = _half((-low).max(1, keepdims=True) / np.float32(scale_top))
    scales = _nearest(_over(scale, d), 0, scale_top)
    minima = _nearest(_over(-low, dmin), 0, scale_top)
    codes = _nearest(_over(sub + (dmin * minima)[..., None], (d * scales)[..., None]), 0, top)
    block = np.hstack([scale_bytes, low_bytes])
    return block, scales.astype(np.uint8), minima.astype(np.uint8), codes.reshape(len(x), 256)


def _with_signs(x: Array, half: int, scale_half: int) -> tuple[Array, Array, Array]:
    """Codes -half ... half - 1 in 16 sub-blocks with signed scales.

    Returns:
        Bytes of the block's scale, the scales ``[B, 16]``, codes + half ``[B, 256]``.
    """
    sub = x.reshape(len(x), 16, 16)
    scale = _extreme(sub)[..., 0] / np.float32(-half)
    block, d = _half(_extreme(scale) / np.float32(-scale_half))
    scales = _nearest(_over(scale, d), -scale_half, scale_half - 1)
    codes = _nearest(_over(sub, (d * scales)[..., None]), -half, half - 1) + half
    return block, scales.astype(np.int8), codes.reshape(len(x), 256).astype(np.uint8)


def _pairs(codes: Array) -> Array:
    """Codes of 2 bits: 32 bytes hold 128 weights."""
    return _join(codes.reshape(-1, 4, 32), 2).reshape(-1, 64)


def _wide_nibbles(codes: Array) -> Array:
    """Codes of 4 bits: 32 bytes hold 64 weights."""
    return _join(codes.reshape(-1, 2, 32), 4).reshape(-1, 128)


def _q2_k(x: Array) -> Array:
    block, scales, minima, codes = _with_minima(x, 16, 3, 15)
    return np.hstack([scales | minima << 4, _pairs(codes), block])


def _q3_k(x: Array) -> Array:
    block, signed, codes = _with_signs(x, 4, 32)
    scales = (signed.astype(np.int16) + 32).astype(np.uint8)
    third = np.packbits((codes >> 2).reshape(-1, 8, 32), axis=1, bitorder="little")[:, 0]
    low = _join((scales & 15).reshape(-1, 2, 8), 4)
    high = _join((scales >> 4).reshape(-1, 4, 4), 2)
    return np.hstack([third, _pairs(codes & 3), low, high, block])


def _scales_k4(scales: Array, minima: Array) -> Array:
    """8 scales and 8 minima of 6 bits in 12 bytes."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return np.hstack([first, second, (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4])


def _q4_k(x: Array) -> Array:
    block, scales, minima, codes = _with_minima(x, 8, 15, 63)
    return np.hstack([block, _scales_k4(scales, minima), _wide_nibbles(codes)])


def _q5_k(x: Array) -> Array:
    block, scales, minima, wide = _with_minima(x, 8, 31, 63)
    codes = wide.astype(np.uint8)
    fifth = np.packbits((codes >> 4).reshape(-1, 8, 32), axis=1, bitorder="little")[:, 0]
    return np.hstack([block, _scales_k4(scales, minima), fifth, _wide_nibbles(codes & 15)])


def _q6_k(x: Array) -> Array:
    block, scales, codes = _with_signs(x, 32, 128)
    low = _join((codes & 15).reshape(-1, 2, 64), 4).reshape(-1, 128)
    return np.hstack([low, _pairs(codes >> 4), scales.view(np.uint8), block])


def _iq4_xs(x: Array) -> Array:
    sub = x.reshape(len(x), 8, 32)
    scale = _extreme(sub)[..., 0] / np.float32(VALUES_IQ4[0])
    block, d = _half(_extreme(scale) / np.float32(-32))
    signed = _nearest(_over(scale, d), -32, 31)
    codes = _nearest_place(_over(sub, (d * signed)[..., None]), VALUES_IQ4)
    scales = (signed + 32).astype(np.uint8)
    high = _join((scales >> 4).reshape(-1, 2, 4).swapaxes(1, 2), 2)
    low = _join((scales & 15).reshape(-1, 4, 2).swapaxes(1, 2), 4)
    return np.hstack([block, high, low, _join(codes.reshape(-1, 2, 16), 4).reshape(-1, 128)])


def _q8_k(x: Array) -> Array:
    scale = _extreme(x) / np.float32(-127)
    codes = _nearest(_over(x, scale), -127, 127)
    sums = codes.reshape(-1, 16, 16).sum(2)
    return np.hstack([_bytes(scale, "<f4"), _bytes(codes, "i1"), _bytes(sums, "<i2")])


_ENCODERS: dict[str, Callable[[Array], Array]] = {
    "Q4_0": partial(_centred, half=8, fifth=False),
    "Q4_1": partial(_ranged, top=15, fifth=False),
    "Q5_0": partial(_centred, half=16, fifth=True),
    "Q5_1": partial(_ranged, top=31, fifth=True),
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "Q8_K": _q8_k,
}


def _checked(weights: Array, where: str) -> Array:
    x = np.asarray(weights, np.float32, order="C")
    if x.ndim == 0:
        raise ShapeError(f"[{where}] weights have no axis", got=x.shape)
    if not np.isfinite(x).all():
        raise InputError(f"[{where}] weights are not all finite")
    return x


def quantize_blocks(weights: Array, scheme: str) -> Array:
    """Weights in a block format, each row on its own.

    Args:
        weights: ``[..., K]``, taken in float32; K a multiple of 32, or of 256 for the K formats.
        scheme: "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K" to "Q6_K", "Q8_K", "IQ4_NL", "IQ4_XS" or "MXFP4".

    Returns:
        u8 ``[..., bytes of a row]``, the bytes of a GGUF tensor.

    Raises:
        ShapeError: K is no whole number of blocks, or the scheme keeps its scales apart.
        InputError: A weight is not finite, or a scale does not fit f16.

    Example:
        >>> quantize_blocks(np.eye(64, dtype=np.float32), "Q4_0").shape
        (64, 36)
    """
    scheme = parse_scheme(scheme, where="quantize_blocks")
    if scheme in GROUPED:
        raise ShapeError(
            f"[quantize_blocks] {scheme} keeps its scales in an array of their own",
            hint="use quantize_groups",
        )
    x = _checked(weights, "quantize_blocks")
    nbytes = row_bytes(scheme, x.shape[-1], where="quantize_blocks")
    if x.size == 0:
        return np.zeros((*x.shape[:-1], nbytes), np.uint8)
    return _ENCODERS[scheme](x.reshape(-1, FORMATS[scheme].weights)).reshape(*x.shape[:-1], nbytes)


def quantize_groups(
    weights: Array, scheme: str = "int4", group: int = 32
) -> tuple[Array, Array, Array]:
    """Weights as plain 4-bit or 8-bit codes with a scale and a zero point per group.

    Args:
        weights: ``[..., K]``, K a multiple of ``group``.
        scheme: "int4" (two codes a byte, the low half first) or "int8".
        group: Weights per scale: 16, 32, 64, 128 or 256.

    Returns:
        (packed, scales, zeros): u8 ``[..., bytes]``, f32 and u8 ``[..., K / group]``; a weight is
        (code - zero) * scale.

    Raises:
        ShapeError: The scheme or the group do not fit.
        InputError: A weight is not finite.
    """
    scheme = parse_scheme(scheme, where="quantize_groups")
    x = _checked(weights, "quantize_groups")
    if scheme not in GROUPED or group not in GROUP_SIZES or x.shape[-1] % group:
        raise ShapeError(
            "[quantize_groups] scheme or group do not fit",
            got=f"{scheme}, groups of {group} in rows of {x.shape[-1]} weights",
            expected=f"{' or '.join(GROUPED)}, a group of {GROUP_SIZES} that divides a row",
        )
    bits = GROUPED[scheme]
    top = (1 << bits) - 1
    sub = x.reshape(*x.shape[:-1], x.shape[-1] // group, group)
    # The range holds 0, so that its code is a whole number.
    low, high = np.minimum(sub.min(-1), 0), np.maximum(sub.max(-1), 0)
    scales = (high - low) / np.float32(top)
    zeros = _nearest(_over(-low, scales), 0, top)
    codes = _nearest(_over(sub, scales[..., None]) + zeros[..., None], 0, top)
    rows = codes.reshape(-1, x.shape[-1] * bits // 8, 8 // bits).swapaxes(1, 2)
    packed = _join(rows, bits).reshape(*x.shape[:-1], x.shape[-1] * bits // 8)
    return packed, scales, zeros.astype(np.uint8)

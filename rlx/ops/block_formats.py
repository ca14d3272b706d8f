"""The table of block-quantised weight formats, and the meaning of their bytes.

A row of weights is a series of blocks; a block is a fixed number of bytes that hold its codes and
their scales. The layouts are those of GGUF files (ggml's block structures, little endian). Beside
them stand plain groups, "int4" and "int8", whose scales and zero points are arrays of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.abi.products import SCHEMES
from rlx.dataclasses import dataclass
from rlx.errors import DTypeError, ShapeError, UnknownNameError, did_you_mean
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape


@dataclass(frozen=True)
class BlockFormat:
    """One format whose blocks hold everything.

    Attributes:
        weights: Weights in a block.
        nbytes: Bytes of a block.
        decode: Blocks u8 ``[B, nbytes]`` -> their weights, float64 ``[B, weights]``.
        exponents: Where the top bytes of its floating-point scales lie; all other bytes may have any
            value without a weight becoming infinite.
        exponent_bits: A mask of such a byte, and bits that are set in it, for scales below 2 in ``scrambled_blocks``.
    """

    weights: int
    nbytes: int
    decode: Callable[[Array], Array]
    exponents: tuple[int, ...]
    exponent_bits: tuple[int, int] = (0xBF, 0)


def _half(blocks: Array, index: int) -> Array:
    """The f16 at a byte of each block, as a column."""
    return blocks[:, index : index + 2].copy().view("<f2").astype(np.float64)


def _fields(codes: Array, bits: int) -> Array:
    """The fields of ``bits`` bits of every byte, lowest first: ``[B, n]`` -> ``[B, 8 / bits, n]``."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[None, :, None]
    return (codes[:, None, :] >> shifts) & np.uint8((1 << bits) - 1)


def _signed(values: Array) -> Array:
    return values.copy().view(np.int8).astype(np.float64)


# --- 32 weights to a block: a scale, for some an offset -------------------------------------------


def _nibbles(blocks: Array) -> Array:
    """Codes of 4 bits in the last 16 bytes: low ones first 16 weights, high ones last."""
    return _fields(blocks[:, -16:], 4).reshape(-1, 32)


def _fifth(blocks: Array, index: int) -> Array:
    """The same with a fifth bit each, which lie in the 4 bytes from ``index``."""
    high = np.unpackbits(blocks[:, index : index + 4], axis=1, bitorder="little")
    return _nibbles(blocks) | high << 4


# Tables of values whose places are codes of 4 bits: those of IQ4_NL and IQ4_XS, and twice those of MXFP4, which are
# numbers with 2 bits of exponent and 1 of mantissa.
VALUES_IQ4 = np.array(
    (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), np.float64
)
VALUES_MXFP4 = np.array((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), np.float64)
_POWERS = np.ldexp(1.0, np.arange(-128, 128))  # the scales of MXFP4


def _mxfp4(blocks: Array) -> Array:
    return np.take(_POWERS, blocks[:, :1]) * np.take(VALUES_MXFP4, _nibbles(blocks))


# --- 256 weights to a block: sub-blocks whose scales are quantised too ----------------------------


def _spread(scale: Array, per: Array) -> Array:
    """One factor per sub-block, times that of the block, repeated over its weights."""
    return np.repeat(scale * per, 256 // per.shape[1], axis=1)


def _pairs(blocks: Array) -> Array:
    """Codes of 2 bits in 64 bytes: 32 bytes hold 128 weights, 32 in each pair of bits."""
    return _fields(blocks.reshape(-1, 32), 2).reshape(-1, 256)


def _q2_k(blocks: Array) -> Array:
    scales, codes = blocks[:, :16], _pairs(blocks[:, 16:80])
    return _spread(_half(blocks, 80), scales & 15) * codes - _spread(_half(blocks, 82), scales >> 4)


def _q3_k(blocks: Array) -> Array:
    # The third bit is stored inverted in the first 32 bytes, a bit of every byte per 32 weights.
    third = _fields(blocks[:, :32], 1).reshape(-1, 256)
    codes = _pairs(blocks[:, 32:96]) + 4.0 * third - 4
    # 16 scales of 6 bits: 4 low bits in 8 bytes, 2 high ones in 4 bytes.
    low = _fields(blocks[:, 96:104], 4).reshape(-1, 16)
    high = _fields(blocks[:, 104:108], 2).reshape(-1, 16)
    return _spread(_half(blocks, 108), (low | high << 4) - 32.0) * codes


def _scales_k4(packed: Array) -> tuple[Array, Array]:
    """8 scales and 8 minima of 6 bits in 12 bytes (Q4_K, Q5_K).

    The first four of each lie in the low bits of 8 bytes; the others have 4 bits in the last 4 bytes
    and 2 in the top bits of those 8.
    """
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.hstack([first & 63, (rest & 15) | (first >> 6) << 4])
    return scales, np.hstack([second & 63, (rest >> 4) | (second >> 6) << 4])


def _wide_nibbles(codes: Array) -> Array:
    """Codes of 4 bits in 128 bytes: 32 bytes hold 64 weights, the low halves first."""
    return _fields(codes.reshape(-1, 32), 4).reshape(-1, 256)


def _with_minima(blocks: Array, codes: Array) -> Array:
    scales, minima = _scales_k4(blocks[:, 4:16])
    return _spread(_half(blocks, 0), scales) * codes - _spread(_half(blocks, 2), minima)


def _q5_k(blocks: Array) -> Array:
    fifth = _fields(blocks[:, 16:48], 1).reshape(-1, 256)
    return _with_minima(blocks, _wide_nibbles(blocks[:, 48:]) | fifth << 4)


def _q6_k(blocks: Array) -> Array:
    # 64 bytes hold the low 4 bits of 128 weights: the low halves the first 64 of them.
    low = _fields(blocks[:, :128].reshape(-1, 64), 4).reshape(-1, 256)
    codes = (low | _pairs(blocks[:, 128:192]) << 4) - 32.0
    return _spread(_half(blocks, 208), _signed(blocks[:, 192:208])) * codes


def _iq4_xs(blocks: Array) -> Array:
    # 8 scales of 6 bits: 2 high ones of each in 2 bytes, 4 low ones in 4 bytes.
    high = _fields(blocks[:, 2:4], 2).swapaxes(1, 2).reshape(-1, 8)
    low = _fields(blocks[:, 4:8], 4).swapaxes(1, 2).reshape(-1, 8)
    codes = _fields(blocks[:, 8:].reshape(-1, 16), 4).reshape(-1, 256)
    return _spread(_half(blocks, 0), (low | high << 4) - 32.0) * np.take(VALUES_IQ4, codes)


def _q8_k(blocks: Array) -> Array:
    # Behind the codes stand their sums, 16 by 16, which a decoder does not need.
    return blocks[:, :4].copy().view("<f4").astype(np.float64) * _signed(blocks[:, 4:260])


FORMATS: dict[str, BlockFormat] = {
    "Q4_0": BlockFormat(32, 18, lambda b: _half(b, 0) * (_nibbles(b) - 8.0), (1,)),
    "Q4_1": BlockFormat(32, 20, lambda b: _half(b, 0) * _nibbles(b) + _half(b, 2), (1, 3)),
    "Q5_0": BlockFormat(32, 22, lambda b: _half(b, 0) * (_fifth(b, 2) - 16.0), (1,)),
    "Q5_1": BlockFormat(32, 24, lambda b: _half(b, 0) * _fifth(b, 4) + _half(b, 2), (1, 3)),
    "Q8_0": BlockFormat(32, 34, lambda b: _half(b, 0) * _signed(b[:, 2:]), (1,)),
    "Q2_K": BlockFormat(256, 84, _q2_k, (81, 83)),
    "Q3_K": BlockFormat(256, 110, _q3_k, (109,)),
    "Q4_K": BlockFormat(256, 144, lambda b: _with_minima(b, _wide_nibbles(b[:, 16:])), (1, 3)),
    "Q5_K": BlockFormat(256, 176, _q5_k, (1, 3)),
    "Q6_K": BlockFormat(256, 210, _q6_k, (209,)),
    "IQ4_NL": BlockFormat(32, 18, lambda b: _half(b, 0) * np.take(VALUES_IQ4, _nibbles(b)), (1,)),
    "IQ4_XS": BlockFormat(256, 136, _iq4_xs, (1,)),
    "MXFP4": BlockFormat(32, 17, _mxfp4, (0,), (0x07, 0x78)),
    "Q8_K": BlockFormat(256, 292, _q8_k, (3,)),
}
# Plain groups: bits of a code. A code is unsigned; without zero points half of its range means 0.
GROUPED = {"int4": 4, "int8": 8}
GROUP_SIZES = (16, 32, 64, 128, 256)
assert (*FORMATS, *GROUPED) == SCHEMES


def parse_scheme(value: object, *, where: str) -> str:
    """The name of a scheme as the tables have it.

    Raises:
        UnknownNameError: There is no such scheme.
    """
    text = str(value)
    result = {name.lower(): name for name in SCHEMES}.get(text.lower())
    if result is None:
        raise UnknownNameError(
            f"[{where}] no such scheme: {text!r}", hint=did_you_mean(text, SCHEMES)
        )
    return result


def row_weights(scheme: str, nbytes: int, *, where: str) -> int:
    """Weights in a row of ``nbytes`` bytes.

    Raises:
        ShapeError: The bytes are no whole number of blocks.
    """
    if scheme in GROUPED:
        return nbytes * 8 // GROUPED[scheme]
    form = FORMATS[scheme]
    if nbytes % form.nbytes:
        raise ShapeError(
            f"[{where}] a row of packed weights is no whole number of blocks",
            got=f"{nbytes} bytes",
            expected=f"a multiple of {form.nbytes} ({form.weights} weights of {scheme})",
        )
    return nbytes // form.nbytes * form.weights


def row_bytes(scheme: str, weights: int, *, where: str) -> int:
    """Bytes of a row of ``weights`` weights.

    Raises:
        ShapeError: The weights are no whole number of blocks.
    """
    form = FORMATS.get(scheme)
    step = form.weights if form else 8 // GROUPED[scheme]
    if weights % step:
        raise ShapeError(
            f"[{where}] a row is no whole number of blocks of {scheme}",
            got=f"{weights} weights",
            expected=f"a multiple of {step}",
            hint="pad the rows with zeros",
        )
    return weights // step * (form.nbytes if form else 1)


def group_size(packed: Shape, scheme: str, scales: Shape, *, where: str) -> int:
    """Weights per scale of a plain group format, by the shapes of codes ``[..., bytes]`` and scales ``[..., groups]``.

    Raises:
        ShapeError: The scales do not fit the codes.
    """
    weights = row_weights(scheme, packed[-1], where=where)
    fits = [n for n in GROUP_SIZES if scales == (*packed[:-1], weights // n) and weights % n == 0]
    if not fits:
        raise ShapeError(
            f"[{where}] scales do not fit the packed weights",
            got=f"scales {scales} for {weights} weights a row",
            expected=f"{(*packed[:-1], 'weights / group')}, the group one of {GROUP_SIZES}",
        )
    return fits[0]


def scrambled_blocks(scheme: str, rows: int, weights: int) -> Array:
    """Packed rows of a GGUF format in which every bit is used, and all weights are below 2^16.

    Returns:
        u8 ``[rows, bytes of a row]``, the same at every call.
    """
    form = FORMATS[scheme]
    nbytes = row_bytes(scheme, weights, where="scrambled_blocks")
    steps = np.arange(rows * nbytes, dtype=np.uint64) * np.uint64(2654435761)
    blocks = (steps >> np.uint64(13)).astype(np.uint8).reshape(-1, form.nbytes)
    mask, bits = form.exponent_bits
    blocks[:, form.exponents] = blocks[:, form.exponents] & mask | bits
    return blocks.reshape(rows, nbytes)


def decode_blocks(
    packed: Array, scheme: str, scales: Array | None = None, zeros: Array | None = None
) -> Array:
    """Decodes packed bytes to weights.

    Args:
        packed: u8 ``[..., bytes of a row]``.
        scheme: A name of ``SCHEMES``.
        scales: For "int4" and "int8" ``[..., groups]``: one scale per group of a row.
        zeros: Of the same shape: the code that stands for 0; half the range of a code if absent.

    Returns:
        float64 ``[..., weights of a row]``; in float32 they are the values that ggml computes, bit
        for bit.
    """
    scheme = parse_scheme(scheme, where="decode_blocks")
    packed = np.asarray(packed)
    if packed.dtype != np.uint8:
        raise DTypeError(
            "[decode_blocks] packed weights are bytes", got=packed.dtype, expected="uint8"
        )
    weights = row_weights(scheme, packed.shape[-1], where="decode_blocks")
    shape = (*packed.shape[:-1], weights)
    if scheme in FORMATS:
        form = FORMATS[scheme]
        return form.decode(np.ascontiguousarray(packed).reshape(-1, form.nbytes)).reshape(shape)
    if scales is None:
        raise ShapeError(f"[decode_blocks] {scheme} needs scales")
    bits = GROUPED[scheme]
    group = group_size(packed.shape, scheme, np.shape(scales), where="decode_blocks")
    rows = packed.reshape(-1, packed.shape[-1])
    codes = _fields(rows, bits).swapaxes(1, 2).reshape(-1, group).astype(np.float64)
    zero = 2.0 ** (bits - 1) if zeros is None else np.asarray(zeros, np.float64).reshape(-1, 1)
    return ((codes - zero) * np.asarray(scales, np.float64).reshape(-1, 1)).reshape(shape)

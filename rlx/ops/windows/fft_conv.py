"""Convolution by long filters through Fourier transforms on the CPU: when it pays, block sizes, tables."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.abi.constants import FILTER_SCALE, LONG_ACROSS, SPECTRUM_SCALE
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter
from rlx.ops.spectra.fft_plans import plan
from rlx.ops.windows.geometry import Window

# Minimum taps for transforms.
FEWEST_TAPS = 32
# Samples of the longest block: its transform, tables and spectra stay in the second-level cache.
_LONGEST = SPECTRUM_SCALE
# The factors of spectra.
_SCALE = float(FILTER_SCALE * SPECTRUM_SCALE)
# ns of a transform, each way, for a sample and a pass of radix 4 over it, and beside the passes.
_PASS_NS, _SAMPLE_NS = 0.21, 0.70
# ns of a product of a bin of two spectra.
_BIN_NS = 0.30
# ns of a tap of one result: in the direct kernel; in a matrix product, plus what is shared by its outputs.
_TAP_NS, _PRODUCT_NS, _SHARED_NS = 0.055, 0.021, 0.07
# Minimum outputs of a group for the matrix product; groups of fewer take the direct kernel.
_PRODUCT_OUTPUTS = 4
# Transforms have to be cheaper by this factor: their rounding error grows with the largest sample of a block.
_CHEAPER = 1.25
# Bytes of the spectra of a group's channels and filters at most: scratch of each thread.
_MAX_SCRATCH = 8 << 20


def cross_factors(n: int) -> Array:
    """exp(-2 pi i l k / n) of lane l of 16 and element k of n / 16, as a block of n samples stands in memory."""
    lanes, elements = np.arange(LONG_ACROSS), np.arange(n // LONG_ACROSS)
    return as_tiles(np.exp(-2j * np.pi * (lanes[:, None] * elements) / n)).astype(np.float32)


def as_tiles(values: Array) -> Array:
    """``[..., 16, m]`` complex numbers as the kernel has them: ``[..., m / 16, 16, 2, 16]``, re and im apart."""
    tiles = values.reshape(*values.shape[:-1], -1, LONG_ACROSS).swapaxes(-3, -2)
    return np.stack([tiles.real, tiles.imag], -2)


def spectra(filters: Array, n: int) -> Array:
    """Conjugate spectra of ``[count, taps]`` over n samples, divided by n and scaled: ``[count, 2 n]`` in f32."""
    with np.errstate(all="ignore"):  # what is not finite is computed by the definition
        bins = np.fft.fft(filters.astype(np.float64), n, axis=-1).conj() * (_SCALE / n)
        result = as_tiles(bins.reshape(len(filters), LONG_ACROSS, n // LONG_ACROSS))
        return result.astype(np.float32).reshape(len(filters), 2 * n)


@lru_cache(maxsize=64)
def _lengths() -> tuple[int, ...]:
    """Samples of a block that have a plan: 256 times products of 2, 3 and 5."""
    smooth = {2**a * 3**b * 5**c for a in range(8) for b in range(2) for c in range(2)}
    return tuple(sorted(256 * some for some in smooth if 256 * some <= _LONGEST))


def _transform_ns(n: int) -> float:
    return n * (_PASS_NS * math.log(n / LONG_ACROSS, 4) + _SAMPLE_NS)


def _pair_ns(n: int, channels: int, outputs: int) -> float:
    """One pair of blocks of a group."""
    return (channels + outputs) * _transform_ns(n) + _BIN_NS * n * channels * outputs


@lru_cache(maxsize=256)
def block(taps: int, windows: int, channels: int, outputs: int) -> tuple[int, float]:
    """Samples of the blocks that are cheapest for a line, and the ns of one image of a group; (0, inf) for none.

    Args:
        taps: Of a filter.
        windows: Results of a line.
        channels: Of a group.
        outputs: Of a group.
    """
    best = 0, math.inf
    for n in _lengths():
        if n > taps and 8 * n * channels * (1 + outputs) <= _MAX_SCRATCH:
            pairs = math.ceil(windows / (2 * (n - taps + 1)))
            best = min(best, (n, pairs * _pair_ns(n, channels, outputs)), key=lambda item: item[1])
    return best


def _is_line(window: Window) -> bool:
    """Returns whether windows and taps are contiguous on one axis."""
    return (
        window.stride == window.dilation == (1, 1, 1)
        and window.dims[:2] == (1, 1) == window.out[:2]
    )


def samples_of_block(node: Node, window: Window, fixed: bool) -> int:
    """Samples of a block if transforms are the cheaper way, else 0. It does not depend on the batch.

    ``fixed``: whether the filters' spectra are known before the call.
    """
    taps, windows = window.kernel[2], window.out[2]
    if node.dtype is not DType.F32 or taps < FEWEST_TAPS or not _is_line(window):
        return 0
    groups, channels = node.attrs["groups"], node.inputs[1].shape[1]
    outputs = node.shape[1] // groups
    n, ns = block(taps, windows, channels, outputs) if channels else (0, math.inf)
    each = _TAP_NS if outputs < _PRODUCT_OUTPUTS else _PRODUCT_NS + _SHARED_NS / outputs
    filters = channels * outputs * _transform_ns(n) if n and not fixed else 0.0
    return n if _CHEAPER * (ns + filters) < each * taps * windows * channels * outputs else 0


def call_long(
    node: Node, emitter: Emitter, operands: list[Any], params: dict[str, Any], n: int
) -> None:
    """Writes the call of the kernel; ``params`` are those of the window, and what follows a result."""
    passes, small = plan(n // LONG_ACROSS), plan(LONG_ACROSS)
    assert passes is not None, "lengths have a plan"
    assert small is not None, "16 has a plan"
    tables = passes.table(DType.F32), cross_factors(n), small.table(DType.F32)
    emitter.call(
        "conv_long",
        [
            *operands,
            *[None] * (4 - len(operands)),
            operands[1],
            *(emitter.table(table) for table in tables),
        ],
        [emitter.result()],
        {
            **params,
            "block": n // LONG_ACROSS,
            "twiddle_count": passes.count,
            "passes": len(passes.radices),
            "radices": passes.radices,
        },
    )

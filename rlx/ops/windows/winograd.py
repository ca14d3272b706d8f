"""Convolution with 3x3 filters by minimal filtering on the CPU (kernels/windows/winograd_last.h): when it pays."""

from __future__ import annotations

from typing import Any

from rlx.abi.constants import WINOGRAD_POINTS
from rlx.abi.windows import tiles_of
from rlx.ir.dtype import DType
from rlx.ir.shape import size
from rlx.sizes import ceil_divide, flag, largest, smallest

# Multiplications that take as long as the transforms of one tile of a channel, and of an output.
_CHANNEL, _OUTPUT = 250, 320
# The same for a weight that is read from memory, where all weights do not fit into this many bytes of cache.
_WEIGHT, _CACHED = 12, 1 << 20
# Tenths of the cost of a multiplication of the other kernels: of one in these products, and of one that tiles have to save.
_PRODUCT, _SAVED = 11, 8
# Bytes of the transformed weights of a convolution at most: they are 4 times the weights, which are kept besides.
_MAX_WEIGHTS = 40 << 20
# Tiles of a block: a multiple of the rows of the micro-kernel, as many as its scratch of so many bytes has room for. There
# are as many blocks as threads need, if they would not be too small; otherwise a team shares each block. Blocks may be small
# where all weights stay in the cache.
_ROWS, _FEWEST, _MOST, _SCRATCH, _BLOCKS = 6, 12, 48, 3 << 18, 32


def share(conv: Any, fixed: bool) -> Any:
    """Returns 1 where tiles are cheaper and 0 where not, a size where that depends on sizes.

    Args:
        conv: A ``LastConvolution``.
        fixed: Whether the weights are known before the call.
    """
    window, (channels, outputs) = conv.window, conv.each
    if not fixed or conv.dtype is not DType.F32 or window.kernel != (1, 3, 3):
        return 0
    if window.stride != (1, 1, 1) or window.dims[0] != 1 or window.out[0] != 1:
        return 0
    weights = WINOGRAD_POINTS * channels * outputs
    if not 0 < 4 * weights * conv.groups <= _MAX_WEIGHTS:
        return 0
    tiles = tiles_of(conv.batch, window.out, window.dilation)
    cost = tiles * (_PRODUCT * weights + 10 * (_CHANNEL * channels + _OUTPUT * outputs))
    if 4 * weights > _CACHED:
        cost += 10 * _WEIGHT * weights
    return flag(_SAVED * 9 * channels * outputs * conv.batch * size(window.out) - cost)


def block(conv: Any) -> Any:
    """The tiles of a block of a ``LastConvolution``."""
    (channels, outputs), tiles = (
        conv.each,
        tiles_of(conv.batch, conv.window.out, conv.window.dilation),
    )
    room = _SCRATCH // (4 * WINOGRAD_POINTS * (channels + outputs)) // _ROWS * _ROWS
    near = 4 * WINOGRAD_POINTS * channels * outputs <= _CACHED
    least = _ROWS if near else _FEWEST
    wanted = tiles // _BLOCKS // _ROWS * _ROWS
    enough = 1 if near else flag(wanted - _FEWEST + 1)
    wanted = smallest(enough * wanted + (1 - enough) * _MOST, _MOST, room)
    return ceil_divide(tiles, largest(1, ceil_divide(tiles, largest(least, wanted))))

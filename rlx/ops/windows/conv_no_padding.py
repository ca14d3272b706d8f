"""Decides when a convolution skips taps on padding on the CPU (kernels/windows/conv_inside.h)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import product
from typing import Any

from rlx.abi.constants import PANEL_DEPTH, PRODUCT_ROWS, VECTOR_ELEMENTS
from rlx.ir.shape import estimated, is_sized, size
from rlx.ops.windows.geometry import Window
from rlx.sizes import largest, smallest

# Windows that the micro-kernel makes together.
_TILES = (6, 4, 2, 1)
# Vectors of a tile whose sums hide the latency of an addition, and vectors of a panel at most.
_LATENCY, _VECTORS = 4, 4
# The cost of each tap of a tile beside its sums, in sums of one window; and the least cost of a tile where so many weights
# do not stay in the cache while the classes go by.
_OF_A_TILE, _UNCACHED = 2.2, 6.0
_CACHED_WEIGHTS = 1 << 16
# The cost of copying a row of a plane with its padding, in sums of one vector.
_OF_A_ROW = 16
# The part of the other kernel's cost below which planes of many windows are made a few lines at a time.
_LARGE = 0.8


def together(window: Window, batch: int) -> int:
    """Images that are made together."""
    return largest(1, smallest(batch, PRODUCT_ROWS // largest(1, size(window.out))))


def _taps(window: Window, axis: int, places: range | None = None) -> Counter[range]:
    """Counts the positions of an axis, or some of them, by the taps that meet the operand, for estimates."""
    before, n = estimated(window.pads[axis][0]), estimated(window.dims[axis])
    kernel, d = estimated(window.kernel[axis]), window.dilation[axis]
    every = range(estimated(window.out[axis])) if places is None else places
    begins = (before - i * window.stride[axis] for i in every)
    return Counter(
        range(min(kernel, max(0, math.ceil(b / d))), min(kernel, max(0, math.ceil((n + b) / d))))
        for b in begins
    )


def share(params: Mapping[str, Any]) -> float:
    """The part of all taps that meet the operand.

    Args:
        params: Of a call of the kernel: its window.
    """
    window = Window(
        params["dims"],
        params["kernel"],
        params["stride"],
        params["dilation"],
        tuple((before, 0) for before in params["before"]),
        params["out"],
    )
    met = (
        sum(len(taps) * count for taps, count in _taps(window, axis).items()) for axis in range(3)
    )
    return math.prod(met) / estimated(size(window.out) * size(window.kernel))


def _cost(windows: int, vectors: int, least: float) -> float:
    """Estimates the cost per tap of a class of windows, in sums of one window; a tile costs at least ``least``."""
    cost = 0.0
    for some in _TILES:
        cost += windows // some * max(max(some, _LATENCY / vectors) + _OF_A_TILE, least)
        windows %= some
    return cost


def pays(
    window: Window, batch: int, weights: int, outputs: int, filled: float, fixed: bool
) -> bool:
    """Returns whether leaving out taps on padding is faster than copying planes with their padding.

    Args:
        window: The windows, over three axes.
        batch: Images.
        weights: Weights of a group.
        outputs: Outputs of a group.
        filled: The part of the lanes of its vectors that the other kernel fills no better than this one.
        fixed: Whether the weights are packed before the call.
    """
    windows, taps = size(window.out), size(window.kernel)
    padded = any(
        before or reach > n
        for (before, _), reach, n in zip(window.pads, window.reach, window.dims, strict=True)
    )
    if is_sized((windows, batch)) or not padded or taps > PANEL_DEPTH:
        return False
    depth, lines, width = window.out
    large = windows > PRODUCT_ROWS
    if large and (not fixed or depth > 1 or width > PRODUCT_ROWS):
        return False
    deep = PRODUCT_ROWS // width if large else max(1, lines)
    images = together(window, batch)
    all_vectors = math.ceil(outputs / VECTOR_ELEMENTS)
    vectors = min(all_vectors, _VECTORS)
    least = 0 if weights <= _CACHED_WEIGHTS else _UNCACHED
    cost = 0.0
    for first in range(0, lines, deep):
        some = range(first, min(lines, first + deep))
        by_axis = _taps(window, 0), _taps(window, 1, some), _taps(window, 2)
        for axes in product(*(each.items() for each in by_axis)):
            made = _cost(images * math.prod(count for _, count in axes), vectors, least)
            cost += made * math.prod(len(taps) for taps, _ in axes)
    copied = _OF_A_ROW * images * math.prod(map(estimated, window.reach[:2])) / all_vectors
    other = _cost(images * windows, vectors, 0) * taps * filled + copied
    return cost < (_LARGE if large else 1) * other

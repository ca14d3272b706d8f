"""Tables of taps and weights: which entries of an axis make each entry of a resized one."""

from __future__ import annotations

import functools
import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from rlx.ir.opdef import Array
from rlx.resource_limits import charge

Mode = Literal["nearest", "linear", "cubic"]
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
Coordinates = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
MODES: tuple[Mode, ...] = get_args(Mode)
NEAREST: tuple[NearestMode, ...] = get_args(NearestMode)
COORDINATES: tuple[Coordinates, ...] = get_args(Coordinates)


def _positions(
    n: int, count: int, scale: float, coordinates: str, roi: tuple[float, float]
) -> Array:
    """Returns the positions of ``count`` results on an axis of ``n`` (ONNX's Resize, version 19).

    The standard calls n the original and count the resized length. As in ONNX Runtime and PyTorch the resized length
    is an integer, also where a scale gives a fractional one. The standard's reference implementation differs there.
    """
    y = np.arange(count, dtype=np.float64)
    # Quotients of whole numbers: where one is whole, it is exact.
    above, below = (n, count) if scale * n == count else (1.0, scale)
    if coordinates == "align_corners":
        return y * (n - 1) / (count - 1) if count > 1 else np.zeros(count)
    if coordinates == "asymmetric":
        return y * above / below
    if coordinates == "tf_crop_and_resize":
        begin, end = roi[0] * (n - 1), roi[1] * (n - 1)
        if count == 1:
            return np.full(count, begin + (end - begin) / 2)
        return begin + y * (end - begin) / (count - 1)
    if coordinates == "pytorch_half_pixel" and count == 1:
        return np.zeros(count)
    # The symmetric form keeps the centres of both axes together where count is not scale * n.
    shift = n / 2 * (1 - count / (scale * n)) if coordinates == "half_pixel_symmetric" else 0.0
    return shift + (y + 0.5) * above / below - 0.5


def _nearest(indices: Array, how: str) -> Array:
    result = {
        "round_prefer_floor": lambda: np.ceil(indices - 0.5),
        "round_prefer_ceil": lambda: np.floor(indices + 0.5),
        "floor": lambda: np.floor(indices),
        "ceil": lambda: np.ceil(indices),
    }[how]()
    return np.asarray(result, np.int64)


def _filter(mode: str, a: float, distance: Array) -> Array:
    """The triangle, or the cubic convolution kernel of parameter ``a`` (Keys 1981, eq. 15)."""
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


@functools.lru_cache(maxsize=64)
def taps(  # noqa: PLR0913 - the attributes of resize
    n: int,
    count: int,
    scale: float,
    mode: str,
    coordinates: str,
    nearest_mode: str,
    cubic_coeff_a: float,
    exclude_outside: bool,
    roi: tuple[float, float],
    antialias: bool,
) -> tuple[Array, Array]:
    """Returns the entries that make each result: indices i32 and weights f64, both ``[count, taps]``.

    An index of -1 marks a result that lies outside and takes the extrapolation value.
    """
    # Shrinking with antialias stretches the filter over all entries that a result stands for.
    stretch = max(1.0, 1.0 / scale) if antialias else 1.0
    support = stretch * (1 if mode == "linear" else 2)
    charge("[resize] the taps", elements=count * (1 if mode == "nearest" else 2 * support))
    pos = _positions(n, count, scale, coordinates, roi)
    if mode == "nearest":
        index = _nearest(pos, nearest_mode)[:, None]
        weight = np.ones(index.shape)
    else:
        first = np.floor(pos - support).astype(np.int64) + 1
        index = first[:, None] + np.arange(math.ceil(2 * support))
        weight = _filter(mode, cubic_coeff_a, (index - pos[:, None]) / stretch)
        if exclude_outside:
            weight = np.where((index >= 0) & (index < n), weight, 0.0)
        if antialias or exclude_outside:
            total = weight.sum(1, keepdims=True)
            weight = weight / np.where(total == 0, 1.0, total)
    index = np.clip(index, 0, n - 1)
    if coordinates == "tf_crop_and_resize":
        index = np.where(((pos < 0) | (pos > n - 1))[:, None], -1, index)
    return index.astype(np.int32), weight


class TapPattern(NamedTuple):
    """Taps that come back every four results, but for entries beyond the ends, which are the first or the last.

    Attributes:
        step: Entries from one four to the next.
        entries: The entries that a four is made of, from the first four's begin.
        taps: For each of the four, which of the entries, and their weights; none is 0.
    """

    step: int
    entries: tuple[int, ...]
    taps: tuple[tuple[tuple[int, float], ...], ...]


def pattern(index: Array, weight: Array, n: int) -> TapPattern | None:
    """The pattern of a table of taps, as ``taps`` gives it for an axis of n entries, if it has one."""
    count = len(index)
    if count < 8 or 4 * n % count:
        return None
    step = 4 * n // count
    middle = count // 8  # a four that sees no end
    away = index[4 * middle : 4 * middle + 4] - middle * step
    weights = weight[4 * middle : 4 * middle + 4].astype(np.float32)
    result = np.arange(count)
    expected = np.clip(away[result % 4] + (result // 4 * step)[:, None], 0, n - 1)
    # A power-of-two scale gives the same weights everywhere; others differ by their rounding.
    if (expected != index).any() or not np.allclose(weights[result % 4], weight, 0, 1e-7):
        return None
    entries = sorted(set(away[weights != 0].tolist()))
    taps = tuple(
        tuple(
            (entries.index(i), by)
            for i, by in zip(away[j].tolist(), weights[j].tolist(), strict=True)
            if by
        )
        for j in range(4)
    )
    return TapPattern(step, tuple(entries), taps)

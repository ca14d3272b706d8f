"""Peak finding as SciPy offers it, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import InputError, ShapeError
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import on_arrays, real_numbers


def find_peaks(
    x: Any,
    height: Any = None,
    *,
    distance: float | None = None,
    prominence: Any = None,
    width: Any = None,
    max_peaks: int | None = None,
    device: Any = None,
) -> Any:
    """Local maxima of a signal and their properties (``scipy.signal.find_peaks``).

    Args:
        x: A node ``[..., n]``, or an array ``[n]``.
        height: Least height of a peak, or a pair (least, largest).
        distance: Least distance between peaks in samples, >= 1; smaller peaks go first.
        prominence: Least prominence, or a pair.
        width: Least width in samples at half the prominence, or a pair.
        max_peaks: Peaks that the result has room for; all that could be by default.
        device: Where an array is computed, "cpu" by default.

    Returns:
        For a node three nodes: indices i32 ``[..., max_peaks]``, -1 where there is no peak; the
        number of peaks found i32 ``[...]``; their prominences. For an array the indices and a dict
        of the properties that the conditions ask for, with SciPy's names: "peak_heights";
        "prominences", "left_bases", "right_bases"; "widths", "width_heights", "left_ips",
        "right_ips".

    Raises:
        InputError: A condition is not what it should be.
        ShapeError: An array has not one axis.

    Example:
        >>> import numpy as np, rlx
        >>> indices, properties = rlx.signal.find_peaks(np.float32([0, 2, 0, 1, 0]), height=0.5)
        >>> indices.tolist(), properties["peak_heights"].tolist()
        ([1, 3], [2.0, 1.0])
    """
    if isinstance(x, Node):
        if device is not None:
            raise InputError("[find_peaks] device with nodes", got=device)
        return _find_peaks(x, height, distance, prominence, width, max_peaks)
    row = real_numbers(x, "find_peaks")
    if row.ndim != 1:
        raise ShapeError(
            "[find_peaks] not one signal",
            got=row.shape,
            expected="an array [n]",
            hint="rows have different numbers of peaks: build a graph for several signals",
        )
    indices, count, drops = _find_peaks(
        row, height, distance, prominence, width, max_peaks, device=device
    )
    result = min(int(count), len(indices))
    peaks = indices[:result].astype(np.int64)
    properties: dict[str, Array] = {}
    if height is not None:
        properties["peak_heights"] = row[peaks]
    if prominence is not None or width is not None:
        properties["prominences"] = drops[:result]
        for name, step in (("left_bases", -1), ("right_bases", 1)):
            properties[name] = peaks + step * _walk(row, peaks, step, row[peaks], down=False)[1]
    if width is not None:
        levels = row[peaks] - 0.5 * drops[:result]
        left, right = (_crossings(row, peaks, levels, step) for step in (-1, 1))
        properties |= {
            "widths": right - left,
            "width_heights": levels,
            "left_ips": left,
            "right_ips": right,
        }
    return peaks, properties


@on_arrays
def _find_peaks(
    x: Node, height: Any, distance: Any, prominence: Any, width: Any, max_peaks: int | None
) -> tuple[Node, Node, Node]:
    return x.graph.find_peaks(x, height, distance, prominence, width, max_peaks)


def _walk(row: Array, peaks: Array, step: int, levels: Array, down: bool) -> tuple[Array, Array]:
    """Measures the distance from each peak to the first sample above its level, or (down) at or below it.

    Returns:
        The distance in samples, one past the end of the row where there is no such sample; and the
        distance of the lowest sample before it, the nearest of equal ones.
    """
    ends, lowest = np.zeros(len(peaks), np.int64), np.zeros(len(peaks), np.int64)
    # Peaks that walk far have no other such peak near, so long walks are few.
    todo, reach = np.arange(len(peaks)), 8
    while len(todo):
        pos = peaks[todo, None] + step * np.arange(reach)
        outside = (pos < 0) | (pos >= len(row))
        values = row[np.clip(pos, 0, len(row) - 1)]
        level = levels[todo, None]
        stops = outside | ((values <= level) if down else ~(values <= level))
        done = stops.any(1)
        first = stops.argmax(1)
        before = np.where(np.arange(reach) < first[:, None], values, np.inf)
        ends[todo[done]] = first[done]
        lowest[todo[done]] = before.argmin(1)[done]
        todo, reach = todo[~done], 4 * reach
    return ends, lowest


def _crossings(row: Array, peaks: Array, levels: Array, step: int) -> Array:
    """Finds where the signal crosses a level below each peak, by linear interpolation."""
    ends, _ = _walk(row, peaks, step, levels, down=True)
    low, high = row[peaks + step * ends], row[peaks + step * (ends - 1)]
    return np.asarray(peaks + step * (ends - (levels - low) / (high - low)))

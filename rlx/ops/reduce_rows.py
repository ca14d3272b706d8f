"""Reductions as kernels see them: outer x n x inner, and how WebGPU's lanes share them."""

from __future__ import annotations

import math
from typing import Any

from rlx.ir.opdef import Emitter
from rlx.ir.shape import Shape, size

# Elements of a result from which on all lanes of a workgroup share it.
_LONG = 8192


def as_rows(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """``(outer, n, inner)`` when the axes stand side by side (axes of size 1 aside), else None."""
    live = [axis for axis in range(len(shape)) if shape[axis] != 1]
    reduced = [axis for axis in live if axis in axes]
    if not reduced:
        return size(shape), 1, 1
    first, last = reduced[0], reduced[-1]
    if any(first < axis < last and axis not in axes for axis in live):
        return None
    return size(shape[:first]), size(shape[first : last + 1]), size(shape[last + 1 :])


def emit_reduce(
    emitter: Emitter, kind: str, source: Any, result: Any, rows: tuple[int, int, int]
) -> None:
    """The WebGPU kernel over (outer, n, inner); ``kind`` is sum, mean, prod, max or min."""
    outer, n, inner = rows
    # Lanes for each result: a few elements for each lane, and whole lines of memory for each read.
    parts = _power_above(n / 4, 256) if inner == 1 else _power_above(n / 8, 32)
    if n > _LONG:
        parts = 256
    results = outer * inner
    params = {"kind": kind, "results": results, "n": n, "inner": inner, "parts": parts}
    emitter.call("reduce", [source], [result], params, math.ceil(results / (256 // parts)))


def _power_above(n: float, most: int) -> int:
    """The least power of two that is not below n, or ``most``."""
    return min(1 << max(math.ceil(n) - 1, 0).bit_length(), most)

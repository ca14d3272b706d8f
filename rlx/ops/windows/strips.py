"""Tilings of convolutions and pools without reuse between channels, on a GPU: strips of windows per thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.variants import Family, Variant
from rlx.ops.windows.geometry import Window

# Neighbouring windows overlap. A thread makes four windows along the last axis, in one row or in several, and reads the
# entries that they see once, in whole vectors. docs/explanation/kernels.md has the figures.

THREADS = 128
WIDTH = 4
# Rows of windows per thread. With a larger stride, rows overlap less.
_BLOCK = 4
# Most multiplications and elements in the text of a strip's shader. Larger problems take another kernel.
_MAX_TAPS = 200
_MAX_SEEN = 96
# Enough workgroups to fill a large GPU. With fewer, each thread makes fewer rows.
ENOUGH = 528


class StripProblem(NamedTuple):
    """Windows over planes.

    Attributes:
        planes: Planes of results.
        out: Windows along each axis.
        kernel: Taps of a window.
        stride: Distance between windows.
        dilation: Distance between taps.
    """

    planes: int
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(planes: int, window: Window) -> StripProblem:
        """The windows of some planes, over three axes."""
        return StripProblem(planes, window.out, window.kernel, window.stride, window.dilation)


def tall(problem: StripProblem, variant: Variant) -> int:
    """Rows of windows that a thread makes."""
    return max(1, variant.params["tall"] // problem.stride[1])


def work(problem: StripProblem, variant: Variant) -> int:
    """Workgroups that it takes."""
    rows = math.ceil(problem.out[1] / tall(problem, variant))
    columns = math.ceil(problem.out[2] / WIDTH)
    return math.ceil(problem.planes * problem.out[0] * rows * columns / THREADS)


def _takes(variant: Variant, problem: StripProblem) -> bool:
    if variant.name == "plain":
        return True
    rows = tall(problem, variant)
    if variant.name == "block" and (rows < 2 or problem.out[1] < rows):
        return False
    high = (rows - 1) * problem.stride[1] + (problem.kernel[1] - 1) * problem.dilation[1] + 1
    span = (WIDTH - 1) * problem.stride[2] + (problem.kernel[2] - 1) * problem.dilation[2] + 1
    taps = problem.kernel[1] * problem.kernel[2]
    return rows * taps <= _MAX_TAPS and span <= _MAX_SEEN and high * span <= 4 * _MAX_SEEN


def _rule(problem: StripProblem, legal: Sequence[Variant]) -> Variant:
    results = {variant.name: variant for variant in legal}
    # With a stride, rows of windows overlap little.
    worth = problem.stride[1] == 1 and "block" in results
    if worth and work(problem, results["block"]) >= ENOUGH:
        return results["block"]
    return results.get("strip", legal[-1])


def _family(name: str) -> Family:
    variants = (
        Variant("block", THREADS, 0, {"tall": _BLOCK}),
        Variant("strip", THREADS, 0, {"tall": 1}),
        Variant("plain", 256, 1024, {"tall": 1}),
    )
    return Family(name, variants, _rule, _takes)


DIRECT = _family("conv_direct")
POOL = _family("pool")

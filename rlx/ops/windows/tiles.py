"""Tiles convolutions on a GPU: the variants of shaders/windows/conv_tiles.wgsl, and the rule to choose one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.fragments import FragmentVariant
from rlx.ir.variants import Family, Variant
from rlx.ops.windows.geometry import Window
from rlx.sizes import is_steady, largest, preferring, smallest

# The product is [outputs, channels * taps] @ [channels * taps, windows]. Each thread reads one window of a tile. It
# computes the places of the window's taps before the first step, so that no step divides. docs/explanation/kernels.md
# has the figures.


class ConvProblem(NamedTuple):
    """A convolution as a product.

    Attributes:
        outputs: Outputs of a group.
        windows: Windows of all images.
        length: Of the sums: channels of a group times taps.
        groups: Parts that the channels are split into.
        near: Whether the taps of a window are so near to each other that 31 bits hold any sum of places.
        half: Whether matrix units may multiply: operands are f16, or rounded to that.
    """

    outputs: int
    windows: int
    length: int
    groups: int
    near: bool = True
    half: bool = False


# Most k of a step, between two barriers. A tile of that many fits the default limits.
MAX_STEPS = 18
# Vectors of padding between the rows of the left tile, so that neighbours along k are in different banks.
APART = 4
_NEAR = 1 << 28


def _tile(name: str, bm: int, bn: int, tm: int, tn: int) -> Variant:
    storage = 4 * MAX_STEPS * (bm + APART + bn)
    return Variant(name, (bm // tm) * (bn // tn), storage, {"bm": bm, "bn": bn, "tm": tm, "tn": tn})


def _fragments(name: str, bm: int, bn: int, bk: int, wm: int, wn: int) -> FragmentVariant:
    """A tile of shaders/windows/conv_fragments.wgsl, each of whose subgroups makes wm x wn of it."""
    params = {"bm": bm, "bn": bn, "bk": bk, "wm": wm, "wn": wn}
    return FragmentVariant(name, 0, 0, params)


# By preference: tiles of fragments, the outputs that fill them, and how many of them there have to be. The sums of large
# ones are split where these are few. Tiny ones, better for few outputs, don't fit subgroups of many threads.
_PREFERRED = (
    ("fragments_large", 96, 36),
    ("fragments_medium", 48, 240),
    ("fragments_small", 24, 0),
    ("fragments_tiny", 0, 0),
    ("fragments_small", 0, 0),
)
TILES = (
    _fragments("fragments_large", 128, 128, 32, 64, 64),
    _fragments("fragments_medium", 64, 128, 32, 32, 64),
    _fragments("fragments_small", 64, 64, 32, 32, 32),
    _fragments("fragments_tiny", 32, 32, 16, 16, 16),
    _tile("large", 64, 128, 8, 8),
    _tile("flat", 32, 128, 4, 8),
    _tile("medium", 64, 64, 8, 8),
    _tile("small", 32, 64, 4, 8),
    Variant("plain", 256, 16 * (320 + 256), {"bm": 64, "bn": 64}),
)
# Enough tiles to keep a large GPU busy.
ENOUGH = 120
# Threads that a multiprocessor holds; sums are split up to that many. Minimum length of a partition.
SLOTS = 792 * 64
LEAST_PARTITION = 96
MAX_PARTITIONS = 16


def down(problem: ConvProblem, variant: Variant) -> int:
    """Workgroups that make the same windows."""
    return problem.groups * math.ceil(problem.outputs / variant.params["bm"])


def tiles(problem: ConvProblem, variant: Variant) -> int:
    """Workgroups that a convolution takes."""
    return down(problem, variant) * math.ceil(problem.windows / variant.params["bn"])


def count(problem: ConvProblem, variant: Variant) -> int:
    """Into how many partitions sums may be split."""
    threads = variant.threads * largest(1, tiles(problem, variant))
    limits = MAX_PARTITIONS, problem.length // LEAST_PARTITION, SLOTS // threads
    return largest(1, smallest(*limits)) if is_steady() else max(1, min(limits))


def _rule(problem: ConvProblem, legal: Sequence[Variant]) -> Variant:
    results = {variant.name: variant for variant in legal}
    for name, outputs, enough in _PREFERRED:
        if (
            name in results
            and problem.outputs >= outputs
            and tiles(problem, results[name]) >= enough
        ):
            return results[name]
    # Tiles of 32 outputs are a little slower than tiles of 64, but may compute fewer outputs that do not exist.
    low, high = (math.ceil(problem.outputs / bm) * bm for bm in (32, 64))
    # Large tiles pay also where it takes split sums to make enough of them.
    large = ("large", 2 * ENOUGH, True), ("medium", ENOUGH, False)
    for name, enough, split in (("flat", 2 * ENOUGH, False),) if 1.2 * low < high else large:
        if name in results:
            result = tiles(problem, results[name])
            if result * (count(problem, results[name]) if split else 1) >= enough:
                return results[name]
    return results.get("small", legal[-1])


def _takes(variant: Variant, problem: ConvProblem) -> bool:
    if isinstance(variant, FragmentVariant):
        return problem.half and problem.near and problem.length > 0
    return variant.name == "plain" or problem.near


def step_partitions(problem: ConvProblem, variant: Variant, taps: int) -> tuple[int, int]:
    """Into how many partitions the sums of a tile of fragments are split, and how many steps each has.

    A step has some channels of one of ``taps`` taps.
    """
    steps = taps * math.ceil(problem.length // taps / variant.params["bk"])
    limits = MAX_PARTITIONS, steps // 4, 2 * ENOUGH // largest(1, tiles(problem, variant))
    wanted = largest(1, smallest(*limits)) if is_steady() else max(1, min(limits))
    length = math.ceil(steps / wanted)
    return math.ceil(steps / length), length


CONV = Family("conv", TILES, _rule, _takes)


def is_near(window: Window) -> bool:
    """Returns whether windows are near each other in memory, for ``ConvProblem.near``."""
    return all(size < _NEAR for size in (*window.reach, *window.dims))


class Steps(NamedTuple):
    """The size of the pieces of windows that a workgroup reads between two barriers.

    Attributes:
        piece: Taps of a line: neighbours along the last axis.
        lines: Lines.
    """

    piece: int
    lines: int


def steps(kernel: Sequence[int]) -> Steps:
    """Lines of taps such that their places are constants, if possible, and barriers are few."""

    def cost(cut: Steps) -> float:
        of_a_channel = math.prod(kernel) // cut.piece
        # If not every step begins with a channel, the kernel has to compute the channel of each line.
        return (8 + (cut.lines * 2 if cut.lines % of_a_channel else 0)) / (cut.piece * cut.lines)

    pieces = [n for n in range(1, min(kernel[2], MAX_STEPS) + 1) if kernel[2] % n == 0]
    results = [Steps(n, lines) for n in pieces for lines in range(1, MAX_STEPS // n + 1)]
    if math.prod(kernel) == 1:
        return Steps(1, 16)  # whole vectors of k
    return min(results, key=lambda cut: (cost(cut), -cut.piece))


def partitions(problem: ConvProblem, variant: Variant, step: Steps) -> tuple[int, int]:
    """Into how many partitions the sums are split, and how many lines each has."""
    lines = problem.length // step.piece
    whole = max(1, math.ceil(lines / step.lines)) * step.lines
    wanted = count(problem, variant)
    with preferring():
        if variant.name == "plain" or wanted < 2:
            return 1, whole
    length = math.ceil(lines / (wanted * step.lines)) * step.lines
    return math.ceil(lines / length), length

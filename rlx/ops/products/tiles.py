"""Tilings of matrix products on a GPU: the variants of shaders/products/matmul.wgsl, and the rules among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.fragments import FragmentVariant
from rlx.ir.shape import same_size
from rlx.ir.variants import Family, Variant
from rlx.sizes import divides, general, largest, preferring, smallest

# A workgroup makes a tile of the result. Each of its threads keeps several sums in registers, and all threads read the
# operands from workgroup memory. docs/explanation/kernels.md has the figures.


class MatmulProblem(NamedTuple):
    """A product.

    Attributes:
        m: Rows of the result.
        parts: Columns of each result.
        k: Length of the sums.
        batch: Matrices.
        gated: Whether two products are made side by side.
        simple: Whether it is of f32.
        whole: Whether they are whole tiles of every variant.
        halves: Whether matrix units may multiply: operands are f16, or may be rounded to that.
    """

    m: int
    parts: tuple[int, ...]
    k: int
    batch: int
    gated: bool = False
    simple: bool = False
    whole: bool = False
    halves: bool = False


def _tile(
    name: str,
    bm: int,
    bn: int,
    bk: int,
    tm: int,
    tn: int,
    ahead: bool = True,
    unrolled: bool = True,
) -> Variant:
    params = {
        "bm": bm,
        "bn": bn,
        "bk": bk,
        "tm": tm,
        "tn": tn,
        "ahead": ahead,
        "unrolled": unrolled,
    }
    return Variant(
        name, (bm // tm) * (bn // tn), 4 * bk * (bm + bn), {k: int(v) for k, v in params.items()}
    )


def _fragments(
    name: str, bm: int, bn: int, bk: int, wm: int, wn: int, sides: int = 1, together: int = 1
) -> FragmentVariant:
    """A tile of shaders/products/matmul_fragments.wgsl, each of whose subgroups makes wm x wn of it."""
    params = {"bm": bm, "bn": bn, "bk": bk, "wm": wm, "wn": wn}
    return FragmentVariant(name, 0, 0, params, sides=sides, together=together)


FRAGMENTS = (
    _fragments("fragments_large", 128, 128, 32, 64, 64),
    _fragments("fragments_medium", 64, 128, 64, 32, 32),
    _fragments("fragments_small", 64, 64, 64, 32, 32),
    _fragments("fragments_paired", 64, 64, 32, 32, 32, sides=2),
    _fragments("fragments_tiny", 32, 32, 16, 16, 16),
    _fragments("fragments_tiny_paired", 32, 32, 16, 16, 16, sides=2),
)
TILES = (
    *FRAGMENTS,
    _tile("wide", 128, 128, 16, 8, 16),
    _tile("large", 64, 128, 16, 8, 8),
    _tile("medium", 64, 64, 16, 8, 8),
    _tile("paired", 64, 64, 16, 8, 4),
    _tile("small", 32, 64, 16, 4, 4),
    _tile("plain", 64, 64, 16, 4, 4, ahead=False, unrolled=False),
)
# Enough tiles to keep a large GPU busy. A variant that makes fewer is passed over for one with smaller tiles.
ENOUGH = 120
# Where even small tiles are too few, the sums over k are split into partitions of at least this length.
LEAST_PARTITION = 256
MAX_PARTITIONS = 16
# The longest partition: a thread's loop over k. Longer sums are always split.
LONGEST_PARTITION = 1 << 19


def tiles(problem: MatmulProblem, variant: Variant) -> int:
    """Workgroups that a product takes."""
    bm, bn = variant.params["bm"], variant.params["bn"]
    return problem.batch * math.ceil(problem.m / bm) * sum(math.ceil(n / bn) for n in problem.parts)


# By preference: tiles of fragments, and how many there have to be. Matrix units are never passed over for other kernels.
_ENOUGH_FRAGMENTS = (
    ("fragments_paired", 0),
    ("fragments_large", 1.5 * ENOUGH),
    ("fragments_medium", 2 * ENOUGH),
    ("fragments_small", 0),
    ("fragments_tiny", 0),
    ("fragments_tiny_paired", 0),
)


def _rule(problem: MatmulProblem, legal: Sequence[Variant]) -> Variant:
    results = {variant.name: variant for variant in legal}
    count = {name: tiles(problem, variant) for name, variant in results.items()}
    for name, enough in _ENOUGH_FRAGMENTS:
        if name in results and (count[name] >= enough or not enough):
            return results[name]
    if problem.gated:
        order: tuple[tuple[str, float], ...] = (("paired", ENOUGH),)
    else:
        # Long sums with few rows are split, which makes more workgroups. Short sums need more tiles to hide their loads.
        split = (
            problem.k // LEAST_PARTITION
            if problem.k >= 8 * LEAST_PARTITION and problem.m <= 64
            else 1
        )
        # The widest tile spills registers unless all tiles are whole f32 ones, and its start-up is slow for short sums.
        full = problem.simple and problem.whole and problem.k >= LEAST_PARTITION
        short = 4 if problem.k < LEAST_PARTITION else 1
        order = (
            ("wide", 2 * ENOUGH if full else math.inf),
            ("large", 2 * ENOUGH / min(split, MAX_PARTITIONS)),
            ("medium", short * ENOUGH if problem.whole else math.inf),
        )
    for name, enough in order:
        if name in results and count[name] >= enough:
            return results[name]
    return results["small"] if "small" in results else results["plain"]


# The longest sum of the plain variant, which never splits.
_PLAIN_SUM = 1 << 15


def _takes(variant: Variant, problem: MatmulProblem) -> bool:
    if isinstance(variant, FragmentVariant):
        return problem.halves and problem.k > 0 and variant.sides == 1 + problem.gated
    if variant.name == "plain" and problem.k > _PLAIN_SUM:
        return False
    # A gated product keeps two tiles of sums.
    return not problem.gated or variant.params["tm"] * variant.params["tn"] <= 32


MATMUL = Family("matmul", TILES, _rule, _takes)


def partitions(
    problem: MatmulProblem, variant: Variant, limit: int = 2 * ENOUGH
) -> tuple[int, int]:
    """Into how many partitions the sums over k are split, up to ``limit`` workgroups, and the length of each."""
    bk, k = variant.params["bk"], problem.k
    fits = len(problem.parts) == 1 and not problem.gated and variant.name != "plain"
    with preferring():
        count = min(
            MAX_PARTITIONS, k // LEAST_PARTITION, limit // largest(1, tiles(problem, variant))
        )
        count = max(count, -(-k // LONGEST_PARTITION))
        if not fits or count < 2:
            return 1, largest(bk, -(-k // bk) * bk)
    count = largest(1, count)
    length = largest(1, -(-k // (count * bk))) * bk
    return smallest(-(-k // length), count), length


# --- weights in blocks -----------------------------------------------------------------------------------


class BlockMatmulProblem(NamedTuple):
    """A product by weights in blocks.

    Attributes:
        m: Rows of the result.
        n: Columns of it.
        k: Length of the sums.
        halves: Whether matrix units may multiply: rows and weights may be rounded to f16.
    """

    m: int
    n: int
    k: int
    halves: bool = False


# shaders/products/dequant_gemv.wgsl: threads of a workgroup, each of which makes 4 columns; and, by the most rows, the
# threads that share a column. x takes 16 KiB of workgroup memory at most.
_FEW_THREADS = 128
_LANES = ((2, 32), (4, 16), (16, 8))

# A step of 32 along k is one block of most formats, which one thread decodes.
_FRAGMENTS_OF_BLOCKS = tuple(
    _fragments(*sizes, together=4)
    for sizes in (
        ("fragments_large", 128, 128, 32, 64, 64),
        ("fragments_medium", 64, 128, 64, 32, 32),
        ("fragments_small", 64, 64, 64, 32, 32),
        ("fragments_tiny", 32, 32, 32, 16, 16),
    )
)
_BLOCKS = (
    *_FRAGMENTS_OF_BLOCKS,
    _tile("large", 64, 128, 32, 8, 8),
    _tile("medium", 64, 64, 32, 8, 8),
    _tile("small", 32, 64, 32, 8, 4),
    Variant("few", _FEW_THREADS, 16384),
    _tile("plain", 32, 64, 32, 8, 4, ahead=False, unrolled=False),
)


def _packed_rule(problem: BlockMatmulProblem, legal: Sequence[Variant]) -> Variant:
    results = {variant.name: variant for variant in legal}
    if "few" in results:
        return results["few"]
    as_product = MatmulProblem(problem.m, (problem.n,), problem.k, 1)
    for name, enough in _ENOUGH_FRAGMENTS:
        if name in results and (not enough or tiles(as_product, results[name]) >= enough):
            return results[name]
    # Long sums can be split, so fewer tiles are enough.
    enough = ENOUGH / min(4, max(1, problem.k // LEAST_PARTITION))
    for name in ("large", "medium"):
        if name in results and problem.m > 32 and tiles(as_product, results[name]) >= enough:
            return results[name]
    return results.get("small", results["plain"])


def _packed_takes(variant: Variant, problem: BlockMatmulProblem) -> bool:
    if isinstance(variant, FragmentVariant):
        return problem.halves and problem.k > 0
    return variant.name != "few" or problem.m <= FEW_ROWS


DEQUANT = Family("dequant", _BLOCKS, _packed_rule, _packed_takes)


def packed_workgroups(variant: Variant) -> int:
    """Workgroups up to which sums are split.

    Decoding waits for memory, so each multiprocessor needs several workgroups.
    """
    return 4 * ENOUGH * 128 // variant.threads


class PackedStrips(NamedTuple):
    """The tiling of the few-row kernel.

    Attributes:
        lanes: Threads that share a column.
        across: Workgroups that make a row together.
        splits: Partitions of the sums.
        partition_pieces: Pieces of a partition.
    """

    lanes: int
    across: int
    splits: int
    partition_pieces: int


def packed_strips(problem: BlockMatmulProblem, piece: int) -> PackedStrips:
    """Tiles a product of few rows with weights in blocks, for pieces of this length along k."""
    pieces = problem.k // piece
    lanes = next(count for rows, count in _LANES if problem.m <= rows)
    lanes = min(lanes, 1 << (max(8, pieces) - 1).bit_length())
    across = math.ceil(problem.n / (4 * _FEW_THREADS // lanes))
    # Sums are split only where columns alone make too few workgroups, and each thread keeps two pieces at least.
    limit = 1 if across >= 2 * ENOUGH else 8 * ENOUGH // max(1, across)
    count = max(1, min(MAX_PARTITIONS, pieces // (2 * lanes), limit))
    length = max(1, math.ceil(pieces / (count * lanes))) * lanes
    return PackedStrips(lanes, across, max(1, math.ceil(pieces / length)), length)


# --- rows of several experts -----------------------------------------------------------------------------


class Grouped(NamedTuple):
    """Rows that are multiplied by the matrix of an expert each.

    Attributes:
        m: Rows.
        n: Columns of the result.
        k: Length of the sums.
        experts: Matrices.
        halves: Whether matrix units may multiply: operands are f16, or may be rounded to that.
    """

    m: int
    n: int
    k: int
    experts: int
    halves: bool = False


# Limits of shaders/products/expert_tiles.wgsl: experts that it counts in workgroup memory,
MAX_EXPERTS = 1024
# and rows that its single workgroup lists.
MAX_LISTED = 1 << 20


# By preference: tiles, how many there have to be, and the rows that an expert has to have on average.
_BY_EXPERT = (
    ("fragments_large", 1.5 * ENOUGH, 96),
    ("fragments_medium", 2 * ENOUGH, 48),
    ("fragments_small", 0, 0),
    ("fragments_tiny", 0, 0),
    ("large", ENOUGH, 48),
    ("small", 0, 0),
)


def _grouped_rule(problem: Grouped, legal: Sequence[Variant]) -> Variant:
    results = {variant.name: variant for variant in legal}
    # With few rows per expert, tiles would share little.
    if "rows" in results and problem.m <= max(FEW_ROWS, 2 * problem.experts):
        return results["rows"]
    as_product = MatmulProblem(problem.m, (problem.n,), problem.k, 1)
    for name, enough, rows_per_expert in _BY_EXPERT:
        if (
            name in results
            and tiles(as_product, results[name]) >= enough
            and problem.m >= rows_per_expert * problem.experts
        ):
            return results[name]
    return results["plain"]


def _grouped_takes(variant: Variant, problem: Grouped) -> bool:
    if variant.name == "plain":
        return True
    listed = problem.experts <= MAX_EXPERTS and problem.m <= MAX_LISTED
    if isinstance(variant, FragmentVariant) and not problem.halves:
        return False
    return problem.k > 0 and (variant.name == "rows" or listed)


# The plain variant needs no list of rows, but reads the weights once per row.
EXPERTS = Family(
    "grouped_matmul",
    (
        *(fragment for fragment in FRAGMENTS if fragment.sides == 1),
        _tile("large", 64, 128, 16, 8, 8),
        _tile("small", 32, 64, 16, 4, 4),
        Variant("rows", 256, 12288),
        Variant("plain", 64, 0),
    ),
    _grouped_rule,
    _grouped_takes,
)


def expert_tiles(problem: Grouped, variant: Variant) -> int:
    """Tiles of rows there may be: those of full ones, and a last one of each expert."""
    return problem.m // variant.params["bm"] + min(problem.experts, problem.m)


# --- few rows ------------------------------------------------------------------------------------------

# Most rows for shaders/products/gemv.wgsl, which reads the weights once for all rows.
FEW_ROWS = 16


class Strips(NamedTuple):
    """The grid of the kernel for few rows.

    Attributes:
        columns: Columns of a workgroup.
        stage: Length along k of the left operand's part in workgroup memory.
        splits: Partitions of the sums.
        partition_k: Length of a partition.
    """

    columns: int
    stage: int
    splits: int
    partition_k: int


# By the most rows: columns of a workgroup, and the number of workgroups up to which sums are split. More rows make the
# left operand larger, so each workgroup takes more columns to read it less often.
COLUMNS = ((2, 32, 4 * ENOUGH), (4, 64, 4 * ENOUGH), (FEW_ROWS, 256, 8 * ENOUGH))
# Bytes of workgroup memory that the left operand may take.
STAGED = 8192


def strips(problem: MatmulProblem) -> Strips:
    """Columns of a workgroup, and partitions of the sums where that makes too few workgroups for a large GPU."""
    columns, limit = next(row[1:] for row in COLUMNS if problem.m <= row[0])
    if not all(divides(4, n) for n in problem.parts):
        columns = 32
    stage = STAGED // (4 * problem.m) // 32 * 32
    groups = problem.batch * sum(math.ceil(n / columns) for n in problem.parts)
    with preferring():
        most = limit // largest(1, groups)
        count = min(MAX_PARTITIONS, problem.k // LEAST_PARTITION, most)
        count = max(count, -(-problem.k // LONGEST_PARTITION))
        if len(problem.parts) > 1 or problem.gated or count < 2:
            count = 1
    # A partition is a whole number of stages, or a part of one stage.
    k = largest(1, problem.k)
    length = -(-k // largest(1, count))
    step = 32 if general(lambda: bool(length < stage), False) else stage
    length = -(-length // step) * step
    splits = 1 if same_size(count, 1) else -(-k // length)
    return Strips(columns, smallest(stage, length), splits, length)

"""How matrix products are cut into tiles on a GPU: the variants of shaders/matmul.wgsl, and which is taken when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.variants import Family, Variant

# A workgroup's tile is made by so few threads that each keeps its sums in registers; what a tile reads is
# shared through workgroup memory. docs/kernels.md has the figures.


class Problem(NamedTuple):
    """A product.

    Attributes:
        m: Rows of the result.
        parts: Columns of each result.
        k: Length of the sums.
        batch: Matrices.
        gated: Whether two products are made side by side.
    """

    m: int
    parts: tuple[int, ...]
    k: int
    batch: int
    gated: bool = False


def _tile(
    name: str, bm: int, bn: int, bk: int, tm: int, tn: int, ahead: bool = True, unrolled: bool = True
) -> Variant:
    params = {"bm": bm, "bn": bn, "bk": bk, "tm": tm, "tn": tn, "ahead": ahead, "unrolled": unrolled}
    return Variant(name, (bm // tm) * (bn // tn), 4 * bk * (bm + bn), {k: int(v) for k, v in params.items()})


TILES = (
    _tile("wide", 128, 128, 16, 8, 16),
    _tile("large", 64, 128, 16, 8, 8),
    _tile("medium", 64, 64, 16, 8, 8),
    _tile("paired", 64, 64, 16, 8, 4),
    _tile("small", 32, 64, 16, 4, 4),
    _tile("plain", 64, 64, 16, 4, 4, ahead=False, unrolled=False),
)
# Tiles that keep a large GPU's multiprocessors busy; with fewer, smaller ones are made.
ENOUGH = 120
# Sums are split where even the small tiles are fewer, each share at least this long.
LEAST_SHARE = 256
MOST_SHARES = 16


def tiles(problem: Problem, variant: Variant) -> int:
    """Workgroups that a product takes."""
    bm, bn = variant.params["bm"], variant.params["bn"]
    return problem.batch * math.ceil(problem.m / bm) * sum(math.ceil(n / bn) for n in problem.parts)


def _rule(problem: Problem, legal: Sequence[Variant]) -> Variant:
    found = {variant.name: variant for variant in legal}
    if problem.gated:
        order = ("paired", "small", "plain")
    else:
        order = ("wide", "large", "medium", "small", "plain")
    for name in order[:-1]:
        enough = ENOUGH * (4 if name == "wide" else 1)
        if name in found and tiles(problem, found[name]) >= enough:
            return found[name]
    return found.get("small", found["plain"])


def _takes(variant: Variant, problem: Problem) -> bool:
    # Two products keep twice the sums.
    return not problem.gated or variant.params["tm"] * variant.params["tn"] <= 32


MATMUL = Family("matmul", TILES, _rule, _takes)


def shares(problem: Problem, variant: Variant) -> tuple[int, int]:
    """Into how many shares the sums are split, and how long each is."""
    bk, k = variant.params["bk"], problem.k
    fits = len(problem.parts) == 1 and not problem.gated and variant.name != "plain"
    count = min(MOST_SHARES, k // LEAST_SHARE, 2 * ENOUGH // max(1, tiles(problem, variant)))
    if not fits or count < 2:
        return 1, max(bk, -(-k // bk) * bk)
    each = -(-k // (count * bk)) * bk
    return -(-k // each), each

"""Tilings of byte products on a GPU: the variants of shaders/products/matmul_integer*.wgsl and the rule among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.fragments import FragmentVariant
from rlx.ir.variants import Family, Variant
from rlx.ops.products.tiles import ENOUGH, FEW_ROWS
from rlx.sizes import divides


class Int8MatmulProblem(NamedTuple):
    """A product of bytes.

    Attributes:
        m: Rows of the result.
        n: Columns.
        k: Length of the sums.
        batch: Matrices.
    """

    m: int
    n: int
    k: int
    batch: int


def _tile(name: str, bm: int, bn: int, bk: int, tm: int, tn: int) -> Variant:
    """A tile that takes ``bk`` words along k a step, of four bytes each."""
    params = {"bm": bm, "bn": bn, "bk": bk, "tm": tm, "tn": tn}
    return Variant(name, (bm // tm) * (bn // tn), 4 * bk * (bm + bn), params)


def _fragments(name: str, bm: int, bn: int, bk: int, wm: int, wn: int) -> FragmentVariant:
    """A tile of shaders/products/matmul_integer_fragments.wgsl, each of whose subgroups makes wm x wn of it."""
    params = {"bm": bm, "bn": bn, "bk": bk, "wm": wm, "wn": wn}
    # Squares of 16 rows and 4 columns are turned at once.
    return FragmentVariant(name, 0, 0, params, operand="i8", nbytes=1, together=4)


_THREADS = 256
_PLAIN_COLUMNS = 256
# Bytes of workgroup memory: the sums of up to 4 rows of every thread.
_FEW_STORAGE = 4 * 16 * _THREADS
# Columns of a workgroup of few rows: the fewest that read whole sectors of 32 bytes, or twice as many for wide results.
_FEW_COLUMNS, _WIDE = 32, 16384


# By preference: variants, and how many workgroups they have to make.
_PREFERRED = (
    ("few", 0),
    ("fragments_large", ENOUGH),
    ("fragments_small", 0),
    ("fragments_tiny", 0),
    ("large", ENOUGH),
    ("small", 0),
)


def _rule(problem: Int8MatmulProblem, legal: Sequence[Variant]) -> Variant:
    results = {variant.name: variant for variant in legal}
    for name, enough in _PREFERRED:
        if name in results and (not enough or groups(problem, results[name])[0] >= enough):
            return results[name]
    return results["plain"]


def _takes(variant: Variant, problem: Int8MatmulProblem) -> bool:
    # Rows have to be whole words, so that no load spans two of them.
    words = problem.k > 0 and divides(4, problem.k) and divides(4, problem.n)
    return variant.name == "plain" or (words and (variant.name != "few" or problem.m <= FEW_ROWS))


INTEGER = Family(
    "matmul_integer",
    (
        _fragments("fragments_large", 128, 128, 64, 64, 64),
        _fragments("fragments_small", 64, 64, 128, 32, 32),
        _fragments("fragments_tiny", 32, 32, 64, 16, 32),
        _tile("large", 64, 128, 8, 8, 8),
        _tile("small", 32, 64, 8, 4, 4),
        Variant("few", _THREADS, _FEW_STORAGE),
        Variant("plain", 64, 0),
    ),
    _rule,
    _takes,
)
KERNELS = {
    "fragments_large": "matmul_integer_fragments",
    "fragments_small": "matmul_integer_fragments",
    "fragments_tiny": "matmul_integer_fragments",
    "large": "matmul_integer_tiles",
    "small": "matmul_integer_tiles",
    "few": "matmul_integer_gemv",
    "plain": "matmul_integer",
}


def few_columns(problem: Int8MatmulProblem) -> int:
    """Columns of a workgroup of the kernel for few rows."""
    return _FEW_COLUMNS * (2 if problem.n >= _WIDE else 1)


def groups(problem: Int8MatmulProblem, variant: Variant) -> tuple[int, int]:
    """Workgroups that a product takes, and how many of them make the same rows."""
    m, n, _, batch = problem
    if variant.name == "plain":
        across = math.ceil(n / _PLAIN_COLUMNS)
        return batch * m * across, across
    if variant.name == "few":
        across = math.ceil(n / few_columns(problem))
        return batch * across, across
    across = math.ceil(n / variant.params["bn"])
    return batch * math.ceil(m / variant.params["bm"]) * across, across

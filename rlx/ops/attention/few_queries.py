"""Attention of few queries on a GPU: how its keys are shared out, and when that is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.variants import Family, Variant

# Rows (queries of the heads that share keys) of a workgroup, and the elements of them that it holds.
_ROWS = 8
_HELD = 1024
# Workgroups that keep a large GPU's multiprocessors busy; with fewer, shorter stretches are taken.
_ENOUGH = 528


class Decode(NamedTuple):
    """An attention.

    Attributes:
        pairs: Batches times key-value heads.
        rows: Queries that share the keys of such a pair.
        sk: Keys that any of them sees.
        d: Elements of a key.
        dv: Elements of a value.
    """

    pairs: int
    rows: int
    sk: int
    d: int
    dv: int

    @property
    def at_once(self) -> int:
        """Rows of a workgroup."""
        return max(1, min(self.rows, _ROWS, _HELD // self.d))

    @property
    def blocks(self) -> int:
        """Workgroups that share the rows of a pair and a stretch of keys."""
        return math.ceil(self.rows / self.at_once)


def _split(name: str, threads: int) -> Variant:
    # The rows, two vectors for each thread, and one number for each.
    return Variant(
        name, threads, 4 * _HELD + 36 * threads, {"threads": threads, "keys": threads // 2}
    )


def _takes(variant: Variant, problem: Decode) -> bool:
    if variant.name == "plain":
        return True
    if problem.d % 4 or problem.dv % 4 or not 0 < problem.d <= _HELD or problem.sk < 1:
        return False
    return problem.dv <= 2 * variant.threads


def _rule(problem: Decode, legal: Sequence[Variant]) -> Variant:
    found = {variant.name: variant for variant in legal}
    wide = found.get("wide")
    if wide and splits(problem, wide) * problem.pairs * problem.blocks >= _ENOUGH:
        return wide
    return found.get("narrow", wide or found["plain"])


def splits(problem: Decode, variant: Variant) -> int:
    """Stretches of keys."""
    return math.ceil(problem.sk / variant.params["keys"])


def columns(problem: Decode) -> int:
    """Threads, a power of two, that share the elements of a value; each has four."""
    return max(8, 1 << (problem.dv // 4 - 1).bit_length())


DECODE = Family(
    "decode",
    (_split("wide", 256), _split("narrow", 128), Variant("plain", 64, 4 * _HELD)),
    _rule,
    _takes,
)

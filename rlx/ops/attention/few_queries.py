"""Attention of few queries on a GPU: how the keys are split over workgroups, and when."""

from __future__ import annotations

import math
from typing import NamedTuple

from rlx.ir.variants import Family, Variant
from rlx.sizes import divides, flag, smallest

# Limits of a workgroup: rows (queries of all heads that share the keys), and elements of rows in its memory.
_ROWS = 8
_HELD = 1024
# One workgroup reads so many keys in a loop. A second call, which joins results, would take longer.
_FEW = 512


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
    # Workgroup memory: the rows, two vectors per thread, and one number per thread.
    return Variant(
        name, threads, 4 * _HELD + 36 * threads, {"threads": threads, "keys": threads // 2}
    )


def _takes(variant: Variant, problem: Decode) -> bool:
    if variant.name == "plain":
        return True
    if (
        not (divides(4, problem.d) and divides(4, problem.dv))
        or not 0 < problem.d <= _HELD
        or problem.sk < 1
    ):
        return False
    return problem.dv <= 2 * variant.threads


def _reads(problem: Decode, variant: Variant) -> int:
    """The number of stretches of keys, each of which a workgroup reads at a time."""
    return math.ceil(problem.sk / variant.params["keys"])


def splits(problem: Decode, variant: Variant) -> tuple[int, int]:
    """Workgroups that share the keys of a pair, and the stretches that each of them reads."""
    many, reads = flag(problem.sk - _FEW), _reads(problem, variant)
    alone = smallest(reads, _FEW // variant.params["keys"])
    return 1 + many * (reads - 1), 1 + (1 - many) * (alone - 1)


def columns(problem: Decode) -> int:
    """Threads, a power of two, that share the elements of a value; each has four."""
    return max(8, 1 << (problem.dv // 4 - 1).bit_length())


DECODE = Family(
    "decode",
    (_split("wide", 256), _split("narrow", 128), Variant("plain", 64, 4 * _HELD)),
    takes=_takes,
)

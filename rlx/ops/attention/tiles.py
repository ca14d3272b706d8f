"""Attention of many queries on a GPU: how queries, keys and values are cut into tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.ir.variants import Family, Variant


class Prefill(NamedTuple):
    """An attention.

    Attributes:
        heads: Batches times heads.
        sq: Queries.
        sk: Keys.
        d: Elements of a key.
        dv: Elements of a value.
    """

    heads: int
    sq: int
    sk: int
    d: int
    dv: int


# Tiles that keep a large GPU's multiprocessors busy.
_ENOUGH = 240


def _takes(variant: Variant, problem: Prefill) -> bool:
    # A thread's sums fill its registers.
    return problem.dv <= {"wide": 64, "deep": 128}.get(variant.name, problem.dv)


def _rule(problem: Prefill, legal: Sequence[Variant]) -> Variant:
    found = {variant.name: variant for variant in legal}
    if "deep" in found and problem.heads * -(-problem.sq // 64) >= _ENOUGH:
        return found["deep"]
    return found["tiles"]


PREFILL = Family(
    "attention",
    (
        Variant("deep", 128, 14336, {"queries": 64, "threads": 128}),
        Variant("wide", 128, 16384, {"queries": 128, "threads": 128}),
        Variant("tiles", 256, 14336, {"queries": 64, "threads": 256}),
    ),
    _rule,
    _takes,
)

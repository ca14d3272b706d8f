"""Attention of many queries on a GPU: how queries, keys and values are cut into tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlx.dataclasses import dataclass
from rlx.ir.fragments import fragment_params
from rlx.ir.variants import Family, Limits, Variant


class Prefill(NamedTuple):
    """An attention.

    Attributes:
        heads: Batches times heads.
        sq: Queries.
        sk: Keys.
        d: Elements of a key.
        dv: Elements of a value.
        half: Whether matrix units may multiply: operands are f16, or rounded to that.
        limits: The device's.
    """

    heads: int
    sq: int
    sk: int
    d: int
    dv: int
    half: bool
    limits: Mapping[str, int]


@dataclass(frozen=True)
class FragmentQueries(Variant):
    """Queries of a workgroup whose products are made of fragments, one query a thread."""

    def fits(self, limits: Limits) -> bool:
        """Returns whether a device has fragments for the scores. The memory depends on the problem: ``room``."""
        have, keys = fragment_params(limits), self.params["keys"]
        if not have:
            return False
        threads = self.params["subgroups"] * have["lanes"]
        whole = not (have["lanes"] % have["fm"] or keys % have["fn"] or keys % have["fk"])
        return whole and Variant(self.name, threads, 0).fits(limits)

    def room(self, problem: Prefill) -> bool:
        """Returns whether a workgroup's tiles fit its memory, and a thread's sums its registers."""
        have, keys = fragment_params(problem.limits), self.params["keys"]
        queries = self.params["subgroups"] * have["lanes"]
        d, dv = (
            -(-n // unit) * unit for n, unit in ((problem.d, have["fk"]), (problem.dv, have["fn"]))
        )
        retained = queries * (d + 8)
        halves = keys * (d + dv + 16) + queries * 2 * (keys + 4) + (retained if d > 64 else 0)
        storage = Variant(self.name, 0, 2 * max(halves, retained) + 16)
        return max(d, dv) <= self.params["longest"] and storage.fits(problem.limits)


# Enough tiles to keep a large GPU busy.
_ENOUGH = 240


def _takes(variant: Variant, problem: Prefill) -> bool:
    if isinstance(variant, FragmentQueries):
        return problem.half and min(problem.d, problem.dv) > 0 and variant.room(problem)
    # A thread's sums fill its registers.
    return problem.dv <= {"wide": 64, "deep": 128}.get(variant.name, problem.dv)


def _rule(problem: Prefill, legal: Sequence[Variant]) -> Variant:
    results = {variant.name: variant for variant in legal}
    # Half as many queries a workgroup were 8 % faster for 2,048 causal ones of 64 numbers.
    for name in ("fragments_deep", "fragments"):
        if name in results:
            return results[name]
    if "deep" in results and problem.heads * -(-problem.sq // 64) >= _ENOUGH:
        return results["deep"]
    return results["tiles"]


PREFILL = Family(
    "attention",
    (
        FragmentQueries("fragments", 0, 0, {"subgroups": 4, "keys": 32, "longest": 64}),
        FragmentQueries("fragments_deep", 0, 0, {"subgroups": 2, "keys": 32, "longest": 128}),
        Variant("deep", 128, 14336, {"queries": 64, "threads": 128}),
        Variant("wide", 128, 16384, {"queries": 128, "threads": 128}),
        Variant("tiles", 256, 14336, {"queries": 64, "threads": 256}),
    ),
    _rule,
    _takes,
)

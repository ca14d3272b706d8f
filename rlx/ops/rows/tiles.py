"""Kernels that read a row once on a GPU: lanes per row, and how many numbers each lane keeps in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rlx.ir.shape import is_sized
from rlx.ir.variants import SUBGROUPS, Family, Limits, Variant
from rlx.ops.rows.reduce_rows import power_above
from rlx.sizes import divides, may_exceed

# Most numbers that a lane keeps. The lanes of a large workgroup share the registers of a multiprocessor.
_KEPT = 32
_MAX_KEPT = {256: 64, 512: 64}
_MOST_HELD = max(_KEPT, *_MAX_KEPT.values())
# Enough lanes to keep a large GPU busy.
_BUSY = 8192


# Threads of a workgroup where a row takes fewer lanes. Small workgroups wait less at barriers.
_THREADS = 64


class Rows(NamedTuple):
    """Rows that are normalised.

    Attributes:
        rows: How many.
        n: Elements of each, neighbours in memory.
    """

    rows: int
    n: int

    @property
    def vectors(self) -> int:
        """The elements of a lane's read: vectors of four, or numbers where the rows do not divide."""
        return self.n // 4 if divides(4, self.n) else self.n

    def held(self, variant: Variant) -> int:
        """Returns the size of the row's part that a lane keeps, in the same unit; 0 where rows are read twice."""
        return math.ceil(self.vectors / variant.params["lanes"]) if variant.params["keep"] else 0


def _variant(lanes: int, keep: bool = True) -> Variant:
    threads = max(_THREADS, lanes)
    name = f"{'lanes' if keep else 'twice'}{lanes}"
    return Variant(name, threads, 8 * threads, {"lanes": lanes, "keep": int(keep)})


def _takes(variant: Variant, problem: Rows) -> bool:
    if variant.name == "plain" or not variant.params["keep"]:
        return True
    numbers = problem.held(variant) * (4 if divides(4, problem.n) else 1)
    # The shader's text grows with the numbers that are kept; scalars need more text than vectors.
    limit = _MAX_KEPT.get(variant.threads, _KEPT) if variant.params["lanes"] >= 256 else _KEPT
    most = limit if divides(4, problem.n) else limit // 2
    return not may_exceed(numbers, most)


def _rule(problem: Rows, legal: Sequence[Variant]) -> Variant:
    remaining = [v for v in legal if v.params.get("keep")]
    few = [v for v in remaining if problem.held(v) * (4 if divides(4, problem.n) else 1) <= _KEPT]
    # With few rows, each row gets more lanes.
    busy = (v for v in few if v.params["lanes"] >= 128 or problem.rows * v.params["lanes"] >= _BUSY)
    return next(busy, None) or (few or remaining or [v for v in legal if v.name != "plain"])[0]


ROWS = Family(
    "rows",
    (
        *(_variant(lanes) for lanes in (8, 32, 128, 256, 512, 1024)),
        *(_variant(lanes, keep=False) for lanes in (512, 256)),
        Variant("plain", 256, 1024),
    ),
    _rule,
    _takes,
)


def row_call(problem: Rows, variant: Variant, limits: Limits) -> tuple[dict[str, Any], int]:
    """Parameters of a kernel of this family on a device with these limits, and its workgroups."""
    lanes = variant.params["lanes"]
    held = problem.held(variant)
    if is_sized(held):  # one text for several lengths: what is not there is left out when it runs
        held = power_above(held, _MOST_HELD)
    params = {"lanes": lanes, "threads": variant.threads, "held": held}
    params["subgroups"] = limits.get(SUBGROUPS, 0)
    return params, math.ceil(problem.rows * lanes / variant.threads)

"""The ledger of errors: the distance of each operation from float64 on each adapter, and outliers among drivers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from rlx.dataclasses import dataclass
from rlx.regress.findings import EPSILON, size
from rlx.regress.record_schema import Difference
from rlx.regress.recording import Recording

STANDS_OUT = 10.0
"""An error of this many times that of the other adapters is flagged, though it may pass the tolerance."""

# Relative errors of up to so many units in the last place are ordinary rounding.
_ROUNDING = 2.0


@dataclass(frozen=True)
class LedgerEntry:
    """An operation on an adapter, over all its cases of one output dtype.

    Attributes:
        op: The operation.
        dtype: dtype of the outputs.
        adapter: The hardware.
        api: Its API.
        driver: The driver.
        cases: How many outputs were compared with a reference.
        max_ulp: The largest error in units in the last place; None for other dtypes than floats.
        rms: The largest root of a mean square of errors; infinite where it overflows.
        relative: The largest relative error, which the tolerance bounds; infinite for NaN in the wrong place.
        tolerance: The tolerance of the case with the largest share of it; None where there is none.
        share: The largest part of its tolerance that a case uses; None where there is none.
        worst: The case with the largest relative error.
        edges: Cases of special values (NaN, infinity, denormal numbers), which have no tolerance, that differ from
            the reference by more than ordinary rounding. They count nowhere else, unless no case has a tolerance.
        times_others: The relative error by the median of the other adapters' errors; None where there is no other.
        stands_out: Whether that is at least ``STANDS_OUT`` and more than ordinary rounding.
    """

    op: str
    dtype: str
    adapter: str
    api: str
    driver: str
    cases: int
    max_ulp: float | None
    rms: float
    relative: float
    tolerance: float | None
    share: float | None
    worst: str
    edges: int = 0
    times_others: float | None = None
    stands_out: bool = False

    @property
    def fails(self) -> bool:
        """True if a case is beyond its tolerance."""
        return self.share is not None and self.share > 1


@dataclass(frozen=True)
class _Found:
    case: str
    tolerance: float | None
    difference: Difference

    @property
    def relative(self) -> float:
        return size(self.difference.relative)

    @property
    def share(self) -> float | None:
        return self.relative / self.tolerance if self.tolerance else None


def ledger(recordings: Sequence[Recording]) -> list[LedgerEntry]:
    """The errors by operation, dtype and adapter; those that stand out are marked.

    Adapters are compared over the cases that all of them have measured, so that one with more cases does not stand
    out for those.

    Args:
        recordings: At least one. A driver in two versions counts as two adapters.
    """
    results: dict[tuple[str, str], dict[tuple[str, str, str], dict[tuple[str, int], _Found]]] = {}
    for recording in recordings:
        for (name, digest), measured in recording.measured.items():
            case, device = measured.case, recording.devices[name]
            for i, output in enumerate(case.outputs if case else ()):
                if case is not None and output.difference is not None:
                    adapters = results.setdefault((case.op, output.dtype), {})
                    rows = adapters.setdefault((device.adapter, device.api, device.driver), {})
                    rows[digest, i] = _Found(case.name, case.tolerance, output.difference)
    entries = []
    for (op, dtype), adapters in sorted(results.items()):
        common = set.intersection(*(set(rows) for rows in adapters.values()))
        # Where a case has a tolerance, those without one are cases of special values.
        bounded = {k for k in common if all(rows[k].tolerance for rows in adapters.values())}
        common = bounded or common
        shared = {
            key: max((rows[k].relative for k in common), default=0.0)
            for key, rows in adapters.items()
        }
        for key, rows in sorted(adapters.items()):
            others = sorted(value for other, value in shared.items() if other != key)
            entries.append(_entry(op, dtype, key, rows.values(), shared[key], others))
    return entries


def _entry(
    op: str,
    dtype: str,
    key: tuple[str, str, str],
    every: Collection[_Found],
    shared: float,
    others: Sequence[float],
) -> LedgerEntry:
    rounding = _ROUNDING * EPSILON.get(dtype, 0.0)
    rows = [item for item in every if item.tolerance] or list(every)
    edges = [item for item in every if item not in rows and item.relative > rounding]
    worst = max(rows, key=lambda item: item.relative)
    shares = [row for row in rows if row.share is not None]
    nearest = max(shares, key=lambda item: item.share or 0.0, default=None)
    ulps = [u for row in rows if (u := row.difference.max_ulp) is not None]
    usual = others[(len(others) - 1) // 2] if others else None
    return LedgerEntry(
        op,
        dtype,
        *key,
        len(rows),
        max(ulps, default=None),
        max(size(row.difference.rms) for row in rows),
        worst.relative,
        nearest.tolerance if nearest else None,
        nearest.share if nearest else None,
        worst.case,
        len(edges),
        _times(shared, usual),
        usual is not None and shared > STANDS_OUT * usual and shared > rounding,
    )


def _times(own: float, usual: float | None) -> float | None:
    """One error by the usual one; infinite where that is 0 or this one infinite."""
    if usual is None:
        return None
    if own == usual:
        return 1.0
    return own / usual if usual and math.isfinite(usual) else (math.inf if own > usual else 0.0)

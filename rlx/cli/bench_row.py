"""The results of one contestant of ``rlx bench``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from rlx.cli.agreement import Agreement
from rlx.dataclasses import dataclass


@dataclass
class BenchRow:
    """The results of one contestant.

    Attributes:
        name: A device of rlx, or a peer.
        facts: Milliseconds to load, compile and run first, memory, adapter, driver, what is on the host.
        samples_ns: Nanoseconds of each run, a list for each round.
        agreements: Its outputs beside what was expected.
        error: Why it did not run.
    """

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    samples_ns: list[list[int]] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    error: str | None = None

    @property
    def differs(self) -> bool:
        """True if an output does not pass."""
        return any(agreement.failure for agreement in self.agreements)

    def microseconds(self, percentile: float) -> float | None:
        """A percentile of all runs."""
        times = [ns for burst in self.samples_ns for ns in burst]
        return float(np.percentile(times, percentile)) / 1e3 if times else None

    def speed(self, first: BenchRow) -> tuple[float, float, float] | None:
        """Compares the speed with another row: quartiles of the rounds' ratios of medians."""
        pairs = zip(first.samples_ns, self.samples_ns, strict=False)
        ratios = [float(np.median(item)) / float(np.median(own)) for item, own in pairs]
        if not ratios:
            return None
        low, middle, high = (float(np.percentile(ratios, q)) for q in (25, 50, 75))
        return low, middle, high


def first_that_ran(rows: Sequence[BenchRow]) -> BenchRow:
    """The row that others are compared with; the first one where none ran."""
    return next((row for row in rows if row.error is None), rows[0])

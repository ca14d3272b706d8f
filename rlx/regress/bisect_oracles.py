"""Judges an install for bisect: measures the case beside the good install, and compares both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rlx.dataclasses import dataclass
from rlx.errors import RlxError, one_line
from rlx.regress.bisect import Opinion
from rlx.regress.compare import CaseResult, Comparison, compare
from rlx.regress.findings import KINDS
from rlx.regress.record import RecordPlan, RecordTarget, record
from rlx.regress.recording import read
from rlx.regress.statistics import ratio_of
from rlx.regress.timing import TimeVerdict, Timing

TIME = "time"
_CHANGED = frozenset(name for name, kind in KINDS.items() if kind.changed)

BY: Mapping[str, frozenset[str]] = {
    TIME: frozenset(),
    "bits": _CHANGED,
    "error": _CHANGED - {"bits", "outputs"},
}
"""The kinds of findings that show each sort of regression; a time has a verdict instead."""

# One process can't show that bits vary by themselves.
_FOR_BITS = 2
# An undecided time is measured again with this many times the processes, so often.
_MORE, _AGAIN = 2, 2
_UNDECIDED = (TimeVerdict.INCONCLUSIVE, TimeVerdict.MACHINE)


@dataclass(frozen=True)
class RecordedCase:
    """A judge (``bisect.Judge``) that measures cases in fresh processes, which take turns.

    Attributes:
        plan: The cases, devices and processes.
        by: A key of ``BY``.
        min_effect: The least change of a time that counts, as a part of it.
    """

    plan: RecordPlan
    by: str
    min_effect: float

    def __call__(self, good: Path, candidate: Path) -> Opinion:
        """Measures both; an undecided time again, by more processes."""
        processes = self.plan.processes if self.by == TIME else _FOR_BITS
        for _ in range(_AGAIN + 1):
            try:
                result = self._compared(good, candidate, processes)
            except RlxError as error:
                return Opinion(None, f"can't be measured: {one_line(error)}")
            opinion = opinion_of(result, self.by)
            undecided = any(item.verdict in _UNDECIDED for item in result.cases)
            if opinion.bad is not None or not undecided:
                break
            processes *= _MORE
        return opinion

    def _compared(self, good: Path, candidate: Path, processes: int) -> Comparison:
        with TemporaryDirectory(prefix="rlx-bisect-") as folder:
            paths = Path(folder, "good"), Path(folder, "candidate")
            targets = [RecordTarget(str(p), path) for p, path in zip((good, candidate), paths)]
            record(targets, replace(self.plan, processes=processes, texts=False))
            first, other = (read([path])[0] for path in paths)
            return compare(first, other, self.min_effect)


def opinion_of(comparison: Comparison, by: str) -> Opinion:
    """Turns a comparison into a verdict: bad where any of its cases is worse.

    Args:
        comparison: The comparison.
        by: A key of ``BY``.
    """
    if comparison.why_not:
        return Opinion(None, comparison.why_not)
    opinions = [
        _by_time(item) if by == TIME else _by_findings(item, BY[by]) for item in comparison.cases
    ]
    for bad in (True, None):
        for opinion in opinions:
            if opinion.bad is bad:
                return opinion
    return opinions[0]


def _by_findings(result: CaseResult, kinds: frozenset[str]) -> Opinion:
    texts = [finding.text for finding in result.findings if finding.kind in kinds]
    return Opinion(bool(texts), texts[0] if texts else "same results")


def _by_time(result: CaseResult) -> Opinion:
    timing = result.decisive
    if timing is None:
        failures = [finding.text for finding in result.findings if finding.kind == "failure"]
        return Opinion(None, failures[0] if failures else "it was not timed")
    bad = {TimeVerdict.SLOWER: True, TimeVerdict.SAME: False, TimeVerdict.FASTER: False}.get(
        timing.verdict
    )
    return Opinion(bad, figures(timing))


def figures(timing: Timing) -> str:
    """A time beside another one, in a few words."""
    text = f"{timing.new_ns / 1e3:.1f} us, {timing.base_ns / 1e3:.1f} us before"
    if timing.effect is not None:
        low, high = ratio_of(timing.effect.low), ratio_of(timing.effect.high)
        text = f"{timing.effect.ratio:.2f} times as long ({low:.2f} to {high:.2f}; {text})"
    return f"{text}: {timing.reason}" if timing.reason else text

"""Reports for a browser: one file that needs no network; all texts in it are escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import jinja2

from rlx.dataclasses import dataclass
from rlx.errors import printable_value
from rlx.regress import charts
from rlx.regress.compare import CaseResult, Comparison
from rlx.regress.differing import TextDiff, text_diffs
from rlx.regress.error_ledger import LedgerEntry, ledger
from rlx.regress.findings import KINDS
from rlx.regress.history import Series
from rlx.regress.recording import Recording
from rlx.regress.statistics import ratio_of
from rlx.regress.timing import METRICS, TimeVerdict, Timing

# Rows of the forest plot, series of a history, at most; the table has all cases.
_FOREST = 40
_SERIES = 60

# The rank of a verdict where rows are sorted by it; results that changed come before all.
_ORDER = (
    TimeVerdict.SLOWER,
    TimeVerdict.MACHINE,
    TimeVerdict.INCONCLUSIVE,
    TimeVerdict.FASTER,
    TimeVerdict.SAME,
)


@dataclass(frozen=True)
class _Row:
    """A case in the table and in the forest plot."""

    case: CaseResult
    timing: Timing | None
    interval: charts.Interval | None
    note: str

    @property
    def ratios(self) -> dict[str, float | None]:
        """New by base for every kind of time."""
        results: dict[str, float | None] = dict.fromkeys(METRICS)
        return results | {
            timing.metric: timing.new_ns / timing.base_ns for timing in self.case.timings
        }

    @property
    def rank(self) -> int:
        if self.case.changed:
            return 0
        return 1 + _ORDER.index(self.timing.verdict) if self.timing else 1 + len(_ORDER)


@dataclass(frozen=True)
class _Section:
    """A comparison in the report."""

    comparison: Comparison
    axis: charts.Axis
    rows: list[_Row]
    forest: list[_Row]
    diffs: list[TextDiff]


@dataclass(frozen=True)
class _Ledger:
    """The errors of all recordings: an axis, the adapters in order, and a row for each operation and dtype."""

    axis: charts.Axis
    adapters: list[tuple[str, str, str]]
    rows: list[tuple[list[LedgerEntry], list[charts.Dot], float | None]]


def compare_report(
    comparisons: Sequence[Comparison],
    recordings: Sequence[Recording],
    series: Sequence[Series] = (),
) -> str:
    """A report of comparisons.

    Args:
        comparisons: Each recording compared with the first.
        recordings: All recordings, whose errors are shown side by side.
        series: Histories, of which those of flagged cases are drawn.

    Returns:
        The text of the file.
    """
    flagged = {item.case for comparison in comparisons for item in comparison.cases if item.flagged}
    return _render(
        "compare.html.j2",
        sections=[_section(comparison) for comparison in comparisons],
        ledger=_ledger(recordings),
        series=_lines([item for item in series if item.case in flagged]),
    )


def history_report(series: Sequence[Series]) -> str:
    """A report of histories, those that change first; gives the text of the file."""
    return _render("history.html.j2", series=_lines(series), total=len(series))


def _render(name: str, **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rlx.regress"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable_value,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "ratio": ratio_of,
        "time": _time,
        "figure": lambda value: "-" if value is None else f"{value:.2g}",
        "ratio_text": lambda value: "-" if value is None else f"{value:.2f}",
        "when": lambda began: began[:16].replace("T", " "),
    }
    script = environment.get_template("page.js.j2").render()
    # The browser runs this script alone, whatever a name in a record file says.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values |= {"KINDS": KINDS, "METRICS": METRICS, "script": script, "script_hash": digest}
    return environment.get_template(name).render(**values)


def _time(ns: float) -> str:
    """Nanoseconds for people."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def _section(comparison: Comparison) -> _Section:
    decisive = [item.decisive for item in comparison.cases]
    axis = charts.ratio_axis([item.effect for item in decisive if item and item.effect])
    rows = [_row(case, axis) for case in comparison.cases]
    rows.sort(key=lambda row: (row.rank, -row.timing.size if row.timing else 0.0))
    timed = [(row.timing, row) for row in rows if row.timing and row.timing.effect]
    timed.sort(key=lambda item: (_ORDER.index(item[0].verdict), -item[0].size))
    forest = [row for _, row in timed[:_FOREST]]
    return _Section(comparison, axis, rows, forest, text_diffs(comparison))


def _row(case: CaseResult, axis: charts.Axis) -> _Row:
    timing = case.decisive
    interval = charts.interval(axis, timing.effect) if timing and timing.effect else None
    return _Row(case, timing, interval, timing.note if timing else "")


def _ledger(recordings: Sequence[Recording]) -> _Ledger:
    entries = ledger(recordings)
    axis = charts.error_axis(entries)
    adapters = sorted({(entry.adapter, entry.api, entry.driver) for entry in entries})
    grouped: dict[tuple[str, str], list[LedgerEntry]] = {}
    for entry in entries:
        grouped.setdefault((entry.op, entry.dtype), []).append(entry)
    rows = []
    for value in grouped.values():
        dots = [
            charts.Dot(
                charts.error_at(axis, item.relative),
                adapters.index((item.adapter, item.api, item.driver)) % 6,
                f"{item.adapter}: {item.relative:.2g}",
            )
            for item in value
        ]
        tolerances = [item.tolerance for item in value if item.tolerance]
        rows.append((value, dots, charts.error_at(axis, min(tolerances)) if tolerances else None))
    rows.sort(key=lambda row: -max(_urgency(item) for item in row[0]))
    return _Ledger(axis, adapters, rows)


def _urgency(entry: LedgerEntry) -> float:
    """Returns the sort key of an entry: beyond tolerance first, then outliers, then by the share of the tolerance."""
    return (4.0 if entry.fails else 2.0 if entry.stands_out else 0.0) + min(entry.share or 0.0, 1.0)


def _lines(series: Sequence[Series]) -> list[tuple[Series, charts.Line]]:
    chosen = sorted(series, key=lambda item: (not item.changes, not item.new_bits))[:_SERIES]
    return [(item, charts.line(item)) for item in chosen]

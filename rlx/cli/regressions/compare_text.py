"""The output of ``rlx regress compare``: the verdict first, then its evidence."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console

from rlx.cli.screen import Screen, table, when
from rlx.errors import printable
from rlx.regress.compare import CaseResult, Comparison
from rlx.regress.findings import KINDS
from rlx.regress.pairing import DevicePair
from rlx.regress.statistics import Effect, ratio_of
from rlx.regress.timing import TimeVerdict


def show(comparison: Comparison, fail_on: Collection[str]) -> None:
    """Prints a comparison."""
    out = Screen()
    title = f"{when(comparison.base.run.began)} -> {when(comparison.new.run.began)}"
    status = comparison.exit_code(fail_on)
    out.print(f"{title}: {comparison.headline} (exit status {status})", style="bold")
    table(out, "what differs between the machines", ("", "before", "now"), comparison.differences)
    peaks = [
        (pair.title, peak.title, f"{peak.base:,.4g}", f"{peak.new:,.4g}", interval(peak.slowdown))
        for pair in comparison.pairs
        for peak in pair.peaks
    ]
    table(out, "the machines themselves", ("", "", "before", "now", "time, new by base"), peaks)
    for pair in comparison.pairs:
        _results(out, pair, [case for case in comparison.cases if case.pair is pair])
        _times(out, pair, [case for case in comparison.cases if case.pair is pair])
    _reported(out, comparison)
    for which, names in (("before", comparison.only_base), ("now", comparison.only_new)):
        if names:
            out.print(f"only {which}: {len(names)} cases: {printable(', '.join(names[:5]))}, ...")
    for which, item in (("before", comparison.base), ("now", comparison.new)):
        if item.end is None:
            out.print(f"The recording {which} was interrupted; what it has is compared.")


def _results(out: Console, pair: DevicePair, cases: Sequence[CaseResult]) -> None:
    rows = [
        (case.name, KINDS[finding.kind].title, finding.text)
        for case in cases
        for finding in case.findings
        if finding.changed
    ]
    table(out, f"results that changed on {where(pair)}", ("case", "", ""), rows)


def _reported(out: Console, comparison: Comparison) -> None:
    rows = [
        (count, kind.title, kind.reason)
        for name, kind in KINDS.items()
        if not kind.changed and (count := comparison.kinds.get(name))
    ]
    headings = ("cases", "", "not counted as changed results, because")
    table(out, "other differences", headings, rows)


def where(pair: DevicePair) -> str:
    """The device and its adapter."""
    return printable(f"{pair.title}, {pair.new.adapter}")


def _times(out: Console, pair: DevicePair, cases: Sequence[CaseResult]) -> None:
    order = [TimeVerdict.SLOWER, TimeVerdict.MACHINE, TimeVerdict.INCONCLUSIVE, TimeVerdict.FASTER]
    results = [(case, timing) for case in cases if (timing := case.decisive)]
    least = sorted({timing.threshold for _, timing in results})
    results = [(case, timing) for case, timing in results if timing.verdict in order]
    results.sort(key=lambda item: (order.index(item[1].verdict), -item[1].size))
    rows = [
        (
            case.name,
            str(timing.verdict),
            f"{timing.base_ns / 1e3:,.1f}",
            f"{timing.new_ns / 1e3:,.1f}",
            interval(timing.effect),
            pair.machine or "-",
            timing.note,
        )
        for case, timing in results
    ]
    headings = ("case", "time", "us before", "us now", "new by base", "machine", "")
    table(out, f"times that are not the same on {where(pair)}", headings, rows)
    if least:
        ends = " to ".join(
            f"{100 * (ratio_of(item) - 1):.0f} %" for item in dict.fromkeys((least[0], least[-1]))
        )
        out.print(f"A change counts from {ends} on, by --min-effect and by the noise of each case.")


def interval(effect: Effect | None) -> str:
    """A ratio and its interval."""
    if effect is None:
        return "-"
    return f"{effect.ratio:.3f} ({ratio_of(effect.low):.3f} to {ratio_of(effect.high):.3f})"

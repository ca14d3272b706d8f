"""``rlx regress show FILE ...``: prints a recording, and the ledger of errors."""

from __future__ import annotations

import argparse

from rlx.cli.screen import Screen, figure, table, when
from rlx.errors import printable
from rlx.regress.error_ledger import STANDS_OUT, ledger
from rlx.regress.pairing import peak_medians
from rlx.regress.recording import Recording, read
from rlx.regress.statistics import ratio_of
from rlx.regress.timing import floors, slowest

# Cases of a list, at most.
_MOST = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="record files")
    parser.add_argument(
        "--numerics",
        action="store_true",
        help="show the errors of each operation on each adapter, and outliers among drivers",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the contents of the files; returns 0.

    Raises:
        InputError: A file is no record file.
        OSError: A file can't be read.
    """
    recordings = read(args.files)
    if args.numerics:
        _numerics(recordings)
    else:
        for recording in recordings:
            _header(recording)
            for device in recording.devices:
                _device(recording, device)
    return 0


def _header(recording: Recording) -> None:
    run = recording.run
    loads = [run.load, *([recording.end.load] if recording.end else [])]
    rows: list[tuple[object, ...]] = [
        ("recording", run.run),
        ("suites", ", ".join(run.suites) + (" (quick)" if run.quick else "")),
        ("processes", run.processes),
        ("rlx", f"{run.rlx} {run.commit}"),
        ("build", run.build),
        *run.versions.items(),
        ("system", f"{run.system} {run.machine}"),
        ("processor", f"{run.cpu}, {run.isa}, {run.cores} cores, {run.threads} threads"),
        ("memory", f"{run.memory / 2**30:.1f} GiB"),
        ("busy before, after", ", ".join(f"{100 * load.busy:.0f} %" for load in loads)),
    ]
    if recording.end is None:
        rows.append(("ended", "no: it was interrupted, and what it has is valid"))
    table(Screen(), f"{when(run.began)} UTC", ("", ""), rows)


def _device(recording: Recording, device: str) -> None:
    out, line = Screen(), recording.devices[device]
    rows: list[tuple[object, ...]] = [
        ("adapter", line.adapter),
        ("API, driver", f"{line.api}, {line.driver or 'not told'}"),
        *((title, f"{value:,.4g}") for title, value in peak_medians(recording, device)),
    ]
    known = recording.end.floors if recording.end else {}
    floor = known.get(device, floors(recording).get(device))
    if floor is not None:
        rows.append(("noise floor", f"{100 * (ratio_of(floor) - 1):.1f} %"))
    cases = recording.cases(device)
    rows.append(("cases", len(cases)))
    table(out, device, ("", ""), rows)
    slow = [
        (name, f"{ns / 1e3:,.1f}", f"{100 * spread:.1f} %")
        for name, ns, spread in slowest(cases.values())[:_MOST]
    ]
    table(out, "slowest cases", ("case", "us", "spread of processes"), slow)
    failed = [
        (
            next(iter(item.failures.values())).name,
            len(item.failures),
            next(iter(item.failures.values())).error,
        )
        for item in cases.values()
        if item.failures
    ]
    table(out, "failures", ("case", "processes", "error"), failed)


def _numerics(recordings: list[Recording]) -> None:
    out, entries = Screen(), ledger(recordings)
    adapters = sorted({(entry.adapter, entry.api, entry.driver) for entry in entries})
    rows = [
        (
            entry.op,
            entry.dtype,
            adapters.index((entry.adapter, entry.api, entry.driver)) + 1,
            figure(entry.max_ulp),
            figure(entry.rms),
            figure(entry.relative),
            figure(entry.tolerance),
            figure(entry.times_others),
            entry.edges or "",
            "FAILS" if entry.fails else "stands out" if entry.stands_out else "",
        )
        for entry in entries
    ]
    headings = ("op", "", "on", "ULP", "RMS", "relative", "allowed", "x others", "edges", "")
    table(out, "largest errors against float64", headings, rows, most=len(rows))
    for number, named in enumerate(adapters, 1):
        out.print(printable(f"{number}: {', '.join(text for text in named if text)}"))
    outstanding = [entry for entry in entries if entry.stands_out or entry.fails]
    for item in outstanding:
        what = "is beyond the tolerance" if item.fails else "stands out"
        more = (
            f", {figure(item.times_others)} times the others"
            if item.times_others is not None
            else ""
        )
        text = f"{item.op} ({item.dtype}) on {item.adapter} {what}: {figure(item.relative)}{more}; {item.worst}"
        out.print(printable(text))
    if not outstanding:
        out.print(f"No operation is {STANDS_OUT:g} times worse on one adapter than on the others.")

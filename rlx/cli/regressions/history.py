"""``rlx regress history DIR``: recordings of many days, and where a time or the bits changed."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlx.cli.screen import Screen, table, when
from rlx.regress import history
from rlx.regress.report import history_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("folder", metavar="DIR", help="a folder of files *.rlxreg")
    parser.add_argument("--html", metavar="FILE", help="write a report for a browser, in one file")


def run(args: argparse.Namespace) -> int:
    """Prints where something changed; 0.

    Raises:
        InputError: A file is no record file, or there is none.
        OSError: A file can't be read or written.
    """
    found = history.load(args.folder)
    rows = []
    for one in found:
        for change in one.changes:
            what = f"{100 * (change.ratio - 1):+.0f} %"
            causes = "; ".join(change.causes) or "nothing known"
            point = one.points[change.at]
            rows.append((when(point.run.began), one.adapter, one.name, what, causes))
        for at in one.new_bits:
            causes = "; ".join(history.causes(one.points[at - 1], one.points[at]))
            began = when(one.points[at].run.began)
            rows.append((began, one.adapter, one.name, "other bits", causes or "nothing known"))
    out = Screen()
    out.print(f"{len(found)} series of cases that are in two recordings or more")
    headings = ("since", "adapter", "case", "change", "what else changed then")
    table(out, "changes", headings, sorted(rows))
    if args.html:
        Path(args.html).write_text(history_report(found), encoding="utf-8")
    return 0

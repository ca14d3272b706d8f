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
    parser.add_argument("--html", metavar="FILE", help="write an HTML report, in one file")


def run(args: argparse.Namespace) -> int:
    """Prints where something changed; 0.

    Raises:
        InputError: A file is no record file, or there is none.
        OSError: A file can't be read or written.
    """
    result = history.load(args.folder)
    rows = []
    for item in result:
        for change in item.changes:
            what = f"{100 * (change.ratio - 1):+.0f} %"
            causes = "; ".join(change.causes) or "nothing known"
            point = item.points[change.at]
            rows.append((when(point.run.began), item.adapter, item.name, what, causes))
        for bit in item.new_bits:
            causes = "; ".join(history.causes(item.points[bit - 1], item.points[bit]))
            began = when(item.points[bit].run.began)
            rows.append((began, item.adapter, item.name, "other bits", causes or "nothing known"))
    out = Screen()
    out.print(f"{len(result)} series of cases that are in two recordings or more")
    headings = ("since", "adapter", "case", "change", "what else changed then")
    table(out, "changes", headings, sorted(rows))
    if args.html:
        Path(args.html).write_text(history_report(result), encoding="utf-8")
    return 0

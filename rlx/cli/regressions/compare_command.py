"""``rlx regress compare BASE NEW [MORE ...]``: did results or times change?"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rlx.cli.regressions import compare_text, part
from rlx.errors import InputError
from rlx.regress import compare, exports, history
from rlx.regress.recording import Recording, read
from rlx.regress.report import compare_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="BASE, NEW ...: BASE is compared with each other file",
    )
    add_report(parser)


def add_report(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that decide, and the files of reports: the same for every command that compares."""
    parser.add_argument(
        "--min-effect",
        default="5%",
        metavar="PART",
        help="the smallest change of a time that counts (5%%)",
    )
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="BASE[=NEW]",
        help="a device of BASE, and the device of the others to compare it with; may be repeated",
    )
    parser.add_argument(
        "--fail-on",
        metavar="NAMES",
        help="findings that make the exit status nonzero: changed (4), slower (1), inconclusive (3), machine (3), "
        "or kinds of findings such as kernels (4); by default the first four",
    )
    parser.add_argument(
        "--json", metavar="FILE", help='write the comparison as JSON; "-" for standard output'
    )
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML, for CI")
    parser.add_argument("--html", metavar="FILE", help="write an HTML report, in one file")
    parser.add_argument(
        "--history",
        metavar="DIR",
        help="with --html: recordings of earlier days, drawn beside flagged cases",
    )


def run(args: argparse.Namespace) -> int:
    """Compares recordings. The status is that of the worst comparison (``Comparison.exit_code``).

    Raises:
        InputError: A file is no record file, or an option is wrong.
        OSError: A file can't be read or written.
    """
    return report(args.files, args)


def report(paths: Sequence[str | Path], args: argparse.Namespace) -> int:
    """Compares the recordings of some files as the options say; see ``run``."""
    fail_on = compare.FAIL_ON if args.fail_on is None else compare.fail_on(args.fail_on)
    base, *others = _recordings(paths)
    devices = _devices(args.device)
    results = [compare.compare(base, other, part(args.min_effect), devices) for other in others]
    if args.json:
        trees = [exports.as_json(item, fail_on) for item in results]
        text = json.dumps(trees[0] if len(trees) == 1 else trees, indent=1) + "\n"
        if args.json == "-":
            print(text, end="")
        else:
            Path(args.json).write_text(text, encoding="utf-8")
    if args.junit:
        text = exports.as_junit(results, fail_on)
        Path(args.junit).write_text(text, encoding="utf-8")
    if args.html:
        series = history.load(args.history) if args.history else []
        text = compare_report(results, [base, *others], series)
        Path(args.html).write_text(text, encoding="utf-8")
    if args.json != "-":
        for item in results:
            compare_text.show(item, fail_on)
    return compare.worst(item.exit_code(fail_on) for item in results)


def _recordings(paths: Sequence[str | Path]) -> list[Recording]:
    """The recordings, in the order of the files; a file may hold several."""
    results = [recording for path in paths for recording in read([path])]
    if len(results) < 2:
        hint = "rlx regress compare BASE NEW"
        raise InputError("there is only one recording", where=paths[0], hint=hint)
    return results


def _devices(named: Sequence[str]) -> dict[str, str]:
    results = {}
    for text in named:
        first, _, other = text.partition("=")
        results[first] = other or first
    return results

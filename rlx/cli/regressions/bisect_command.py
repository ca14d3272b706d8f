"""``rlx regress bisect``: the commit that made a case slower, or changed its results."""

from __future__ import annotations

import argparse
import functools
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rlx.cli.model_options import progress
from rlx.cli.regressions import part
from rlx.cli.screen import say as show_lines
from rlx.errors import InputError
from rlx.file_cache import user_folder
from rlx.regress.bisect import BisectResult, built, first_bad
from rlx.regress.bisect_oracles import BY, TIME, RecordedCase
from rlx.regress.commits import Checkout
from rlx.regress.installs import Installs
from rlx.regress.record import RecordPlan, checked
from rlx.regress.regress_cases import SUITES, subjects

FOUND, SEVERAL = 0, 3


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("--good", required=True, metavar="COMMIT", help="a good commit")
    command.add_argument("--bad", default="HEAD", metavar="COMMIT", help="a bad commit (HEAD)")
    command.add_argument(
        "--case",
        required=True,
        metavar="ID",
        help="the case: its id or the start of its id, or a regular expression for its name; "
        "of several cases, one worse case is enough",
    )
    command.add_argument(
        "--by", choices=tuple(BY), default=TIME, help=f"the kind of regression ({TIME})"
    )
    command.add_argument(
        "--suite",
        nargs="+",
        default=list(SUITES),
        metavar="NAME",
        help=f"the suite of the case: {', '.join(SUITES)}, or a model file (all suites)",
    )
    command.add_argument("--device", default="cpu", help="the device (cpu)")
    command.add_argument(
        "--processes",
        type=int,
        default=5,
        help="fresh processes of each side; undecided cases get more (5)",
    )
    command.add_argument(
        "--min-effect",
        default="5%",
        metavar="PERCENT",
        help="the smallest change of a time that counts (5%%)",
    )
    command.add_argument(
        "--repository",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="the checkout of rlx (the current folder)",
    )
    command.add_argument(
        "--wheels",
        type=Path,
        metavar="FOLDER",
        help="the folder for built wheels (the user's cache folder)",
    )


def run(args: argparse.Namespace) -> int:
    """Searches. 0 when the commit was found, 3 when skipped ones leave open which of several it is.

    Raises:
        RlxError: There is no such checkout, commit or case, or the bad commit is not worse than the good one.
        OSError: A file can't be read or written.
    """
    checkout = Checkout(args.repository)
    good, bad = checkout.commit(args.good), checkout.commit(args.bad)
    plan = checked(RecordPlan(tuple(args.suite), (args.device,), args.processes, only=args.case))
    if not any(plan.chooses(subject.name, subject.digest) for subject in subjects(plan.suites)):
        raise InputError("no case is chosen", got=args.case)
    judge = RecordedCase(plan, args.by, part(args.min_effect))
    say = functools.partial(print, flush=True)
    with (
        _tidy(),
        tempfile.TemporaryDirectory(prefix="rlx-bisect-") as scratch,
        progress(False, "bisect") as show,
    ):
        show("bisect")
        installs = Installs(checkout, Path(scratch), args.wheels or user_folder("wheels"), say)
        result = first_bad(checkout, good, bad, built(good, installs.python, judge), say)
    show_lines(_text(result))
    return FOUND if len(result.commits) == 1 else SEVERAL


@contextmanager
def _tidy() -> Iterator[None]:
    """A process that is told to end, as a CI job that is cancelled, removes its worktrees first."""

    def stop(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _text(result: BisectResult) -> str:
    if len(result.commits) == 1:
        return f"first bad commit: {result.commits[0]}"
    listed = "\n".join(f"  {commit}" for commit in result.commits)
    return f"the first bad commit is one of these, of which some had to be skipped:\n{listed}"

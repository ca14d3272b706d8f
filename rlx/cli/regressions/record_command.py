"""``rlx regress record``: measures this machine with this install of rlx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlx.cli.model_options import progress
from rlx.regress.record import RecordPlan, RecordTarget, record
from rlx.regress.regress_cases import SUITES


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_plan(command)
    command.add_argument(
        "-o", "--output", required=True, type=Path, help="the record file; lines are added to it"
    )
    command.add_argument(
        "--no-texts",
        action="store_true",
        help="write a smaller file, without the schedules and WGSL for reports of changes",
    )


def add_plan(command: argparse.ArgumentParser) -> None:
    """Adds the arguments that select what is measured: the same for every command that measures."""
    command.add_argument(
        "--suite",
        nargs="+",
        default=list(SUITES),
        metavar="NAME",
        help=f"{', '.join(SUITES)}, and model files (all suites)",
    )
    command.add_argument("--devices", default="all", help='separated by commas, or "all"')
    command.add_argument(
        "--processes", type=int, default=5, help="fresh processes that measure each case (5)"
    )
    command.add_argument("--quick", action="store_true", help="fewer cases, less time for each")
    command.add_argument(
        "--no-times",
        action="store_true",
        help="record only results, kernels and memory, which other programs can't disturb",
    )
    command.add_argument(
        "--only",
        default="",
        metavar="REGEX",
        help="only cases whose name matches, or whose id begins with it",
    )


def plan_of(args: argparse.Namespace, texts: bool = True) -> RecordPlan:
    """The plan that the options say."""
    devices = () if args.devices == "all" else tuple(args.devices.split(","))
    times = not args.no_times
    return RecordPlan(
        tuple(args.suite), devices, args.processes, args.quick, args.only, texts, times
    )


def run(args: argparse.Namespace) -> int:
    """Records.

    Raises:
        RlxError: A suite, device or case does not exist, or the file can't be written.
        OSError: A file can't be read.
    """
    with progress(False, "record") as say:
        say("record")
        record([RecordTarget(sys.executable, args.output)], plan_of(args, not args.no_texts))
    return 0

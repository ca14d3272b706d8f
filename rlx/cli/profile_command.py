"""``rlx profile MODEL``: the time of a run by kernel, beside the estimate."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from rlx.cli import model_options, screen


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    model_options.add_arguments(command)
    model_options.add_device(command)
    command.add_argument("--runs", type=int, default=20, help="timed runs (20)")
    command.add_argument("--nodes", action="store_true", help="one row per node instead of per op")
    command.add_argument(
        "--trace", metavar="FILE", help="also write a trace of one run, for ui.perfetto.dev"
    )


def run(args: argparse.Namespace) -> int:
    """Profiles a model.

    Raises:
        RlxError: The file holds no legal model, or the device can't run it.
        OSError: A file can't be read or written.
    """
    with model_options.progress(args.json, *model_options.STAGES) as say:
        _, compiled, inputs = model_options.ready(args, say)
        with compiled:
            result = compiled.profile(inputs, args.runs)
            with compiled.trace(args.trace) if args.trace else nullcontext():
                if args.trace:
                    compiled.run(inputs)
    if args.json:
        print(result.to_json())
    else:
        screen.say(result.table("nodes" if args.nodes else "rows"))
    return 0

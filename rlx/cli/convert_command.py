"""``rlx convert MODEL``: a model as one .rlx file, with smaller weights and compiled plans where wanted."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import rlx
from rlx.cli import model_options, screen
from rlx.passes.quantize_weights import WEIGHTS


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    model_options.add_arguments(command)
    command.add_argument("-o", "--output", help="the file to write (MODEL with the suffix .rlx)")
    command.add_argument(
        "--weights", choices=tuple(WEIGHTS), help="store large weights in this type"
    )
    command.add_argument(
        "--device",
        action="append",
        default=[],
        help="also store the model compiled for this device; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the file.

    Raises:
        RlxError: The file holds no legal model, or a device can't run it.
        OSError: A file can't be read or written.
    """
    target = Path(args.output) if args.output else Path(args.model).with_suffix(".rlx")
    with model_options.progress(args.json, "load", "convert") as say:
        say("load")
        graph = model_options.read(args, guess=False)
        if target.exists() and target.samefile(args.model):
            raise rlx.InputError(f"{target} is the model itself; give another --output")
        say("convert")
        notes = rlx.save_model(graph, target, args.weights, args.device)
    results = {
        "file": str(target),
        "bytes": target.stat().st_size,
        "bytes_before": Path(args.model).stat().st_size,
        "notes": notes,
    }
    if args.json:
        print(json.dumps(results, indent=2))
        return 0
    for note in notes:
        screen.say(note)
    screen.say(
        f"{target}: {results['bytes']:,} bytes, {args.model} has {results['bytes_before']:,}"
    )
    return 0

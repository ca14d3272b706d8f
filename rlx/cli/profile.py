"""``rlx profile FILE``: where the time of a run goes, beside what was estimated."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import rlx
from rlx.cli.device_report import load_graph
from rlx.runtime.device_bench import made_up


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    command.add_argument("file", metavar="FILE", help="a graph, as g.to_json() writes it")
    command.add_argument("--device", default="auto", help='a device, or "auto" (the default)')
    command.add_argument("--runs", type=int, default=20, help="how many runs are timed (20)")
    command.add_argument(
        "--trace", metavar="FILE", help="also write a trace of one run, for ui.perfetto.dev"
    )


def run(args: argparse.Namespace) -> int:
    """Profiles the graph on made-up values: floats of ordinary size, zeros for the rest.

    Raises:
        RlxError: The file holds no legal graph, or the device can't run it.
        OSError: A file can't be read or written.
    """
    graph = load_graph(args.file)
    made = {name: made_up(graph.named(name)) for name in (*graph.input_names, *graph.param_names)}
    params = {name: made[name] for name in graph.param_names if name not in graph.param_values}
    inputs = {name: made[name] for name in graph.input_names}
    with rlx.compile(graph, args.device, params) as compiled:
        found = compiled.profile(inputs, args.runs)
        print(found.to_json() if args.json else found)
        with compiled.trace(args.trace) if args.trace else nullcontext():
            if args.trace:
                compiled.run(inputs)
    return 0

"""``rlx run MODEL``: one run of a model, its outputs summed up or saved."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from rlx.cli import model_options, screen
from rlx.cli.bench_report import output_names
from rlx.ir.opdef import Array


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    model_options.add_arguments(command)
    model_options.add_device(command)
    command.add_argument(
        "--save", metavar="FILE.npz", help="the file for the outputs, one array each"
    )


def run(args: argparse.Namespace) -> int:
    """Runs a model once.

    Raises:
        RlxError: The file holds no legal model, or the device can't run it.
        OSError: A file can't be read or written.
    """
    with model_options.progress(args.json, *model_options.STAGES) as say:
        graph, compiled, inputs = model_options.ready(args, say)
        with compiled:
            outputs = compiled.run(inputs)
            on_the_host = [str(fallback) for fallback in compiled.host_fallbacks]
    names = output_names(graph)
    if args.save:
        saved: dict[str, Any] = dict(zip(names, outputs, strict=True))
        np.savez(args.save, **saved)
    rows = [_row(name, array) for name, array in zip(names, outputs, strict=True)]
    results = {"device": str(compiled.device), "on_the_host": on_the_host, "outputs": rows}
    if args.json:
        print(json.dumps(results, indent=2))
        return 0
    headings = list(rows[0]) if rows else ["name"]
    lines = [[_text(value) for value in row.values()] for row in rows]
    screen.Screen().print(screen.columns(f"{args.model} on {results['device']}", headings, lines))
    for line in on_the_host:
        screen.say(f"on the host: {line}")
    return 0


def _row(name: str, array: Array) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    numbers = array.astype(np.float64) if array.size else np.zeros(0)
    finite = numbers[np.isfinite(numbers)]
    for key, function in (("least", np.min), ("mean", np.mean), ("most", np.max)):
        row[key] = float(function(finite)) if finite.size else None
    row["not finite"] = int(numbers.size - finite.size)
    return row


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)

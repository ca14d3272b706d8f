"""Models as the commands take them: a file of any kind, values for its inputs, progress on standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import rlx
from rlx import model_files
from rlx.errors import describe, did_you_mean
from rlx.files import UnfitFileError, open_regular
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.spans import watched
from rlx.runtime.device_bench import made_up


def add_arguments(command: argparse.ArgumentParser, optional: bool = False) -> None:
    """What every command on a model takes; for some there may be no model."""
    command.add_argument(
        "model",
        metavar="MODEL",
        nargs="?" if optional else None,
        help=f"a file: {', '.join(model_files.READERS)}",
    )
    command.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="the size of a symbolic dimension of an ONNX model (made up, and said, where none is given); "
        "may be repeated",
    )
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="the value of an input (made up where none is given); may be repeated",
    )


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar that shows what is going on, and how far it is; gives a function to say what it is for.

    Args:
        quiet: Whether nothing is shown; so it is where standard error is no terminal.
    """
    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.fields[what]}"),
        BarColumn(24),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    with bars:
        bar = bars.add_task("", what="", total=None, visible=False)

        def say(what: str) -> None:
            bars.tasks[0].total = None
            bars.update(bar, what=what, description="", visible=True, refresh=True)

        def show(name: str, part: float | None) -> None:
            # None is for a bar that moves to and fro; ``update`` takes it for no change.
            bars.tasks[0].total = None if part is None else 1.0
            bars.update(bar, description=name, completed=part or 0.0)

        with watched(show):
            yield say


def dims_of(args: argparse.Namespace) -> dict[str, int]:
    """The sizes of symbolic dimensions that were given.

    Raises:
        InputError: An entry is malformed.
    """
    found = {}
    for text in args.dim:
        name, _, size = text.partition("=")
        if not name or not size.isdigit():
            raise rlx.InputError(describe("--dim", got=text, expected="NAME=SIZE, as in batch=1"))
        found[name] = int(size)
    return found


def read(args: argparse.Namespace, guess: bool = True) -> Graph:
    """``load`` of a command's model; says on standard error what was made up.

    Raises:
        RlxError: It holds no legal model.
        OSError: It can't be read.
    """
    graph, notes = model_files.load(args.model, dims_of(args), guess)
    for note in notes:
        print(f"rlx: {note}", file=sys.stderr)
    return graph


def add_device(command: argparse.ArgumentParser) -> None:
    """Where a command runs its model."""
    command.add_argument("--device", default="auto", help='a device, or "auto" (the default)')


def ready(
    args: argparse.Namespace, say: Callable[[str], None]
) -> tuple[Graph, rlx.CompiledGraph, dict[str, Array]]:
    """The model, compiled for ``--device``, and values for its inputs; says what is going on.

    Raises:
        RlxError: The file holds no legal model, or the device can't run it.
        OSError: A file can't be read.
    """
    say("load")
    graph = read(args)
    inputs = inputs_of(args, graph)
    say("compile")
    compiled = rlx.compile(graph, args.device)
    say("run")
    return graph, compiled, inputs


def inputs_of(args: argparse.Namespace, graph: Graph) -> dict[str, Array]:
    """The values of the inputs: those in files, and made-up ones.

    Raises:
        UnknownNameError: The model has no such input.
        InputError: An entry is malformed, or a file holds no array of the input's shape.
        OSError: A file can't be read.
    """
    found = {name: made_up(graph.named(name)) for name in graph.input_names}
    for text in args.input:
        name, _, path = text.partition("=")
        if not path:
            raise rlx.InputError(describe("--input", got=text, expected="NAME=FILE.npy"))
        if name not in found:
            hint = did_you_mean(name, graph.input_names) or ", ".join(graph.input_names)
            raise rlx.UnknownNameError(describe(f"the model has no input {name!r}", hint=hint))
        try:
            with open_regular(path) as file:
                found[name] = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, MemoryError, UnfitFileError) as error:
            raise rlx.InputError(describe(f"{path} holds no array", got=error)) from error
        got, wanted = np.shape(found[name]), graph.named(name).shape
        if got != wanted:
            raise rlx.InputError(
                describe(
                    f"the shape of input {name!r}",
                    where=path,
                    got=got,
                    expected=wanted,
                    hint="--dim gives symbolic dimensions their sizes" if args.dim else None,
                )
            )
    return found

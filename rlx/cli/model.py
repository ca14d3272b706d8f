"""Models as the commands take them: a file of any kind, values for its inputs, progress on standard error."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import rlx
from rlx.cli.device_report import load_graph
from rlx.errors import describe, did_you_mean
from rlx.files import UnfitFileError, open_regular
from rlx.importers.onnx.load import open_model
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
        help=f"a file: {', '.join(_READERS)}",
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


def _onnx(path: str, dims: dict[str, int], guess: bool) -> tuple[Graph, dict[str, int]]:
    if not guess:
        return rlx.onnx.load(path, dims), {}
    ports = open_model(path).inputs
    symbolic = {
        dim: (axis, len(port.dims or ()))
        for port in ports
        for axis, dim in enumerate(port.dims or ())
        if isinstance(dim, str) and dim not in dims
    }
    first: rlx.RlxError | None = None
    for sizes in _guesses(symbolic):
        try:
            return rlx.onnx.load(path, {**dims, **sizes}), sizes
        except (rlx.ImportModelError, rlx.InputError) as error:
            if not sizes:
                raise
            first = first or error
    assert first is not None
    given = " ".join(f"--dim {name}=SIZE" for name in symbolic)
    raise rlx.InputError(
        describe(
            f"no made-up sizes of the symbolic dimensions suit {path}",
            got=first,
            hint=f"give them: {given}",
        )
    ) from first


def sizes_in(path: str, graph: Graph) -> dict[str, int]:
    """The sizes that a model's symbolic dimensions have in a graph that was loaded from it.

    Only ONNX files have any.
    """
    if Path(path).suffix.lower() != ".onnx":
        return {}
    return {
        dim: size
        for port in open_model(path).inputs
        for dim, size in zip(port.dims or (), graph.named(port.name).shape, strict=False)
        if isinstance(dim, str)
    }


# Sizes of symbolic dimensions that nobody gave, by what their names say; the first that matches counts.
_USUAL = (
    (r"batch|^[nb]$|^bs$", 1),
    (r"height|width|^[hw]$|image", 224),
    (r"sample|audio|wave", 16000),
    (r"seq|len|time|frame|token|^[tsl]$", 128),
)
# Sizes that are tried for all but the batch where those do not suit the model.
_OTHERS = (1, 64, 128, 224, 256, 512, 1024, 16000)


def _guesses(symbolic: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, int]]:
    """Sizes to try for symbolic dimensions, by the axis where each stands first and the rank there."""
    usual = {name: _usual(name, *where) for name, where in symbolic.items()}
    yield usual
    if any(size != 1 for size in usual.values()):
        for other in _OTHERS:
            yield {name: size if size == 1 else other for name, size in usual.items()}


def _usual(name: str, axis: int, rank: int) -> int:
    if axis == 0 and rank > 1:
        return 1
    for pattern, size in _USUAL:
        if re.search(pattern, name.lower()):
            return size
    return 224 if rank == 4 and axis >= 2 else 64


# Reads a file; sizes of symbolic dimensions are given, and others made up if the flag is set.
_Reader = Callable[[str, dict[str, int], bool], tuple[Graph, dict[str, int]]]


def _fixed(read: Callable[[str], Graph]) -> _Reader:
    def checked(path: str, dims: dict[str, int], guess: bool) -> tuple[Graph, dict[str, int]]:
        if dims:
            names = ", ".join(dims)
            raise rlx.InputError(
                describe(f"{path} has no symbolic dimensions", got=f"--dim {names}")
            )
        return read(path), {}

    return checked


_READERS: Mapping[str, _Reader] = {
    ".onnx": _onnx,
    ".rlx": _fixed(rlx.load_model),
    ".json": _fixed(load_graph),
}


def load(path: str, dims: dict[str, int], guess: bool = True) -> tuple[Graph, list[str]]:
    """The graph in a model's file; every param has a value.

    Args:
        path: The file.
        dims: Sizes of symbolic dimensions.
        guess: Whether those that are not given are made up; otherwise they are an error.

    Returns:
        The graph, and what was made up, a line each.

    Raises:
        RlxError: It holds no legal model.
        OSError: It can't be read.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _READERS:
        raise rlx.InputError(
            describe(
                f"what kind of file is {path}?",
                got=suffix or "no suffix",
                expected=", ".join(_READERS),
                hint=did_you_mean(suffix, tuple(_READERS)),
            )
        )
    graph, guessed = _READERS[suffix](path, dims, guess)
    notes = []
    if guessed:
        sizes = " ".join(f"--dim {name}={size}" for name, size in guessed.items())
        notes.append(f"made-up sizes of symbolic dimensions: {sizes}")
    missing = [name for name in graph.param_names if name not in graph.param_values]
    if missing:
        notes.append(f"made-up values for {len(missing)} params without any")
    graph.param_values |= {name: made_up(graph.named(name)) for name in missing}
    return graph, notes


def read(args: argparse.Namespace, guess: bool = True) -> Graph:
    """``load`` of a command's model; says on standard error what was made up.

    Raises:
        RlxError: It holds no legal model.
        OSError: It can't be read.
    """
    graph, notes = load(args.model, dims_of(args), guess)
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

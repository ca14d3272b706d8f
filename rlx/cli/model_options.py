"""Models as the commands take them: a file of any kind, values for its inputs, progress on standard error."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx import model_files
from rlx.cli import screen
from rlx.cli.screen import Bars
from rlx.compiler.progress import Whole
from rlx.errors import did_you_mean
from rlx.files import UnfitFileError, open_regular
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.spans import watched
from rlx.runtime.device_bench import made_up


def add_arguments(command: argparse.ArgumentParser, optional: bool = False) -> None:
    """Adds the arguments of every command on a model; for some commands the model is optional."""
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
        help="the size of a symbolic dimension of an ONNX model (if omitted, a default is chosen and printed); "
        "may be repeated",
    )
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="the value of an input (random if omitted); may be repeated",
    )


# The stages of ``ready`` and of a run after it.
STAGES = ("load", "compile", "run")


@contextmanager
def progress(quiet: bool, *stages: str) -> Iterator[Callable[[str], None]]:
    """A bar that shows what is going on, and how much of all is done; gives a function to say that a stage begins.

    Args:
        quiet: Whether nothing is shown; so it is where standard error is no terminal.
        *stages: What will be done, in order.
    """
    with Bars(quiet, kept=False) as bars:
        whole = Whole(len(stages))
        bar = bars.add(stages[0]) if bars.shown else None

        def show(what: str, part: float | None, stage: str | None = None) -> None:
            if bar is not None:
                bars.show(bar, whole.tell(what, part), what, stage)

        def say(stage: str) -> None:
            whole.step(stages.index(stage))
            show("", None, stage)

        with watched(show):
            yield say


def dims_of(args: argparse.Namespace) -> dict[str, int]:
    """The sizes of symbolic dimensions that were given.

    Raises:
        InputError: An entry is malformed.
    """
    results = {}
    for text in args.dim:
        name, _, size = text.partition("=")
        if not name or not size.isdigit():
            raise rlx.InputError("--dim", got=text, expected="NAME=SIZE, as in batch=1")
        results[name] = int(size)
    return results


def read(args: argparse.Namespace, guess: bool = True) -> Graph:
    """``load`` of a command's model; prints the chosen defaults on standard error.

    Raises:
        RlxError: It holds no legal model.
        OSError: It can't be read.
    """
    graph, notes = model_files.load(args.model, dims_of(args), guess)
    for note in notes:
        screen.say(f"rlx: {note}", error=True)
    return graph


def add_device(command: argparse.ArgumentParser) -> None:
    """Adds the argument for the device that runs the model."""
    command.add_argument("--device", default="auto", help='a device, or "auto" (the default)')


def ready(
    args: argparse.Namespace, say: Callable[[str], None]
) -> tuple[Graph, rlx.CompiledGraph, dict[str, Array]]:
    """The model, compiled for ``--device``, and values for its inputs; says what is going on, by ``STAGES``.

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


def devices_of(named: str) -> list[rlx.Device]:
    """The devices of ``--devices``: "all", or names separated by commas.

    Raises:
        DeviceParseError: A device has no such name.
    """
    return rlx.available_devices() if named == "all" else rlx.parse_device_list(named)


def contestants(args: argparse.Namespace) -> list[str]:
    """The peer of ``--against`` if there is one, and the devices of ``--devices``.

    Raises:
        InputError: There is none of them.
    """
    names = [args.against] if args.against else []
    names += map(str, devices_of(args.devices))
    if not names:
        raise rlx.InputError("--devices names none", got=repr(args.devices))
    return names


def saved(inputs: Mapping[str, Array], folder: Path) -> dict[str, Any]:
    """Writes the inputs of processes to a file; gives the part of their task that says where."""
    path = folder / "inputs.npz"
    arrays: dict[str, Any] = {str(i): array for i, array in enumerate(inputs.values())}
    np.savez(path, **arrays)
    return {"names": list(inputs), "inputs": str(path)}


def array_of(
    text: str, option: str, expected: str, what: str, names: Collection[str]
) -> tuple[str, str, Array]:
    """Reads the value of an option such as ``--input NAME=FILE.npy``: the name, the file, and its array.

    Raises:
        InputError: The value is not of the expected form, or the file holds no array.
        UnknownNameError: The model has no input or output (``what``) of that name.
    """
    name, _, path = text.partition("=")
    if not path:
        raise rlx.InputError(option, got=text, expected=expected)
    if name not in names:
        hint = did_you_mean(name, names)
        raise rlx.UnknownNameError(f"the model has no {what} {name!r}", hint=hint)
    try:
        with open_regular(path) as file:
            return name, path, np.load(file, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, UnfitFileError) as error:
        raise rlx.InputError(f"{path} holds no array", got=error) from error


def inputs_of(args: argparse.Namespace, graph: Graph) -> dict[str, Array]:
    """The values of the inputs: those in files, and made-up ones.

    Raises:
        UnknownNameError: The model has no such input.
        InputError: An entry is malformed, or a file holds no array of the input's shape.
        OSError: A file can't be read.
    """
    results = {name: made_up(graph.named(name)) for name in graph.input_names}
    for text in args.input:
        expected = "NAME=FILE.npy"
        name, path, array = array_of(text, "--input", expected, "input", graph.input_names)
        results[name] = array
        got, wanted = np.shape(array), graph.named(name).shape
        if got != wanted:
            raise rlx.InputError(
                f"the shape of input {name!r}",
                where=path,
                got=got,
                expected=wanted,
                hint="--dim gives symbolic dimensions their sizes" if args.dim else None,
            )
    return results

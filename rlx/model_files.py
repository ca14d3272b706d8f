"""Models in files of any kind that rlx reads: ONNX, ``.rlx``, and graphs as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import rlx
from rlx.errors import did_you_mean, listed, printable, unreadable
from rlx.files import read_regular
from rlx.importers.onnx.load import open_model
from rlx.ir.graph import Graph
from rlx.runtime.device_bench import made_up

# The largest graph as JSON, in bytes.
_MAX_BYTES = 1 << 30


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
    args = " ".join(f"--dim {printable(name)}=SIZE" for name in symbolic)
    raise rlx.InputError(
        f"no default sizes fit the symbolic dimensions of {printable(path)}",
        got=first,
        hint=f"choose them: {args}",
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


def _fixed(
    read: Callable[[str], Graph], path: str, dims: dict[str, int], guess: bool
) -> tuple[Graph, dict[str, int]]:
    if dims:
        names = listed(dims)
        raise rlx.InputError(f"{printable(path)} has no symbolic dimensions", got=f"--dim {names}")
    return read(path), {}


def load_graph(path: str) -> Graph:
    """The graph in a file that ``g.to_json()`` wrote.

    Args:
        path: The file.

    Raises:
        ImportModelError: It holds no graph.
        ModelFileError: It can't be read.
    """
    try:
        raw = read_regular(path, _MAX_BYTES)
    except OSError as error:
        raise unreadable("the model can't be read", path, error) from None
    try:
        return Graph.from_json(raw.decode("utf-8"))
    except (rlx.RlxError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise rlx.ImportModelError(
            f"{printable(path)} holds no graph",
            got=f"{type(error).__name__}: {error}",
            expected="a file written by g.to_json()",
        ) from error


READERS: Mapping[str, _Reader] = {
    ".onnx": _onnx,
    ".rlx": partial(_fixed, rlx.load_model),
    ".json": partial(_fixed, load_graph),
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
    if suffix not in READERS:
        raise rlx.InputError(
            f"what kind of file is {printable(path)}?",
            got=suffix or "no suffix",
            expected=", ".join(READERS),
            hint=did_you_mean(suffix, tuple(READERS)),
        )
    graph, guessed = READERS[suffix](path, dims, guess)
    notes = []
    if guessed:
        sizes = " ".join(f"--dim {printable(name)}={size}" for name, size in guessed.items())
        notes.append(f"made-up sizes of symbolic dimensions: {sizes}")
    missing = [name for name in graph.param_names if name not in graph.param_values]
    if missing:
        notes.append(f"made-up values for {len(missing)} params without any")
    graph.param_values |= {name: made_up(graph.named(name)) for name in missing}
    return graph, notes

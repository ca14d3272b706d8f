"""An ONNX file before it is lowered: its bytes, and what its inputs and outputs are.

The messages of the file are read when they are needed: not for a model that the cache folder knows.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
from collections.abc import Container, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import ImportModelError, InputError, listed, printable, unreadable
from rlx.files import contents, open_regular
from rlx.importers.onnx.element_bytes import raw_array
from rlx.importers.onnx.elements import Element
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.shape import as_size
from rlx.sizes import Dim

if TYPE_CHECKING:
    from rlx.importers.onnx import schema

MAX_DIM = 1 << 31


class Origin(NamedTuple):
    """The position of a weight in the file.

    Attributes:
        offset: Where its bytes begin.
        nbytes: How many there are.
        element: Their element type.
        shape: The tensor's shape.
    """

    offset: int
    nbytes: int
    element: Element
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: Its name.
        element: Its element type.
        dims: Its dimensions: a size, or the name that ``dims=`` binds. None where the file does not
            even say how many there are.
    """

    name: str
    element: Element
    dims: tuple[int | str, ...] | None

    def axes(self, rank: int) -> tuple[int | str, ...]:
        """Its dimensions; where the file does not say how many there are, ``input[axis]`` for each of ``rank``."""
        return tuple(f"{self.name}[{i}]" for i in range(rank)) if self.dims is None else self.dims

    def __str__(self) -> str:
        dims = "any shape" if self.dims is None else ", ".join(map(str, self.dims))
        return printable(f"{self.name}: {self.element.name} [{dims}]")


@dataclass(frozen=True)
class ModelBytes:
    """The bytes of a model.

    Attributes:
        view: The bytes; those of a file are mapped.
        label: How messages name the file.
        folder: Where its external data lies; None where there can't be any.
        path: Where it is, from the root; None for bytes.
    """

    view: memoryview
    label: str
    folder: Path | None
    path: Path | None = None

    def array_at(self, origin: Origin) -> Array:
        """A weight by its place."""
        pos, nbytes, element, shape = origin
        return raw_array(self.view[pos : pos + nbytes], element, shape)


@dataclass(frozen=True)
class ModelSource:
    """A model that is not yet lowered for shapes.

    Attributes:
        file: Its bytes.
        inputs: The inputs of a run.
        outputs: Names of what it returns.
        defaults: Inputs that have a value in the file; a run may be given another one.
    """

    file: ModelBytes
    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]
    defaults: tuple[Port, ...] = ()

    @property
    def label(self) -> str:
        """The file's name for messages."""
        return self.file.label

    def given(self, names: Container[str]) -> list[Port]:
        """The inputs of a run that is given values of these names: the defaults among them, and all others."""
        return [*self.inputs, *(port for port in self.defaults if port.name in names)]

    @functools.cached_property
    def model(self) -> schema.ModelDef:
        """The messages, read when they are needed.

        Raises:
            ImportModelError: It is no ONNX model.
        """
        from rlx.importers.onnx import schema, wire

        return schema.read(schema.ModelDef, wire.FileSpan(self.file.view, 0))

    @property
    def graph(self) -> schema.GraphDef:
        """The model's graph."""
        assert self.model.graph is not None
        return self.model.graph


@dataclass(frozen=True)
class LoweredModel:
    """A model lowered for one set of shapes.

    Attributes:
        graph: The graph.
        elements: Element type of each output; those that rlx lacks come in a wider type.
        origins: By their identity, weights of the graph and where they stand in the file.
    """

    graph: Graph
    elements: tuple[Element, ...]
    origins: Mapping[int, tuple[Array, Origin]] = field(default_factory=dict)


def open_file(path_or_bytes: Any) -> ModelBytes:
    """The bytes of a model.

    Raises:
        ImportModelError: There is no such file, or it can't be read.
    """
    view = contents(path_or_bytes)
    if view is not None:
        return ModelBytes(view.toreadonly(), "the model", None)
    if not isinstance(path_or_bytes, str | os.PathLike):
        raise ImportModelError(
            "a model is a path, bytes, or a binary file object", got=type(path_or_bytes).__name__
        )
    path = Path(os.fspath(path_or_bytes))
    return ModelBytes(_map(path), printable(path.name), path.parent, path.absolute())


def _map(path: Path) -> memoryview:
    try:
        with open_regular(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ImportModelError("the file is empty", where=path.name)
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise unreadable("the model can't be read", path, error) from None


def dims_of(source: ModelSource, ranks: Mapping[str, int] = MappingProxyType({})) -> dict[str, Dim]:
    """Returns a dim for each symbolic dimension of the inputs, by the dimension's name.

    Names of a file may be any text. Those of dims are names as Python's variables have.

    Args:
        source: The model.
        ranks: The ranks of inputs whose file does not say them.
    """
    results: dict[str, Dim] = {}
    taken: set[str] = set()
    for port in (*source.inputs, *source.defaults):
        for name in port.axes(ranks.get(port.name, 0)):
            if isinstance(name, str) and name not in results:
                plain = re.sub(r"\W", "_", name).rstrip("_")
                plain = plain if plain.isidentifier() else f"d_{plain}"
                count = 1
                while plain in taken:
                    count += 1
                    plain = f"{plain.rstrip('0123456789')}{count}"
                taken.add(plain)
                results[name] = Dim(plain)
    return results


def bind(
    source: ModelSource,
    dims: Mapping[str, int],
    values: Mapping[str, Any],
    unknown: Mapping[str, Dim] = MappingProxyType({}),
) -> dict[str, tuple[int, ...]]:
    """The shape of every input that is not given as a value.

    Args:
        source: The model.
        dims: Sizes of dimensions.
        values: Inputs that are given as values.
        unknown: Dims of dimensions that need no size.

    Raises:
        InputError: A dimension has no size, or not a sensible one.
    """
    sizes: dict[str, Any] = {**unknown, **dims}
    for name, size in dims.items():
        if not isinstance(size, (int, np.integer)) or not 0 <= size <= MAX_DIM:
            raise InputError(f"dimension {name!r}", got=repr(size), expected="a whole number >= 0")
    shapes: dict[str, tuple[int, ...]] = {}
    missing: set[str] = set()
    for port in source.inputs:
        if port.name in values:
            continue
        if port.dims is None:
            missing.add(f"all of {port.name!r}")
            continue
        missing |= {d for d in port.dims if isinstance(d, str) and d not in sizes}
        shapes[port.name] = tuple(
            as_size(sizes.get(d, 0)) if isinstance(d, str) else d for d in port.dims
        )
    if missing:
        raise InputError(
            "dimensions without a size",
            where=source.label,
            got=listed(sorted(missing)),
            hint="pass dims={...} (--dim NAME=SIZE), or use rlx.onnx.Model, "
            "which takes them from the arrays",
        )
    return shapes

"""From an ONNX file to a graph: the file's bytes, its inputs' shapes, and the walk over its nodes."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rlx.budget import budget
from rlx.dataclasses import dataclass
from rlx.errors import (
    ImportModelError,
    InputError,
    UnknownNameError,
    UnsupportedOpError,
    describe,
    did_you_mean,
)
from rlx.files import contents, open_regular
from rlx.importers.onnx import schema, wire
from rlx.importers.onnx.elements import Element
from rlx.importers.onnx.opsets import versions
from rlx.importers.onnx.scope import Scope
from rlx.importers.onnx.tensors import element_of, raw_array
from rlx.importers.onnx.values import (
    CARRIERS,
    Items,
    MissingError,
    NeedsValueError,
    RefusedError,
    Site,
    Value,
)
from rlx.importers.onnx.walk import Lowering, Origin
from rlx.ir.casting import check_array, converted
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array

MAX_RANK = 32
MAX_DIM = 1 << 31


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

    def __str__(self) -> str:
        dims = "any shape" if self.dims is None else ", ".join(map(str, self.dims))
        return f"{self.name}: {self.element.name} [{dims}]"


@dataclass(frozen=True)
class File:
    """The bytes of a model.

    Attributes:
        view: The bytes; those of a file are mapped.
        label: How messages name the file.
        folder: Where its external data lies; None where there can't be any.
    """

    view: memoryview
    label: str
    folder: Path | None

    def array_at(self, origin: Origin) -> Array:
        """A weight by its place."""
        at, nbytes, element, shape = origin
        return raw_array(self.view[at : at + nbytes], element, shape)


@dataclass(frozen=True)
class Source:
    """A model that is not yet lowered for shapes.

    Attributes:
        file: Its bytes.
        inputs: What a run is given.
        outputs: Names of what it returns.
    """

    file: File
    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]

    @property
    def label(self) -> str:
        """How messages name the file."""
        return self.file.label

    @functools.cached_property
    def model(self) -> schema.ModelDef:
        """The messages, read when they are needed.

        Raises:
            ImportModelError: It is no ONNX model.
        """
        return schema.read(schema.ModelDef, wire.Span(self.file.view, 0))

    @property
    def graph(self) -> schema.GraphDef:
        """The model's graph."""
        assert self.model.graph is not None
        return self.model.graph


@dataclass(frozen=True)
class Lowered:
    """A model lowered for one set of shapes.

    Attributes:
        graph: The graph.
        elements: Element type of each output; those that rlx lacks come in a wider type.
        origins: By their identity, weights of the graph and where they stand in the file.
    """

    graph: Graph
    elements: tuple[Element, ...]
    origins: Mapping[int, tuple[Array, Origin]] = field(default_factory=dict)


def load(
    path_or_bytes: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Graph:
    """Reads an ONNX model as a graph.

    Weights become params under their ONNX names with their values attached (views of the file, which
    is mapped). Whatever depends on shapes alone is computed here and is not in the graph.

    Args:
        path_or_bytes: The file, its contents, or a binary file object. External data needs the path.
        dims: Sizes of the symbolic dimensions by name. A dimension without a name is called
            ``input[axis]``.
        values: Values of inputs that decide shapes (the ``shape`` of a Reshape); they are fixed, and no
            inputs of the graph.

    Returns:
        The graph, with inputs and outputs in the file's order.

    Raises:
        ImportModelError: The file can't be read, or makes no sense.
        UnsupportedOpError: Nodes can't be imported; all of them are listed, with counts.
        InputError: Dimensions or values are missing; they are named.
        LimitError: Loading it is more work than ``rlx.limits`` allows.
        UnknownNameError: ``dims`` or ``values`` names something that the model has not.

    Example:
        >>> import rlx
        >>> try:
        ...     rlx.onnx.load(b"not a model")
        ... except rlx.ImportModelError as error:
        ...     print(str(error).splitlines()[1].strip())
        where: byte 0 of the file
    """
    source = open_model(path_or_bytes)
    given = values or {}
    _check_names(source, dims or {}, given)
    shapes = bind(source, dims or {}, given)
    try:
        return lower(source, shapes, given).graph
    except NeedsValueError as error:
        names = ", ".join(sorted(error.names))
        raise InputError(
            describe(
                f"shapes within the model depend on what these inputs hold: {names}",
                where=source.label,
                hint="give them as values={...}, or run it with rlx.onnx.Model, which does",
            )
        ) from None


def open_model(path_or_bytes: Any) -> Source:
    """Reads the messages of a model.

    Raises:
        ImportModelError: It is no ONNX model.
        UnsupportedOpError: Its inputs are of types that rlx lacks.
    """
    return read_model(open_file(path_or_bytes))


def open_file(path_or_bytes: Any) -> File:
    """The bytes of a model.

    Raises:
        ImportModelError: There is no such file, or it can't be read.
    """
    view = contents(path_or_bytes)
    if view is not None:
        return File(view.toreadonly(), "the model", None)
    path = Path(os.fspath(path_or_bytes))
    return File(_map(path), path.name, path.parent)


def read_model(file: File) -> Source:
    """Reads the messages of a model.

    Raises:
        ImportModelError: It is no ONNX model.
        UnsupportedOpError: Its inputs are of types that rlx lacks.
    """
    label = file.label
    model = schema.read(schema.ModelDef, wire.Span(file.view, 0))
    if model.graph is None:
        raise ImportModelError(
            describe("the file holds no ONNX graph", where=label, hint="is it an ONNX model?")
        )
    weights = {tensor.name for tensor in model.graph.initializers}
    inputs = tuple(_port(info, label) for info in model.graph.inputs if info.name not in weights)
    outputs = tuple(info.name for info in model.graph.outputs)
    if not outputs:
        raise ImportModelError(describe("the graph has no outputs", where=label))
    names = [port.name for port in inputs]
    if len(set(names)) != len(names) or "" in names:
        raise ImportModelError(describe("inputs need names of their own", where=label, got=names))
    found = Source(file, inputs, outputs)
    vars(found)["model"] = model
    return found


def _map(path: Path) -> memoryview:
    try:
        with open_regular(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ImportModelError(describe("the file is empty", where=path.name))
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ImportModelError(
            describe("the model can't be read", where=str(path), got=str(error))
        ) from None


def _port(info: schema.ValueInfo, label: str) -> Port:
    kind = info.type
    where = f"{label}, input {info.name!r}"
    if kind is None or kind.tensor is None:
        kinds = ("sequence", "map", "optional", "sparse")
        found = next((k for k in kinds if kind is not None and getattr(kind, k) is not None), None)
        if found is None:
            raise ImportModelError(describe("an input without a type", where=where))
        raise UnsupportedOpError(
            describe("an input that is no tensor", where=where, got=found, expected="a tensor")
        )
    element = element_of(kind.tensor.element, where)
    shape = kind.tensor.shape
    dims: list[int | str] = []
    for axis, dim in enumerate(shape.dims if shape else []):
        if dim.value is None or dim.value == -1:
            # Some exporters call every dimension that they do not know "?".
            named = dim.param not in ("", "?")
            dims.append(dim.param if named else f"{info.name}[{axis}]")
        elif 0 <= dim.value <= MAX_DIM:
            dims.append(dim.value)
        else:
            raise ImportModelError(describe("a dimension out of range", where=where, got=dim.value))
    if len(dims) > MAX_RANK:
        raise ImportModelError(describe("too many dimensions", where=where, got=len(dims)))
    return Port(info.name, element, tuple(dims) if shape else None)


def _check_names(source: Source, dims: Mapping[str, int], values: Mapping[str, Any]) -> None:
    known = {d for port in source.inputs for d in port.dims or () if isinstance(d, str)}
    inputs = {port.name for port in source.inputs}
    for given, names, what in ((dims, known, "dimension"), (values, inputs, "input")):
        for name in given:
            if name not in names:
                raise UnknownNameError(
                    describe(
                        f"{source.label} has no {what} named {name!r}",
                        hint=did_you_mean(name, names),
                    )
                )


def bind(
    source: Source, dims: Mapping[str, int], values: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """The shape of every input that is not given as a value.

    Raises:
        InputError: A dimension has no size, or not a sensible one.
    """
    for name, size in dims.items():
        if not isinstance(size, (int, np.integer)) or not 0 <= size <= MAX_DIM:
            raise InputError(
                describe(f"dimension {name!r}", got=repr(size), expected="a whole number >= 0")
            )
    shapes: dict[str, tuple[int, ...]] = {}
    missing: set[str] = set()
    for port in source.inputs:
        if port.name in values:
            continue
        if port.dims is None:
            missing.add(f"all of {port.name!r}")
            continue
        missing |= {d for d in port.dims if isinstance(d, str) and d not in dims}
        shapes[port.name] = tuple(
            int(dims.get(d, 0)) if isinstance(d, str) else d for d in port.dims
        )
    if missing:
        raise InputError(
            describe(
                "dimensions without a size",
                where=source.label,
                got=", ".join(sorted(missing)),
                hint="give them as dims={...} (--dim NAME=SIZE), or run it with rlx.onnx.Model, "
                "which takes them from the arrays",
            )
        )
    return shapes


def lower(
    source: Source, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
) -> Lowered:
    """Lowers a model for shapes.

    Args:
        source: The model.
        shapes: Shape of every input that stays one.
        values: Arrays of those that do not.

    Raises:
        NeedsValueError: Shapes depend on what more inputs hold.
        ImportModelError: The model makes no sense.
        UnsupportedOpError: Nodes can't be imported.
    """
    with budget():
        return _lower(source, shapes, values)


def _lower(
    source: Source, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
) -> Lowered:
    lowering = Lowering(source.model, source.file.folder, source.label, source.file.view)
    opsets = versions(source.model.opsets, source.label)
    graph = Graph(source.graph.name or "model")
    scope, site = Scope({}, opsets), Site(graph)
    for port in source.inputs:
        scope.define(port.name, _input(port, graph, shapes, values))
    try:
        try:
            found = lowering.body(source.graph, scope, site)
        except MissingError:
            lowering.check()
            raise
        lowering.check()
        outputs = []
        for name, value in zip(source.outputs, found, strict=True):
            if not isinstance(value, Value):
                kind = "sequence" if isinstance(value, Items) else "optional"
                raise RefusedError(f"output {name!r} is a {kind}")
            outputs.append(value)
        graph.set_outputs([site.node(value) for value in outputs])
        for name, node in zip(source.outputs, graph.outputs, strict=True):
            if node.op not in ("input", "param") and node.name != name:
                # Inputs and params are found by their names. The name of the ONNX node moves to the source.
                node.name, node.source = name, f"{node.source} {node.name!r}"
    except RefusedError as error:
        raise UnsupportedOpError(describe(str(error), where=source.label)) from None
    elements = tuple(value.element for value in outputs)
    return Lowered(graph, elements, lowering.origins)


def _input(
    port: Port, graph: Graph, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
) -> Value:
    if port.name in values:
        array, where = np.asarray(values[port.name]), f"the value of input {port.name!r}"
        check_array(array, array.shape, port.element.name, where)
        return Value(port.element, converted(array, port.element.numpy, where))
    dtype = port.element.dtype or CARRIERS.get(port.element.name)
    if dtype is None:
        raise UnsupportedOpError(
            describe(f"input {port.name!r} is of a type that rlx lacks", got=port.element.name)
        )
    return Value(port.element, node=graph.input(port.name, shapes[port.name], dtype))

"""From an ONNX file to a graph: its messages, its inputs, and the walk over its nodes.

A model that the cache folder knows is started without this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from rlx.errors import (
    ImportModelError,
    InputError,
    UnknownNameError,
    UnknownSizeError,
    UnsupportedOpError,
    did_you_mean,
    first_line,
    listed,
)
from rlx.importers.onnx import schema, wire
from rlx.importers.onnx.opsets import versions
from rlx.importers.onnx.scope import Scope
from rlx.importers.onnx.source import (
    MAX_DIM,
    LoweredModel,
    ModelBytes,
    ModelSource,
    Port,
    bind,
    dims_of,
    open_file,
)
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import (
    CARRIERS,
    GraphSite,
    MissingError,
    OnnxValue,
    RefusedError,
    SequenceItems,
)
from rlx.importers.onnx.walk import OnnxLowering
from rlx.ir import container
from rlx.ir.casting import check_array, converted
from rlx.ir.graph import Graph
from rlx.resource_limits import budget
from rlx.sizes import Assumptions

MAX_RANK = 32
# Version of the file format from which on an initializer that is an input, too, is its default.
FIRST_DEFAULTS = 4


def load(
    path_or_bytes: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Graph:
    """Reads an ONNX model as a graph.

    Weights become params under their ONNX names with their values attached (views of the file, which
    is mapped). Whatever depends on shapes alone is computed here and is not in the graph. Symbolic dimensions
    become dims (``rlx.Dim``): the compiled graph takes inputs of any size of them.

    Args:
        path_or_bytes: The file, its contents, or a binary file object. External data needs the path.
        dims: Sizes of symbolic dimensions by name, which are fixed. A dimension without a name is called
            ``input[axis]``.
        values: Values of inputs that decide the structure of the graph (the ``axes`` of a ReduceSum), or that replace a
            default of the file; they are fixed, and no inputs of the graph. An input that decides sizes alone needs none.

    Returns:
        The graph, with inputs and outputs in the file's order.

    Raises:
        ImportModelError: The file can't be read, or makes no sense.
        UnsupportedOpError: Nodes can't be imported; all of them are listed, with counts.
        InputError: Values are missing, or a dimension has to be fixed; they are named.
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
    args = values or {}
    _check_names(source, dims or {}, args)
    unknown = dims_of(source)
    shapes = bind(source, dims or {}, args, unknown)
    try:
        return lower(source, shapes, args).graph
    except UnknownSizeError as error:
        needed = listed(name for name, dim in unknown.items() if dim.name in error.names)
        raise InputError(
            f"{source.label} needs a size of {needed or 'its dimensions'} when it is read",
            got=first_line(error),
            hint="pass dims={...} (--dim NAME=SIZE), or use rlx.onnx.Model, which takes it from the arrays",
        ) from error


def open_model(path_or_bytes: Any) -> ModelSource:
    """Reads the messages of a model.

    Raises:
        ImportModelError: It is no ONNX model.
        UnsupportedOpError: Its inputs are of types that rlx lacks.
    """
    return read_model(open_file(path_or_bytes))


def read_model(file: ModelBytes) -> ModelSource:
    """Reads the messages of a model.

    Raises:
        ImportModelError: It is no ONNX model.
        UnsupportedOpError: Its inputs are of types that rlx lacks.
    """
    label = file.label
    try:
        model = schema.read(schema.ModelDef, wire.FileSpan(file.view, 0))
    except ImportModelError as error:
        what, *parts = str(error).splitlines()
        got = "; ".join([what, *(part.strip() for part in parts)])
        raise _not_onnx(file, got) from error
    if model.graph is None:
        raise _not_onnx(file, "a file without a graph")
    weights = {tensor.name: tensor for tensor in model.graph.initializers}
    inputs = tuple(_port(info, label) for info in model.graph.inputs if info.name not in weights)
    defaults: tuple[Port, ...] = ()
    if model.ir_version >= FIRST_DEFAULTS:
        results = [info for info in model.graph.inputs if info.name in weights]
        defaults = tuple(_default(info, weights[info.name], label) for info in results)
    outputs = tuple(info.name for info in model.graph.outputs)
    if not outputs:
        raise ImportModelError("the graph has no outputs", where=label)
    names = [info.name for info in model.graph.inputs]
    if len(set(names)) != len(names) or "" in names:
        raise ImportModelError("inputs need distinct names", where=label, got=names)
    source = ModelSource(file, inputs, outputs, defaults)
    vars(source)["model"] = model
    return source


# The first bytes of other kinds of files, with hints.
_OTHERS = (
    (b"GGUF", "a GGUF file: rlx.gguf.load reads it"),
    (b"PK\x03\x04", "a zip, as PyTorch's checkpoints are: export the model to ONNX"),
    (b"\x80", "a pickle, as PyTorch's checkpoints are: export the model to ONNX"),
    (b"version https://git-lfs", "a pointer of Git LFS: git lfs pull brings the file"),
    (container.MAGIC, "a .rlx file: rlx.load_model reads it"),
    (b"\x89HDF", "an HDF5 file, as Keras writes: export the model to ONNX"),
    (b"<", "a page or XML, as of a failed download"),
    (b"{", "JSON"),
)


def _not_onnx(file: ModelBytes, got: str) -> ImportModelError:
    begins = bytes(file.view[:32])
    # FlatBuffers have their mark behind four bytes.
    other = next((text for mark, text in _OTHERS if begins.startswith(mark)), None)
    if begins[4:8] == b"ORTM":
        other = "an .ort file of ONNX Runtime: take the .onnx file that it was made of"
    elif begins[8:9] == b"{":
        other = "a safetensors file: rlx.safetensors.load reads it"
    hint = (
        f"it looks like {other}"
        if other
        else "it may be cut short or damaged, or another kind of file"
    )
    return ImportModelError(
        "not an ONNX model", where=str(file.path or file.label), got=got, hint=hint
    )


def check_operators(source: ModelSource) -> None:
    """Refuses a model with operators that the importer does not know, before any shape is.

    Raises:
        UnsupportedOpError: There are some; all of them are listed, with counts.
    """
    file = source.file
    lowering = OnnxLowering(source.model, file.folder, file.label, file.view)
    lowering.look_over(source.graph, versions(source.model.opsets, file.label))
    lowering.check()


def _default(info: schema.ValueInfo, tensor: schema.TensorProto, label: str) -> Port:
    """The input that an initializer is the default of; one without a type is like the initializer."""
    where = f"{label}, input {info.name!r}"
    element = element_of(tensor.element, where)
    if info.type is None:
        return Port(info.name, element, None)
    port = _port(info, label)
    if port.element is not element:
        raise ImportModelError(
            "the initializer of an input has the wrong type",
            where=where,
            got=element.name,
            expected=port.element.name,
        )
    return port


def _port(info: schema.ValueInfo, label: str) -> Port:
    kind = info.type
    where = f"{label}, input {info.name!r}"
    if kind is None or kind.tensor is None:
        kinds = ("sequence", "map", "optional", "sparse")
        result = next((k for k in kinds if kind is not None and getattr(kind, k) is not None), None)
        if result is None:
            raise ImportModelError("an input without a type", where=where)
        raise UnsupportedOpError(
            "an input is not a tensor", where=where, got=result, expected="a tensor"
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
            raise ImportModelError("a dimension out of range", where=where, got=dim.value)
    if len(dims) > MAX_RANK:
        raise ImportModelError("too many dimensions", where=where, got=len(dims))
    return Port(info.name, element, tuple(dims) if shape else None)


def _check_names(source: ModelSource, dims: Mapping[str, int], values: Mapping[str, Any]) -> None:
    known = {d for port in source.inputs for d in port.dims or () if isinstance(d, str)}
    inputs = {port.name for port in (*source.inputs, *source.defaults)}
    for value, names, what in ((dims, known, "dimension"), (values, inputs, "input")):
        for name in value:
            if name not in names:
                raise UnknownNameError(
                    f"{source.label} has no {what} named {name!r}", hint=did_you_mean(name, names)
                )


def lower(
    source: ModelSource,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Any],
    hints: Mapping[str, int] | None = None,
) -> LoweredModel:
    """Lowers a model for shapes.

    Args:
        source: The model.
        shapes: Shape of every input that remains an input; a default is an input if it has a shape here.
        values: Arrays of the other inputs.
        hints: Values of dims in shapes. Decisions that depend on them become guards of the graph.

    Raises:
        UnknownSizeError: An operator needs a size of a dim as a number.
        InputError: The contents of more inputs decide the structure of the graph.
        ImportModelError: The model makes no sense.
        UnsupportedOpError: Nodes can't be imported.
    """
    with budget():
        return _lower(source, shapes, values, hints)


def _lower(
    source: ModelSource,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Any],
    hints: Mapping[str, int] | None,
) -> LoweredModel:
    lowering = OnnxLowering(source.model, source.file.folder, source.label, source.file.view)
    opsets = versions(source.model.opsets, source.label)
    graph = Graph(source.graph.name or "model")
    graph.assumptions = Assumptions(hints or {})
    scope, site = Scope({}, opsets), GraphSite(graph)
    for port in source.given({*shapes, *values}):
        scope.define(port.name, _input(port, graph, shapes, values))
    try:
        try:
            with graph.deciding():
                result = lowering.body(source.graph, scope, site)
        except MissingError:
            lowering.check()
            raise
        lowering.check()
        outputs = []
        for name, value in zip(source.outputs, result, strict=True):
            if not isinstance(value, OnnxValue):
                kind = "sequence" if isinstance(value, SequenceItems) else "optional"
                raise RefusedError(f"output {name!r} is a {kind}")
            outputs.append(value)
        graph.set_outputs([site.node(value) for value in outputs])
        if not graph.dims:
            graph.assumptions = None
        for name, node in zip(source.outputs, graph.outputs, strict=True):
            if node.op not in ("input", "param") and node.name != name:
                # Inputs and params are found by their names. The name of the ONNX node moves to the source.
                node.name, node.source = name, f"{node.source} {node.name!r}"
    except RefusedError as error:
        raise UnsupportedOpError(str(error), where=source.label) from None
    return LoweredModel(graph, tuple(value.element for value in outputs), lowering.origins)


def _input(
    port: Port, graph: Graph, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
) -> OnnxValue:
    if port.name in values:
        array, where = np.asarray(values[port.name]), f"the value of input {port.name!r}"
        check_array(array, array.shape, port.element.name, where)
        return OnnxValue(port.element, converted(array, port.element.numpy, where))
    dtype = port.element.dtype or CARRIERS.get(port.element.name)
    if dtype is None:
        raise UnsupportedOpError(
            f"input {port.name!r} is of a type that rlx lacks", got=port.element.name
        )
    return OnnxValue(port.element, node=graph.input(port.name, shapes[port.name], dtype))

"""The messages of ONNX that the importer reads: field numbers as tables, records as dataclasses."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rlx.dataclasses import dataclass
from rlx.importers.onnx import wire
from rlx.importers.onnx.wire import FileSpan, malformed

# Subgraphs within subgraphs: deeper than any real model, shallower than Python's stack.
MAX_DEPTH = 48

_Floats = np.ndarray[Any, Any]
_NUMBERS = ("int", "float", "double")


class MessageField(NamedTuple):
    """One field of a message.

    Attributes:
        name: Attribute of the record.
        kind: "int", "float", "double", "text", "bytes", or the name of a message.
        many: Whether it is repeated.
    """

    name: str
    kind: str
    many: bool = False


def _field(number: int, kind: str, default: Any = None, many: bool = False) -> Any:
    """A field of a record, by its number in onnx.proto; numbers that repeat are an array or None, all else a list."""
    metadata = {"number": number, "kind": kind, "many": many}
    if many and kind not in _NUMBERS:
        return field(default_factory=list, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(slots=True)
class StringEntry:
    """StringStringEntryProto."""

    key: str = _field(1, "text", "")
    value: str = _field(2, "text", "")


@dataclass(slots=True)
class Opset:
    """OperatorSetIdProto."""

    domain: str = _field(1, "text", "")
    version: int = _field(2, "int", 0)


@dataclass(slots=True)
class Dimension:
    """TensorShapeProto.Dimension: a size, a name, or neither."""

    value: int | None = _field(1, "int")
    param: str = _field(2, "text", "")


@dataclass(slots=True)
class TensorShape:
    """TensorShapeProto."""

    dims: list[Dimension] = _field(1, "Dimension", many=True)


@dataclass(slots=True)
class TensorKind:
    """TypeProto.Tensor."""

    element: int = _field(1, "int", 0)
    shape: TensorShape | None = _field(2, "TensorShape")


@dataclass(slots=True)
class Type:
    """TypeProto: of the kinds that are no tensors only the presence is kept."""

    tensor: TensorKind | None = _field(1, "TensorKind")
    sequence: FileSpan | None = _field(4, "bytes")
    map: FileSpan | None = _field(5, "bytes")
    optional: FileSpan | None = _field(9, "bytes")
    sparse: FileSpan | None = _field(8, "bytes")


@dataclass(slots=True)
class ValueInfo:
    """ValueInfoProto."""

    name: str = _field(1, "text", "")
    type: Type | None = _field(2, "Type")


@dataclass(slots=True)
class TensorProto:
    """TensorProto: ``raw`` is a view of the file."""

    dims: _Floats | None = _field(1, "int", many=True)
    element: int = _field(2, "int", 0)
    floats: _Floats | None = _field(4, "float", many=True)
    int32s: _Floats | None = _field(5, "int", many=True)
    strings: list[FileSpan] = _field(6, "bytes", many=True)
    int64s: _Floats | None = _field(7, "int", many=True)
    name: str = _field(8, "text", "")
    raw: FileSpan | None = _field(9, "bytes")
    doubles: _Floats | None = _field(10, "double", many=True)
    uint64s: _Floats | None = _field(11, "int", many=True)
    external: list[StringEntry] = _field(13, "StringEntry", many=True)
    location: int = _field(14, "int", 0)


@dataclass(slots=True)
class Attribute:
    """AttributeProto."""

    name: str = _field(1, "text", "")
    f: float | None = _field(2, "float")
    i: int | None = _field(3, "int")
    s: FileSpan | None = _field(4, "bytes")
    t: TensorProto | None = _field(5, "TensorProto")
    g: GraphDef | None = _field(6, "GraphDef")
    floats: _Floats | None = _field(7, "float", many=True)
    ints: _Floats | None = _field(8, "int", many=True)
    strings: list[FileSpan] = _field(9, "bytes", many=True)
    tensors: list[TensorProto] = _field(10, "TensorProto", many=True)
    graphs: list[GraphDef] = _field(11, "GraphDef", many=True)
    type: int = _field(20, "int", 0)
    ref: str = _field(21, "text", "")


@dataclass(slots=True)
class NodeDef:
    """NodeProto."""

    input: list[str] = _field(1, "text", many=True)
    output: list[str] = _field(2, "text", many=True)
    name: str = _field(3, "text", "")
    op: str = _field(4, "text", "")
    attributes: list[Attribute] = _field(5, "Attribute", many=True)
    domain: str = _field(7, "text", "")
    overload: str = _field(8, "text", "")


@dataclass(slots=True)
class GraphDef:
    """GraphProto."""

    nodes: list[NodeDef] = _field(1, "NodeDef", many=True)
    name: str = _field(2, "text", "")
    initializers: list[TensorProto] = _field(5, "TensorProto", many=True)
    inputs: list[ValueInfo] = _field(11, "ValueInfo", many=True)
    outputs: list[ValueInfo] = _field(12, "ValueInfo", many=True)
    sparse: list[FileSpan] = _field(15, "bytes", many=True)


@dataclass(slots=True)
class Function:
    """FunctionProto."""

    name: str = _field(1, "text", "")
    inputs: list[str] = _field(4, "text", many=True)
    outputs: list[str] = _field(5, "text", many=True)
    attributes: list[str] = _field(6, "text", many=True)
    nodes: list[NodeDef] = _field(7, "NodeDef", many=True)
    opsets: list[Opset] = _field(9, "Opset", many=True)
    domain: str = _field(10, "text", "")
    defaults: list[Attribute] = _field(11, "Attribute", many=True)
    overload: str = _field(13, "text", "")


@dataclass(slots=True)
class ModelDef:
    """ModelProto."""

    ir_version: int = _field(1, "int", 0)
    graph: GraphDef | None = _field(7, "GraphDef")
    opsets: list[Opset] = _field(8, "Opset", many=True)
    functions: list[Function] = _field(25, "Function", many=True)


_RECORDS = {
    record.__name__: record
    for record in (
        StringEntry, Opset, Dimension, TensorShape, TensorKind, Type, ValueInfo, TensorProto,
        Attribute, NodeDef, GraphDef, Function, ModelDef,
    )
}  # fmt: skip
# A number that is not here is skipped.
TABLES: dict[type[Any], dict[int, MessageField]] = {
    record: {
        f.metadata["number"]: MessageField(f.name, f.metadata["kind"], f.metadata["many"])
        for f in fields(record)
    }
    for record in _RECORDS.values()
}
_M = TypeVar("_M")


def read(record: type[_M], span: FileSpan, depth: int = 0) -> _M:
    """A message as a record; messages within it are read too.

    Args:
        record: One of the dataclasses of this file.
        span: Its bytes.
        depth: Messages around it.

    Returns:
        The record. Numbers that repeat are NumPy arrays (views of the file for floats).

    Raises:
        ImportModelError: The bytes are no such message, or nest too deeply.
    """
    if depth > MAX_DEPTH:
        raise malformed(
            "messages nest too deeply", span.offset, expected=f"at most {MAX_DEPTH} levels"
        )
    table = TABLES[record]
    values: dict[str, Any] = {}
    for entry in wire.fields(span):
        known = table.get(entry.number)
        if known is None:
            continue
        what = f"{record.__name__}.{known.name}"
        if known.kind in _NUMBERS and known.many:
            values.setdefault(known.name, []).append(wire.numbers(entry, known.kind, what))
            continue
        single = _read_value(known.kind, entry, what, depth)
        if known.many:
            values.setdefault(known.name, []).append(single)
        elif known.name in values and known.kind in _RECORDS:
            raise malformed(f"{what} occurs twice", entry.offset)
        else:
            values[known.name] = single
    for item in table.values():
        if item.many and item.kind in _NUMBERS and item.name in values:
            parts = values[item.name]
            values[item.name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return record(**values)


def _read_value(kind: str, entry: wire.WireField, what: str, depth: int) -> Any:
    if kind in _NUMBERS:
        return wire.number(entry, kind, what)
    span = wire.need(entry, wire.BYTES, what)
    if kind == "bytes":
        return span
    if kind == "text":
        return wire.text(span)
    return read(_RECORDS[kind], span, depth + 1)

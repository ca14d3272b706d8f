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


@dataclass(slots=True)
class StringEntry:
    """StringStringEntryProto."""

    key: str = ""
    value: str = ""


@dataclass(slots=True)
class Opset:
    """OperatorSetIdProto."""

    domain: str = ""
    version: int = 0


@dataclass(slots=True)
class Dimension:
    """TensorShapeProto.Dimension: a size, a name, or neither."""

    value: int | None = None
    param: str = ""


@dataclass(slots=True)
class TensorShape:
    """TensorShapeProto."""

    dims: list[Dimension] = field(default_factory=list)


@dataclass(slots=True)
class TensorKind:
    """TypeProto.Tensor."""

    element: int = 0
    shape: TensorShape | None = None


@dataclass(slots=True)
class Type:
    """TypeProto: of the kinds that are no tensors only the presence is kept."""

    tensor: TensorKind | None = None
    sequence: FileSpan | None = None
    map: FileSpan | None = None
    optional: FileSpan | None = None
    sparse: FileSpan | None = None


@dataclass(slots=True)
class ValueInfo:
    """ValueInfoProto."""

    name: str = ""
    type: Type | None = None


@dataclass(slots=True)
class TensorProto:
    """TensorProto: ``raw`` is a view of the file."""

    dims: _Floats | None = None
    element: int = 0
    floats: _Floats | None = None
    int32s: _Floats | None = None
    strings: list[FileSpan] = field(default_factory=list)
    int64s: _Floats | None = None
    name: str = ""
    raw: FileSpan | None = None
    doubles: _Floats | None = None
    uint64s: _Floats | None = None
    external: list[StringEntry] = field(default_factory=list)
    location: int = 0


@dataclass(slots=True)
class Attribute:
    """AttributeProto."""

    name: str = ""
    f: float | None = None
    i: int | None = None
    s: FileSpan | None = None
    t: TensorProto | None = None
    g: GraphDef | None = None
    floats: _Floats | None = None
    ints: _Floats | None = None
    strings: list[FileSpan] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    graphs: list[GraphDef] = field(default_factory=list)
    type: int = 0
    ref: str = ""


@dataclass(slots=True)
class NodeDef:
    """NodeProto."""

    input: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    name: str = ""
    op: str = ""
    attributes: list[Attribute] = field(default_factory=list)
    domain: str = ""
    overload: str = ""


@dataclass(slots=True)
class GraphDef:
    """GraphProto."""

    nodes: list[NodeDef] = field(default_factory=list)
    name: str = ""
    initializers: list[TensorProto] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    sparse: list[FileSpan] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """FunctionProto."""

    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    nodes: list[NodeDef] = field(default_factory=list)
    opsets: list[Opset] = field(default_factory=list)
    domain: str = ""
    defaults: list[Attribute] = field(default_factory=list)
    overload: str = ""


@dataclass(slots=True)
class ModelDef:
    """ModelProto."""

    ir_version: int = 0
    graph: GraphDef | None = None
    opsets: list[Opset] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)


# Field numbers are those of onnx.proto; a number that is not here is skipped.
TABLES: dict[type[Any], dict[int, MessageField]] = {
    StringEntry: {1: MessageField("key", "text"), 2: MessageField("value", "text")},
    Opset: {1: MessageField("domain", "text"), 2: MessageField("version", "int")},
    Dimension: {1: MessageField("value", "int"), 2: MessageField("param", "text")},
    TensorShape: {1: MessageField("dims", "Dimension", True)},
    TensorKind: {1: MessageField("element", "int"), 2: MessageField("shape", "TensorShape")},
    Type: {
        1: MessageField("tensor", "TensorKind"),
        4: MessageField("sequence", "bytes"),
        5: MessageField("map", "bytes"),
        8: MessageField("sparse", "bytes"),
        9: MessageField("optional", "bytes"),
    },
    ValueInfo: {1: MessageField("name", "text"), 2: MessageField("type", "Type")},
    TensorProto: {
        1: MessageField("dims", "int", True),
        2: MessageField("element", "int"),
        4: MessageField("floats", "float", True),
        5: MessageField("int32s", "int", True),
        6: MessageField("strings", "bytes", True),
        7: MessageField("int64s", "int", True),
        8: MessageField("name", "text"),
        9: MessageField("raw", "bytes"),
        10: MessageField("doubles", "double", True),
        11: MessageField("uint64s", "int", True),
        13: MessageField("external", "StringEntry", True),
        14: MessageField("location", "int"),
    },
    Attribute: {
        1: MessageField("name", "text"),
        2: MessageField("f", "float"),
        3: MessageField("i", "int"),
        4: MessageField("s", "bytes"),
        5: MessageField("t", "TensorProto"),
        6: MessageField("g", "GraphDef"),
        7: MessageField("floats", "float", True),
        8: MessageField("ints", "int", True),
        9: MessageField("strings", "bytes", True),
        10: MessageField("tensors", "TensorProto", True),
        11: MessageField("graphs", "GraphDef", True),
        20: MessageField("type", "int"),
        21: MessageField("ref", "text"),
    },
    NodeDef: {
        1: MessageField("input", "text", True),
        2: MessageField("output", "text", True),
        3: MessageField("name", "text"),
        4: MessageField("op", "text"),
        5: MessageField("attributes", "Attribute", True),
        7: MessageField("domain", "text"),
        8: MessageField("overload", "text"),
    },
    GraphDef: {
        1: MessageField("nodes", "NodeDef", True),
        2: MessageField("name", "text"),
        5: MessageField("initializers", "TensorProto", True),
        11: MessageField("inputs", "ValueInfo", True),
        12: MessageField("outputs", "ValueInfo", True),
        15: MessageField("sparse", "bytes", True),
    },
    Function: {
        1: MessageField("name", "text"),
        4: MessageField("inputs", "text", True),
        5: MessageField("outputs", "text", True),
        6: MessageField("attributes", "text", True),
        7: MessageField("nodes", "NodeDef", True),
        9: MessageField("opsets", "Opset", True),
        10: MessageField("domain", "text"),
        11: MessageField("defaults", "Attribute", True),
        13: MessageField("overload", "text"),
    },
    ModelDef: {
        1: MessageField("ir_version", "int"),
        7: MessageField("graph", "GraphDef"),
        8: MessageField("opsets", "Opset", True),
        25: MessageField("functions", "Function", True),
    },
}
_RECORDS = {record.__name__: record for record in TABLES}
_NUMBERS = ("int", "float", "double")
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


def check_tables() -> None:
    """Every table names fields of its record: called by the tests."""
    for record, table in TABLES.items():
        assert {f.name for f in table.values()} == {f.name for f in fields(record)}, record

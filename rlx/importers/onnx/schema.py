"""The messages of ONNX that the importer reads: field numbers as tables, records as dataclasses."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rlx.dataclasses import dataclass
from rlx.importers.onnx import wire
from rlx.importers.onnx.wire import Span, malformed

# Subgraphs within subgraphs: deeper than any real model, shallower than Python's stack.
MAX_DEPTH = 48

_Floats = np.ndarray[Any, Any]


class Field(NamedTuple):
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
class Entry:
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
    sequence: Span | None = None
    map: Span | None = None
    optional: Span | None = None
    sparse: Span | None = None


@dataclass(slots=True)
class ValueInfo:
    """ValueInfoProto."""

    name: str = ""
    type: Type | None = None


@dataclass(slots=True)
class Tensor:
    """TensorProto: ``raw`` is a view of the file."""

    dims: _Floats | None = None
    element: int = 0
    floats: _Floats | None = None
    int32s: _Floats | None = None
    strings: list[Span] = field(default_factory=list)
    int64s: _Floats | None = None
    name: str = ""
    raw: Span | None = None
    doubles: _Floats | None = None
    uint64s: _Floats | None = None
    external: list[Entry] = field(default_factory=list)
    location: int = 0


@dataclass(slots=True)
class Attribute:
    """AttributeProto."""

    name: str = ""
    f: float | None = None
    i: int | None = None
    s: Span | None = None
    t: Tensor | None = None
    g: GraphDef | None = None
    floats: _Floats | None = None
    ints: _Floats | None = None
    strings: list[Span] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
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
    initializers: list[Tensor] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    sparse: list[Span] = field(default_factory=list)


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
TABLES: dict[type[Any], dict[int, Field]] = {
    Entry: {1: Field("key", "text"), 2: Field("value", "text")},
    Opset: {1: Field("domain", "text"), 2: Field("version", "int")},
    Dimension: {1: Field("value", "int"), 2: Field("param", "text")},
    TensorShape: {1: Field("dims", "Dimension", True)},
    TensorKind: {1: Field("element", "int"), 2: Field("shape", "TensorShape")},
    Type: {
        1: Field("tensor", "TensorKind"),
        4: Field("sequence", "bytes"),
        5: Field("map", "bytes"),
        8: Field("sparse", "bytes"),
        9: Field("optional", "bytes"),
    },
    ValueInfo: {1: Field("name", "text"), 2: Field("type", "Type")},
    Tensor: {
        1: Field("dims", "int", True),
        2: Field("element", "int"),
        4: Field("floats", "float", True),
        5: Field("int32s", "int", True),
        6: Field("strings", "bytes", True),
        7: Field("int64s", "int", True),
        8: Field("name", "text"),
        9: Field("raw", "bytes"),
        10: Field("doubles", "double", True),
        11: Field("uint64s", "int", True),
        13: Field("external", "Entry", True),
        14: Field("location", "int"),
    },
    Attribute: {
        1: Field("name", "text"),
        2: Field("f", "float"),
        3: Field("i", "int"),
        4: Field("s", "bytes"),
        5: Field("t", "Tensor"),
        6: Field("g", "GraphDef"),
        7: Field("floats", "float", True),
        8: Field("ints", "int", True),
        9: Field("strings", "bytes", True),
        10: Field("tensors", "Tensor", True),
        11: Field("graphs", "GraphDef", True),
        20: Field("type", "int"),
        21: Field("ref", "text"),
    },
    NodeDef: {
        1: Field("input", "text", True),
        2: Field("output", "text", True),
        3: Field("name", "text"),
        4: Field("op", "text"),
        5: Field("attributes", "Attribute", True),
        7: Field("domain", "text"),
        8: Field("overload", "text"),
    },
    GraphDef: {
        1: Field("nodes", "NodeDef", True),
        2: Field("name", "text"),
        5: Field("initializers", "Tensor", True),
        11: Field("inputs", "ValueInfo", True),
        12: Field("outputs", "ValueInfo", True),
        15: Field("sparse", "bytes", True),
    },
    Function: {
        1: Field("name", "text"),
        4: Field("inputs", "text", True),
        5: Field("outputs", "text", True),
        6: Field("attributes", "text", True),
        7: Field("nodes", "NodeDef", True),
        9: Field("opsets", "Opset", True),
        10: Field("domain", "text"),
        11: Field("defaults", "Attribute", True),
        13: Field("overload", "text"),
    },
    ModelDef: {
        1: Field("ir_version", "int"),
        7: Field("graph", "GraphDef"),
        8: Field("opsets", "Opset", True),
        25: Field("functions", "Function", True),
    },
}
_RECORDS = {record.__name__: record for record in TABLES}
_NUMBERS = ("int", "float", "double")
_M = TypeVar("_M")


def read(record: type[_M], span: Span, depth: int = 0) -> _M:
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
        one = _one(known.kind, entry, what, depth)
        if known.many:
            values.setdefault(known.name, []).append(one)
        elif known.name in values and known.kind in _RECORDS:
            raise malformed(f"{what} stands there twice", entry.offset)
        else:
            values[known.name] = one
    for item in table.values():
        if item.many and item.kind in _NUMBERS and item.name in values:
            parts = values[item.name]
            values[item.name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return record(**values)


def _one(kind: str, entry: wire.Entry, what: str, depth: int) -> Any:
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

"""Packs what a compile decided into the contents of a container, and unpacks it.

A file holds no kernel call, no address and no shader. It holds the graph after all passes, where
temporaries lie in the arena, which nodes run on the host, and what the backend packed, which the backend
checks; ``lowering.derive`` makes the calls of them again. Reading infers every node anew and checks its
attributes, so a file can name only what the operations allow, whoever wrote it.

Lines of the user's code are kept as positions among those of the graph that was lowered, so that an
equal graph built elsewhere gets its own lines in messages and notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx.compiler.lowered_module import Decisions, LoweredModule
from rlx.errors import MALFORMED, GraphError, RlxError
from rlx.ir.attributes import check_attributes
from rlx.ir.content import OpaqueError, check_ours
from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.notes import Note, Place
from rlx.ir.opdef import Array, lookup
from rlx.ir.plan import Preparation
from rlx.ir.serialize import MAX_NESTED

KIND = "lowered"
_PLAIN = (type(None), int, float, str, bool)


class MalformedError(RlxError):
    """A container's data is not a packed lowered graph."""


def sources_of(graph: Graph) -> list[str]:
    """The lines of code that made a graph's nodes, subgraphs included, in an order of their own."""
    return _sources(graph, {})


def _sources(graph: Graph, known: dict[Graph, list[str]]) -> list[str]:
    """The lines of a graph. A subgraph that stands in many places is walked once."""
    if graph not in known:
        results = known[graph] = []
        for node in graph.nodes:
            results.append(node.source)
            for value in node.attrs.values():
                if isinstance(value, Graph):
                    results += _sources(value, known)
    return known[graph]


def pack(lowered: LoweredModule, sources: Sequence[str]) -> tuple[Any, list[Array]]:
    """A lowered graph as JSON values and arrays.

    Args:
        lowered: The graph.
        sources: ``sources_of`` the graph that it was made of.

    Raises:
        OpaqueError: It holds something that is more than data, a Python function for instance.
    """
    packer = _Packer(sources)
    return packer.lowered(lowered), packer.arrays


def unpack(data: Any, arrays: Sequence[Array], sources: Sequence[str]) -> Decisions:
    """Unpacks the decisions about the graph that ``pack`` was given.

    Args:
        data: JSON values.
        arrays: Arrays.
        sources: ``sources_of`` the graph that is compiled now.

    Raises:
        MalformedError: The data is not what ``pack`` makes.
    """
    try:
        return _Unpacker(arrays, sources).decisions(data)
    except MALFORMED as error:
        # Errors of rlx have a full message already.
        said = error if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
        raise MalformedError(str(said)) from None
    except (GraphError, OpaqueError) as error:
        raise MalformedError(str(error)) from None


class _Packer:
    """Gathers graphs and arrays; the rest refers to them by position."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.arrays: list[Array] = []
        self._lines: dict[str, int] = {}
        for i, source in enumerate(sources):
            if source:
                self._lines.setdefault(source, i)
        self._array_at: dict[int, int] = {}
        self._graphs: list[Any] = []

    def lowered(self, lowered: LoweredModule) -> Any:
        return {
            "graph": self._graph(lowered.graph),
            "preparations": [
                [self._graph(preparation.graph), list(preparation.names)]
                for preparation in lowered.preparations
            ],
            "subgraphs": [self._graph(subgraph) for subgraph in lowered.subgraphs],
            "notes": [self._note(note) for note in lowered.notes],
            "hosted": list(lowered.hosted.items()),
            "offsets": [] if lowered.plan is None else list(lowered.plan.temps),
            "program": None if lowered.program is None else lowered.program.pack(),
            "graphs": self._graphs,
        }

    def _note(self, note: Note) -> Any:
        return [
            note.step,
            [
                part if isinstance(part, str) else [part.node, self._line(part.source)]
                for part in note.parts
            ],
        ]

    def _line(self, source: str) -> int | str:
        """A line of the user's code: its position among those of the graph that was lowered, else its text."""
        return self._lines.get(source, source)

    def _graph(self, graph: Graph) -> int:
        # Subgraphs are added before their graph. A subgraph used in two places is written twice.
        record = [
            graph.name,
            [self._node(node) for node in graph.nodes],
            [node.id for node in graph.outputs],
        ]
        self._graphs.append(record)
        return len(self._graphs) - 1

    def _node(self, node: Node) -> Any:
        check_ours(node)
        return [
            node.op,
            node.name,
            [operand.id for operand in node.inputs],
            {key: self._any(value) for key, value in node.attrs.items()},
            self._line(node.source),
        ]

    def _array(self, array: Array) -> int:
        if id(array) not in self._array_at:
            if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
                raise OpaqueError(f"an array of {array.dtype}")
            self._array_at[id(array)] = len(self.arrays)
            self.arrays.append(array)
        return self._array_at[id(array)]

    def _any(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [self._any(item) for item in value]
        if kind is DType:
            return {"dtype": value.value}
        if kind is Graph:
            return {"graph": self._graph(value)}
        if kind is np.ndarray:
            return {"array": self._array(value)}
        raise OpaqueError(f"a {kind.__module__}.{kind.__qualname__}")


class _Unpacker:
    """Makes the graphs again, node by node; those that others hold stand before them."""

    def __init__(self, arrays: Sequence[Array], sources: Sequence[str]) -> None:
        self._arrays, self._sources = arrays, sources
        # Graphs by position, each with its nesting depth. A graph is removed when it is used.
        self._graphs: dict[int, tuple[Graph, int]] = {}
        self._inside = 0

    def decisions(self, data: Any) -> Decisions:
        for index, record in enumerate(data["graphs"]):
            self._inside = 0
            graph = self._graph(*record)
            if self._inside > MAX_NESTED:
                raise ValueError(f"subgraphs in subgraphs, {self._inside} deep")
            self._graphs[index] = graph, self._inside
        return Decisions(
            self._take_graph(data["graph"]),
            tuple(self._note(step, parts) for step, parts in data["notes"]),
            tuple(
                Preparation(self._take_graph(i), _texts(names)) for i, names in data["preparations"]
            ),
            tuple(self._take_graph(i) for i in data["subgraphs"]),
            MappingProxyType({_whole(i): _text(reason) for i, reason in data["hosted"]}),
            tuple(data["offsets"]),
            data["program"],
        )

    def _note(self, step: Any, parts: Any) -> Note:
        return Note(
            _text(step),
            tuple(
                part if isinstance(part, str) else Place(_text(part[0]), self._line(part[1]))
                for part in parts
            ),
        )

    def _line(self, line: Any) -> str:
        """See ``_Packer._line``."""
        return line if isinstance(line, str) else _text(_at(self._sources, line))

    def _take_graph(self, index: int) -> Graph:
        """A graph for its one place: in two places, and in two of those again, it would be endless."""
        graph, depth = self._graphs.pop(index)
        self._inside = max(self._inside, depth + 1)
        return graph

    def _graph(self, name: str, nodes: list[Any], outputs: list[int]) -> Graph:
        graph = Graph(_text(name))
        for op, label, inputs, attrs, line in nodes:
            args = {key: self._any(value) for key, value in attrs.items()}
            source = self._line(line)
            if op in ("input", "param"):
                leaf = graph.input if op == "input" else graph.param
                node = leaf(label, args["shape"], args["dtype"])
            else:
                operands = [_at(graph.nodes, i) for i in inputs]
                if op != PART and any(len(operand.types) > 1 for operand in operands):
                    raise ValueError(f"an operand of {label!r} is several values")
                node = graph.add_node(lookup(op), operands, args, _text(label), source)
                check_ours(node)
            check_attributes(node, args)
            node.source = source
        graph.set_outputs([_at(graph.nodes, output) for output in outputs])
        if any(len(node.types) > 1 for node in graph.outputs):
            raise ValueError(f"an output of {graph.name!r} is several values")
        return graph

    def _any(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            return tuple([self._any(item) for item in value])
        if kind is not dict:
            return value
        ((tag, stored),) = value.items()
        return _READERS[tag](self, stored)


_READERS: dict[str, Any] = {
    "dtype": lambda item, stored: DType(stored),
    "graph": lambda item, stored: item._take_graph(stored),
    "array": lambda item, stored: _at(item._arrays, stored),
}


def _at(items: Sequence[Any], pos: Any) -> Any:
    """An entry by a position from the front."""
    if type(pos) is not int or not 0 <= pos < len(items):
        raise IndexError(f"position {pos!r} of {len(items)}")
    return items[pos]


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.60} is no whole number")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.60} is no text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)

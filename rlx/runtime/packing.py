"""A lowered graph as the contents of a container, and back: exactly what ``lower`` gave.

Lines of the user's code are kept as positions among those of the graph that was lowered, so that an
equal graph built elsewhere gets its own lines in messages and notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, RlxError
from rlx.ir.content import OpaqueError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, TensorType, lookup
from rlx.ir.plan import Call, MemoryPlan, Schedule, Slot, Value
from rlx.passes.hoist import Preparation
from rlx.runtime.build import Lowered

KIND = "lowered"
_PLAIN = (type(None), int, float, str, bool)
_BETWEEN_NOTES = "\x1e"


class MalformedError(RlxError):
    """A container's data is not a packed lowered graph."""


def sources_of(graph: Graph) -> list[str]:
    """The lines of code that made a graph's nodes, subgraphs included, in an order of their own."""
    found = []
    for node in graph.nodes:
        found.append(node.source)
        for value in node.attrs.values():
            if isinstance(value, Graph):
                found += sources_of(value)
    return found


def pack(lowered: Lowered, sources: Sequence[str]) -> tuple[Any, list[Array]]:
    """A lowered graph as JSON values and arrays.

    Args:
        lowered: The graph.
        sources: ``sources_of`` the graph that it was made of.

    Raises:
        OpaqueError: It holds something that is more than data, a Python function for instance.
    """
    packer = _Packer(sources)
    data = packer.lowered(lowered)
    return data, packer.arrays


def unpack(data: Any, arrays: Sequence[Array], sources: Sequence[str]) -> Lowered:
    """The lowered graph that ``pack`` was given.

    Args:
        data: JSON values.
        arrays: Arrays.
        sources: ``sources_of`` the graph that is compiled now.

    Raises:
        MalformedError: The data is not what ``pack`` makes.
    """
    try:
        return _Unpacker(arrays, sources).lowered(data)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedError(f"{type(error).__name__}: {error}") from None
    except GraphError as error:
        raise MalformedError(str(error)) from None


class _Packer:
    """Gathers graphs, types and arrays; the rest refers to them by position."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.arrays: list[Array] = []
        self._lines: dict[str, int] = {}
        for at, source in enumerate(sources):
            if source:
                self._lines.setdefault(source, at)
        self._array_at: dict[int, int] = {}
        self._graphs: list[Any] = []
        self._graph_at: dict[int, int] = {}
        self._types: dict[TensorType, int] = {}
        # Positions stand for objects by their id, so these have to live until the end.
        self._alive: list[Any] = []

    def lowered(self, lowered: Lowered) -> Any:
        notes = _BETWEEN_NOTES.join(lowered.notes)
        # The longest first: one may be the beginning of another.
        for line, at in sorted(self._lines.items(), key=lambda item: -len(item[0])):
            notes = notes.replace(f" <- {line}", f" <- \0{at}\0")
        graph = self._graph(lowered.graph)
        schedule = None if lowered.schedule is None else self._schedule(lowered.schedule)
        plan = None if lowered.plan is None else _plan_record(lowered.plan)
        prepared = [[self._graph(one.graph), list(one.names)] for one in lowered.preparations]
        return {
            "graph": graph,
            "preparations": prepared,
            "notes": notes,
            "count": len(lowered.notes),
            "schedule": schedule,
            "plan": plan,
            "graphs": self._graphs,
            "types": [[list(type.shape), type.dtype.value] for type in self._types],
        }

    def _schedule(self, schedule: Schedule) -> Any:
        calls: dict[int, int] = {}
        order: list[int] = []
        records: list[Any] = []
        rendered: list[Any] = []
        texts: dict[str, int] = {}
        for at, call in enumerate(schedule.calls):
            if id(call) not in calls:
                calls[id(call)] = len(records)
                records.append(self._call(call))
                if at in schedule.rendered:
                    rendered.append([at, _dispatch_record(schedule.rendered[at], texts)])
            order.append(calls[id(call)])
        return {
            "values": [self._value(value) for value in schedule.values],
            "calls": records,
            "order": order,
            "inputs": _ids(schedule.inputs),
            "outputs": _ids(schedule.outputs),
            "output_types": [self._type(type) for type in schedule.output_types],
            "params": {name: value.id for name, value in schedule.params.items()},
            "loops": [list(loop) for loop in schedule.loops],
            "rendered": rendered,
            "texts": list(texts),
        }

    def _value(self, value: Value) -> Any:
        held = None if value.array is None else self._array(value.array)
        return [self._type(value.type), value.kind, value.name, held]

    def _call(self, call: Call) -> Any:
        graph = self._graph(call.node.graph)
        if call.node.graph.nodes[call.node.id] is not call.node:
            raise OpaqueError(f"node {call.node.where()} is not in its graph")
        return [
            call.kernel,
            [None if value is None else value.id for value in call.inputs],
            _ids(call.outputs),
            {key: self._any(value) for key, value in call.params.items()},
            call.work,
            [graph, call.node.id],
            list(call.in_place),
            call.unit,
        ]

    def _graph(self, graph: Graph) -> int:
        if id(graph) not in self._graph_at:
            # Graphs inside it are added first.
            record = [
                graph.name,
                [self._node(node) for node in graph.nodes],
                [node.id for node in graph.outputs],
            ]
            self._alive.append(graph)
            self._graph_at[id(graph)] = len(self._graphs)
            self._graphs.append(record)
        return self._graph_at[id(graph)]

    def _node(self, node: Node) -> Any:
        return [
            node.op,
            node.name,
            [operand.id for operand in node.inputs],
            {key: self._any(value) for key, value in node.attrs.items()},
            [self._type(type) for type in node.types],
            self._lines.get(node.source, node.source),
        ]

    def _type(self, type: TensorType) -> int:
        return self._types.setdefault(type, len(self._types))

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
        if kind is list:
            return {"list": [self._any(item) for item in value]}
        if kind is dict:
            return {"dict": [[self._any(key), self._any(item)] for key, item in value.items()]}
        if kind is np.ndarray:
            return {"array": self._array(value)}
        if isinstance(value, np.generic):
            held = np.asarray(value)
            self._alive.append(held)
            return {"scalar": self._array(held)}
        raise OpaqueError(f"a {kind.__module__}.{kind.__qualname__}")


class _Unpacker:
    """Makes the records again, graphs first."""

    def __init__(self, arrays: Sequence[Array], sources: Sequence[str]) -> None:
        self._arrays, self._sources = arrays, sources
        self._graphs: list[Graph] = []
        self._types: list[TensorType] = []

    def lowered(self, data: Any) -> Lowered:
        self._types = [TensorType(tuple(shape), DType(name)) for shape, name in data["types"]]
        for record in data["graphs"]:
            self._graphs.append(self._graph(*record))
        pieces = data["notes"].split("\0")
        pieces[1::2] = [self._sources[int(at)] for at in pieces[1::2]]
        notes = "".join(pieces).split(_BETWEEN_NOTES) if data["count"] else []
        schedule = None if data["schedule"] is None else self._schedule(data["schedule"])
        plan = None if data["plan"] is None else _plan(data["plan"])
        prepared = tuple(
            Preparation(self._graphs[at], tuple(names)) for at, names in data["preparations"]
        )
        return Lowered(self._graphs[data["graph"]], notes, schedule, plan, prepared)

    def _graph(self, name: str, nodes: list[Any], outputs: list[int]) -> Graph:
        graph = Graph(name)
        for op, label, inputs, attrs, types, line in nodes:
            # As it was: inferring the types again would cost as much as lowering.
            node = Node(
                graph,
                lookup(op),
                tuple(graph.nodes[at] for at in inputs),
                {key: self._any(value) for key, value in attrs.items()},
                tuple(self._types[at] for at in types),
                label,
                line if isinstance(line, str) else self._sources[line],
            )
            graph.nodes.append(node)
            if op in ("input", "param"):
                graph._named[node.name] = node
        graph.outputs = tuple(graph.nodes[at] for at in outputs)
        return graph

    def _schedule(self, data: Any) -> Schedule:
        values = [
            Value(at, self._types[type], kind, name, None if held is None else self._arrays[held])
            for at, (type, kind, name, held) in enumerate(data["values"])
        ]
        unique = [self._call(values, *record) for record in data["calls"]]
        calls = [unique[at] for at in data["order"]]
        return Schedule(
            values,
            calls,
            [values[at] for at in data["inputs"]],
            [values[at] for at in data["outputs"]],
            [self._types[at] for at in data["output_types"]],
            {name: values[at] for name, at in data["params"].items()},
            [(first, last) for first, last in data["loops"]],
            {
                at: _dispatch(calls[at], values, data["texts"], record)
                for at, record in data["rendered"]
            },
        )

    def _call(
        self,
        values: list[Value],
        kernel: str,
        inputs: list[int | None],
        outputs: list[int],
        params: Mapping[str, Any],
        work: int,
        node: list[int],
        in_place: list[int],
        unit: int,
    ) -> Call:
        graph, at = node
        return Call(
            kernel,
            tuple(None if one is None else values[one] for one in inputs),
            tuple(values[one] for one in outputs),
            {key: self._any(value) for key, value in params.items()},
            work,
            self._graphs[graph].nodes[at],
            tuple(in_place),
            unit,
        )

    def _any(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            return tuple([self._any(item) for item in value])
        if kind is not dict:
            return value
        ((tag, held),) = value.items()
        return _READERS[tag](self, held)


_READERS: dict[str, Any] = {
    "dtype": lambda one, held: DType(held),
    "graph": lambda one, held: one._graphs[held],
    "list": lambda one, held: [one._any(item) for item in held],
    "dict": lambda one, held: {one._any(key): one._any(item) for key, item in held},
    "array": lambda one, held: one._arrays[held],
    "scalar": lambda one, held: one._arrays[held][()],
}


def _ids(values: Sequence[Value]) -> list[int]:
    return [value.id for value in values]


def _plan_record(plan: MemoryPlan) -> Any:
    slots = [[at, slot.offset, slot.nbytes] for at, slot in plan.slots.items()]
    reused = [list(pair) for pair in plan.reused]
    return [slots, plan.nbytes, plan.inputs_end, plan.outputs_end, plan.live_peak, reused]


def _plan(record: Any) -> MemoryPlan:
    slots, nbytes, inputs_end, outputs_end, live_peak, reused = record
    for _, offset, size in slots:
        if offset < 0 or size < 0 or offset + size > nbytes:
            raise ValueError(f"a slot at {offset} + {size} is outside of the arena of {nbytes}")
    return MemoryPlan(
        {at: Slot(offset, size) for at, offset, size in slots},
        nbytes,
        inputs_end,
        outputs_end,
        live_peak,
        [(value, donor) for value, donor in reused],
    )


def _dispatch_record(dispatch: Any, texts: dict[str, int]) -> Any:
    # Only a schedule for WebGPU has any; its module needs a template engine.
    from rlx.backends.webgpu.lower import Dispatch

    if dispatch is None:
        return None
    if not isinstance(dispatch, Dispatch):
        raise OpaqueError(f"what a backend made of a call: {type(dispatch).__qualname__}")
    text = texts.setdefault(dispatch.source, len(texts))
    values, access = _ids(dispatch.values), list(dispatch.access)
    return [dispatch.label, text, values, access, list(dispatch.grid), dispatch.work]


def _dispatch(call: Call, values: list[Value], texts: list[str], record: Any) -> Any:
    from rlx.backends.webgpu.lower import Dispatch

    if record is None:
        return None
    label, text, ids, access, (x, y), work = record
    bound = tuple(values[at] for at in ids)
    return Dispatch(call, label, texts[text], bound, tuple(access), (x, y), work)

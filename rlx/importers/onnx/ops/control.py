"""If, Loop and Scan: resolved at load where conditions and counts are known, rlx's own otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import BOOL, INT64, Element
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops import dynamic_control
from rlx.importers.onnx.ops.subgraphs import (
    attempt,
    captured,
    known_bool,
    made_up_kinds,
    separate,
    stacked,
    tensors,
    written_out,
)
from rlx.importers.onnx.schema import GraphDef, ValueInfo
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import Held, OnnxValue, RefusedError
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import Shape, as_axis

# Loops of fewer nodes than this, trips times body, are written out.
WRITTEN_OUT = 512
# Loops that can only be written out have at most so many trips.
MAX_TRIPS = 1 << 13
# Loops whose trips are numbered by a constant; those of more trips count as they run.
MAX_COUNTED = 1 << 20


def _listed(result: Any) -> list[Node]:
    return list(result) if isinstance(result, tuple) else [result]


@onnx_op("If", raw=True)
def if_(call: OnnxCall) -> Any:
    """The branch that a known condition takes; otherwise both, as subgraphs."""
    then, other = call.subgraph("then_branch"), call.subgraph("else_branch")
    taken = known_bool(call, call.held(0))
    if taken is None:
        with suppress(RefusedError), attempt(call):
            return _both(call, then, other)
        if call.site.reads:
            try:
                with attempt(call):
                    return dynamic_control.branch(call, then, other)
            except RefusedError as error:
                return _possible(call, (then, other), error)
        taken = bool(call.number(0))
    return written_out(call, then if taken else other, [])


def _possible(call: OnnxCall, sides: tuple[GraphDef, GraphDef], error: RefusedError) -> list[Held]:
    """The only one of two branches that these shapes allow; a run checks that the model takes it.

    Raises:
        RefusedError: They allow neither, or both: ``error``.
    """
    allowed = []
    for number, side in enumerate(sides):
        with suppress(RefusedError), attempt(call):
            separate(call, side, [], captured(call, (side,)))
            allowed.append(number)
    if len(allowed) != 1:
        raise error
    (number,) = allowed
    condition = call.g.cast(call.g.reshape(call.x(0), ()), "i64")
    branch = ("then_branch", "else_branch")[number]
    call.g.read_size(
        condition,
        1 - number,
        min=1 - number,
        name=f"{call.g.size_names}_takes_{branch}_{len(call.g.nodes)}",
    )
    return written_out(call, sides[number], [])


def _both(call: OnnxCall, then: GraphDef, other: GraphDef) -> list[OnnxValue]:
    around = captured(call, (then, other))
    sides, elements = [], []
    for graph in (then, other):
        inner, _, site, result = separate(call, graph, [], around)
        inner.set_outputs([site.node(value) for value in result])
        sides.append(inner)
        elements.append([value.element for value in result])
    if elements[0] != elements[1]:
        raise RefusedError("branches that give different types")
    condition = call.g.reshape(call.x(0), ())
    args = [call.site.node(value) for value in around.values()]
    results = _listed(call.g.if_(condition, sides[0], sides[1], *args))
    return [OnnxValue(e, node=n) for e, n in zip(elements[0], results, strict=True)]


@onnx_op("Loop", raw=True)
def loop(call: OnnxCall) -> Any:
    """Written out, a scan, or a while, in this order of preference for few, many and unknown trips."""
    body = call.subgraph("body")
    start = [call.held(i) for i in range(2, len(call.operands))]
    scans = len(body.outputs) - 1 - len(start)
    if scans < 0 or len(body.inputs) != len(start) + 2:
        raise ImportModelError("the body does not fit the loop's operands")
    limit = call.value(0).node if call.has(0) else None
    unknown = limit is not None and not limit.fixed
    goes_on = known_bool(call, call.held(1)) if call.has(1) else True
    if (unknown or goes_on is None) and not scans:
        with suppress(RefusedError), attempt(call):
            return _while(call, body, start)
    if (unknown or goes_on is None) and call.site.reads:
        return _dynamic(call, body, start)
    trips = int(call.number(0)) if call.has(0) else None
    if goes_on is None:
        goes_on = bool(call.number(1))
    if trips is not None and goes_on and trips * len(body.nodes) > WRITTEN_OUT:
        with suppress(RefusedError), attempt(call):
            return _counted(call, body, start, trips)
        if not scans:
            with suppress(RefusedError), attempt(call):
                return _while(call, body, start)
    if trips == 0 or not goes_on:
        return _unrolled(call, body, start, trips, goes_on)
    with suppress(RefusedError), attempt(call):
        return _unrolled(call, body, start, trips, goes_on)
    if not scans:
        with suppress(RefusedError), attempt(call):
            return _while(call, body, start)
    return _dynamic(call, body, start)


def _dynamic(call: OnnxCall, body: GraphDef, start: Sequence[Held]) -> list[OnnxValue]:
    """A loop of the host."""
    g = call.g
    limit = (
        g.reshape(call.x(0), ()) if call.has(0) else g.constant(np.int64(np.iinfo(np.int64).max))
    )
    going = g.reshape(call.x(1), ()) if call.has(1) else g.constant(np.array(True))
    return dynamic_control.loop(call, body, _values(start), limit, going)


def _unrolled(
    call: OnnxCall, body: GraphDef, start: Sequence[Held], trips: int | None, goes_on: bool
) -> list[Held]:
    state = list(start)
    rows: list[list[Held]] = [[] for _ in range(len(body.outputs) - 1 - len(state))]
    trip = 0
    while goes_on and (trips is None or trip < trips):
        if trip >= MAX_TRIPS:
            raise RefusedError(f"a loop of more than {MAX_TRIPS} trips")
        number = OnnxValue(INT64, np.array(trip, np.int64))
        result = written_out(call, body, [number, OnnxValue(BOOL, np.array(True)), *state])
        state = result[1 : len(state) + 1]
        for row, value in zip(rows, result[len(state) + 1 :], strict=True):
            row.append(value)
        answer = known_bool(call, result[0])
        if answer is None:
            raise RefusedError("an unknown number of trips")
        goes_on = answer
        trip += 1
    if not trip:
        args = [OnnxValue(INT64, np.array(0, np.int64)), OnnxValue(BOOL, np.array(True)), *start]
        return [*state, *map(_none_of, _kinds_of_a_trip(call, body, args, 1 + len(start)))]
    return [*state, *(stacked(call, row) for row in rows)]


def _kinds_of_a_trip(
    call: OnnxCall, body: GraphDef, args: Sequence[Held], carried: int
) -> list[tuple[Element, Shape]]:
    """Types and shapes of what each trip gives besides the state, for a loop that makes none.

    Raises:
        RefusedError: Neither the body nor what it declares tells them.
    """
    declared = body.outputs[carried:]
    if not declared:
        return []
    try:
        with attempt(call):
            return made_up_kinds(call, body, args)[carried:]
    except RefusedError as error:
        return [_declared(info, str(error)) for info in declared]


def _none_of(kind: tuple[Element, Shape], axis: int = 0) -> OnnxValue:
    """The results of no trips, which are joined along a new axis."""
    element, shape = kind
    axis = as_axis(axis, len(shape) + 1, where="axis")
    return OnnxValue(element, np.zeros((*shape[:axis], 0, *shape[axis:]), element.numpy))


def _declared(info: ValueInfo, otherwise: str) -> tuple[Element, Shape]:
    """Element type and shape that a file declares; sizes that it leaves open are 0."""
    kind = info.type.tensor if info.type is not None else None
    if kind is None or kind.shape is None:
        raise RefusedError(f"results of no trips, whose shape is not declared: {otherwise}")
    return element_of(kind.element, info.name), tuple(
        max(dim.value or 0, 0) for dim in kind.shape.dims
    )


def _values(stored: Sequence[Held]) -> list[OnnxValue]:
    return tensors(stored, "a loop that carries sequences or optionals")


def _same_types(nodes: Sequence[Node], values: Sequence[Node]) -> None:
    for old, new in zip(nodes, values, strict=True):
        if old.type != new.type:
            raise RefusedError(f"state that changes from {old.type} to {new.type}")


def _counted(call: OnnxCall, body: GraphDef, start: Sequence[Held], trips: int) -> list[OnnxValue]:
    """A loop whose condition stays true, as a scan over the number of the trip."""
    if trips > MAX_COUNTED:
        raise RefusedError(f"a loop of more than {MAX_COUNTED} trips")
    state = _values(start)
    around = captured(call, (body,))
    number = OnnxValue(INT64, np.array(0, np.int64))
    always = OnnxValue(BOOL, np.array(True))
    inner, nodes, site, result = separate(call, body, [number, always, *state], around)
    # A condition that is handed on is the one that the loop began with, which is true.
    if result[0].node is not nodes[1] and known_bool(call, result[0]) is not True:
        raise RefusedError("a condition that is computed as it runs")
    count = len(state)
    results = [site.node(value) for value in result[1:]]
    _same_types(nodes[2 : count + 2], results[:count])
    outer = _body_of_scan(inner, nodes[1:], {"trip": nodes[0]}, [nodes[1], *results], count + 1)
    args = [call.site.node(value) for value in (always, *state, *around.values())]
    counter = call.g.constant(np.arange(trips, dtype=np.int64))
    final = _listed(call.g.scan(outer, len(args), *args, counter))
    picked = [*final[1 : count + 1], *final[len(args) :]]
    elements = [value.element for value in result[1:]]
    return [OnnxValue(e, node=n) for e, n in zip(elements, picked, strict=True)]


def _body_of_scan(
    inner: Graph,
    state: Sequence[Node],
    entries: dict[str, Node],
    results: Sequence[Node],
    count: int,
) -> Graph:
    """A body that takes its state first and the entries of sequences, by name, last.

    ``results`` are the next ``count`` of the state, whose rest stays, then what each step gives.
    """
    outer = Graph(inner.name)
    taken = [outer.input(f"s{i}", n.shape, n.dtype) for i, n in enumerate(state)]
    steps = [outer.input(name, n.shape, n.dtype) for name, n in entries.items()]
    replay = {n.id: new for n, new in zip((*state, *entries.values()), taken + steps, strict=True)}
    for node in inner.nodes:
        if node.id not in replay:
            operands = [replay[operand.id] for operand in node.inputs]
            replay[node.id] = outer.add_node(node.opdef, operands, node.attrs)
    following = [replay[node.id] for node in results]
    outer.set_outputs([*following[:count], *taken[count:], *following[count:]])
    return outer


def _while(call: OnnxCall, body: GraphDef, start: Sequence[Held]) -> list[OnnxValue]:
    """A loop whose end is found as it runs; it has no results of single trips."""
    state = _values(start)
    if len(body.outputs) != 1 + len(state):
        raise RefusedError("results of each of an unknown number of trips")
    around = captured(call, (body,))
    trip = OnnxValue(INT64, np.array(0, np.int64))
    first = call.value(1) if call.has(1) else OnnxValue(BOOL, np.array(True))
    if first.shape != ():
        first = OnnxValue.of(call.g.reshape(call.site.node(first), ()))
    limit = call.value(0) if call.has(0) else OnnxValue(INT64, np.array(np.iinfo(np.int64).max))
    if limit.shape != ():
        limit = OnnxValue.of(call.g.reshape(call.site.node(limit), ()))
    inner, nodes, site, result = separate(call, body, [trip, first, *state], around)
    maximum = inner.input("trips", (), "i64")
    retained = [site.node(value) for value in result]
    retained[0] = inner.reshape(retained[0], ())
    _same_types(nodes[1 : len(retained) + 1], retained)
    following = inner.add(nodes[0], inner.constant(np.int64(1)))
    inner.set_outputs([following, *retained, *nodes[len(retained) + 1 :], maximum])
    asked = Graph("condition")
    again = [asked.input(f"x{i}", n.shape, n.dtype) for i, n in enumerate(nodes)]
    bound = asked.input("trips", (), "i64")
    asked.set_outputs([asked.logical_and(again[1], asked.lt(again[0], bound))])
    args = [call.site.node(value) for value in (trip, first, *state, *around.values(), limit)]
    results = _listed(call.g.while_(asked, inner, *args))
    return [
        OnnxValue(value.element, node=node)
        for value, node in zip(state, results[2 : len(state) + 2], strict=True)
    ]


@onnx_op("Scan", since=9, raw=True)
def scan(call: OnnxCall) -> Any:
    """A body along sequences, with state from step to step."""
    body = call.subgraph("body")
    carried = len(call.operands) - call.integer("num_scan_inputs")
    if not 0 <= carried <= len(body.outputs) or len(body.inputs) != len(call.operands):
        raise ImportModelError("the body does not fit the scan's operands")
    return _scan(call, body, [call.value(i) for i in range(len(call.operands))], carried)


@onnx_op("Scan", since=8, raw=True)
def scan_batched(call: OnnxCall) -> Any:
    """Version 8: every operand has a batch in front, and each of it is scanned by itself."""
    body = call.subgraph("body")
    if call.has(0):
        raise RefusedError("lengths of sequences (Scan before version 9)")
    count = call.integer("num_scan_inputs")
    values = [call.value(i) for i in range(1, len(call.operands))]
    batches = []
    if values[0].shape[0] > MAX_TRIPS:
        raise RefusedError(f"a batch of {values[0].shape[0]}")
    if not values[0].shape[0]:
        single = [OnnxValue(v.element, np.zeros(v.shape[1:], v.element.numpy)) for v in values]
        result = _scan(call, body, single, len(values) - count)
        return [_none_of((value.element, value.shape)) for value in result]
    for index in range(values[0].shape[0]):
        single = [
            OnnxValue.of(call.g.reshape(call.g.narrow(n, 0, index, 1), n.shape[1:]))
            for n in map(call.site.node, values)
        ]
        batches.append(_scan(call, body, single, len(values) - count))
    return [stacked(call, column) for column in zip(*batches, strict=True)]


def _directions(call: OnnxCall, name: str, count: int) -> tuple[int, ...]:
    results: tuple[int, ...] = call.int_list(name, (0,) * count) or (0,) * count
    if len(results) != count:
        raise ImportModelError(f"{name} has {len(results)} entries for {count}")
    return results


def _entry(call: OnnxCall, sequence: OnnxValue) -> OnnxValue:
    """The first entry of a sequence; one of zeros where there is none."""
    node, shape = sequence.node, sequence.shape[1:]
    if node is None or not sequence.shape[0]:
        return OnnxValue(sequence.element, np.zeros(shape, sequence.element.numpy))
    return OnnxValue(sequence.element, node=call.g.reshape(call.g.narrow(node, 0, 0, 1), shape))


def _scan(call: OnnxCall, body: GraphDef, values: list[OnnxValue], carried: int) -> list[OnnxValue]:
    g = call.g
    state, count = values[:carried], len(values) - carried
    rows = len(body.outputs) - carried
    sequences = []
    for value, axis, reversed_ in zip(
        values[carried:], _directions(call, "scan_input_axes", count),
        _directions(call, "scan_input_directions", count), strict=True,
    ):  # fmt: skip
        node = call.site.node(value)
        axis %= max(len(node.shape), 1)
        if axis:
            rest = [a for a in range(len(node.shape)) if a != axis]
            node = g.transpose(node, (axis, *rest))
        node = g.flip(node, (0,)) if reversed_ else node
        sequences.append(OnnxValue(value.element, node=node))
    axes = _directions(call, "scan_output_axes", rows)
    if sequences and not any(value.shape[0] for value in sequences):
        entries = [_entry(call, value) for value in sequences]
        kinds = _kinds_of_a_trip(call, body, [*state, *entries], carried)
        return [*state, *map(_none_of, kinds, axes)]
    around = captured(call, (body,))
    entries = [_entry(call, value) for value in sequences]
    inner, nodes, site, result = separate(call, body, [*state, *entries], around)
    given = [site.node(value) for value in result]
    _same_types(nodes[:carried], given[:carried])
    stored = nodes[:carried] + nodes[carried + count :]
    entered = {f"x{i}": n for i, n in enumerate(nodes[carried : carried + count])}
    outer = _body_of_scan(inner, stored, entered, given, carried)
    args = [call.site.node(value) for value in (*state, *around.values())]
    results = _listed(
        g.scan(outer, len(args), *args, *(call.site.node(value) for value in sequences))
    )
    final = [OnnxValue(v.element, node=n) for v, n in zip(result, results[:carried], strict=False)]
    for value, node, axis, reversed_ in zip(
        result[carried:], results[len(args) :], axes,
        _directions(call, "scan_output_directions", rows), strict=True,
    ):  # fmt: skip
        node = g.flip(node, (0,)) if reversed_ else node
        axis %= len(node.shape)
        if axis:
            order = list(range(1, len(node.shape)))
            order.insert(axis, 0)
            node = g.transpose(node, order)
        final.append(OnnxValue(value.element, node=node))
    return final

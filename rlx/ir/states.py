"""States: the inputs that a graph updates in place. A handle that is bound to one keeps the rows that runs write."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rlx.ir.graph import Graph, Node
from rlx.ir.rewrite import copied, is_beginning, reached, users
from rlx.ir.shape import UPDATE, is_sized


class State(NamedTuple):
    """An input that is updated in place.

    Attributes:
        position: Its place among the inputs.
        input: The input.
        last: The last update of it, whose value the next run begins with.
    """

    position: int
    input: Node
    last: Node


def states_of(graph: Graph) -> tuple[State, ...]:
    """Returns the states of a graph, in the order of its inputs."""
    if not graph.uses(UPDATE):
        return ()
    readers = users(graph)
    results = []
    for position, name in enumerate(graph.input_names):
        node = graph.named(name)
        chain = _chain(node, readers)
        if chain[1:] and _obstacle(graph, node, chain, readers) is None:
            results.append(State(position, node, chain[-1]))
    return tuple(results)


def with_states(graph: Graph) -> Graph:
    """Returns a graph whose last outputs are the values that its states end with; the same graph where it has none."""
    states = states_of(graph)
    if not states:
        return graph
    result = copied(graph)
    wanted = [*graph.outputs, *(state.last for state in states)]
    result.set_outputs([result.nodes[node.id] for node in wanted])
    return result


def why_no_state(graph: Graph, name: str) -> str | None:
    """Returns why an input that is updated can't be updated in place; None where it can, or where nothing updates it."""
    if not graph.uses(UPDATE):
        return None
    node, readers = graph.named(name), users(graph)
    chain = _chain(node, readers)
    return _obstacle(graph, node, chain, readers) if chain[1:] else None


def _chain(node: Node, readers: dict[int, list[Node]]) -> list[Node]:
    """An input and its updates, one of the other's value."""
    results = [node]
    while True:
        last = results[-1]
        updates = [
            each for each in readers[last.id] if each.op == UPDATE and each.inputs[0] is last
        ]
        if not updates:
            return results
        results.append(updates[0])


def _obstacle(
    graph: Graph, node: Node, chain: list[Node], readers: dict[int, list[Node]]
) -> str | None:
    """The reason why an input, or a value of it before its last update, has to stay as it is.

    The updates come one after the other: what reads the value between two of them has to be there for the second one.
    """
    if is_sized(node.type):
        return f"its shape {node.shape} is not fixed"
    for value, update in pairwise(chain):
        if any(value is output for output in graph.outputs):
            return f"{value.where()} is an output before an update"
        first = reached(update.inputs) if value is not node else ()
        for reader in _readers_of_memory(value, update, readers):
            if reader.id not in first:
                return f"{reader.where()} reads it beside an update"
    return None


def _readers_of_memory(value: Node, update: Node, readers: dict[int, list[Node]]) -> Iterator[Node]:
    """Nodes that read a value, or a view of it, besides the next update."""
    places = [i for i, reader in enumerate(readers[value.id]) if reader is update]
    others = [reader for i, reader in enumerate(readers[value.id]) if i != places[0]]
    for reader in others:
        yield reader
        if reader.opdef.view or is_beginning(reader):
            others += readers[reader.id]

"""States: the inputs that a graph updates in place. A handle that is bound to one keeps the rows that runs write."""

from __future__ import annotations

from typing import NamedTuple

from rlx.ir.graph import Graph, Node
from rlx.ir.rewrite import copied, users
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
        *before, last = _chain(node, readers)
        if before and _obstacle(graph, node, before, readers) is None:
            results.append(State(position, node, last))
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
    *before, _ = _chain(node, readers)
    return _obstacle(graph, node, before, readers) if before else None


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
    graph: Graph, node: Node, before: list[Node], readers: dict[int, list[Node]]
) -> str | None:
    """The reason why an input, or a value of it before its last update, has to stay as it is."""
    if is_sized(node.type):
        return f"its shape {node.shape} is not fixed"
    for value in before:
        if any(value is output for output in graph.outputs):
            return f"{value.where()} is an output before an update"
        others = [each for each in readers[value.id] if each.op != UPDATE]
        if others or len(readers[value.id]) > 1:
            return f"{(others or readers[value.id])[-1].where()} reads it beside an update"
    return None

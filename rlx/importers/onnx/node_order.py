"""The order of an ONNX graph's nodes: which are needed, and which have to stand before which."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from rlx.errors import ImportModelError
from rlx.importers.onnx.schema import GraphDef, NodeDef

# Nodes of a cycle that a message names.
_NAMED = 8


def live_nodes(nodes: Sequence[NodeDef], wanted: Iterable[str]) -> list[NodeDef]:
    """The nodes that the wanted values depend on, as they stand in the file."""
    makers: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            makers.setdefault(name, []).append(index)
    live: set[int] = set()
    names = list(wanted)
    while names:
        for index in makers.pop(names.pop(), ()):
            if index not in live:
                live.add(index)
                names += reads(nodes[index])
    return [nodes[i] for i in sorted(live)]


def in_order(
    nodes: Sequence[NodeDef], value: Container[str], called: Callable[[NodeDef], str]
) -> list[NodeDef]:
    """Sorts nodes so that each follows the nodes it reads; keeps the file's order where it is legal.

    ``value`` are the names that have a value before the first of them; ``called`` returns a node's name for messages.

    Raises:
        ImportModelError: Nodes read each other's results in a cycle.
    """
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name not in value}
    # For each node those that have to stand before it and were not looked at yet, the first one last.
    before = [[makers[name] for name in reads(node) if name in makers][::-1] for node in nodes]
    placed, result = [False] * len(nodes), []
    for first in range(len(nodes)):
        path = [] if placed[first] else [first]
        within = set(path)
        while path:
            last = path[-1]
            if not before[last]:
                path.pop()
                within.remove(last)
                placed[last] = True
                result.append(nodes[last])
                continue
            following = before[last].pop()
            if following in within:
                cycle = [called(nodes[i]) for i in path[path.index(following) :]]
                raise _cyclic(cycle)
            if not placed[following]:
                path.append(following)
                within.add(following)
    return result


def _cyclic(cycle: Sequence[str]) -> ImportModelError:
    more = f" and {len(cycle) - _NAMED} more" if len(cycle) > _NAMED else ""
    return ImportModelError(
        "nodes read each other's results in a cycle",
        got=", ".join(cycle[:_NAMED]) + more,
        expected="a graph without cycles",
    )


def reads(node: NodeDef) -> Iterator[str]:
    """The names that a node reads, its subgraphs included."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        yield from sorted(free_names(graph))


def free_names(graph: GraphDef) -> set[str]:
    """The names that a graph, or a graph within it, reads of the graphs around it."""
    names = {output.name for output in graph.outputs}
    own = {info.name for info in graph.inputs} | {tensor.name for tensor in graph.initializers}
    for node in graph.nodes:
        names.update(reads(node))
        own.update(node.output)
    return names - own - {""}


def subgraphs(node: NodeDef) -> Iterator[GraphDef]:
    """The graphs that are attributes of a node."""
    for attribute in node.attributes:
        yield from attribute.graphs
        if attribute.g is not None:
            yield attribute.g

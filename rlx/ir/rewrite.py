"""Copying a graph with changes: the one tool that passes are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rlx.ir.graph import Graph, Node
from rlx.ir.shape import same_size


class Rewriter:
    """Builds a new graph from an old one, node by node.

    Inputs and params are always kept, in order: they are the graph's interface.

    Args:
        old: The graph that is read; it is not changed.
    """

    def __init__(self, old: Graph) -> None:
        self.old = old
        self.new = Graph(old.name)
        self.new.param_values = dict(old.param_values)
        self.new.assumptions = old.assumptions
        self._map: dict[int, Node] = {}

    def __getitem__(self, node: Node) -> Node:
        """Returns the new node that replaces an old one."""
        return self._map[node.id]

    def replace(self, node: Node, new: Node) -> None:
        """Maps the old ``node`` to ``new``."""
        self._map[node.id] = new

    def keep(self, node: Node) -> Node:
        """Copies a node unchanged."""
        inputs = tuple([self._map[operand.id] for operand in node.inputs])
        new = self._map[node.id] = self.new.copy_node(node, inputs)
        return new

    def keep_all(self, nodes: Iterable[Node]) -> None:
        """Copies nodes in order."""
        for node in nodes:
            self.keep(node)

    def finish(self) -> Graph:
        """The new graph, with the outputs mapped."""
        self.new.outputs = tuple(self[node] for node in self.old.outputs)
        return self.new


def subgraphs(node: Node) -> list[Graph]:
    """The graphs inside of a node, one for each attribute that holds it."""
    return [value for value in node.attrs.values() if isinstance(value, Graph)]


def discard(graph: Graph) -> None:
    """Drops the nodes of a graph that nobody reads any more: nodes and graph refer to each other."""
    graph.nodes.clear()
    graph.outputs = ()
    graph._named.clear()


def copied(graph: Graph) -> Graph:
    """The same graph with nodes of its own."""
    rewriter = Rewriter(graph)
    rewriter.keep_all(graph.nodes)
    return rewriter.finish()


def joined(graphs: Sequence[Graph]) -> Graph:
    """One graph that computes what several without params do; its inputs and outputs are theirs, in their order."""
    if len(graphs) == 1:
        return graphs[0]
    whole = Graph(", ".join(graph.name for graph in graphs))
    outputs = []
    for graph in graphs:
        indices: dict[int, Node] = {}
        for node in graph.nodes:
            inputs = tuple([indices[operand.id] for operand in node.inputs])
            indices[node.id] = whole.copy_node(node, inputs)
        outputs += [indices[node.id] for node in graph.outputs]
    whole.set_outputs(outputs)
    return whole


def reached(
    roots: Iterable[Node], operands: Callable[[Node], Iterable[Node]] = lambda node: node.inputs
) -> dict[int, Node]:
    """The roots and all nodes that they depend on, by id; ``operands`` gives those of a node that count."""
    results: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.id not in results:
            results[node.id] = node
            stack += operands(node)
    return results


def users(graph: Graph) -> dict[int, list[Node]]:
    """For each node id the nodes that read it, once per use."""
    results: dict[int, list[Node]] = {node.id: [] for node in graph.nodes}
    for node in graph.nodes:
        for operand in node.inputs:
            results[operand.id].append(node)
    return results


def is_beginning(node: Node) -> bool:
    """Returns whether a node is the beginning of its operand's memory: its first entries along the outermost axis."""
    if node.op != "narrow" or not same_size(node.attrs["start"], 0):
        return False
    outer = node.inputs[0].shape[: node.attrs["axis"]]
    return all(same_size(n, 1) for n in outer)

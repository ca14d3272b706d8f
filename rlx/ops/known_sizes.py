"""Sizes that a graph reads from constants: they are known before it runs."""

from __future__ import annotations

from typing import Never

from rlx.ir.graph import Graph, Node
from rlx.ir.rewrite import reached
from rlx.ir.shape import READ_SIZE
from rlx.ir.static_sizes import with_sizes
from rlx.ops.declare import evaluate
from rlx.ops.interpret import results_of


def with_known_sizes(graph: Graph) -> Graph:
    """Returns a graph with numbers in the place of the dims whose values depend on constants alone.

    Raises:
        GraphError: An operation does not take such a number.
    """
    while True:
        read = next(filter(_is_known, graph.nodes), None)
        if read is None:
            return graph
        nodes = [node for _, node in sorted(reached(read.inputs).items())]
        value = results_of(nodes, _no_leaf, evaluate)[read.inputs[0].id][0]
        (name,) = read.attrs["size"].names()
        graph = with_sizes(graph, {name: int(value)})


def _is_known(node: Node) -> bool:
    """Returns whether a node reads a size that depends on constants alone."""
    if node.op != READ_SIZE or not node.inputs[0].fixed:
        return False
    return all(item.op != "param" for item in reached(node.inputs).values())


def _no_leaf(node: Node) -> Never:
    raise AssertionError(f"{node.where()} is no constant")

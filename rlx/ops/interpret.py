"""A graph by the references of its nodes: the meaning of every backend, and of subgraphs."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.ir.graph import PART, Graph
from rlx.ir.opdef import Array
from rlx.ops.declare import evaluate


def interpret(graph: Graph, leaves: Mapping[str, Array]) -> list[Array]:
    """Computes the outputs node by node.

    Args:
        graph: A verified graph.
        leaves: Value of every input and param by name, in its storage dtype.

    Returns:
        The outputs in order.
    """
    values: dict[int, tuple[Array, ...]] = {}
    for node in graph.nodes:
        operands = [values[operand.id] for operand in node.inputs]
        if node.op in ("input", "param"):
            values[node.id] = (leaves[node.name],)
        elif node.op == PART:
            values[node.id] = (operands[0][node.attrs["index"]],)
        else:
            values[node.id] = evaluate(node, [results[0] for results in operands])
    return [values[node.id][0] for node in graph.outputs]

"""Graphs as stable text: what ``str(graph)``, error messages and golden tests show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.errors import printable
from rlx.ir.dtype import DType
from rlx.ir.opdef import REGISTRY
from rlx.ir.view import GraphView, NodeView


def print_graph(graph: GraphView) -> str:
    """One line per node, then the outputs.

    Example:
        >>> import rlx
        >>> g = rlx.Graph("double")
        >>> g.set_outputs([g.input("x", (2,)) * 2.0])
        >>> print(g)
        graph double
          %0 = input x : f32[2]
          %1 = constant 2.0 : f32[]
          %2 = mul %0, %1 : f32[2]
          return %2
    """
    lines = [f"graph {printable(graph.name)}", *(f"  {print_node(node)}" for node in graph.nodes)]
    lines.append("  return " + ", ".join(f"%{node.id}" for node in graph.outputs))
    return "\n".join(lines)


def print_node(node: NodeView) -> str:
    """``%2 = softmax %1 axis=1 : f32[2, 3]``, followed by the name that an importer gave it, if one did."""
    parts = [f"%{node.id} = {node.op}"]
    if node.op in ("input", "param"):
        parts.append(printable(node.name))
    elif node.op == "constant":
        parts.append(print_value(node.attrs["value"]))
    else:
        if node.inputs:
            parts.append(", ".join(f"%{operand.id}" for operand in node.inputs))
        parts += [f"{key}={print_value(value)}" for key, value in sorted(node.attrs.items())]
    text = " ".join(parts) + " : " + ", ".join(map(str, node.types))
    # Nodes that nobody named have the name of an op and a number.
    op, _, number = node.name.rpartition("_")
    if node.op in ("input", "param") or (op in REGISTRY and number.isdecimal()):
        return text
    return f"{text}  # {printable(node.name)}"


def print_value(value: Any) -> str:
    """An attribute on one line; large arrays are shortened."""
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            return str(value.item())
        head = ", ".join(str(item) for item in value.ravel()[:4].tolist())
        return f"[{head}{', ...' if value.size > 4 else ''}]"
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, GraphView):
        return f"<graph {printable(value.name)}, {len(value.nodes)} nodes>"
    if isinstance(value, tuple):
        return "(" + ", ".join(print_value(item) for item in value) + ")"
    return printable(value)


def print_around(graph: GraphView, position: int, reach: int = 4) -> str:
    """The node at position ``position`` with its neighbours, the offender marked: for error messages."""
    low, high = max(0, position - reach), min(len(graph.nodes), position + reach + 1)
    lines: Iterable[str] = (
        f"  {'>' if i == position else ' '} {print_node(graph.nodes[i])}" for i in range(low, high)
    )
    return "\n".join(lines)

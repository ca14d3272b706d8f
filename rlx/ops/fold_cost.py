"""Estimates the work of computing a node by its reference: asked before constants are folded."""

from __future__ import annotations

import math

from rlx.ir.graph import Node
from rlx.ir.rewrite import subgraphs
from rlx.ir.shape import estimated

# Floating-point operations that NumPy does in the time of one element of an elementwise function.
_FLOPS = 16.0
# A node's own cost in Python, in elements.
_CALL = 1000.0


def effort(node: Node) -> float:
    """Numbers that a reference computes, or as much other work; infinite where a loop has no bound."""
    inside = set(subgraphs(node))
    if not inside:
        size = sum(math.prod(type.shape) for type in node.types)
        return float(max(estimated(size), estimated(node.opdef.flops(node)) / _FLOPS))
    each = sum(_CALL + effort(node) for graph in inside for node in graph.nodes)
    trips: float = 1.0
    if node.op == "while_":
        limit = node.attrs["max_trips"]
        trips = math.inf if limit is None else limit
    elif node.op == "scan":
        trips = estimated(node.inputs[-1].shape[0])
    # A loop that is never entered costs nothing, whatever it holds.
    return trips * each if trips else 0.0

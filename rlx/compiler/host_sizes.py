"""Finds the nodes that the host computes ahead of a device, so that runs wait less for sizes.

The host waits longer for a size from a GPU than most computations of sizes take. The arrays of a run come from the host. It
computes the values that sizes need of them, where that costs little more than reading the arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlx.ir.graph import PART, Graph, Node
from rlx.ir.input_sizes import made_dims, names_of
from rlx.ir.shape import HOST_CONTROL, READ_SIZE, UPDATE, estimated
from rlx.ir.states import states_of
from rlx.sizes import Assumptions, deciding

# Operations and results for each entry of the inputs; and those that take the host no longer than a wait.
_PER_ENTRY, _FEW = 16, 1 << 17


def on_host(graph: Graph) -> frozenset[int]:
    """Returns the ids of the nodes that the host computes: those that sizes need, where they are cheap.

    Args:
        graph: A graph that reads sizes.
    """
    assert graph.assumptions is not None
    with deciding(Assumptions(graph.assumptions.hints)):
        return _Search(graph).result


class _Search:
    """Goes through a graph for sizes that the host can know before the device begins."""

    def __init__(self, graph: Graph) -> None:
        self._states = {state.input.id for state in states_of(graph)}
        # Dims that the host does not know, and nodes that it can't compute before the device.
        unknown = set(made_dims(graph))
        self._later: set[int] = set()
        self.result: frozenset[int] = frozenset()
        for node in graph.nodes:
            if node.op == READ_SIZE:
                needed = self._needed(node.inputs[0])
                if needed is None:
                    self._later.add(node.id)
                    continue
                self.result |= needed
                unknown -= node.attrs["size"].names()
            elif not self._may_be_ahead(node) or not unknown.isdisjoint(names_of(node)):
                self._later.add(node.id)

    def _may_be_ahead(self, node: Node) -> bool:
        """Returns whether the host could compute a node, if it knows all dims."""
        if node.op in (*HOST_CONTROL, UPDATE, "param", "custom") or node.id in self._states:
            return False
        return all(operand.id not in self._later for operand in node.inputs)

    def _needed(self, node: Node) -> frozenset[int] | None:
        """The nodes that a node's value takes; None where the host does not compute them."""
        if node.id in self._later:
            return None
        found: dict[int, Node] = {}
        pending = [node]
        while pending:
            each = pending.pop()
            if each.id not in found:
                found[each.id] = each
                pending += each.inputs
        return frozenset(found) if self._is_cheap(found) else None

    def _is_cheap(self, nodes: Mapping[int, Node]) -> bool:
        read, made = 0.0, 0.0
        for node in nodes.values():
            entries = sum(_entries(type.shape) for type in node.types)
            if node.op == "input":
                read += entries
            elif node.op != PART:
                made += entries + float(estimated(node.opdef.flops(node)))
        return made <= _PER_ENTRY * read + _FEW


def _entries(shape: tuple[object, ...]) -> float:
    return math.prod((float(estimated(size)) for size in shape), start=1.0)

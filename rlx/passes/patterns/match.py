"""The types of a pattern: a small graph looked for around a node, and its replacement."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from rlx.dataclasses import dataclass
from rlx.ir.dtype import HALVES
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.kernel_sets import KERNEL_SETS, KernelSet
from rlx.ir.rewrite import users
from rlx.passes.legalize import blocked

Build = Callable[[Graph, Mapping[int, Node]], "Node | Sequence[Node]"]


@dataclass(frozen=True)
class Match:
    """A match of a pattern.

    Attributes:
        inside: The nodes that it replaces, in the order of the graph. A node with another reader, or that is an output,
            is computed as well.
        build: Adds the replacement; operands from outside by the id that they had. Returns the replaced results,
            or one node whose parts they are.
        results: Nodes of ``inside`` that ``build`` gives, in its order; by default the last one. None
            of the operands depends on them.
    """

    inside: tuple[Node, ...]
    build: Build
    results: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        if not self.results:
            object.__setattr__(self, "results", self.inside[-1:])

    @cached_property
    def operands(self) -> tuple[Node, ...]:
        """The operands that the nodes inside read from outside, each once."""
        members = {node.id for node in self.inside}
        read = (operand for node in self.inside for operand in node.inputs)
        return tuple({item.id: item for item in read if item.id not in members}.values())

    def build_nodes(self, graph: Graph, indices: Mapping[int, Node]) -> tuple[Node, ...]:
        """Adds the replacement of ``results`` to a graph, and returns it."""
        result = self.build(graph, indices)
        if not isinstance(result, Node):
            return tuple(result)
        if len(self.results) == 1:
            return (result,)
        parts = range(len(self.results))
        return tuple(graph.add_node(PART, [result], {"index": i}) for i in parts)


def joined_node(
    op: str, operands: Sequence[Node], attrs: Mapping[str, Any] | None = None, name: str = ""
) -> Build:
    """Replaces a match by a single node on operands from outside."""
    return lambda g, index: g.add_node(op, [index[item.id] for item in operands], attrs, name)


class MatchSite:
    """A graph that is searched for patterns: the readers of its nodes, and the kernel set.

    Args:
        graph: The graph.
        kernel_set: The kernels that it is compiled for.
    """

    def __init__(self, graph: Graph, kernel_set: str) -> None:
        self.kernels: KernelSet = KERNEL_SETS[kernel_set]
        self._readers = users(graph)
        self._outputs = {node.id for node in graph.outputs}
        self._blocked: dict[int, bool] = {}
        self._of_op: dict[str, list[Node]] = {}
        for node in graph.nodes:
            self._of_op.setdefault(node.op, []).append(node)

    def nodes(self, ops: Collection[str], beside: str = "") -> list[Node]:
        """The nodes of some operations, from the last to the first; none where the graph lacks another operation."""
        if beside and beside not in self._of_op:
            return []
        results = [node for op in ops for node in self._of_op.get(op, ())]
        return sorted(results, key=lambda node: -node.id)

    def fuses(self, name: str) -> bool:
        """Returns whether a fusion that only some kernels gain by pays here; see ``KernelSet.fuses``."""
        return name in self.kernels.fuses

    def readers(self, node: Node) -> list[Node]:
        """The nodes that read a node, once per use."""
        return self._readers[node.id]

    def only(self, node: Node) -> Node | None:
        """Returns the only reader of a node that is no output; None otherwise."""
        result = self._readers[node.id]
        return result[0] if len(result) == 1 and not self.is_output(node) else None

    def is_output(self, node: Node) -> bool:
        """Returns whether a node is an output of the graph."""
        return node.id in self._outputs

    def private(self, inside: Sequence[Node], last: Node) -> bool:
        """Returns whether only a match reads its nodes before the last: products are not computed twice."""
        members = {node.id for node in inside} | {last.id}
        return not any(
            self.is_output(node) or any(reader.id not in members for reader in self.readers(node))
            for node in inside
        )

    def blocked(self, node: Node) -> bool:
        """Returns whether a node has no kernel here and will run on the host, or in another dtype."""
        result = self._blocked.get(node.id)
        if result is None:
            result = self._blocked[node.id] = blocked(node, self.kernels.name) is not None
        return result


Finder = Callable[[Node, MatchSite], Match | None]


@dataclass(frozen=True)
class Pattern:
    """One row of the table.

    Attributes:
        name: Its name in notes.
        finder: A module of this package and its function ``match``.
        ends: The operations that it may end in: only nodes of these are given to ``match``.
        needs: An operation that every match has inside; empty for none in particular.
    """

    name: str
    finder: str
    ends: frozenset[str]
    needs: str = ""

    @cached_property
    def match(self) -> Finder:
        """The function that returns where the pattern fits that ends in a node; None where it does not."""
        module, _, name = self.finder.partition(".")
        result: Finder = getattr(import_module(f"rlx.passes.patterns.{module}"), name)
        return result


# --- what patterns ask of nodes --------------------------------------------------------------------------


def either_way(node: Node) -> tuple[tuple[Node, Node], ...]:
    """The two operands of a node whose order does not matter, in both orders."""
    first, second = node.inputs
    return ((first, second), (second, first))


def scalar(node: Node) -> float | None:
    """The value of a constant that is one number."""
    if node.op != "constant" or node.type.size != 1:
        return None
    return float(node.attrs["value"].reshape(()))


def scaled(node: Node) -> tuple[Node, float, tuple[Node, ...]]:
    """Splits a node times a number: the factor node, the number, and the nodes of the product."""
    if node.op in ("mul", "div"):
        for value, other in either_way(node)[: 2 if node.op == "mul" else 1]:
            number = scalar(other)
            if number and math.isfinite(number) and value.shape == node.shape:
                return value, number if node.op == "mul" else 1 / number, (node,)
    return node, 1.0, ()


def is_widened(w: Node) -> bool:
    """Returns whether a weight is one in 16 bits, widened, as it is or transposed."""
    cast = w.inputs[0] if w.op == "transpose" else w
    return cast.op == "cast" and cast.inputs[0].dtype in HALVES and cast.inputs[0].op == "param"

"""Lifting: moves nodes that depend on params alone out of branches, so that they can be hoisted out of runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from rlx.dataclasses import dataclass
from rlx.ir.graph import Graph, Node
from rlx.ir.notes import Note
from rlx.ir.rewrite import Rewriter, reached, users
from rlx.ops.placeholders import LEAVES

# Operations whose subgraphs all take the operands after the first, and the attributes that hold them.
BRANCHES: dict[str, tuple[str, ...]] = {"if_": ("then_graph", "else_graph")}


def lift(graph: Graph, notes: list[Note]) -> Graph:
    """Moves nodes of params and constants alone from branches to the graph in front of them, with a note for each."""
    if not any(node.op in BRANCHES for node in graph.nodes):
        return graph
    return _lifted(graph, frozenset(), notes, {})


# Graphs that are lifted, by graph and fixed inputs: one that stands in many branches is lifted once.
_Known = dict[tuple[Graph, frozenset[str]], Graph]


def _lifted(graph: Graph, args: frozenset[str], notes: list[Note], known: _Known) -> Graph:
    """Moves param-only nodes out of the graph's branches; inputs of these names count as params."""
    if (graph, args) not in known:
        known[graph, args] = _relieved(graph, args, notes, known)
    return known[graph, args]


def _relieved(graph: Graph, args: frozenset[str], notes: list[Note], known: _Known) -> Graph:
    rewriter = Rewriter(graph)
    fixed: set[int] = set()
    for node in graph.nodes:
        leaf = node.op in ("param", "constant") or (node.op == "input" and node.name in args)
        if leaf or (node.inputs and all(operand.id in fixed for operand in node.inputs)):
            fixed.add(node.id)
        if node.op not in BRANCHES:
            rewriter.keep(node)
            continue
        fast = [operand.id in fixed for operand in node.inputs[1:]]
        operands = [rewriter[operand] for operand in node.inputs]
        sides: dict[Graph, tuple[str, _Branch]] = {}
        for name in BRANCHES[node.op]:
            side: Graph = node.attrs[name]
            if side not in sides:
                names = frozenset(n for n, item in zip(side.input_names, fast, strict=True) if item)
                sides[side] = name, _Branch.of(_lifted(side, names, notes, known), names)
        for name, side_found in sides.values():
            result = side_found.moved(rewriter.new, operands[1 : 1 + len(fast)])
            for inner, outer in result:
                said = f" of {name} needs no run, moved in front of it"
                notes.append(Note.of("lift", inner, said))
                for _, other in sides.values():
                    other.more.append((inner if other is side_found else None, outer))
                operands.append(outer)
        relieved = {side: value.graph() for side, (_, value) in sides.items()}
        attrs = {**node.attrs, **{n: relieved[node.attrs[n]] for n in BRANCHES[node.op]}}
        new = rewriter.new.add_node(node.opdef, operands, attrs, node.name, node.source)
        rewriter.replace(node, new)
    return rewriter.finish()


def _harmless(node: Node) -> bool:
    """Returns whether a node may be computed though its branch is never taken.

    An index out of range is an error, a loop may go on for ever, a custom op may be watched by its owner:
    all these take operands of another kind than their main operand. Several results are no param.
    """
    return len(node.types) == 1 and not node.opdef.free


@dataclass
class _Branch:
    """A branch, its nodes that depend on fixed inputs alone and are read by others, and the inputs that are added.

    Of an added input: the node that it stands for, or None if it is the other side's, and the node outside.
    """

    old: Graph
    frontier: list[Node]
    more: list[tuple[Node | None, Node]] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, names: frozenset[str]) -> _Branch:
        """A branch some of whose inputs are fixed."""
        fixed: set[int] = set()
        varies: set[int] = set()
        for node in graph.nodes:
            if node.op in LEAVES:
                if node.op == "constant" or node.name in names:
                    fixed.add(node.id)
                continue
            if node.inputs and _harmless(node) and all(o.id in fixed for o in node.inputs):
                fixed.add(node.id)
                if any(o.id in varies or o.op == "input" for o in node.inputs):
                    varies.add(node.id)
        readers = users(graph)
        outputs = {node.id for node in graph.outputs}
        # Nodes of constants alone are folded inside the branch.
        frontier = [
            node
            for node in graph.nodes
            if node.id in varies
            and (node.id in outputs or any(reader.id not in fixed for reader in readers[node.id]))
        ]
        return cls(graph, frontier)

    def moved(self, outside: Graph, operands: Iterable[Node]) -> list[tuple[Node, Node]]:
        """Copies of the frontier and what it needs, in the graph outside."""
        copies = {
            self.old.named(name).id: operand
            for name, operand in zip(self.old.input_names, operands, strict=True)
        }
        needed = reached(self.frontier)
        for node in self.old.nodes:
            if node.id in needed and node.id not in copies:
                inputs = [copies[operand.id] for operand in node.inputs]
                copies[node.id] = outside.add_node(
                    node.opdef, inputs, node.attrs, source=node.source
                )
        return [(node, copies[node.id]) for node in self.frontier]

    def graph(self) -> Graph:
        """Returns the branch, with the moved nodes as inputs."""
        if not self.more:
            return self.old
        rewriter = Rewriter(self.old)
        inputs = [node for node in self.old.nodes if node.op == "input"]
        rewriter.keep_all(inputs)
        for i, (inner, outer) in enumerate(self.more):
            new = rewriter.new.input(f"lifted:{i}", outer.shape, outer.dtype)
            if inner is not None:
                rewriter.replace(inner, new)
        gone = {inner.id for inner, _ in self.more if inner is not None}
        for node in self.old.nodes:
            if node.op != "input" and node.id not in gone:
                rewriter.keep(node)
        return rewriter.finish()

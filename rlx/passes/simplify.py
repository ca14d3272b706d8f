"""Passes that need no device: dead code, identities, constant folding by reference, common subexpressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.errors import InputError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.input_sizes import names_of
from rlx.ir.notes import Note
from rlx.ir.rewrite import Rewriter, reached
from rlx.ir.shape import same_size
from rlx.ops.declare import evaluate
from rlx.ops.fold_cost import effort
from rlx.ops.interpret import trips_of_a_run
from rlx.resource_limits import try_charge

# Folding must not turn a small graph into a large one.
FOLD_LIMIT_BYTES = 16 << 20
# Most trips of a loop that is folded. Longer loops are faster on the device than in NumPy.
_FOLDED_TRIPS = 1 << 10


def dce(graph: Graph, notes: list[Note]) -> Graph:
    """Drops nodes that no output needs; inputs and params are the interface and stay."""
    needed = reached(graph.outputs)
    if len(needed) == len(graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.id in needed or node.op in ("input", "param"):
            rewriter.keep(node)
        else:
            notes.append(Note.of("dce", "dropped ", node))
    return rewriter.finish()


# Ops that give their operand back if the type stays the same, and what else has to hold for that.
_NOTHING: Mapping[str, Callable[[Node], bool]] = {
    "reshape": lambda node: True,
    "narrow": lambda node: True,
    "expand": lambda node: True,
    "cast": lambda node: True,
    "slice": lambda node: set(node.attrs["steps"]) <= {1},
    "transpose": lambda node: list(node.attrs["perm"]) == sorted(node.attrs["perm"]),
    "concat": lambda node: len(node.inputs) == 1,
}


def _does_nothing(node: Node) -> bool:
    if node.op not in _NOTHING or len(node.shape) != len(node.inputs[0].shape):
        return False
    pairs = zip(node.shape, node.inputs[0].shape, strict=True)
    same = node.dtype is node.inputs[0].dtype and all(same_size(a, b) for a, b in pairs)
    return same and _NOTHING[node.op](node)


def _of_constants(node: Node) -> bool:
    return bool(node.inputs) and all(o.op == "constant" for o in node.inputs) and not names_of(node)


def fold(graph: Graph, notes: list[Note]) -> Graph:
    """Removes nodes that return their operand, and computes nodes of constants by their references."""
    if not any(_does_nothing(node) or _of_constants(node) for node in graph.nodes):
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if _does_nothing(node):
            rewriter.replace(node, rewriter[node.inputs[0]])
            notes.append(Note.of("fold", node, " does nothing"))
            continue
        operands = [rewriter[operand] for operand in node.inputs]
        constant = bool(operands) and all(operand.op == "constant" for operand in operands)
        # A place or a number that only a run knows may be hidden in an attribute.
        constant = constant and not names_of(node)
        # Ops with several results are not folded: each result would compute all of them.
        constant = constant and len(node.types) == 1
        small = constant and node.type.nbytes <= FOLD_LIMIT_BYTES
        if small and try_charge(effort(node)):
            try:
                with trips_of_a_run(_FOLDED_TRIPS):
                    (value,) = evaluate(node, [operand.attrs["value"] for operand in operands])
            except InputError as error:
                # The node may never run. If it does, the device raises the error.
                notes.append(Note.of("fold", "left ", node, f": {error}"))
                rewriter.keep(node)
                continue
            new = rewriter.new.constant(value, node.dtype)
            new.source = node.source
            rewriter.replace(node, new)
            notes.append(Note.of("fold", "computed ", node))
        else:
            if constant:
                reason = f"its {node.type.nbytes} bytes are above {FOLD_LIMIT_BYTES}"
                if small:
                    reason = "computing it is more work than rlx.limits allows"
                notes.append(Note.of("fold", "left ", node, f", {reason}"))
            rewriter.keep(node)
    return rewriter.finish()


def cse(graph: Graph, notes: list[Note]) -> Graph:
    """Computes equal nodes once."""
    first = _first_equals(graph)
    if not first:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.id in first:
            same = rewriter[first[node.id]]
            rewriter.replace(node, same)
            notes.append(Note.of("cse", node, " is ", same))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _first_equals(graph: Graph) -> dict[int, Node]:
    """For nodes that compute what an earlier one does, by their ids, the first such node."""
    seen: dict[Any, Node] = {}
    first: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op in ("input", "param"):
            continue
        operands = tuple([first.get(operand.id, operand).id for operand in node.inputs])
        earlier = seen.setdefault((node.op, operands, _hashable(node.attrs)), node)
        if earlier is not node:
            first[node.id] = earlier
    return first


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in sorted(value.items()))
    if isinstance(value, tuple):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, DType):
        return value.value
    if isinstance(value, Graph):
        return "graph", id(value)
    # 1, 1.0 and True are equal keys in Python, and so are 0.0 and -0.0; as attributes they differ.
    return type(value), value if type(value) in (int, str) else repr(value)

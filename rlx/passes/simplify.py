"""Passes that need no device: dead code, constant folding by reference, common subexpressions."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.rewrite import Rewriter
from rlx.ops.record import evaluate

# Folding must not turn a small graph into a large one.
FOLD_LIMIT_BYTES = 16 << 20


def dce(graph: Graph, notes: list[str]) -> Graph:
    """Drops nodes that no output needs; inputs and params are the interface and stay."""
    needed = {node.id for node in graph.outputs}
    for node in reversed(graph.nodes):
        if node.id in needed:
            needed.update(operand.id for operand in node.inputs)
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.id in needed or node.op in ("input", "param"):
            rewriter.keep(node)
        else:
            notes.append(f"dce: dropped {node.where()}")
    return rewriter.finish()


def fold(graph: Graph, notes: list[str]) -> Graph:
    """Computes nodes whose operands are all constants, with their references."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        operands = [rewriter[operand] for operand in node.inputs]
        constant = bool(operands) and all(operand.op == "constant" for operand in operands)
        # Ops with several results are left: their parts would each need the others' work again.
        constant = constant and len(node.types) == 1
        if constant and node.type.nbytes <= FOLD_LIMIT_BYTES:
            (value,) = evaluate(node, [operand.attrs["value"] for operand in operands])
            new = rewriter.new.constant(value, node.dtype)
            new.source = node.source
            rewriter.replace(node, new)
            notes.append(f"fold: computed {node.where()}")
        else:
            if constant:
                notes.append(
                    f"fold: left {node.where()}, its {node.type.nbytes} bytes are above "
                    f"{FOLD_LIMIT_BYTES}"
                )
            rewriter.keep(node)
    return rewriter.finish()


def cse(graph: Graph, notes: list[str]) -> Graph:
    """Computes equal nodes once."""
    rewriter = Rewriter(graph)
    seen: dict[Any, Node] = {}
    for node in graph.nodes:
        if node.op in ("input", "param"):
            rewriter.keep(node)
            continue
        operands = tuple(rewriter[operand].id for operand in node.inputs)
        key = (node.op, operands, _hashable(node.attrs))
        if key in seen:
            rewriter.replace(node, seen[key])
            notes.append(f"cse: {node.where()} is {seen[key].where()}")
        else:
            seen[key] = rewriter.keep(node)
    return rewriter.finish()


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
    return type(value).__name__, repr(value)

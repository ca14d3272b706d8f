"""A graph as a function of MLX arrays: node by node, each by its reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from rlx.plugin import (
    PART,
    CompileError,
    DType,
    Graph,
    Node,
    bind_reference,
    call_with,
    describe,
    evaluate,
    store,
)
from rlx_mlx.references import REBOUND
from rlx_mlx.values import STORED, Traced

# Results of constant nodes stay NumPy's up to this many elements.
_STATIC_SIZE = 1 << 16


def as_stored(array: np.ndarray[Any, Any], dtype: DType) -> Any:
    """An array of rlx in MLX: bf16, which NumPy lacks, is carried in uint16."""
    if dtype is DType.F64:  # only passed on: what computes with it runs on the host
        return mx.array(np.asarray(array, order="C").view(np.int64))
    found = mx.array(np.asarray(array, order="C"))
    return found.view(mx.bfloat16) if dtype is DType.BF16 else found


def outputs_of(graph: Graph, leaves: Mapping[str, Any]) -> list[Any]:
    """Computes the outputs of a graph.

    Args:
        graph: The graph.
        leaves: Value of every input and param by name, as MLX arrays.
    """
    values: dict[int, tuple[Any, ...]] = {}
    for node in graph.nodes:
        operands = [values[operand.id] for operand in node.inputs]
        if node.op in ("input", "param"):
            values[node.id] = (leaves[node.name],)
        elif node.op == PART:
            values[node.id] = (operands[0][node.attrs["index"]],)
        else:
            values[node.id] = results_of(node, [results[0] for results in operands])
    return [_array(values[node.id][0], node) for node in graph.outputs]


def _array(value: Any, node: Node) -> Any:
    return as_stored(value, node.dtype) if isinstance(value, np.ndarray) else value


def results_of(node: Node, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a node: NumPy arrays where all its operands are, else MLX arrays."""
    known = all(isinstance(one, np.ndarray) for one in operands)
    if known and sum(type.size for type in node.types) <= _STATIC_SIZE:
        return evaluate(node, operands)
    given = [_operand(one, source) for one, source in zip(operands, node.inputs, strict=True)]
    bound = bind_reference(node.opdef, node.attrs, given)
    found = call_with(REBOUND.reference(node.op), node.opdef.signature, bound)
    listed = found if isinstance(found, tuple) else (found,)
    return tuple(_stored(one, type, node) for one, type in zip(listed, node.types, strict=True))


def _operand(value: Any, source: Node) -> Traced:
    """An operand as a reference takes it; one that is known is traced where another is not."""
    return Traced(as_stored(value, source.dtype) if isinstance(value, np.ndarray) else value)


def _stored(found: Any, type: Any, node: Node) -> Any:
    """A result in the dtype and shape that the node has."""
    if not isinstance(found, Traced):
        return store(np.asarray(found), type.dtype)
    if found.shape != type.shape:
        raise CompileError(
            describe(
                f"{node.op} traces to another shape than inference gives",
                where=node.where(),
                got=found.shape,
                expected=type.shape,
                hint="report it to the authors of rlx-mlx",
            )
        )
    target = STORED[type.dtype]
    if target == mx.bool_ and found.raw.dtype != mx.bool_:
        return found.raw != 0
    return found.raw.astype(target)

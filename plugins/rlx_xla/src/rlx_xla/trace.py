"""A graph as a function of JAX arrays: node by node, each by its reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
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
from rlx_xla.references import REBOUND
from rlx_xla.values import Traced, computing, is_float

# Constants up to this many bytes become part of the program; larger ones are arguments, as weights are.
INLINE_BYTES = 1 << 14
# Results of constant nodes stay NumPy's up to this many elements.
_STATIC_SIZE = 1 << 16


def stored_dtype(dtype: DType) -> Any:
    """The dtype of JAX that holds values of a dtype."""
    return jnp.dtype(jnp.bfloat16) if dtype is DType.BF16 else jnp.dtype(dtype.numpy)


def as_stored(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """An array of rlx as JAX takes it: bf16, which NumPy lacks, is carried in uint16."""
    return array.view(jnp.bfloat16) if dtype is DType.BF16 else array


def outputs_of(
    graph: Graph, leaves: Mapping[str, Any], large: Mapping[int, Any] | None = None
) -> list[Any]:
    """Computes the outputs of a graph.

    Args:
        graph: The graph.
        leaves: Value of every input and param by name, as JAX arrays.
        large: By node id, values of constants that are arguments of the program.

    Returns:
        JAX arrays, or NumPy arrays in the storage of rlx where a value is constant.
    """
    values: dict[int, tuple[Any, ...]] = {}
    for node in graph.nodes:
        operands = [values[operand.id] for operand in node.inputs]
        if node.op in ("input", "param"):
            values[node.id] = (leaves[node.name],)
        elif node.op == PART:
            values[node.id] = (operands[0][node.attrs["index"]],)
        elif large and node.id in large:
            values[node.id] = (large[node.id],)
        else:
            values[node.id] = results_of(node, [results[0] for results in operands])
    return [_array(values[node.id][0], node) for node in graph.outputs]


def _array(value: Any, node: Node) -> Any:
    return jnp.asarray(as_stored(value, node.dtype)) if isinstance(value, np.ndarray) else value


def results_of(node: Node, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a node: NumPy arrays where all its operands are, else JAX arrays."""
    known = all(isinstance(one, np.ndarray) for one in operands)
    if known and not _has_graph(node) and sum(type.size for type in node.types) <= _STATIC_SIZE:
        return evaluate(node, operands)
    dtypes = {one.dtype for one in node.inputs} | {type.dtype for type in node.types}
    with computing(real=jnp.float64 if DType.F64 in dtypes else jnp.float32):
        given = [_operand(one, source) for one, source in zip(operands, node.inputs, strict=True)]
        bound = bind_reference(node.opdef, node.attrs, given)
        found = call_with(REBOUND.reference(node.op), node.opdef.signature, bound)
        listed = found if isinstance(found, tuple) else (found,)
        return tuple(_stored(one, type, node) for one, type in zip(listed, node.types, strict=True))


def _has_graph(node: Node) -> bool:
    return any(isinstance(value, Graph) for value in node.attrs.values())


def _operand(value: Any, source: Node) -> Traced:
    """An operand as a reference takes it; one that is known is traced where another is not."""
    known = isinstance(value, np.ndarray)
    return Traced(jnp.asarray(as_stored(value, source.dtype)) if known else value)


def _stored(found: Any, type: Any, node: Node) -> Any:
    """A result in the dtype and shape that the node has."""
    if not isinstance(found, Traced):
        found = np.asarray(found)
        if found.shape == type.shape:
            return store(found, type.dtype)
        raise _wrong_shape(node, found.shape, type.shape)
    if found.shape != type.shape:
        raise _wrong_shape(node, found.shape, type.shape)
    target = stored_dtype(type.dtype)
    raw = found.raw
    if target == jnp.bool_ and raw.dtype != target:
        return raw != 0
    if raw.dtype == jnp.int64 and is_float(target) and target.itemsize == 2:
        raw = raw.astype(jnp.float64)
    return raw.astype(target)


def _wrong_shape(node: Node, got: Any, expected: Any) -> CompileError:
    return CompileError(
        describe(
            f"{node.op} traces to another shape than inference gives",
            where=node.where(),
            got=got,
            expected=expected,
            hint="report it to the authors of rlx-xla",
        )
    )

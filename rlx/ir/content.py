"""The content hash of a graph: equal graphs have equal hashes, wherever and whenever they were built."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from rlx.errors import RlxError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.sizes import SizeExpr
from rlx.sizes.as_data import size_to


class OpaqueError(RlxError):
    """Something has no content that could be compared; the message says what."""


def content_hash(graph: Graph) -> str:
    """SHA-256 of everything that lowering reads: names, ops, attributes, types, constants, outputs.

    Values attached to params and the lines of code that made the nodes are no part of it.

    Args:
        graph: A verified graph.

    Returns:
        64 hexadecimal digits.

    Raises:
        OpaqueError: A node's op is defined outside of rlx, so that its name does not say what it is.

    Example:
        >>> a, b = Graph("g"), Graph("g")
        >>> a.set_outputs([a.input("x", (2,)) + 1.0]); b.set_outputs([b.input("x", (2,)) + 1.0])
        >>> content_hash(a) == content_hash(b)
        True
    """
    return _hash(graph, {})


def _hash(graph: Graph, known: dict[Graph, str]) -> str:
    """The hash of a graph. A subgraph that stands in many places is hashed once."""
    if graph.verified_hash:
        return graph.verified_hash
    if graph in known:
        return known[graph]
    nodes = []
    for node in graph.nodes:
        check_ours(node)
        attrs = [(key, _content(node.attrs[key], known)) for key in sorted(node.attrs)]
        types = [(type.shape, type.dtype.value) for type in node.types]
        nodes.append((node.op, node.name, types, [operand.id for operand in node.inputs], attrs))
    outputs: list[Any] = [node.id for node in graph.outputs]
    if graph.assumptions is not None:
        outputs.append(sorted(map(str, graph.assumptions.guards)))
    known[graph] = hashlib.sha256(repr((graph.name, nodes, outputs)).encode()).hexdigest()
    return known[graph]


def check_ours(node: Node) -> None:
    """Checks that a node's op is one of rlx: its name then says all that it is.

    Raises:
        OpaqueError: A custom op's functions can change under its name, and so can the rules of a
            plug-in's op.
    """
    if node.op == "custom":
        raise OpaqueError(f"custom op {node.attrs.get('name')!r}")
    if node.opdef.reference.__module__.partition(".")[0] != "rlx":
        raise OpaqueError(f"op {node.op!r} is defined outside of rlx")


def _content(value: Any, known: dict[Graph, str]) -> Any:
    """A value whose ``repr`` says all that it is."""
    kind = type(value)
    if value is None or kind in (int, float, str, bool, bytes):
        return value
    if kind in (tuple, list):
        return (kind.__name__, [_content(item, known) for item in value])
    if kind is dict:
        return ("dict", [(key, _content(value[key], known)) for key in sorted(value)])
    if kind is DType:
        return ("dtype", value.value)
    if isinstance(value, np.ndarray | np.generic):
        raw = np.ascontiguousarray(value)
        if raw.dtype.hasobject:
            raise OpaqueError(f"an array of {raw.dtype}")
        # Through bytes: a dtype that is not NumPy's own has no buffer.
        digest = hashlib.sha256(raw.reshape(-1).view(np.uint8).data).hexdigest()
        return ("array", raw.dtype.str, value.shape, digest)
    if isinstance(value, SizeExpr):
        return ("size", size_to(value))
    if kind is Graph:
        return ("graph", _hash(value, known))
    raise OpaqueError(f"a {kind.__name__}")

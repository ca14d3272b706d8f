"""16-bit integers and u64 in graphs: computed in a wider type, and cut back to their bits after each node."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.importers.onnx.elements import Element
from rlx.importers.onnx.values import CARRIERS, Held, Result, Value
from rlx.ir.graph import Node


def wrapped(results: list[Held | None], operands: Sequence[Held | None]) -> list[Held | None]:
    """The results of an operator whose operands may be of a type that rlx lacks.

    A ``Result`` is left alone: the operator chose its type.

    Args:
        results: What the operator gave: nodes of the carrier's dtype.
        operands: Its operands; the first of a carried type says what the results are.

    Returns:
        The results with their element type, wrapped to its range.
    """
    carried = next(
        (o.element for o in operands if isinstance(o, Value) and o.element.name in CARRIERS), None
    )
    if carried is None:
        return results
    return [_one(value, carried) for value in results]


def _one(value: Held | None, element: Element) -> Held | None:
    if not isinstance(value, Value) or isinstance(value, Result) or value.node is None:
        return value
    if value.element.name in CARRIERS or value.node.dtype is not CARRIERS[element.name]:
        return value
    return Value(element, node=cut(value.node, element))


def cut(node: Node, element: Element) -> Node:
    """A node of the carrier's dtype reduced to the bits of ``element``."""
    g = node.graph
    cut_node: Node = node
    if element.name == "uint16":
        cut_node = g.bit_and(node, 0xFFFF)
    elif element.name == "int16":
        cut_node = g.shift_right(g.shift_left(node, 16), 16)
    return cut_node

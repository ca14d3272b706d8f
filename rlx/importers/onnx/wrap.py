"""16-bit integers and u64 in graphs: computed in a wider type, and cut back to their bits after each node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.importers.onnx.elements import NARROW, Element
from rlx.importers.onnx.values import CARRIERS, Held, OnnxValue, TypedResult
from rlx.ir.graph import Node

# Operators that move elements and compute nothing: all that narrow types go through but casts and quantisation.
MOVES = frozenset(
    "Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Reshape ReverseSequence "
    "ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze".split()
)
ITSELF = frozenset(("QuantizeLinear", "DequantizeLinear"))


def carries(op: str, carried: bool, element: Element) -> bool:
    """Returns whether an operator is right for elements that are held in a wider type, or as codes."""
    return carried and (element not in NARROW or op in MOVES or op in ITSELF)


def wrapped(results: list[Held | None], operands: Sequence[Held | None]) -> list[Held | None]:
    """The results of an operator whose operands may be of a type that rlx lacks.

    The first operand of a carried type says what they are: they are wrapped to its range. A ``TypedResult`` is left
    alone: the operator chose its type.
    """
    carried = next(
        (o.element for o in operands if isinstance(o, OnnxValue) and o.element.name in CARRIERS),
        None,
    )
    if carried is None:
        return results
    return [_wrap_value(value, carried) for value in results]


def _wrap_value(value: Held | None, element: Element) -> Held | None:
    if not isinstance(value, OnnxValue) or isinstance(value, TypedResult) or value.node is None:
        return value
    if value.element.name in CARRIERS or value.node.dtype is not CARRIERS[element.name]:
        return value
    # Narrow elements have only been moved.
    return OnnxValue(element, node=value.node if element in NARROW else cut(value.node, element))


def cut(node: Node, element: Element) -> Node:
    """A node reduced to the bits of an integer type.

    Args:
        node: Integers of the carrier's dtype; i32 for types of 4 and 2 bits.
        element: The type.

    Returns:
        A node of the carrier's dtype.
    """
    g = node.graph
    cut_node: Node = node
    if element.name == "uint16":
        cut_node = g.bit_and(node, 0xFFFF)
    elif element.name == "int16":
        cut_node = g.shift_right(g.shift_left(node, 16), 16)
    elif element.bits and element.numpy == np.int8:
        spare = 32 - element.bits
        cut_node = g.cast(g.shift_right(g.shift_left(node, spare), spare), "i8")
    elif element.bits:
        cut_node = g.cast(g.bit_and(node, (1 << element.bits) - 1), "u8")
    return cut_node

"""Sizes that a model computes from what its inputs hold: numbers of the graph, which become dims where shapes need them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx.importers.onnx.values import GraphSite, RefusedError, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import is_sized, same_size
from rlx.sizes import SizeExpr

# A number of a shape: known, a size of dims, or a scalar of the graph.
Number = Any
# Shapes are short. Longer operands are no sizes.
MAX_NUMBERS = 64


def numbers_of(site: GraphSite, node: Node) -> list[Number]:
    """The elements of a value of whole numbers, each as known as it can be.

    Raises:
        RefusedError: There are too many of them, or their number is not known.
    """
    if is_sized(node.shape) or node.type.size > MAX_NUMBERS:
        raise RefusedError(f"sizes that are computed in a value of type {node.type}")
    if not node.dtype.is_integer:
        node = site.graph.cast(node, DType.I64)
    return [_number(site, part, place) for part, place in _elements(node)]


def _elements(node: Node) -> Iterator[tuple[Node, int]]:
    """For each element of a value the node that computes it, and its place there."""
    if node.op == "concat" and len(node.shape) == 1:
        for operand in node.inputs:
            yield from _elements(operand)
    elif node.op == "reshape" or (node.op == "cast" and node.inputs[0].dtype.is_integer):
        yield from _elements(node.inputs[0])
    elif node.op == "narrow" and len(node.shape) == 1 and not is_sized(node.attrs["start"]):
        start = node.attrs["start"]
        yield from list(_elements(node.inputs[0]))[start : start + node.shape[0]]
    else:
        for place in range(node.type.size):
            yield node, place


def _number(site: GraphSite, node: Node, place: int) -> Number:
    """One element of a node."""
    if node.op == "constant":
        return int(node.attrs["value"].ravel()[place])
    if node.op == "size":
        return node.attrs["size"]
    known = site.numbers.get((node.id, place))
    if known is None:
        g = node.graph
        flat = node if node.shape == () else g.reshape(node, (node.type.size,))
        one = flat if node.shape == () else g.reshape(g.narrow(flat, 0, place, 1), ())
        known = as_dtype(g, one, DType.I64)
        site.numbers[node.id, place] = known
    return known


def is_known(number: Number, value: int) -> bool:
    """Returns whether a number is known to be a value."""
    return not isinstance(number, Node) and same_size(number, value)


def as_number(g: Graph, number: Number) -> Node:
    """A number as an i64 scalar of the graph."""
    return g.as_node(number, DType.I64, where="sizes")


def as_size(site: GraphSite, number: Number, most: Any = None, hint: int | None = None) -> Any:
    """A number as a size: a scalar of the graph becomes a dim, the same one each time.

    Args:
        site: Where nodes are added.
        number: The number.
        most: Its largest value, a number or a size; None for no bound.
        hint: A usual value.
    """
    if not isinstance(number, Node):
        return number
    known = site.sizes.get(number.id)
    if known is None:
        known = site.sizes[number.id] = site.graph.read_size(number, max=most)
        if hint is not None:
            assert site.graph.assumptions is not None
            site.graph.assumptions.hints[known.name] = hint
    return known


def expected(site: GraphSite, number: Number, size: Any) -> Any:
    """Has a run check that a number has a value, and returns that.

    Raises:
        RefusedError: The number is known, and is another one.
    """
    g = site.graph
    if not isinstance(number, Node):
        if number != size:
            raise RefusedError(f"a size of {number}, not {size}")
        return size
    if isinstance(size, SizeExpr):
        g.read_size(g.cast(g.ne(number, as_number(g, size)), DType.I64), max=0)
    else:
        g.read_size(number, max=size, min=size)
    return size


def from_front(g: Graph, index: Number, size: Any, least: int, last: int) -> Node:
    """An index that may count from the end, as a scalar from the front.

    Args:
        g: The graph.
        index: The index.
        size: The entries of the axis.
        least: The least result.
        last: What is added to the size for the largest one: -1 for steps backwards.
    """
    number, entries = as_number(g, index), as_number(g, size)
    number = g.where(g.lt(number, np.int64(0)), g.add(number, entries), number)
    return g.minimum(g.maximum(number, np.int64(least)), g.add(entries, np.int64(last)))


def positions(g: Graph, count: Any, dtype: Any = "i64") -> Node:
    """The numbers from 0 to a size."""
    if isinstance(count, SizeExpr):
        return g.arange(0, count, 1, dtype)
    return g.constant(np.arange(count), dtype)

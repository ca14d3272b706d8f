"""Sums of squares and of absolute values: the elements are read once."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.ir.graph import Graph, Node
from rlx.passes.patterns.match import Match, MatchSite


def sum_of_each(node: Node, site: MatchSite) -> Match | None:
    """sum(x * x) and sum(abs(x)) over any axes."""
    if not site.fuses("sums_of_squares"):
        return None
    each = node.inputs[0]
    squares = each.op == "mul" and each.inputs[0] is each.inputs[1]
    if not (squares or each.op == "abs") or not each.dtype.is_float or site.only(each) is None:
        return None
    name = "sum_squares" if squares else "sum_abs"
    x = each.inputs[0]

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        return g.add_node(name, [indices[x.id]], dict(node.attrs), node.name)

    return Match((each, node), build)

"""A norm of a sum: the residual connections of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx.ir.graph import PART, Graph, Node
from rlx.passes.patterns.match import Match, MatchSite


def residual_norm(node: Node, site: MatchSite) -> Match | None:
    """norm(x + r) over the last axis; others may need the sum as well."""
    if node.attrs["axis"] != len(node.shape) - 1:
        return None
    add, *weights = node.inputs
    if add.op != "add" or site.blocked(add) or add.fixed:
        return None  # a sum of params is computed when they are set
    x, residual = add.inputs
    if x.shape != residual.shape or not all(weight.fixed for weight in weights):
        return None
    if any(_joins(item, add, site) for item in add.inputs):
        return None
    keep = site.only(add) is None
    operands = (x, residual, *weights)
    attrs = {**node.attrs, "rms": node.op == "rms_norm", "keep": keep}

    def build(g: Graph, indices: Mapping[int, Node]) -> Node | Sequence[Node]:
        result = g.add_node("residual_norm", [indices[o.id] for o in operands], attrs, node.name)
        if not keep:
            return result
        normed, total = (g.add_node(PART, [result], {"index": i}) for i in (0, 1))
        return total, normed

    return Match((add, node), build, (add, node) if keep else ())


def _joins(operand: Node, add: Node, site: MatchSite) -> bool:
    """Returns whether an operand is computed in one pass with the addition as long as no fusion takes the addition.

    The same number of kernels is left either way, but the pass needs no memory between the two.
    """
    return operand.opdef.elementwise and site.only(operand) is add and not site.blocked(operand)

"""Matrix products with what stands around them."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.graph import Node
from rlx.ops.linalg import ACTIVATIONS
from rlx.passes.patterns.match import Build, Match, Site, either_way, without_inputs


def product(node: Node, site: Site) -> Match | None:
    """act(x @ w + bias), or without an activation."""
    act, add = "none", node
    if node.op in ACTIVATIONS:
        act, add = node.op, node.inputs[0]
    if add.op != "add" or (act != "none" and site.only(add) is not node):
        return None
    for found, bias in either_way(add):
        if found.op != "matmul" or site.only(found) is not add or bias is found:
            continue
        x, w = found.inputs
        fits = len(x.shape) >= 2 and len(w.shape) == 2 and bias.shape == found.shape[-1:]
        if not fits or add.shape != found.shape or site.blocked(found):
            continue
        if act == "none":
            following = site.only(add)
            if following is not None and following.op in ACTIVATIONS:
                return None  # it is found from there, with the activation
        inside = (found, add) if act == "none" else (found, add, node)
        return Match(inside, _fused((x.id, w.id, bias.id), act, node.name))
    return None


def _fused(operands: Sequence[int], act: str, name: str) -> Build:
    return lambda g, at: g.add_node(
        "fused_matmul_bias_act", [at[o] for o in operands], {"act": act}, name
    )


def turned(node: Node, site: Site) -> Match | None:
    """X @ y with the last two axes of y exchanged just before."""
    if node.op != "matmul" or len(node.inputs[0].shape) < 2:
        return None
    x, y = node.inputs
    rank = len(y.shape)
    exchange = (*range(rank - 2), rank - 1, rank - 2)
    if y.op != "transpose" or tuple(y.attrs["perm"]) != exchange or without_inputs(y):
        return None
    if site.only(y) is not node:
        return None
    (straight,) = y.inputs
    operands = (x.id, straight.id)
    return Match((y, node), lambda g, at: g.add_node("matmul_turned", [at[o] for o in operands]))

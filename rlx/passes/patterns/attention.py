"""Attention written with products and a softmax."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.ir.graph import Graph, Node
from rlx.passes.patterns.match import Match, Site, either_way, scaled


def attention(node: Node, site: Site) -> Match | None:
    """softmax(scale * q @ k.T + mask) @ v on ``[batch, heads, length, size]``."""
    if node.inputs[0].op != "softmax":
        return None
    weights, v = node.inputs
    if weights.attrs["axis"] not in (-1, 3) or len(node.shape) != 4 or len(v.shape) != 4:
        return None
    scores, mask, inside = weights.inputs[0], None, [weights, node]
    if scores.op == "add":
        for product, other in either_way(scores):
            if product.shape == scores.shape and scaled(product)[0].op == "matmul":
                inside.insert(0, scores)
                scores, mask = product, other
                break
    scores, scale, between = scaled(scores)
    inside = [*between, *inside]
    if scores.op != "matmul":
        return None
    inside.insert(0, scores)
    q, transposed = scores.inputs
    q, factor, between = scaled(q)
    inside = [*between, *inside]
    if transposed.op != "transpose" or tuple(transposed.attrs["perm"]) != (0, 1, 3, 2):
        return None
    if site.only(transposed) is scores:
        inside.insert(0, transposed)
    (k,) = transposed.inputs
    if len(q.shape) != 4 or q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3]:
        return None
    if any(site.only(one) is None for one in inside[:-1]):
        return None
    if mask is not None and mask.dtype != q.dtype:
        return None
    kind = "none" if mask is None else "bias"

    def build(g: Graph, at: Mapping[int, Node]) -> Node:
        added = None if mask is None else at[mask.id]
        return g.attention(at[q.id], at[k.id], at[v.id], added, kind, scale=scale * factor)

    return Match(tuple(inside), build)

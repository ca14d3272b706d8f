"""Attention written with products and a softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.passes.patterns.match import Match, MatchSite, either_way, joined_node, scaled

Layout: TypeAlias = Literal["bhsd", "bshd"]
# Axis orders of transposes: heads to the front or back, keys as the columns of a product, and both at once.
_HEADS, _COLUMNS, _BOTH = (0, 2, 1, 3), (0, 1, 3, 2), (0, 2, 3, 1)
# What widens keys and values: an operation, its format, and the type of its only operand.
_WIDENED = {("cast", None, DType.F16), ("dequantize_blocks", "Q8_0", DType.U8)}


@dataclass(frozen=True)
class _Parts:
    """The parts of attention.

    Attributes:
        q: Queries, ``[batch, heads, length, size]``.
        k: Keys, the same; ``[batch, length, heads, size]`` with ``by_position``.
        v: Values, as queries.
        mask: The addend of the scores, or None.
        scale: The factor of the scores.
        by_position: Whether one transpose of the keys moves the heads to the front as well.
        inside: The nodes that it replaces, in the order of the graph.
    """

    q: Node
    k: Node
    v: Node
    mask: Node | None
    scale: float
    by_position: bool
    inside: tuple[Node, ...]

    def build_nodes(
        self, g: Graph, q: Node, k: Node, v: Node, mask: Node | None, layout: Layout
    ) -> Node:
        """The operation on these queries, keys and values."""
        kind = "none" if mask is None else "bias"
        return g.attention(q, k, v, mask, kind, scale=self.scale, layout=layout)

    def added(self, indices: Mapping[int, Node]) -> Node | None:
        """The mask in another graph."""
        return None if self.mask is None else indices[self.mask.id]


def attention(node: Node, site: MatchSite) -> Match | None:
    """softmax(scale * q @ k.T + mask) @ v on ``[batch, heads, length, size]``."""
    result = _parts(node, site)
    if result is None:
        return None

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        k = indices[result.k.id]
        k = g.transpose(k, _HEADS) if result.by_position else k
        return result.build_nodes(
            g, indices[result.q.id], k, indices[result.v.id], result.added(indices), "bhsd"
        )

    return Match(result.inside, build)


def attention_by_position(node: Node, site: MatchSite) -> Match | None:
    """The same between transposes of ``[batch, length, heads, size]``, which it then needs not."""
    product = node.inputs[0]
    if tuple(node.attrs["perm"]) != _HEADS or product.op != "matmul":
        return None
    result = _parts(product, site) if site.only(product) is node else None
    if result is None or not result.by_position:
        return None
    turned = [result.q, result.v]
    for item in turned:
        if item.op != "transpose" or tuple(item.attrs["perm"]) != _HEADS or site.only(item) is None:
            return None
    q, v = (item.inputs[0] for item in turned)

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        return result.build_nodes(
            g, indices[q.id], indices[result.k.id], indices[v.id], result.added(indices), "bshd"
        )

    inside = sorted({item.id: item for item in (*turned, *result.inside, node)}.items())
    return Match(tuple(item for _, item in inside), build)


def narrow(node: Node, site: MatchSite) -> Match | None:
    """Attention over keys and values that are widened from f16 or from blocks: kernels read fewer bytes."""
    q, *wide = node.inputs[:3]
    kinds = {(item.op, item.attrs.get("scheme"), *(x.dtype for x in item.inputs)) for item in wide}
    if len(kinds) != 1 or not kinds <= _WIDENED or node.dtype is not DType.F32:
        return None
    if not (site.fuses("narrow_attention") and site.private(wide, node)) or site.blocked(node):
        return None
    operands = (q, *(item.inputs[0] for item in wide), *node.inputs[3:])
    inside = (*sorted(wide, key=lambda item: item.id), node)
    return Match(inside, joined_node("narrow_attention", operands, node.attrs, node.name))


def _parts(node: Node, site: MatchSite) -> _Parts | None:
    """Finds the parts of attention behind ``node``, the product of weights and values; None if there are none."""
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
    order = tuple(transposed.attrs["perm"]) if transposed.op == "transpose" else ()
    if order not in (_COLUMNS, _BOTH):
        return None
    inside.insert(0, transposed)
    (k,) = transposed.inputs
    if len(q.shape) != 4 or len(k.shape) != 4:
        return None
    heads_first = tuple(k.shape[head] for head in _HEADS) if order == _BOTH else k.shape
    if q.shape[:2] != heads_first[:2] or heads_first[:3] != v.shape[:3]:
        return None
    # Other products may read the turned keys, too.
    if any(site.only(item) is None for item in inside[1:-1]):
        return None
    if mask is not None and mask.dtype != q.dtype:
        return None
    return _Parts(q, k, v, mask, scale * factor, order == _BOTH, tuple(inside))

"""Attention as all of this domain's operators have it: one function from queries, keys and values on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlx.importers.onnx.ops.attention import far, repeated
from rlx.importers.onnx.ops.shapes import limited
from rlx.ir.graph import Graph, Node


class Scores(NamedTuple):
    """The transformations of the products of queries and keys before they weigh the values.

    Attributes:
        scale: They are multiplied by it; None for 1 / sqrt(head size).
        softcap: Where not 0, they are held within it by tanh.
        bias: Added after that, ``[B | 1, H | 1, Sq, Sk]``.
        kind: The mask of ``attention`` where there is no bias.
        sink: One more score for each head, ``[H]``, which takes its share and weighs nothing.
        shown: "scores" or "weights" to give these, too.
    """

    scale: float | None = None
    softcap: float = 0.0
    bias: Node | None = None
    kind: str = "none"
    sink: Node | None = None
    shown: str = ""


def attend(g: Graph, q: Node, k: Node, v: Node, how: Scores) -> tuple[Node, Node | None]:
    """The values weighted by how queries and keys agree.

    Args:
        g: The graph.
        q: Queries ``[B, H, Sq, D]``.
        k: Keys ``[B, G, Sk, D]``, where G divides H.
        v: Values ``[B, G, Sk, E]``.
        how: The treatment of the scores. With a sink or something to show, masks are part of the bias.

    Returns:
        The result ``[B, H, Sq, E]``, and what ``how.shown`` names or None.
    """
    if how.sink is None and not how.shown:
        mask, kind = (how.bias, "bias") if how.bias is not None else (None, how.kind)
        y: Node = g.attention(
            q, k, v, mask, kind=kind, num_heads=q.shape[1], num_kv_heads=k.shape[1],
            scale=how.scale, softcap=how.softcap or None,
        )  # fmt: skip
        return y, None
    heads = q.shape[1]
    k, v = repeated(g, k, heads), repeated(g, v, heads)
    scale = q.shape[-1] ** -0.5 if how.scale is None else how.scale
    scores = g.mul(g.matmul(q, g.transpose(k, (0, 1, 3, 2))), scale)
    if how.softcap:
        scores = g.mul(g.tanh(g.div(scores, how.softcap)), how.softcap)
    if how.bias is not None:
        scores = g.add(scores, how.bias)
    if how.sink is None:
        weights = g.softmax(scores)
    else:
        column = g.expand(g.reshape(how.sink, (1, heads, 1, 1)), (*scores.shape[:3], 1))
        weights = g.narrow(g.softmax(g.concat([scores, column], 3)), 3, 0, scores.shape[3])
    shown = {"": None, "scores": scores, "weights": weights}[how.shown]
    if how.shown == "scores":
        # The value that hides a key is shown as the lowest number.
        lowest = g.constant(np.finfo(scores.dtype.numpy).min, scores.dtype)
        shown = g.where(g.le(scores, far(scores.dtype) / 2), lowest, scores)
    return g.matmul(weights, v), shown


def seen_before(
    g: Graph, queries: int, keys: int, first: Node | int, window: int = -1
) -> tuple[Node, Node]:
    """Computes a mask of the keys that a query sees if it sees no later keys.

    ``first`` is the place of the first query among the keys, a number or one for each batch entry; ``window`` how many
    keys a query sees at most, its own included, -1 for all.

    Returns:
        What is seen as bools ``[B | 1, 1, queries, keys]``, and the places of the queries.
    """
    limited((queries, keys))
    rows = np.arange(queries, dtype=np.int32).reshape(1, 1, queries, 1)
    columns = g.constant(np.arange(keys, dtype=np.int32).reshape(1, 1, 1, keys))
    if isinstance(first, int):
        pos = g.constant(rows + np.int32(first))
    else:
        pos = g.add(g.reshape(first, (first.shape[0], 1, 1, 1)), g.constant(rows))
    seen = g.le(columns, pos)
    if window >= 0:
        seen = g.logical_and(seen, g.gt(columns, g.sub(pos, g.constant(np.int32(window)))))
    return seen, pos


def hidden(g: Graph, seen: Node, like: Node, value: float | None = None) -> Node:
    """0 where keys are seen, and elsewhere a value that makes scores count for nothing, in the dtype of ``like``."""
    # Half precision does not hold what files write for f32.
    low = far(like.dtype) if value is None else max(value, far(like.dtype))
    return g.where(seen, g.constant(0.0, like.dtype), g.constant(low, like.dtype))


def summed(g: Graph, first: Node | None, other: Node | None) -> Node | None:
    """The sum of two biases of which each may be missing."""
    if first is None or other is None:
        return first if other is None else other
    return g.add(first, other)

"""Positions: rotations by their angles, and biases of scores by their distance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.attention import heads_apart, heads_joined
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.values import Array, RefusedError
from rlx.ir.graph import Graph, Node
from rlx.ops.attention.rotary import Style


def angles(g: Graph, cos: Node, sin: Node, places: Node) -> tuple[Node, Node]:
    """The rows of tables that positions ``[B | 1, S]`` name, as ``[B | 1, 1, S, half]``."""
    first, second = (g.unsqueeze(g.gather(table, places, 0), (1,)) for table in (cos, sin))
    return first, second


@contrib("RotaryEmbedding")
def rotary_embedding(call: OnnxCall) -> Any:
    """Pairs of a head's entries rotated by angles of their position."""
    g, x, places = call.g, call.x(0), call.x(1)
    if call.integer("is_packed_batching", 0):
        raise RefusedError("sequences without padding (is_packed_batching)")
    call.need(call.real("scale", 1.0) == 1, "a scale of the positions other than 1")
    width = 2 * call.shape(2)[1]
    rotated = call.integer("rotary_embedding_dim", 0) or width
    heads = call.integer("num_heads", 0)
    apart = x
    if len(x.shape) == 3:
        call.need(bool(heads) or rotated == width, "heads that are rotated in part need num_heads")
        apart = heads_apart(g, x, heads or x.shape[2] // width)
    steps = apart.shape[2]
    if places.shape == (1,):
        count = np.arange(steps, dtype=places.dtype.numpy)
        places = g.add(places, g.constant(count))
    places = g.reshape(places, (math.prod(places.shape) // max(steps, 1), steps))
    tables = angles(g, call.x(2), call.x(3), places)
    style: Style = "gptj" if call.integer("interleaved", 0) else "neox"
    y = g.rope(apart, *tables, n_rot=rotated, style=style)
    return y if len(x.shape) == 4 else heads_joined(g, y)


def buckets(rows: int, columns: int, count: int, farthest: int, both: bool) -> Array:
    """The bucket that a key's distance from a query falls into: one each when near, then by logarithm.

    From the distance ``farthest`` on there is one bucket. With ``both`` later keys have half of the buckets; otherwise
    they share the first.
    """
    ahead = np.arange(columns)[None] - np.arange(rows)[:, None]
    start = np.zeros_like(ahead)
    if both:
        count //= 2
        start = np.where(ahead > 0, count, 0)
        distance = np.abs(ahead)
    else:
        distance = np.maximum(-ahead, 0)
    near = count // 2
    ratio = np.log(np.maximum(distance, 1) / np.float32(near)) / np.log(farthest / near)
    wide = near + (ratio.astype(np.float32) * (count - near)).astype(np.int64)
    return np.asarray(start + np.where(distance < near, distance, np.minimum(wide, count - 1)))


@contrib("RelativePositionBias")
def relative_position_bias(call: OnnxCall) -> Any:
    """A bias of every head for the distance of every query and key."""
    g, table = call.g, call.x(0)
    rows, columns = int(call.number(1)), int(call.number(2))
    limited((rows, columns))
    both = bool(call.integer("is_bidirectional", 0))
    places = buckets(rows, columns, table.shape[0], call.integer("max_distance"), both)
    return g.unsqueeze(g.transpose(g.gather(table, g.constant(places), 0), (2, 0, 1)), (0,))


@contrib("GatedRelativePositionBias")
def gated_relative_position_bias(call: OnnxCall) -> Any:
    """A bias by distance, that gates made of the queries scale."""
    g, heads = call.g, call.integer("num_heads")
    call.need(call.rank(0) == 3, f"queries of shape {call.shape(0)}; sequences without padding")
    q = heads_apart(g, g.add(call.x(0), call.x(1)), heads)
    b, h, s, _ = q.shape
    both = g.add(g.matmul(q, call.x(3)), call.x(4))
    gates = g.sigmoid(g.sum(g.reshape(both, (b, h, s, 2, both.shape[-1] // 2)), (4,)))
    u, r = g.split(gates, [1, 1], 3)
    scale = g.add(g.mul(u, g.sub(g.mul(r, call.x(5)), 1.0)), 2.0)
    return g.mul(scale, call.x(2))

"""Attention over a sequence: of projected rows, of 8-bit rows, and of queries, keys and values as they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.attention import far, heads_apart, heads_joined
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.contrib.integers import scaled_product
from rlx.importers.onnx.ops.contrib.scores import Scores, attend, hidden, seen_before, summed
from rlx.importers.onnx.ops.products import exact_product
from rlx.importers.onnx.values import RefusedError, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import broadcast

# The addend of the score of a key that padding hides.
FILTER = -10000.0


def padding(call: OnnxCall, mask: Node, shape: tuple[int, int, int], like: Node) -> Node:
    """The bias of a mask of any of its forms.

    Args:
        call: The node; its attribute ``mask_filter_value``.
        mask: Lengths ``[B]``; ends and starts ``[2 B]``; or integers or bools, 0 for what is hidden,
            ``[B, Sk]``, ``[B, Sq, Sk]`` or ``[B, 1, M, M]`` (of which the rows of the queries count).
        shape: The batch, queries and keys.
        like: A node of the scores' dtype.

    Returns:
        What is added to the scores, ``[B, 1, Sq | 1, Sk]``.
    """
    g, (b, sq, sk) = call.g, shape
    value = call.real("mask_filter_value", FILTER)
    if len(mask.shape) == 1:
        if mask.shape[0] not in (b, 2 * b) or (b == 0):
            raise RefusedError(f"a mask of shape {mask.shape} for a batch of {b}")
        places = g.reshape(g.arange(sk), (1, 1, 1, sk))
        wide = as_dtype(g, mask, DType.I32)
        ends = g.reshape(g.narrow(wide, 0, 0, b), (b, 1, 1, 1))
        seen = g.lt(places, ends)
        if mask.shape[0] == 2 * b:
            starts = g.reshape(g.narrow(wide, 0, b, b), (b, 1, 1, 1))
            seen = g.logical_and(seen, g.ge(places, starts))
        return hidden(g, seen, like, value)
    forms = {(b, sk): (b, 1, 1, sk), (b, sq, sk): (b, 1, sq, sk), (1, sk): (1, 1, 1, sk)}
    if len(mask.shape) == 4 and mask.shape[:2] == (b, 1) and mask.shape[2] >= sk <= mask.shape[3]:
        mask = g.narrow(g.narrow(mask, 2, sk - sq, sq), 3, 0, sk)
    elif mask.shape in forms:
        mask = g.reshape(mask, forms[mask.shape])
    else:
        raise RefusedError(f"a mask of shape {mask.shape} for {b} x {sq} x {sk} scores")
    none = g.constant(np.zeros((), mask.dtype.numpy), mask.dtype)
    seen = mask if mask.dtype is DType.BOOL else g.gt(mask, none)
    return hidden(g, seen, like, value)


def masked(call: OnnxCall, bias: Node | None, past: int, sq: int, sk: int, like: Node) -> Scores:
    """The scores' bias with what ``unidirectional`` hides, and the scale. ``past`` keys precede the first query."""
    g = call.g
    scale = call.real("scale", 0.0) or None
    if not call.integer("unidirectional", 0):
        return Scores(scale, bias=bias)
    if bias is None and sk - sq == past:
        return Scores(scale, kind="causal")
    seen, _ = seen_before(g, sq, sk, past)
    if bias is None:
        return Scores(scale, bias=hidden(g, seen, like))
    shape = broadcast(bias.shape, seen.shape, where="attention")
    low = g.constant(far(like.dtype), like.dtype)
    return Scores(scale, bias=g.where(seen, g.expand(bias, shape), low))


def joined_past(g: Graph, past: Node | None, new: Node, used: int | None) -> tuple[Node, Node, int]:
    """Keys or values of before, ``[..., P, D]``, of which ``used`` rows count (None for all), and new ones.

    Returns:
        All that count, what is kept for the next call, and how many there were before.
    """
    if past is None:
        return new, new, 0
    axis = len(new.shape) - 2
    room = past.shape[axis]
    before = room if used is None else used
    whole: Node = g.concat([g.narrow(past, axis, 0, before), new], axis)
    if used is None:
        return whole, whole, before
    spare = room - before - new.shape[axis]
    if spare < 0:
        raise RefusedError(f"{before + new.shape[axis]} keys in room for {room}")
    rest = g.narrow(past, axis, room - spare, spare)
    return whole, g.concat([whole, rest], axis), before


def _self_attention(
    call: OnnxCall,
    rows: Node,
    sizes: tuple[int, int, int],
    mask: Node | None,
    past: Node | None,
    extra: Node | None,
) -> tuple[Node, Node | None]:
    """Attention among rows ``[B, S, sum(sizes)]`` that hold queries, keys and values side by side.

    Returns:
        The result ``[B, S, sizes[2]]``; and the keys and values of all, ``[2, B, H, P + S, D]``, if wanted.
    """
    g, heads = call.g, call.integer("num_heads")
    q, k, v = (heads_apart(g, part, heads) for part in g.split(rows, list(sizes), 2))
    present, count = None, 0
    if past is not None or call.wants(1):
        call.need(sizes[1] == sizes[2], f"keys and values of {sizes[1:]} columns in one tensor")
        used = None
        if past is not None and call.integer("past_present_share_buffer", 0):
            used = int(call.number(6))
        new = g.concat([g.unsqueeze(k, (0,)), g.unsqueeze(v, (0,))], 0)
        whole, present, count = joined_past(g, past, new, used)
        k, v = (g.reshape(g.narrow(whole, 0, value, 1), whole.shape[1:]) for value in (0, 1))
    b, sq, sk = q.shape[0], q.shape[2], k.shape[2]
    bias = None if mask is None else padding(call, mask, (b, sq, sk), q)
    y, _ = attend(g, q, k, v, masked(call, summed(g, bias, extra), count, sq, sk, q))
    return heads_joined(g, y), present


@contrib("Attention")
def attention(call: OnnxCall) -> Any:
    """Attention among the rows of a tensor, which one product projects to queries, keys and values."""
    g = call.g
    if call.integer("do_rotary", 0):
        raise RefusedError("rotary embedding within it (do_rotary)")
    call.ignore("rotary_embedding_dim", "mask_filter_value")
    if not call.integer("past_present_share_buffer", 0):
        call.ignore(inputs=(6,))
    width = call.shape(1)[1]
    sizes = call.int_list("qkv_hidden_sizes") or (width // 3,) * 3
    call.need(len(sizes) == 3 and sum(sizes) == width, f"{sizes} of {width} columns")
    rows = g.matmul(call.x(0), call.x(1))
    if call.has(2):
        rows = g.add(rows, call.x(2))
    return _self_attention(call, rows, sizes, call.opt(3), call.opt(4), call.opt(5))


@contrib("QAttention")
def quantized_attention(call: OnnxCall) -> Any:
    """The same of 8-bit rows and weights; the scores and their product with the values are floats."""
    g = call.g
    if call.integer("do_rotary", 0):
        raise RefusedError("rotary embedding within it (do_rotary)")
    if call.integer("past_present_share_buffer", 0):
        raise RefusedError("a past with room for more (past_present_share_buffer)")
    call.ignore("mask_filter_value")
    width = call.shape(1)[1]
    call.need(width % 3 == 0, f"weights of {width} columns for queries, keys and values")
    exact = exact_product(g, call.x(0), call.x(1), call.opt(6), call.opt(7))
    rows = g.add(scaled_product(g, exact, call.x(3), call.x(4)), call.x(2))
    return _self_attention(call, rows, (width // 3,) * 3, call.opt(5), call.opt(8), None)


@contrib("MultiHeadAttention")
def multi_head_attention(call: OnnxCall) -> Any:
    """Attention of queries, keys and values that are projected already."""
    g, heads = call.g, call.integer("num_heads")
    call.ignore("mask_filter_value")
    q, k, v = _apart(call, heads)
    used = None
    if call.has(8) and call.has(6):
        used = int(call.number(8))
    call.ignore(inputs=(8,))
    call.need(call.has(6) == call.has(7), "past keys and values go together")
    k, present_k, past = joined_past(g, call.opt(6), k, used)
    v, present_v, _ = joined_past(g, call.opt(7), v, used)
    b, sq, sk = q.shape[0], q.shape[2], k.shape[2]
    bias = None
    if call.has(4):
        mask = call.x(4)
        if past and mask.shape == (b, sk - past):
            # Only the new keys are marked; those of before are all seen.
            mask = g.pad(mask, [(0, 0), (past, 0)], value=1)
        bias = padding(call, mask, (b, sq, sk), q)
    how = masked(call, summed(g, bias, call.opt(5)), past, sq, sk, q)
    if call.wants(3):
        if how.kind == "causal":
            how = how._replace(bias=hidden(g, seen_before(g, sq, sk, past)[0], q))
        how = how._replace(shown="scores", kind="none")
    y, shown = attend(g, q, k, v, how)
    return heads_joined(g, y), present_k, present_v, shown


def _apart(call: OnnxCall, heads: int) -> tuple[Node, Node, Node]:
    """Queries, keys and values ``[B, H, S, D]`` of any of the forms they come in, the bias added."""
    g, q = call.g, call.x(0)
    if len(q.shape) == 5:
        parts = _unpacked(g, q)
    elif len((k := call.x(1)).shape) == 5:
        parts = [q, *_unpacked(g, k)]
    else:
        parts = [q, k, call.x(2)]
    if call.has(3):
        bias, start = call.x(3), 0
        for i, part in enumerate(parts):
            if len(part.shape) == 4:
                break  # keys and values of another call, which have had theirs
            width = part.shape[-1]
            parts[i] = g.add(part, g.narrow(bias, 0, start, width))
            start += width
    split = [part if len(part.shape) == 4 else heads_apart(g, part, heads) for part in parts]
    return split[0], split[1], split[2]


def _unpacked(g: Graph, x: Node) -> list[Node]:
    """``[B, S, H, n, D]`` as n nodes ``[B, S, H D]``."""
    b, s, h, n, d = x.shape
    parts = g.split(x, [1] * n, 3)
    return [g.reshape(part, (b, s, math.prod((h, d)))) for part in parts]

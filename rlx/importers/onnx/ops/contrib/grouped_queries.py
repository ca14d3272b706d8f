"""Attention with fewer key-value heads than heads, and a cache of keys and values that is filled as it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.attention import heads_apart, heads_joined
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.contrib.positions import angles
from rlx.importers.onnx.ops.contrib.scores import Scores, attend, hidden, seen_before, summed
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Graph, Node
from rlx.ops.attention.rotary import Style

# The choices of output 3.
SHOWN = {0: "", 1: "scores", 2: "weights"}


@contrib("GroupQueryAttention")
def group_query_attention(call: OnnxCall) -> Any:
    """Attention of new queries over a cache that the new keys and values join."""
    g = call.g
    _refuse_other_caches(call)
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    q, k, v = _heads(call, heads, groups)
    b, steps = q.shape[0], q.shape[2]
    total = int(call.number(6))
    room = call.shape(3)[2] if call.has(3) else 0
    call.need(call.has(3) == call.has(4), "past keys and values go together")
    call.need(total >= steps, f"{total} keys for {steps} queries")
    # A batch of one, and a prompt, have no entry whose cache ends before the others'.
    prompt = total == steps
    even = prompt or b == 1
    call.ignore(inputs=(5,))
    before: Node | int = total - steps
    if not even:
        before = g.sub(g.cast(call.x(5), "i32"), g.constant(np.int32(steps - 1)))
    if call.integer("do_rotary", 0):
        q, k = _rotated(call, q, k, before)
    else:
        call.ignore("rotary_interleaved", inputs=(7, 8, 9))
    present = [
        _filled(g, call.opt(i), new, before, max(total, room)) for i, new in ((3, k), (4, v))
    ]
    keys, values = (g.narrow(x, 2, 0, total) for x in present)
    y, shown = attend(g, q, keys, values, _scores(call, q, before, total))
    return heads_joined(g, y), *present, shown


def _refuse_other_caches(call: OnnxCall) -> None:
    """Refuses caches in fewer bits, and those that forget."""
    for name in ("k_quant_type", "v_quant_type"):
        if call.text(name, "NONE") != "NONE":
            raise RefusedError(f"a quantised cache ({name})")
    if call.integer("sliding_window_cache", 0):
        raise RefusedError("a cache of the window only (sliding_window_cache)")
    if call.integer("kv_cache_bit_width", 0):
        raise RefusedError("a quantised cache (kv_cache_bit_width)")


def _heads(call: OnnxCall, heads: int, groups: int) -> tuple[Node, Node, Node]:
    """Queries, keys and values ``[B, heads, S, D]``; they may come side by side in one tensor."""
    g, q = call.g, call.x(0)
    if call.has(1):
        k, v = call.x(1), call.x(2)
    else:
        size = q.shape[2] // (heads + 2 * groups)
        q, k, v = g.split(q, [heads * size, groups * size, groups * size], 2)
    q, k, v = (
        heads_apart(g, x, count) for x, count in ((q, heads), (k, groups), (v, groups))
    )  # fmt: skip
    call.need(call.has(14) == call.has(15), "the norms of queries and keys go together")
    eps = call.real("qk_norm_epsilon", 1e-6)
    if call.has(14):
        q, k = g.rms_norm(q, call.x(14), eps=eps), g.rms_norm(k, call.x(15), eps=eps)
    return q, k, v


def _rotated(call: OnnxCall, q: Node, k: Node, before: Node | int) -> tuple[Node, Node]:
    """Queries and keys turned by the angles of their positions."""
    g, steps = call.g, q.shape[2]
    if call.has(9):
        places = call.x(9)
    else:
        step = np.arange(steps, dtype=np.int32).reshape(1, steps)
        if isinstance(before, int):
            places = g.constant(step + np.int32(before))
        else:
            places = g.add(g.reshape(before, (q.shape[0], 1)), g.constant(step))
    tables = angles(g, call.x(7), call.x(8), places)
    style: Style = "gptj" if call.integer("rotary_interleaved", 0) else "neox"
    count = 2 * tables[0].shape[-1]
    return (
        g.rope(q, *tables, n_rot=count, style=style),
        g.rope(k, *tables, n_rot=count, style=style),
    )


def _filled(g: Graph, past: Node | None, new: Node, before: Node | int, room: int) -> Node:
    """A cache ``[B, G, P, D]`` with new rows behind the ``before`` rows that count, in each batch entry or in all.

    Returns:
        ``[B, G, room, D]``. Rows past those that count are zeros, or what was kept there.
    """
    b, count, steps, d = new.shape
    if past is None:
        pad: Node = g.pad(new, [(0, 0), (0, 0), (0, room - steps), (0, 0)])
        return pad if room > steps else new
    if isinstance(before, int):
        rows = [g.narrow(past, 2, 0, before), new]
        spare = room - before - steps
        if spare > 0 and past.shape[2] == room:
            rows.append(g.narrow(past, 2, room - spare, spare))
        return g.concat(rows, 2)
    retained = g.pad(past, [(0, 0), (0, 0), (0, room - past.shape[2]), (0, 0)])
    places = g.constant(np.arange(room, dtype=np.int32).reshape(1, 1, room, 1))
    step = g.sub(places, g.reshape(before, (b, 1, 1, 1)))
    fresh = g.logical_and(
        g.ge(step, g.constant(np.int32(0))), g.lt(step, g.constant(np.int32(steps)))
    )
    stored = g.minimum(g.maximum(step, 0), steps - 1)
    output: Node = g.gather_elements(new, g.expand(stored, (b, count, room, d)), 2)
    return g.where(fresh, output, retained)


def _scores(call: OnnxCall, q: Node, before: Node | int, total: int) -> Scores:
    """Returns the transformations that the node applies to its scores."""
    g, steps = call.g, q.shape[2]
    window, causal = call.integer("local_window_size", -1), call.integer("causal", 1)
    how = Scores(
        call.real("scale", 0.0) or None,
        call.real("softcap", 0.0),
        call.opt(10),
        sink=call.opt(11),
        shown=SHOWN.get(call.integer("qk_output", 0), ""),
    )
    if not call.wants(3):
        how = how._replace(shown="")
    smooth = call.integer("smooth_softmax", -1)
    if smooth == 1 and how.sink is None:
        how = how._replace(sink=g.expand(g.constant(0.0, q.dtype), (q.shape[1],)))
    if how.bias is not None and how.bias.shape[3] > total:
        how = how._replace(bias=g.narrow(how.bias, 3, 0, total))
    call.need(causal or window < 0, "a window of a query that sees later keys")
    plain = how.bias is None and how.sink is None and not how.shown
    if causal and isinstance(before, int) and plain:
        return how._replace(kind="causal" if window < 0 else f"sliding:{window - 1}")
    if causal:
        seen, _ = seen_before(g, steps, total, before, window)
    else:
        # Keys after an entry's last key are padding.
        last = g.reshape(g.cast(call.x(5), "i32"), (q.shape[0], 1, 1, 1))
        seen = g.le(g.constant(np.arange(total, dtype=np.int32).reshape(1, 1, 1, total)), last)
    return how._replace(bias=summed(g, how.bias, hidden(g, seen, q)))

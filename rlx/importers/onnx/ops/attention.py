"""Attention and what belongs to it: rotary embedding, linear attention, causal convolution."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import OnnxValue, RefusedError, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ops.attention.rotary import Style

# Stands for minus infinity, which WGSL lets a driver assume away; far below any score.
FAR = {DType.F16: -60000.0}
FAR_WIDE = -1e30


def far(dtype: DType) -> float:
    """The score of a key that is not seen."""
    return FAR.get(dtype, FAR_WIDE)


def heads_apart(g: Graph, x: Node, heads: int) -> Node:
    """``[B, S, H D]`` as ``[B, H, S, D]``."""
    b, s, width = x.shape
    return g.transpose(g.reshape(x, (b, s, heads, width // heads)), (0, 2, 1, 3))


def _heads(g: Graph, x: Node, heads: int | None) -> Node:
    """The same of operands that may be apart already."""
    if len(x.shape) == 4:
        return x
    if not heads:
        raise ImportModelError("operands of rank 3 need the numbers of heads")
    return heads_apart(g, x, heads)


def heads_joined(g: Graph, x: Node) -> Node:
    """``[B, H, S, D]`` as ``[B, S, H D]``."""
    b, h, s, d = x.shape
    return g.reshape(g.transpose(x, (0, 2, 1, 3)), (b, s, h * d))


def repeated(g: Graph, x: Node, heads: int) -> Node:
    """Each key-value head once for every query head that shares it."""
    b, h, s, d = x.shape
    if h == heads:
        return x
    return g.reshape(g.expand(g.unsqueeze(x, (2,)), (b, h, heads // h, s, d)), (b, heads, s, d))


@onnx_op("Attention", since=23)
def attention(call: OnnxCall) -> Any:
    """Scaled dot-product attention with cache, masks, windows and soft cap."""
    g = call.g
    rank3 = call.rank(0) == 3
    q = _heads(g, call.x(0), call.integer("q_num_heads"))
    k = _heads(g, call.x(1), call.integer("kv_num_heads"))
    v = _heads(g, call.x(2), call.integer("kv_num_heads"))
    past = call.shape(4)[2] if call.has(4) else 0
    if call.has(4):
        k = g.concat([call.x(4), k], 2)
    if call.has(5):
        v = g.concat([call.x(5), v], 2)
    present = (k, v)
    heads, sq, sk = q.shape[1], q.shape[2], k.shape[2]
    scale = call.real("scale") or 1 / math.sqrt(q.shape[-1])
    softcap = call.real("softcap", 0.0)
    bias, seen = _mask(call, (q.shape[0], heads, sq, sk), past, q.dtype)
    if not call.wants(3) and bias is None and v.dtype is q.dtype:
        y = g.attention(
            q, k, v, scale=scale, softcap=softcap or None, num_heads=heads,
            num_kv_heads=k.shape[1],
        )  # fmt: skip
        return (heads_joined(g, y) if rank3 else y, *present)
    k, v = repeated(g, k, heads), repeated(g, v, heads)
    # The scale is split, so that half-precision products do not overflow.
    root = math.sqrt(scale)
    scores = g.matmul(g.mul(q, root), g.transpose(g.mul(k, root), (0, 1, 3, 2)))
    stages = [scores]
    if softcap:
        scores = g.mul(g.tanh(g.div(scores, softcap)), softcap)
    stages.append(scores)
    if bias is not None:
        scores = g.add(scores, bias)
    stages.append(scores)
    wide = scores
    precision = call.integer("softmax_precision")
    if precision is not None:
        target = element_of(precision, "softmax_precision").dtype
        if target is None:
            raise RefusedError(f"softmax_precision {precision}")
        wide = g.cast(scores, target)
    weights = g.softmax(wide)
    weights = weights if wide is scores else g.cast(weights, q.dtype)
    if seen is not None:
        weights = g.where(seen, weights, g.constant(0.0, weights.dtype))
    stages.append(weights)
    y = g.matmul(as_dtype(g, weights, v.dtype), v)
    shown = None
    if call.wants(3):
        shown = stages[call.integer("qk_matmul_output_mode", 0)]
        if shown is not weights and bias is not None:
            # The substitute of minus infinity is shown as minus infinity.
            unseen = g.constant(-np.inf, shown.dtype)
            shown = g.where(g.le(shown, far(shown.dtype) / 2), unseen, shown)
    return heads_joined(g, y) if rank3 else y, *present, shown


def _mask(
    call: OnnxCall, shape: tuple[int, ...], past: int, dtype: DType
) -> tuple[Node | None, Node | None]:
    """Returns the bias of the scores, and the rows that see any key (None if all do)."""
    g = call.g
    b, _, sq, sk = shape
    causal = call.integer("is_causal", 0)
    left, right = call.integer("left_window_size", -1), call.integer("right_window_size", -1)
    allowed: Node | None = None
    if causal or left >= 0 or right >= 0:
        limited((sq, sk))
        rows = np.arange(sq, dtype=np.int32)[None, None, :, None]
        columns = g.constant(np.arange(sk, dtype=np.int32)[None, None, None])
        if call.has(6) and not call.has(4):
            offset = g.sub(g.cast(call.x(6), "i32"), g.constant(np.int32(sq)))
            pos = g.add(g.reshape(offset, (b, 1, 1, 1)), g.constant(rows))
        else:
            pos = g.constant(rows + past)
        allowed = _window(g, columns, pos, causal, left, right)
    if call.has(6):
        limited((sk,))
        keys = g.constant(np.arange(sk, dtype=np.int64)[None, None, None])
        filled = g.lt(keys, g.reshape(g.cast(call.x(6), "i64"), (b, 1, 1, 1)))
        allowed = filled if allowed is None else g.logical_and(allowed, filled)
    bias: Node | None = None
    if call.has(3):
        mask = call.x(3)
        spare = sk - mask.shape[-1]
        if spare > 0:
            value: Any = False if mask.dtype is DType.BOOL else far(dtype)
            pads = [(0, 0)] * (len(mask.shape) - 1) + [(0, spare)]
            mask = g.pad(mask, pads, value=value)
        if mask.dtype is DType.BOOL:
            allowed = mask if allowed is None else g.logical_and(allowed, mask)
        else:
            bias = g.maximum(mask, far(dtype))
    if allowed is not None:
        zero, low = g.constant(0.0, dtype), g.constant(far(dtype), dtype)
        bias = g.where(allowed, zero if bias is None else bias, low)
    if bias is None:
        return None, None
    seen = g.gt(g.max(bias, (len(bias.shape) - 1,), True), far(dtype) / 2)
    return bias, seen


def _window(g: Graph, keys: Node, indices: Node, causal: int, left: int, right: int) -> Node:
    bounds = []
    if causal:
        bounds.append(g.le(keys, indices))
    if right >= 0:
        bounds.append(g.le(keys, g.add(indices, g.constant(np.int32(right)))))
    if left >= 0:
        bounds.append(g.ge(keys, g.sub(indices, g.constant(np.int32(left)))))
    return reduce(g.logical_and, bounds)


@onnx_op("FlexAttention", domain="ai.onnx.preview", raw=True)
def flex_attention(call: OnnxCall) -> Any:
    """Attention whose scores and weights subgraphs may change."""
    g, q, k, v = call.g, call.x(0), call.x(1), call.x(2)
    scale = call.real("scale") or 1 / math.sqrt(q.shape[-1])
    heads = q.shape[1]
    k, v = repeated(g, k, heads), repeated(g, v, heads)
    precision = call.integer("softmax_precision")
    wide = DType.F64 if q.dtype is DType.F64 else DType.F32
    if precision is not None:
        wide = element_of(precision, "softmax_precision").dtype or wide
    scores = g.mul(g.matmul(q, g.transpose(k, (0, 1, 3, 2))), scale)
    scores = _modified(call, "score_mod", as_dtype(g, scores, wide))
    return g.matmul(as_dtype(g, _modified(call, "prob_mod", g.softmax(scores)), v.dtype), v)


def _modified(call: OnnxCall, name: str, x: Node) -> Node:
    if name not in call.attributes:
        return x
    graph = call.subgraph(name)
    scope = call.scope.inner()
    scope.define(graph.inputs[0].name, OnnxValue.of(x))
    (result,) = call.lowering.body(graph, scope, call.site)
    if not isinstance(result, OnnxValue):
        raise ImportModelError(f"{name} gives no tensor")
    return call.site.node(result)


@onnx_op("RotaryEmbedding", since=23)
def rotary(call: OnnxCall) -> Any:
    """Pairs of a head's entries rotated by angles of their position."""
    g, x = call.g, call.x(0)
    rank3 = len(x.shape) == 3
    wide = _heads(g, x, call.integer("num_heads", 0))
    b, _, s, d = wide.shape
    rotated = call.integer("rotary_embedding_dim", 0) or d
    call.need(
        rotated % 2 == 0 and 0 <= rotated <= d, f"{rotated} of {d} entries of a head in pairs"
    )
    tables = []
    for value in (1, 2):
        table = call.x(value)
        ranks = (2, "two") if call.has(3) else (3, "three")
        call.need(len(table.shape) == ranks[0], f"a table of angles needs {ranks[1]} axes")
        if call.has(3):
            table = g.gather(table, call.x(3), 0)
        tables.append(g.reshape(table, (*((b, 1, s)), rotated // 2)))
    style: Style = "gptj" if call.integer("interleaved", 0) else "neox"
    cos, sin = tables
    head = g.rope(wide, cos, sin, n_rot=rotated, style=style)
    return heads_joined(g, head) if rank3 else head


@onnx_op("CausalConvWithState")
def causal_conv(call: OnnxCall) -> Any:
    """Each channel convolved with its past; the last entries are the state of the next call."""
    g, x, w = call.g, call.x(0), call.x(1)
    before = w.shape[2] - 1
    past = call.opt(3)
    if past is None:
        past = g.expand(g.constant(0.0, x.dtype), (*x.shape[:2], before))
    whole = g.concat([past, x], 2)
    y = g.conv1d(whole, w, call.opt(2), groups=x.shape[1])
    if call.text("activation", "none") in ("silu", "swish"):
        y = g.silu(y)
    return y, g.narrow(whole, 2, whole.shape[2] - before, before)


@onnx_op("LinearAttention")
def linear_attention(call: OnnxCall) -> Any:
    """A matrix of keys and values that is carried from step to step (linear, gated, delta rules)."""
    g = call.g
    qh, kh = call.integer("q_num_heads"), call.integer("kv_num_heads")
    rule = call.text("update_rule", "gated_delta")
    q, k, v = (
        _heads(g, call.x(i), heads) for i, heads in ((0, qh), (1, kh), (2, kh))
    )  # fmt: skip
    b, _, steps, dk = q.shape
    dv = v.shape[3]
    scale = call.real("scale", 0.0) or 1 / math.sqrt(dk)
    kind = q.dtype
    wide = kind if kind is DType.F64 else DType.F32
    state = call.opt(3)
    if state is None:
        state = g.expand(g.constant(0.0, kind), (b, kh, dk, dv))
    args = [("q", q), ("k", k), ("v", v)]
    for name, index in (("decay", 4), ("beta", 5)):
        if call.has(index):
            x = call.x(index)
            if x.shape[2] % kh:
                x = g.expand(x, (*x.shape[:2], kh))
            args.append((name, _heads(g, x, kh)))
    # Time leads: [T, B, H, ...].
    rows = [g.transpose(as_dtype(g, x, wide), (2, 0, 1, 3)) for _, x in args]
    body = Graph("linear_attention")
    stored = body.input("state", (b, kh, dk, dv), wide)
    step = {
        name: body.input(name, row.shape[1:], wide)
        for (name, _), row in zip(args, rows, strict=True)
    }
    new = stored
    if "gated" in rule:
        new = body.mul(new, body.unsqueeze(body.exp(step["decay"]), (3,)))
    key = body.unsqueeze(step["k"], (3,))
    value = body.unsqueeze(step["v"], (2,))
    if "delta" in rule:
        seen = body.sum(body.mul(new, key), (2,), True)
        value = body.sub(value, seen)
        value = body.mul(value, body.unsqueeze(step["beta"], (3,)))
    new = body.add(new, body.mul(key, value))
    shared = body.reshape(step["q"], (b, kh, qh // kh, dk))
    out = body.mul(body.matmul(shared, new), scale)
    body.set_outputs([new, body.reshape(out, (b, qh, dv))])
    last, ys = g.scan(body, 1, as_dtype(g, state, wide), *rows)
    y = g.reshape(g.transpose(ys, (1, 0, 2, 3)), (b, steps, qh * dv))
    return as_dtype(g, y, kind), as_dtype(g, last, kind)

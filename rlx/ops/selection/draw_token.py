"""The next token of a text, drawn from its best candidates on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import same_size
from rlx.ops.declare import op
from rlx.ops.movement.strided import emit_strided_copy
from rlx.sizes import may_exceed

# Most candidates: threads of shaders/selection/draw_token.wgsl.
CANDIDATES = 64
_DTYPES = (DType.F32, DType.I32, DType.I32, DType.F32)
# Settings before the recent tokens.
SETTINGS = 6
# Scores below this are taken for it.
_LEAST = -1e30


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    dtypes = tuple(type.dtype for type in types)
    if dtypes != _DTYPES:
        raise DTypeError("[draw_token] operands", got=dtypes, expected=_DTYPES)
    values, indices, tokens, settings = (type.shape for type in types)
    fits = [len(type.shape) for type in types] == [2, 2, 1, 1] and values == indices
    fits = fits and 0 < values[1] <= CANDIDATES and settings[0] >= SETTINGS
    if not fits or same_size(tokens[0], 0):
        got = ", ".join(map(str, types))
        expected = (
            f"[rows, k] twice, [tokens], [{SETTINGS} or more] of up to {CANDIDATES} candidates"
        )
        raise ShapeError("[draw_token] operands do not fit", got=got, expected=expected)
    return TensorType((1 if may_exceed(values[0], 0) else 0,), DType.I32)


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    g = Graph("draw token")
    inputs = [g.input(f"x{i}", item.shape, item.dtype) for i, item in enumerate(node.inputs)]
    *rows, tokens, settings = inputs
    k, last = rows[0].shape[1], g.narrow(tokens, 0, tokens.shape[0] - 1, 1)
    values, indices = (g.squeeze(g.narrow(x, 0, x.shape[0] - 1, 1), 0) for x in rows)
    heat, top_k, top_p, min_p, penalty, u = (g.narrow(settings, 0, i, 1) for i in range(SETTINGS))
    recent = g.cast(g.narrow(settings, 0, SETTINGS, settings.shape[0] - SETTINGS), "i32")
    seen = g.eq(g.unsqueeze(indices, 1), g.unsqueeze(g.concat([recent, last], 0), 0))
    seen = g.gt(g.max(g.cast(seen, "f32"), [1]), 0.0)
    known = g.where(g.is_nan(values), _LEAST, g.maximum(values, _LEAST))
    scores = g.where(g.gt(known, 0.0), known / penalty, known * penalty)
    scores, order = g.topk(g.where(seen, scores, known), k)
    rank, hot = g.cast(g.arange(k), "f32"), g.gt(heat, 0.0)
    p = g.exp((scores - g.narrow(scores, 0, 0, 1)) / g.where(hot, heat, 1.0))
    worst = g.min(g.where(g.lt(rank, g.where(hot, top_k, 1.0)), scores, -_LEAST), [0], True)
    # Of equal ones all are kept.
    p = g.where(g.logical_and(g.ge(scores, worst), g.logical_or(hot, g.lt(rank, 1.0))), p, 0.0)
    p = p / g.sum(p, [0], True)
    kept = g.logical_and(g.lt(g.cumsum(p, 0, True), top_p), g.ge(p, min_p * g.narrow(p, 0, 0, 1)))
    p = g.where(kept, p, 0.0)
    total = g.cumsum(p, 0)
    passed = g.sum(g.cast(g.le(total, u * g.narrow(total, 0, k - 1, 1)), "f32"), [0], True)
    place = g.minimum(passed, g.sum(g.cast(g.gt(p, 0.0), "f32"), [0], True) - 1.0)
    token = g.gather(indices, g.gather(order, g.cast(g.maximum(place, 0.0), "i32")))
    unsure = g.logical_not(g.lt(g.abs(g.narrow(values, 0, 0, 1)), -_LEAST))
    if not node.attrs["all"]:
        others = g.logical_and(
            g.logical_or(hot, g.gt(penalty, 1.0)), g.le(worst, g.narrow(values, 0, k - 1, 1))
        )
        unsure = g.logical_or(unsure, others)
    g.set_outputs([g.where(unsure, np.int32(-1), token)])
    (made,) = emitter.inline(g, [emitter.operand(i) for i in range(4)])
    emit_strided_copy(emitter, made, emitter.result(), DType.I32, (1,), (1,), (1,))


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    sizes = {name: node.inputs[i].shape[0] for name, i in (("lines", 0), ("count", 2), ("end", 3))}
    operands = [emitter.operand(i) for i in range(4)]
    params = {**sizes, "k": node.inputs[0].shape[1], "all": int(node.attrs["all"])}
    emitter.call("draw_token", operands, [emitter.result()], params, 1)


def _samples() -> tuple[Sample, ...]:
    results: list[tuple[Array, Array, Array, Array, bool]] = []
    for k, settings, recent, every in (
        (64, (0.8, 40, 0.95, 0.05, 1.0, 0.3), (-1,), False),
        (64, (0.8, 40, 0.95, 0.05, 1.0, 0.99), (-1,), False),
        (64, (0.0, 1, 1.0, 0.0, 1.0, 0.5), (7, 11), False),
        (50, (2.0, 63, 1.0, 0.0, 1.3, 0.77), tuple(range(20)), True),
        (50, (2.0, 20, 0.6, 0.2, 1.2, 0.6), tuple(range(0, 80, 2)), False),
        (64, (1.0, 60, 1.0, 0.0, 9.0, 0.6), (1,), False),
        (64, (1.0, 64, 1.0, 0.0, 1.0, 0.6), (1,), False),
        (1, (1.0, 5, 0.5, 0.5, 2.0, 0.9), (0,), True),
        (9, (1.0, 9, 0.01, 0.0, 0.7, 0.9), (27,), True),
    ):
        values, tokens = 4 - np.arange(k) ** 1.2 / 9, np.array([3, 13])
        how = np.array((*settings, *recent))
        results.append((values, np.arange(k) * 13 % 101, tokens, how, every))
    ties = np.repeat(np.arange(9.0, 0, -1), 2)
    for u, top_k, every in ((0.1, 1, False), (0.9, 1, True), (0.9, 17, False), (0.99, 3, False)):
        how = np.array((1.0, top_k, 1.0, 0.0, 1.0, u))
        results.append((ties, np.arange(18), np.array([99]), how, every))
    for top in (np.nan, np.inf, -np.inf):
        how = np.array((1.0, 3, 1.0, 0.0, 1.0, 0.5))
        results.append((np.full(3, top), np.arange(3), np.array([0]), how, True))
    # The last row counts.
    none = Sample(((0, 5), (0, 5), (2,), (6,)), {"all": False}, _DTYPES)
    return none, *(
        Sample(
            (best.shape, index.shape, tokens.shape, how.shape),
            {"all": every},
            _DTYPES,
            values=(best, index, tokens, how),
        )
        for (values, indices, tokens, how, every) in results
        for best, index in ((np.stack([-values, values]), np.stack([indices - 1, indices])),)
    )


@op(
    infer=_infer,
    free=("indices", "tokens", "settings"),
    cpu=Kernels(("elementwise",), _lower_cpu),
    webgpu=Kernels(("draw_token",), _lower_webgpu),
    internal=True,
    dtypes=frozenset({DType.F32}),
    samples=_samples,
)
def draw_token(values: Array, indices: Array, tokens: Array, settings: Array, all: bool) -> Array:
    """A token of candidates, i32 ``[1]``, or of none ``[0]``; -1 where they do not say which one, or the best is not finite.

    The last rows of ``values`` and ``indices`` are the largest logits in order and their tokens; ``all`` says that there are
    no others.
    ``settings`` are temperature, top-k, top-p, min-p, the penalty of recent tokens, a random number, and those tokens; the
    last of ``tokens`` is one of them. See ``rlx.lm.Sampling``.
    """
    if not len(values):
        return np.zeros(0, np.int32)
    values, indices = values[-1], indices[-1]
    heat, top_k, top_p, min_p, penalty, u = (settings[i : i + 1] for i in range(SETTINGS))
    rank, hot = np.arange(values.shape[0]), heat > 0
    scores = np.where(np.isnan(values), _LEAST, np.clip(values, _LEAST, -_LEAST))
    recent = np.concatenate([settings[SETTINGS:].astype(np.int32), tokens[-1:]])
    seen = np.max(np.where(indices[:, None] == recent[None, :], 1, 0), 1) > 0
    scores = np.where(seen, np.where(scores > 0, scores / penalty, scores * penalty), scores)
    order = np.argsort(-scores, kind="stable")
    scores = np.take(scores, order)
    worst = np.min(np.where(rank < np.where(hot, top_k, 1), scores, -_LEAST))
    p = np.exp((scores - scores[:1]) / np.where(hot, heat, 1))
    p = np.where((scores >= worst) & (hot | (rank < 1)), p, 0)
    p = p / np.sum(p)
    p = np.where((np.cumsum(p) - p < top_p) & (p >= min_p * p[:1]), p, 0)
    total = np.cumsum(p)
    passed = np.sum(np.where(total <= u * total[-1:], 1, 0))
    place = np.minimum(passed, np.sum(np.where(p > 0, 1, 0)) - 1)
    unsure = np.logical_not(np.abs(values[:1]) < -_LEAST)
    if not all:
        unsure = unsure | ((hot | (penalty > 1)) & (worst <= values[-1:]))
    return np.where(unsure, -1, np.take(indices, np.take(order, place))).astype(np.int32)

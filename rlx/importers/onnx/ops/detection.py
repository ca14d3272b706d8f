"""Boxes that are kept, and n-grams that are counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.values import Array, RefusedError
from rlx.ir.graph import Node

MAX_SKIPS = 1024


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes ``[N, 4]`` as (low y, low x, high y, high x)."""
    if centred:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], 1)
    low, high = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(low, high), np.maximum(low, high)], 1)


def _overlap(box: Array, others: Array) -> Array:
    """Intersection over union of a box with each of others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    area = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - common
    return np.asarray(np.where(area > 0, common / np.where(area > 0, area, 1), 0))


@onnx_op("NonMaxSuppression", raw=True)
def non_max_suppression(call: OnnxCall) -> Any:
    """The best boxes that do not cover each other; how many there are is only known with the boxes."""
    boxes, scores = call.known(0).astype(np.float64), call.known(1).astype(np.float64)
    call.need(
        boxes.ndim == scores.ndim == 3 and boxes.shape == (scores.shape[0], scores.shape[2], 4),
        f"boxes of shape {boxes.shape} and scores of shape {scores.shape}",
    )
    limit = int(call.number(2)) if call.has(2) else 0
    threshold = float(call.number(3)) if call.has(3) else 0.0
    call.need(0 <= threshold <= 1, f"an overlap of {threshold}")
    least = float(call.number(4)) if call.has(4) else -np.inf
    results = []
    for batch, classes in enumerate(scores):
        corners = _corners(boxes[batch], bool(call.integer("center_point_box", 0)))
        for kind, score in enumerate(classes):
            left = [i for i in np.argsort(-score, kind="stable") if score[i] > least]
            retained = 0
            while left and retained < limit:
                best = left.pop(0)
                results.append((batch, kind, int(best)))
                retained += 1
                if left:
                    free = _overlap(corners[best], corners[left]) <= threshold
                    left = [i for i, ok in zip(left, free, strict=True) if ok]
    return np.array(results, np.int64).reshape(-1, 3)


@onnx_op("TfIdfVectorizer")
def tfidf(call: OnnxCall) -> Any:
    """Counts each n-gram of a pool in a row, with up to some tokens skipped between."""
    g, x = call.g, call.x()
    pool = call.int_list("pool_int64s")
    if pool is None:
        raise RefusedError("n-grams of strings")
    rows = x if len(x.shape) == 2 else g.unsqueeze(x, (0,))
    n, width = rows.shape
    starts, places = call.int_list("ngram_counts"), call.int_list("ngram_indexes")
    shortest, longest = call.integer("min_gram_length"), call.integer("max_gram_length")
    skips, weights = call.integer("max_skip_count"), call.float_list("weights")
    size = max(places) + 1
    limited((n, size))
    if not 0 <= skips <= MAX_SKIPS:
        raise ImportModelError(f"up to {skips} tokens skipped")
    counts: list[Node | None] = [None] * size
    gram = 0
    for length in range(1, len(starts) + 1):
        stop = starts[length] if length < len(starts) else len(pool)
        for i in range(starts[length - 1], stop, length):
            place, gram = places[gram], gram + 1
            if shortest <= length <= longest:
                tokens = pool[i : i + length]
                result = _counted(g, rows, tokens, skips, n, width)
                known = counts[place]
                counts[place] = result if known is None or result is None else g.add(known, result)
    zero = g.constant(np.zeros((n, 1), np.float32))
    y = g.concat([zero if count is None else count for count in counts], 1)
    mode = call.text("mode", "TF")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ImportModelError(f"no such mode: {mode!r}")
    if mode != "TF":
        by_place = np.ones(size, np.float32)
        for place, weight in zip(places, weights or (), strict=False):
            by_place[place] = weight
        y = g.minimum(y, 1.0) if mode == "IDF" else y
        y = g.mul(y, g.constant(by_place))
    return y if len(x.shape) == 2 else g.reshape(y, (size,))


def _counted(
    g: Any, rows: Node, tokens: tuple[int, ...], skips: int, n: int, width: int
) -> Node | None:
    """Counts tokens in each row, for every distance between them up to ``skips`` + 1: ``[n, 1]``."""
    total: Node | None = None
    for step in range(1, (skips if len(tokens) > 1 else 0) + 2):
        windows = width - (len(tokens) - 1) * step
        if windows < 1:
            break
        match: Node | None = None
        for i, token in enumerate(tokens):
            part = g.narrow(rows, 1, i * step, windows)
            same = g.eq(part, g.constant(np.array(token, rows.dtype.numpy)))
            match = same if match is None else g.logical_and(match, same)
        result = g.sum(g.cast(match, "f32"), (1,), True)
        total = result if total is None else g.add(total, result)
    return total

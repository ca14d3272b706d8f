"""Boxes that are kept, and n-grams that are counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Node

MAX_SKIPS = 1024


@onnx_op("NonMaxSuppression")
def non_max_suppression(call: OnnxCall) -> Any:
    """The best boxes that do not cover each other, as many as the run finds."""
    g, boxes, scores = call.g, call.x(0), call.x(1)
    limit = _number(call, 2, 0)
    overlap, least = _number(call, 3, 0.0), _number(call, 4, None)
    call.need(isinstance(overlap, Node) or 0 <= overlap <= 1, f"an overlap of {overlap}")
    centred = bool(call.integer("center_point_box", 0))
    return g.non_max_suppression(boxes, scores, limit, overlap, least, centred)


def _number(call: OnnxCall, index: int, default: Any) -> Any:
    """A number that may be computed: a scalar then."""
    if not call.has(index):
        return default
    return call.g.reshape(call.x(index), ()) if call.depends(index) else call.number(index)


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
                result = _counted(g, rows, pool[i : i + length], skips, n, width)
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

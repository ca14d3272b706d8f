"""Losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.ir.graph import Node


def _loss(call: OnnxCall, scores: Node) -> Node:
    """Minus the score of the right class of each position, by its class's weight."""
    g, target = call.g, call.x(1)
    n, classes = scores.shape[:2]
    rest = math.prod(scores.shape[2:])
    expected = (n, *scores.shape[2:])
    call.need(target.shape == expected, f"labels of shape {target.shape}, not {expected}")
    labels = g.reshape(g.cast(target, "i64"), (n, 1, rest))
    retained: Node | None = None
    ignore = call.integer("ignore_index")
    if ignore is not None:
        retained = g.ne(labels, g.constant(np.int64(ignore)))
        labels = g.where(retained, labels, g.constant(np.int64(0)))
    loss = g.neg(g.gather_elements(g.reshape(scores, (n, classes, rest)), labels, 1))
    weight: Node | None = None
    if call.has(2):
        args = call.x(2).shape
        call.need(math.prod(args) == classes, f"weights of shape {args}, not ({classes},)")
        weight = g.reshape(g.gather(call.x(2), g.reshape(labels, (n * rest,)), 0), (n, 1, rest))
    zero, first = g.constant(0.0, scores.dtype), g.constant(1.0, scores.dtype)
    if retained is not None:
        weight = g.where(retained, first if weight is None else weight, zero)
    if weight is not None:
        loss = g.mul(loss, weight)
        if retained is not None:
            # A score of minus infinity at an ignored position must not become NaN.
            loss = g.where(retained, loss, zero)
    reduction = call.text("reduction", "mean")
    if reduction == "none":
        return g.reshape(loss, (n, *scores.shape[2:]))
    total = g.sum(loss)
    if reduction == "sum":
        return total
    if weight is None:
        return g.mul(total, 1.0 / max(n * rest, 1))
    return g.div(total, g.sum(g.expand(weight, loss.shape)))


@onnx_op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(call: OnnxCall) -> Any:
    """Computes the loss of scores that are logarithms."""
    return _loss(call, call.x())


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(call: OnnxCall) -> Any:
    """Computes the loss of any scores; their logarithms after softmax are a result too."""
    scores = call.g.log_softmax(call.x(), axis=1)
    return _loss(call, scores), scores

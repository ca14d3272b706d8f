"""Ensembles of decision trees, and what their operators make of the scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.ml.forest import Forest, from_nodes, from_splits, scores
from rlx.importers.onnx.ops.ml.outcomes import Labels, as_float, ml, rows, transformed, two_columns
from rlx.importers.onnx.values import Array, RefusedError, as_dtype
from rlx.ir.graph import Node

# The enumerations of version 5.
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _base(call: OnnxCall, count: int) -> Array | None:
    """Returns the base that is added to the scores of every row."""
    stored = call.tensor("base_values_as_tensor")
    args = np.array(call.float_list("base_values", ()))
    if stored is not None and stored.array is not None:
        args = stored.array.ravel()
    if not args.size:
        return None
    call.need(args.size == count, f"{args.size} base values for {count} scores")
    return args


def _with_base(call: OnnxCall, y: Node, base: Array | None) -> Node:
    if base is None:
        return y
    return call.g.add(y, call.g.constant(base.astype(y.dtype.numpy)))


@ml("TreeEnsembleRegressor")
def regressor(call: OnnxCall) -> Any:
    """Sums the leaves for each target, or joins them in another way."""
    x, count = rows(call), call.integer("n_targets", 1)
    forest = from_nodes(call, "target", count)
    y = scores(call.g, x, forest, call.text("aggregate_function", "SUM"))
    return as_float(call.g, transformed(call, _with_base(call, y, _base(call, count))))


@ml("TreeEnsemble", since=5)
def ensemble(call: OnnxCall) -> Any:
    """The same in the form of version 5, where leaves stand apart from splits."""
    x, count = rows(call), call.integer("n_targets", 1)
    aggregate = AGGREGATES[call.integer("aggregate_function", 1)]
    y = scores(call.g, x, from_splits(call, count), aggregate)
    y = transformed(call, y, POSTS[call.integer("post_transform", 0)])
    return as_dtype(call.g, y, call.dtype())


@ml("TreeEnsembleClassifier")
def classifier(call: OnnxCall) -> Any:
    """The label with the largest score, and the scores; two classes may share one score."""
    g, x = call.g, rows(call)
    labels = Labels(call, "classlabels_int64s")
    forest = from_nodes(call, "class", labels.count)
    ids = set(call.int_list("class_ids", ()))
    if labels.count == 2 and len(ids) == 1:
        return _two_classes(call, x, forest, labels, ids.pop())
    y = _with_base(call, scores(g, x, forest, "SUM"), _base(call, labels.count))
    return labels.best(g, y), as_float(g, transformed(call, y))


def _two_classes(call: OnnxCall, x: Node, forest: Forest, labels: Labels, place: int) -> Any:
    """Two classes of which the leaves hold one score: a probability, or positive for the second class."""
    g = call.g
    both = scores(g, x, forest, "SUM")
    score = g.narrow(both, 1, place, 1)
    probability = bool((forest.weights >= 0).all())
    limit = 0.5 if probability else 0.0
    if place == 0:
        score = _with_base(call, score, _base(call, 1))
        y = two_columns(call, score, "one" if probability else "negative")
    else:
        if _base(call, 2) is not None:
            raise RefusedError("base values of two classes of which one has a score")
        y = transformed(call, both)
    chosen = g.reshape(g.gt(score, limit), (score.shape[0],))
    return labels.second_if(g, chosen), as_float(g, y)

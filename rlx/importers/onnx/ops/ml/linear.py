"""Linear models."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.ml.outcomes import Labels, as_float, ml, rows, transformed, two_columns
from rlx.ir.graph import Node


def _product(call: OnnxCall, count: int) -> Node:
    """The scores ``[N, count]`` of rows by coefficients and intercepts."""
    g, x = call.g, rows(call)
    weights = np.array(call.float_list("coefficients", ()), x.dtype.numpy)
    call.need(
        weights.size == count * x.shape[1],
        f"{weights.size} coefficients for {count} scores of {x.shape[1]} features",
    )
    y: Node = g.matmul(x, g.constant(weights.reshape(count, x.shape[1]).T.copy()))
    intercepts = call.float_list("intercepts", ())
    if not intercepts:
        return y
    call.need(len(intercepts) == count, f"{len(intercepts)} intercepts for {count} scores")
    return g.add(y, g.constant(np.array(intercepts, x.dtype.numpy)))


@ml("LinearRegressor")
def linear_regressor(call: OnnxCall) -> Any:
    """A sum of weighted features for each target."""
    return as_float(call.g, transformed(call, _product(call, call.integer("targets", 1))))


@ml("LinearClassifier")
def linear_classifier(call: OnnxCall) -> Any:
    """The label with the largest score, and the scores; two classes may share one score."""
    g, labels = call.g, Labels(call, "classlabels_ints")
    call.ignore("multi_class")  # says how the coefficients were found
    intercepts = len(call.float_list("intercepts", ()))
    count = intercepts or len(call.float_list("coefficients", ())) // max(rows(call).shape[1], 1)
    scores = _product(call, count)
    if count == 1 and labels.count == 2:
        chosen = g.reshape(g.gt(scores, 0.0), (scores.shape[0],))
        return labels.second_if(g, chosen), as_float(g, two_columns(call, scores, "one"))
    call.need(count == labels.count, f"{count} scores for {labels.count} labels")
    return labels.best(g, scores), as_float(g, transformed(call, scores))

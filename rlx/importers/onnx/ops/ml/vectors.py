"""Support vector machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.ml.coupling import coupled
from rlx.importers.onnx.ops.ml.outcomes import Labels, as_float, ml, rows, transformed, two_columns
from rlx.importers.onnx.values import Array
from rlx.ir.graph import Graph, Node

# The largest squared length of a support vector, times gamma, up to which rounding squared distances as sums of squares and
# products changes a kernel by less than 4e-6 of it: 4 * 16 / 2**24.
_MOST_SCALED = 16.0
# The kernel functions: graph, rows [N, F], support vectors [S, F], gamma, coef0, degree -> [N, S].
Kernel = Callable[[Graph, Node, Array, float, float, float], Any]


def _dot(g: Graph, x: Node, vectors: Array) -> Node:
    return g.matmul(x, g.constant(vectors.T.copy()))


def _poly(g: Graph, x: Node, v: Array, gamma: float, coef0: float, degree: float) -> Node:
    base = g.add(g.mul(_dot(g, x, v), gamma), coef0)
    return g.pow(base, g.constant(np.array(degree, x.dtype.numpy)))


def _rbf(g: Graph, x: Node, v: Array, gamma: float, coef0: float, degree: float) -> Node:
    with np.errstate(over="ignore", invalid="ignore"):
        centre = v.mean(0)
        near = v - centre
        squares = (near * near).sum(1)
    if 0 <= gamma * squares.max() <= _MOST_SCALED:
        x = g.sub(x, g.constant(centre))
        own = g.sum(g.mul(x, x), (1,), True)
        apart = g.sub(g.add(own, g.constant(squares)), g.mul(_dot(g, x, near), 2.0))
        apart = g.where(g.eq(own, math.inf), own, g.maximum(apart, 0.0))  # infinite rows are far
    else:
        # By differences: those of squares would cancel between rows that are near each other.
        each = g.sub(g.unsqueeze(x, (1,)), g.constant(v[None]))
        apart = g.sum(g.mul(each, each), (2,))
    return g.exp(g.mul(apart, -gamma))


KERNELS: Mapping[str, Kernel] = {
    "LINEAR": lambda g, x, v, *_: _dot(g, x, v),
    "POLY": _poly,
    "RBF": _rbf,
    "SIGMOID": lambda g, x, v, gamma, coef0, _: g.tanh(g.add(g.mul(_dot(g, x, v), gamma), coef0)),
}


def _kernel(call: OnnxCall, x: Node, count: int) -> Node:
    """The kernel of every row and every one of ``count`` support vectors."""
    args = call.float_list("support_vectors", ())
    call.need(
        len(args) == count * x.shape[1], f"{len(args)} numbers for {count} vectors of {x.shape[1]}"
    )
    vectors = np.array(args, x.dtype.numpy).reshape(count, x.shape[1])
    gamma, coef0, degree = call.float_list("kernel_params") or (0.0, 0.0, 0.0)
    result: Node = KERNELS[call.text("kernel_type", "LINEAR")](
        call.g, x, vectors, gamma, coef0, degree
    )
    return result


def _weighted(call: OnnxCall, x: Node, count: int, weights: Array) -> Node:
    """Sums over support vectors, or over features where there are none: ``[N, columns]``."""
    wide = weights.astype(x.dtype.numpy)
    return call.g.matmul(_kernel(call, x, count) if count else x, call.g.constant(wide))


@ml("SVMRegressor")
def svm_regressor(call: OnnxCall) -> Any:
    """A weighted sum of kernels; of one class, whether it is above 0 (1 or -1)."""
    g, x, count = call.g, rows(call), call.integer("n_supports", 0)
    if not count:
        call.ignore("support_vectors", "kernel_type", "kernel_params")
    weights = np.array(call.float_list("coefficients", ()))
    call.need(weights.size == (count or x.shape[1]), f"{weights.size} coefficients")
    y = _weighted(call, x, count, weights[:, None])
    y = g.add(y, float((call.float_list("rho") or (0.0,))[0]))
    if call.integer("one_class", 0):
        first, other = g.constant(1.0, x.dtype), g.constant(-1.0, x.dtype)
        return as_float(g, g.where(g.gt(y, 0.0), first, other))
    return as_float(g, transformed(call, y))


def pairs(sizes: tuple[int, ...], array: Array) -> Array:
    """The weights of every support vector in the decision between every two classes.

    ``array`` is ``[classes - 1, vectors]``: of a vector, its weights against the other classes in order.

    Returns:
        ``[vectors, pairs]``, the pairs (0, 1), (0, 2) ... (1, 2) ...
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    columns = []
    for i, j in combinations(range(len(sizes)), 2):
        column = np.zeros(array.shape[1])
        first, second = slice(*starts[i : i + 2]), slice(*starts[j : j + 2])
        column[first], column[second] = array[j - 1, first], array[i, second]
        columns.append(column)
    return np.stack(columns, 1)


@ml("SVMClassifier")
def svm_classifier(call: OnnxCall) -> Any:
    """The label that most decisions between two classes name, and the decisions or probabilities."""
    g, x = call.g, rows(call)
    labels = Labels(call, "classlabels_ints")
    sizes = call.int_list("vectors_per_class", ())
    weights = np.array(call.float_list("coefficients", ()))
    rho = np.array(call.float_list("rho", (0.0,)), x.dtype.numpy)
    if not sizes:
        return _linear(call, x, labels, weights, float(rho[0]))
    count, classes = sum(sizes), len(sizes)
    call.need(
        classes == labels.count and classes > 1, f"{classes} classes and {labels.count} labels"
    )
    call.need(weights.size == (classes - 1) * count, f"{weights.size} weights of {count} vectors")
    table = pairs(sizes, weights.reshape(classes - 1, count))
    call.need(rho.size == table.shape[1], f"{rho.size} offsets for {table.shape[1]} decisions")
    decisions = g.add(_weighted(call, x, count, table), g.constant(rho))
    a, b = call.float_list("prob_a", ()), call.float_list("prob_b", ())
    # The label is what most decisions say, whatever the probabilities are.
    named = labels.best(g, _votes(g, decisions, classes))
    if a:
        call.need(len(a) == len(b) == rho.size, f"{len(a)} and {len(b)} probabilities' parameters")
        shares = coupled(g, decisions, np.array(a), np.array(b), classes)
        return named, as_float(g, transformed(call, shares))
    if classes == 2:
        return named, as_float(g, two_columns(call, decisions, "negative"))
    return named, as_float(g, transformed(call, decisions))


def _linear(call: OnnxCall, x: Node, labels: Labels, weights: Array, rho: float) -> Any:
    """One weighted sum for each class."""
    g = call.g
    call.ignore("support_vectors", "kernel_type", "kernel_params", "prob_a", "prob_b")
    call.need(
        weights.size == labels.count * x.shape[1],
        f"{weights.size} coefficients for {labels.count} classes of {x.shape[1]} features",
    )
    scores = g.add(_weighted(call, x, 0, weights.reshape(labels.count, -1).T), rho)
    return labels.best(g, scores), as_float(g, transformed(call, scores))


def _votes(g: Graph, decisions: Node, classes: int) -> Node:
    """Counts the decisions that each class wins."""
    won = g.cast(g.gt(decisions, 0.0), "f32")
    first = np.zeros((decisions.shape[1], classes), np.float32)
    second = first.copy()
    for index, (i, j) in enumerate(combinations(range(classes), 2)):
        first[index, i], second[index, j] = 1, 1
    lost = g.sub(g.constant(np.float32(1)), won)
    return g.add(g.matmul(won, g.constant(first)), g.matmul(lost, g.constant(second)))

"""Probabilities of classes from those of decisions between every two of them (Wu, Lin and Weng, 2004).

The probabilities p minimise p Q p where they add up to 1. They are improved one by one, until no row's are off
by more than a bound: as LIBSVM does it, so that the results stop at the same place.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from rlx.importers.onnx.values import Array
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node

# Rounds at most, and how far a row may be off, times the number of classes.
ROUNDS = 100
BOUND = 0.005
# A decision is never quite certain.
LEAST = 1e-7


def coupled(g: Graph, decisions: Node, a: Array, b: Array, classes: int) -> Node:
    """The probability of each class, ``[N, classes]``, from decisions ``[N, pairs]``, above 0 for the first of two.

    A decision d means the first class with probability 1 / (1 + exp(a d + b)).
    """
    dtype = decisions.dtype
    left = g.constant(1.0, dtype)
    slope, offset = (g.constant(p.astype(dtype.numpy)) for p in (a, b))
    first = g.sigmoid(g.neg(g.add(g.mul(decisions, slope), offset)))
    first = g.minimum(g.maximum(first, LEAST), 1 - LEAST)
    n = decisions.shape[0]
    above = np.zeros((len(a), classes, classes), dtype.numpy)
    for index, (i, j) in enumerate(combinations(range(classes), 2)):
        above[index, i, j] = 1
    below = np.swapaxes(above, 1, 2)
    spread = [g.constant(m.reshape(len(a), classes * classes).copy()) for m in (above, below)]
    flat = g.add(g.matmul(first, spread[0]), g.matmul(g.sub(left, first), spread[1]))
    against = g.reshape(flat, (n, classes, classes))
    other = g.transpose(against, (0, 2, 1))
    diagonal = g.mul(
        g.sum(g.mul(other, other), (2,), True), g.constant(np.eye(classes, dtype=dtype.numpy))
    )
    q = g.sub(diagonal, g.mul(against, other))
    start = g.expand(g.constant(1 / classes, dtype), (n, classes))
    _, output, _ = g.while_(
        _goes_on(n, classes, dtype), _round(n, classes, dtype), q, start, _off(g, q, start),
        max_trips=ROUNDS,
    )  # fmt: skip
    result: Node = output
    return result


def _of_rows(g: Graph, q: Node, p: Node) -> tuple[Node, Node]:
    """Q p as ``[N, classes]``, and p Q p as ``[N, 1]``."""
    product = g.reshape(g.matmul(q, g.unsqueeze(p, (2,))), p.shape)
    return product, g.sum(g.mul(p, product), (1,), True)


def _off(g: Graph, q: Node, p: Node) -> Node:
    """Computes the error of each row, ``[N, 1]``."""
    product, whole = _of_rows(g, q, p)
    return g.max(g.abs(g.sub(product, whole)), (1,), True)


def _state(g: Graph, n: int, classes: int, dtype: DType) -> tuple[Node, Node, Node]:
    """The state of the loop: Q, p and how far each row is off."""
    return (
        g.input("q", (n, classes, classes), dtype),
        g.input("p", (n, classes), dtype),
        g.input("off", (n, 1), dtype),
    )


def _goes_on(n: int, classes: int, dtype: DType) -> Graph:
    g = Graph("any row is off")
    _, _, off = _state(g, n, classes, dtype)
    least = g.constant(np.zeros((1, 1), dtype.numpy))
    g.set_outputs([g.ge(g.max(g.concat([off, least], 0)), BOUND / classes)])
    return g


def _round(n: int, classes: int, dtype: DType) -> Graph:
    """Each class's probability improved once, in the rows that are off."""
    g = Graph("one round")
    q, p, off = _state(g, n, classes, dtype)
    product, whole = _of_rows(g, q, p)
    new = p
    for t in range(classes):
        row = g.reshape(g.narrow(q, 1, t, 1), (n, classes))
        own, here = g.narrow(row, 1, t, 1), g.narrow(product, 1, t, 1)
        step = g.div(g.sub(whole, here), own)
        size = g.add(step, 1.0)
        unit = np.zeros((1, classes), dtype.numpy)
        unit[0, t] = 1
        new = g.div(g.add(new, g.mul(step, g.constant(unit))), size)
        grown = g.add(whole, g.mul(step, g.add(g.mul(step, own), g.mul(here, 2.0))))
        whole = g.div(g.div(grown, size), size)
        product = g.div(g.add(product, g.mul(step, row)), size)
    retained = g.where(g.ge(off, BOUND / classes), new, p)
    g.set_outputs([q, retained, _off(g, q, retained)])
    return g

"""Distances between rows, and inverses of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.products import MAX_ROWS
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Node


@contrib("CDist")
def cdist(call: OnnxCall) -> Any:
    """The Euclidean distance of every row of one matrix to every row of another, or its square."""
    g, a, b = call.g, call.x(0), call.x(1)
    metric = call.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise RefusedError(f"the distance {metric!r}")
    call.need(
        len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[1],
        f"rows of {a.shape} and {b.shape}",
    )
    # By differences: the difference of squares would cancel between rows that are near each other.
    apart = g.sub(g.unsqueeze(a, (1,)), g.unsqueeze(b, (0,)))
    square = g.sum(g.mul(apart, apart), (2,))
    return g.sqrt(square) if metric == "euclidean" else square


@contrib("Inverse")
def inverse(call: OnnxCall) -> Any:
    """Inverses of matrices, by elimination; each step takes the largest entry of its column as pivot."""
    g, x = call.g, call.x()
    n, batch = x.shape[-1], x.shape[:-2]
    call.need(len(x.shape) >= 2 and x.shape[-2] == n, f"an inverse of {x.shape}")
    if n > MAX_ROWS:
        raise RefusedError(f"an inverse of a matrix of {n} rows")
    rank = len(batch)
    unit = g.expand(g.constant(np.eye(n, dtype=x.dtype.numpy)), x.shape)
    rows: Node = g.concat([x, unit], rank + 1)
    ids = g.reshape(g.constant(np.arange(n, dtype=np.int32)), (*(1,) * rank, n))
    free = g.expand(g.constant(np.ones((*(1,) * rank, n), bool)), (*batch, n))
    zero, chosen_rows = g.constant(0.0, x.dtype), []
    for i in range(n):
        column = g.narrow(rows, rank + 1, i, 1)
        size = g.where(free, g.abs(g.reshape(column, (*batch, n))), g.constant(-1.0, x.dtype))
        chosen = g.eq(ids, g.argmax(size, rank, keepdims=True))
        free = g.logical_and(free, g.logical_not(chosen))
        here = g.unsqueeze(chosen, (rank + 1,))
        pivot_row = g.sum(g.where(here, rows, zero), (rank,), True)
        scaled = g.div(pivot_row, g.narrow(pivot_row, rank + 1, i, 1))
        rows = g.where(here, scaled, g.sub(rows, g.mul(column, scaled)))
        chosen_rows.append(g.unsqueeze(chosen, (rank,)))
    # Row ``at`` of the inverse stands where step ``at`` found its pivot.
    places = g.where(g.concat(chosen_rows, rank), g.constant(1.0, x.dtype), zero)
    return g.matmul(places, g.narrow(rows, rank + 1, n, n))

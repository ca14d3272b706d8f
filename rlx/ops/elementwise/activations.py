"""Elementwise operations with attributes. Each is made of a few rows of the table, which fusion joins into one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import GraphError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, NodeLike, Sample
from rlx.ops.declare import FLOAT_KERNELS, composite
from rlx.ops.elementwise.records import CPU_DTYPES

_SHAPES = ((3, 5), (1,), (), (0, 4), (2, 3, 67))


def _samples(*attrs: dict[str, Any]) -> tuple[Sample, ...]:
    return tuple(Sample((shape,), a, low=-4, high=4) for a in attrs for shape in _SHAPES)


@composite(
    lambda g, x, alpha: g.where(g.lt(x, 0.0), g.mul(x, float(alpha)), x),
    dtypes=FLOAT_KERNELS,
    elementwise=True,
    samples=lambda: _samples({}, {"alpha": 0.2}),
)
def leaky_relu(x: Array, alpha: float = 0.01) -> Array:
    """X where x >= 0, alpha * x below."""
    return np.where(x < 0, alpha * x, x)


def _elu(g: Graph, x: Node, alpha: float) -> Node:
    below = g.mul(_expm1(g, g.minimum(x, 0.0)), float(alpha))
    return g.where(g.gt(x, 0.0), x, below)


def _expm1(g: Graph, x: Node) -> Node:
    return g.add_node("expm1", [x])


@composite(
    _elu,
    dtypes=FLOAT_KERNELS,
    elementwise=True,
    tolerance={DType.F32: 1e-5},
    samples=lambda: _samples({}, {"alpha": 0.5}),
)
def elu(x: Array, alpha: float = 1.0) -> Array:
    """X where x > 0, alpha * (exp(x) - 1) below (arXiv:1511.07289)."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(g: Graph, x: Node, alpha: float) -> Node:
    below = g.mul(_expm1(g, g.div(g.minimum(x, 0.0), float(alpha))), float(alpha))
    return g.where(g.gt(x, 0.0), x, below)


@composite(
    _celu,
    dtypes=FLOAT_KERNELS,
    elementwise=True,
    tolerance={DType.F32: 1e-5},
    samples=lambda: _samples({}, {"alpha": 0.5}, {"alpha": -0.5}),
)
def celu(x: Array, alpha: float = 1.0) -> Array:
    """X where x > 0, alpha * (exp(x / alpha) - 1) below (arXiv:1704.07483)."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _hard_sigmoid(g: Graph, x: Node, alpha: float, beta: float) -> Node:
    line = g.add(g.mul(x, float(alpha)), float(beta))
    return g.minimum(g.maximum(line, 0.0), 1.0)


@composite(
    _hard_sigmoid,
    dtypes=FLOAT_KERNELS,
    elementwise=True,
    samples=lambda: _samples({}, {"alpha": 1 / 6, "beta": 0.5}),
)
def hard_sigmoid(x: Array, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """Alpha * x + beta, held between 0 and 1."""
    return np.clip(alpha * x + beta, 0, 1)


def _clip(g: Graph, x: Node, min: Any, max: Any) -> Node:
    for bound, build in ((min, g.maximum), (max, g.minimum)):
        if bound is None:
            continue
        if np.ndim(bound) and not isinstance(bound, Node):
            raise GraphError("[clip] a bound is not a number", got=bound)
        x = build(x, bound)
    return x


@composite(
    _clip,
    dtypes=CPU_DTYPES - {DType.BOOL},
    elementwise=True,
    samples=lambda: _samples(
        {"min": 0, "max": 2}, {"min": 1}, {"max": 1}, {}, {"min": 2, "max": 1}
    ),
)
def clip(x: Array, min: NodeLike | None = None, max: NodeLike | None = None) -> Array:
    """``x`` held between two numbers: min(max(x, min), max); None leaves a side open.

    Args:
        x: Any numbers.
        min: A number, or a node that broadcasts to ``x``.
        max: The same; where it is below ``min`` the result is ``max``.
    """
    low = x if min is None else np.maximum(x, np.asarray(min, x.dtype))
    return low if max is None else np.minimum(low, np.asarray(max, x.dtype))

"""Steps of optimisers (the domain ai.onnx.preview.training)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.ir.graph import Node

DOMAIN = "ai.onnx.preview.training"


def _gradient(call: OnnxCall, x: Node, gradient: Node) -> Node:
    """With the penalty of the tensor's norm."""
    norm = call.real("norm_coefficient", 0.0)
    return call.g.add(call.g.mul(x, norm), gradient) if norm else gradient


def _step(call: OnnxCall, like: Node) -> Node:
    return call.g.cast(call.x(1), like.dtype)


def _each(call: OnnxCall, count: int, update: Callable[..., tuple[Node, ...]]) -> list[Node]:
    """Updates of the operands behind rate and step: ``count`` lists of one length, an entry of each per tensor."""
    nodes = [call.x(i) for i in range(2, len(call.operands))]
    each = len(nodes) // count
    rows = [update(*(nodes[part * each + i] for part in range(count))) for i in range(each)]
    return [row[part] for part in range(len(rows[0])) for row in rows]


@onnx_op("Adagrad", domain=DOMAIN)
def adagrad(call: OnnxCall) -> Any:
    """Rates by the sum of squared gradients."""
    g, rate = call.g, call.x(0)
    eps, decay = call.real("epsilon", 1e-6), call.real("decay_factor", 0.0)

    def update(x: Node, gradient: Node, squares: Node) -> tuple[Node, ...]:
        slope = _gradient(call, x, gradient)
        now = g.div(rate, g.add(g.mul(_step(call, x), decay), 1.0))
        squares = g.add(squares, g.mul(slope, slope))
        return g.sub(x, g.div(g.mul(now, slope), g.add(g.sqrt(squares), eps))), squares

    return _each(call, 3, update)


@onnx_op("Adam", domain=DOMAIN)
def adam(call: OnnxCall) -> Any:
    """Running means of gradients and their squares."""
    g, rate = call.g, call.x(0)
    alpha, beta = call.real("alpha", 0.9), call.real("beta", 0.999)
    eps, after = call.real("epsilon", 1e-6), call.real("norm_coefficient_post", 0.0)

    def update(x: Node, gradient: Node, mean: Node, squares: Node) -> tuple[Node, ...]:
        slope = _gradient(call, x, gradient)
        mean = g.add(g.mul(mean, alpha), g.mul(slope, 1 - alpha))
        squares = g.add(g.mul(squares, beta), g.mul(g.mul(slope, slope), 1 - beta))
        step = _step(call, x)
        # A base to the power of the step, by its logarithm.
        less = [
            g.add(g.neg(g.exp(g.mul(step, float(np.log(base))))), 1.0) for base in (alpha, beta)
        ]
        first = g.eq(step, 0.0)
        constant = g.constant(1.0, x.dtype)
        factor = g.div(g.sqrt(g.where(first, constant, less[1])), g.where(first, constant, less[0]))
        moved = g.div(g.mul(g.mul(rate, factor), mean), g.add(g.sqrt(squares), eps))
        return g.mul(g.sub(x, moved), 1 - after), mean, squares

    return _each(call, 4, update)


@onnx_op("Momentum", domain=DOMAIN)
def momentum(call: OnnxCall) -> Any:
    """A running gradient, Nesterov's or the plain one."""
    g, rate = call.g, call.x(0)
    alpha, beta = call.real("alpha"), call.real("beta")

    def update(x: Node, gradient: Node, node: Node) -> tuple[Node, ...]:
        slope = _gradient(call, x, gradient)
        share = g.where(
            g.gt(_step(call, x), 0.0), g.constant(beta, x.dtype), g.constant(1.0, x.dtype)
        )
        node = g.add(g.mul(node, alpha), g.mul(slope, share))
        moved = g.add(slope, g.mul(node, alpha)) if call.text("mode") == "nesterov" else node
        return g.sub(x, g.mul(rate, moved)), node

    return _each(call, 3, update)

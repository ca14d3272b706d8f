"""The decorator of this domain's operators, and the activations that some of them end with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Node

DOMAIN = "com.microsoft"
contrib = partial(onnx_op, domain=DOMAIN)

# Activations after a product or a convolution: default parameters, and a function of graph, node and parameters.
Activation = Callable[..., Any]
ACTIVATIONS: Mapping[str, tuple[Sequence[float], Activation]] = {
    "Relu": ((), lambda g, y: g.relu(y)),
    "Sigmoid": ((), lambda g, y: g.sigmoid(y)),
    "Tanh": ((), lambda g, y: g.tanh(y)),
    "LeakyRelu": ((0.01,), lambda g, y, alpha: g.leaky_relu(y, alpha)),
    "HardSigmoid": ((0.2, 0.5), lambda g, y, alpha, beta: g.hard_sigmoid(y, alpha, beta)),
    "Clip": ((-3.4028235e38, 3.4028235e38), lambda g, y, low, high: g.clip(y, low, high)),
    "Elu": ((1.0,), lambda g, y, alpha: g.elu(y, alpha)),
    "Softplus": ((), lambda g, y: g.softplus(y)),
    "Softsign": ((), lambda g, y: g.softsign(y)),
    "ThresholdedRelu": ((1.0,), lambda g, y, a: g.where(g.gt(y, a), y, g.constant(0.0, y.dtype))),
}


def activated(call: OnnxCall, y: Node, params: Sequence[float | None]) -> Node:
    """A result followed by the activation that the node names; defaults stand in for ``params`` that are missing.

    Raises:
        RefusedError: There is no such activation.
    """
    name = call.text("activation", "")
    if not name:
        return y
    if name not in ACTIVATIONS:
        raise RefusedError(f"activation {name!r}")
    defaults, function = ACTIVATIONS[name]
    args = [*params, *[None] * len(defaults)]
    values = [d if v is None else v for v, d in zip(args, defaults, strict=False)]
    result: Node = function(call.g, y, *values)
    return result

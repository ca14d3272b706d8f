"""The models of the suite "models": one for each kind of network, small enough to be built when they are measured.

The name of a model stands for its layers and weights: whoever changes one gives it another name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array

Build = Callable[[Graph], Sequence[Array]]


class _Weights:
    """Made-up weights that keep a layer's values around one."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._rng = graph, np.random.default_rng(0)

    def array(self, *shape: int) -> Array:
        """Normal numbers, smaller the more of them a result sums."""
        size = np.sqrt(np.prod(shape) / max(shape))
        result: Array = (self._rng.standard_normal(shape) / max(size, 1.0)).astype(np.float32)
        return result

    def __call__(self, *shape: int) -> Node:
        return self._graph.constant(self.array(*shape))

    def values(self, *shape: int) -> Array:
        """Values of an input."""
        return self._rng.standard_normal(shape).astype(np.float32)


def _dense(g: Graph) -> Sequence[Array]:
    """Three layers of 512 for a batch of 32."""
    w, x = _Weights(g), g.input("x", (32, 512))
    for _ in range(3):
        x = g.relu(x @ w(512, 512) + w(512))
    g.set_outputs([g.softmax(x)])
    return [w.values(32, 512)]


def _convolutions(g: Graph) -> Sequence[Array]:
    """Convolutions, plain, strided and of single channels, of an image of 64 by 64."""
    w, x = _Weights(g), g.input("x", (1, 3, 64, 64))
    x = g.relu(g.conv2d(x, w(16, 3, 3, 3), w(16), stride=2, padding=1))
    x = g.relu(g.conv2d(x, w(16, 1, 3, 3), w(16), padding=1, groups=16))
    x = g.relu(g.conv2d(x, w(32, 16, 1, 1), w(32)))
    x = g.max_pool(x, 2)
    x = g.relu(g.conv2d(x, w(64, 32, 3, 3), w(64), padding=1))
    g.set_outputs([g.mean(x, (2, 3)) @ w(64, 10)])
    return [w.values(1, 3, 64, 64)]


def _transformer(g: Graph) -> Sequence[Array]:
    """A block of four heads and 256 features on 64 tokens."""
    w, x = _Weights(g), g.input("x", (1, 64, 256))
    y = g.layer_norm(x, w(256), w(256))
    q, k, v = (
        g.transpose(g.reshape(y @ w(256, 256), (1, 64, 4, 64)), (0, 2, 1, 3)) for _ in range(3)
    )
    joined = g.reshape(g.transpose(g.attention(q, k, v, kind="causal"), (0, 2, 1, 3)), (1, 64, 256))
    x = x + joined @ w(256, 256)
    y = g.layer_norm(x, w(256), w(256))
    g.set_outputs([x + g.gelu(y @ w(256, 1024) + w(1024)) @ w(1024, 256)])
    return [w.values(1, 64, 256)]


def _recurrent(g: Graph) -> Sequence[Array]:
    """An LSTM of 128 units on 50 steps of 64 features."""
    w, x = _Weights(g), g.input("x", (50, 1, 64))
    y, *_ = g.lstm(x, w(1, 512, 64), w(1, 512, 128), w(1, 1024))
    g.set_outputs([y])
    return [w.values(50, 1, 64)]


def _eight_bits(g: Graph) -> Sequence[Array]:
    """Two layers of weights in eight bits, activations in eight bits between them."""
    w, x = _Weights(g), g.input("x", (16, 256))
    scale = np.float32(0.02)
    for _ in range(2):
        weights = np.clip(np.round(w.array(256, 256) / scale), -127, 127).astype(np.int8)
        x = g.dequantize(g.quantize(x, scale, np.int8(0)), scale, np.int8(0))
        x = g.relu(x @ g.dequantize(g.constant(weights), scale, np.int8(0)))
    g.set_outputs([x])
    return [w.values(16, 256)]


TABLE: Mapping[str, Build] = {
    "dense": _dense,
    "convolutions": _convolutions,
    "transformer": _transformer,
    "recurrent": _recurrent,
    "eight_bits": _eight_bits,
}

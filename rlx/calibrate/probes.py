"""The small graphs whose times calibrate a device: one chain of kernels per kind of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlx.cost.model import NARROW
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array

# Adds one step to a chain: (graph, last value) -> next value, of the same shape and dtype.
Step = Callable[[Graph, Node], Any]


class Probe(NamedTuple):
    """A chain of equal steps; its slope over their number is the time of one.

    Attributes:
        kind: The kind of work that it measures; see ``rlx.cost.op_classes``.
        shape: Shape of the value for an amount of elements.
        step: One step.
        sizes: Amounts of elements on the CPU, the most telling first.
        large: The largest amount on a GPU, where small kernels take no more than their dispatch.
        short: The shape with rows of 16 elements instead of 256, for kinds that work row by row.
        waiting: The amount on a GPU whose steps wait for each other, see ``rlx.cost.dependency_chain``; the least of ``sizes``
            where it is 0.
    """

    kind: str
    shape: Callable[[int], tuple[int, ...]]
    step: Step
    sizes: tuple[int, ...]
    large: int
    short: Callable[[int], tuple[int, ...]] | None = None
    waiting: int = 0


def chain(probe: Probe, shape: tuple[int, ...], steps: int) -> Graph:
    """The graph of so many steps; one element of the result is its output.

    The value comes from a param, so that runs transfer next to nothing.
    """
    g = Graph(f"{probe.kind} {shape} x {steps}")
    value = g.param("x", shape)
    for _ in range(steps):
        value = probe.step(g, value)
    return _ended(g, value)


def _ended(g: Graph, value: Node) -> Graph:
    g.set_outputs([g.narrow(g.reshape(value, (-1,)), 0, 0, 1)])
    return g


def values_of(graph: Graph) -> dict[str, Array]:
    """Values of the params: around one, and weights such that a product keeps it so."""
    part = np.random.default_rng(0).uniform(0.5, 1.5, 1 << 12).astype(np.float32)
    results = {}
    for name in graph.param_names:
        node = graph.named(name)
        # The operands that a result element sums over.
        each = part / _summed(node.shape, int(name[1])) if name.startswith("w") else part
        results[name] = np.resize(each.astype(node.dtype.numpy), node.shape)
    return results


def _summed(shape: tuple[int, ...], axis: int) -> int:
    """Returns how many weights a result sums over: all but those along the axis of the results."""
    return max(1, int(np.prod(shape)) // shape[axis])


def product(dtype: DType, size: int, rows: int, steps: int) -> Graph:
    """Products of ``[rows, size]`` and ``[size, size]``, one after the other."""
    g = Graph(f"matmul {rows}x{size} {dtype} x {steps}")
    value, w = g.param("x", (rows, size), dtype), g.param("w1", (size, size), dtype)
    for _ in range(steps):
        value = value @ w
    return _ended(g, value)


def narrow(size: int, rows: int, steps: int) -> Graph:
    """Products of ``[rows, size]`` and ``[size, 8]``, apart from each other."""
    g = Graph(f"narrow matmul {rows}x{size} x {steps}")
    x = g.param("x", (rows, size))
    results = [x @ g.param(f"w1_{i}", (size, NARROW)) for i in range(steps)]
    return _ended(g, g.concat(results, 1) if steps > 1 else results[0])


def dispatches(steps: int) -> Graph:
    """Next to nothing to compute, an input and an output of 256 bytes."""
    g = Graph(f"dispatch x {steps}")
    value = g.input("x", (64,))
    for _ in range(steps):
        value = g.abs(value)
    g.set_outputs([value])
    return g


def upload(size: int) -> Graph:
    """An input of so many floats, of which one is used."""
    g = Graph(f"upload {size}")
    g.set_outputs([g.narrow(g.input("x", (size,)), 0, 0, 1)])
    return g


def readback(size: int, whole: bool) -> Graph:
    """So many floats computed, and read back or left where they are."""
    g = Graph(f"readback {size}")
    value = g.neg(g.param("x", (size,)))
    g.set_outputs([value if whole else g.narrow(value, 0, 0, 1)])
    return g


def copies(size: int, steps: int) -> Graph:
    """So many floats read and written by each step; to be compiled without fusion."""
    g = Graph(f"copy {size} x {steps}")
    value = g.param("x", (size,))
    for _ in range(steps):
        value = g.neg(value)
    return _ended(g, value)


def host_part(size: int, cut: bool) -> Graph:
    """Builds a graph whose run stops for a part on the host, or its twin without that part."""
    g = Graph("host part")
    value = g.neg(g.input("x", (size,)))
    if cut:
        value = g.cast(g.neg(g.cast(value, "f64")), "f32")
    g.set_outputs([g.neg(value)])
    return g


# --- the steps -------------------------------------------------------------------------------------


def _line(size: int) -> tuple[int, ...]:
    return (size,)


def _rows(size: int) -> tuple[int, ...]:
    """Rows of 256 elements, as in most models."""
    return (max(1, size // 256), min(256, size))


def _short(size: int) -> tuple[int, ...]:
    return (max(1, size // 16), min(16, size))


def _twice(shape: Callable[[int], tuple[int, ...]]) -> Callable[[int], tuple[int, ...]]:
    """Rows of twice the length, for what moves halves of them."""
    return lambda size: (shape(size)[0] // 2, shape(size)[1] * 2)


def _square(size: int) -> tuple[int, ...]:
    # Slightly off a power of two, whose strides would map to few cache sets.
    side = max(1, int(0.97 * size**0.5))
    return (side, side)


def _images(size: int) -> tuple[int, ...]:
    """Sixteen channels of a square image."""
    side = max(4, int((size / 16) ** 0.5))
    return (1, 16, side, side)


def _heads(size: int) -> tuple[int, ...]:
    """``[B, S, H * D]`` of four heads of 32."""
    return (1, max(1, size // 128), 128)


def _arithmetic(g: Graph, x: Node) -> Any:
    y = x
    for _ in range(8):
        y = g.maximum(y - x, x) * 0.5
    return y


def _roll(g: Graph, x: Node) -> Any:
    half = x.shape[1] // 2
    return g.concat([g.narrow(x, 1, half, half), g.narrow(x, 1, 0, half)], 1)


def _shuffled(g: Graph, x: Node) -> Any:
    order = np.random.default_rng(1).permutation(x.shape[0]).astype(np.int32)
    return g.gather(x, g.constant(order), 0)


def _selected(g: Graph, x: Node) -> Any:
    y = g.sin(x * 100.0)
    return g.maximum(y, g.narrow(g.topk(y, min(8, x.shape[1] // 4))[0], 1, 0, 1))


def _convolved(g: Graph, x: Node) -> Any:
    w = g.named("w0") if "w0" in g.param_names else g.param("w0", (16, 16, 3, 3))
    return g.conv2d(x, w, padding=1)


def _attended(g: Graph, x: Node) -> Any:
    return g.attention(x, x, x, num_heads=4, head_dim=32)


def _recurrent(g: Graph, x: Node) -> Any:
    result = "w1" in g.param_names
    w = g.named("w1") if result else g.param("w1", (1, 256, 64))
    r = g.named("w1r") if result else g.param("w1r", (1, 256, 64))
    return g.reshape(g.lstm(x, w, r)[0], x.shape)


def _state_space(g: Graph, x: Node) -> Any:
    n = x.shape[-1]
    result = "a" in g.param_names
    a = g.named("a") if result else g.param("a", (n, 16))
    b = g.named("b") if result else g.param("b", (*x.shape[:-1], 16))
    return g.tanh(g.selective_scan(x, x, a * -1.0, b, b))


def _real_fourier(g: Graph, x: Node) -> Any:
    return g.narrow(g.rfft(x, norm="ortho"), -1, 0, x.shape[-1])


def _filtered(g: Graph, x: Node) -> Any:
    return g.sosfilt(x, [[0.1, 0.2, 0.1, 1.0, -0.9, 0.3]])[0]


def _peaks(g: Graph, x: Node) -> Any:
    result = g.find_peaks(g.sin(x * 100.0), max_peaks=8)
    return g.maximum(x, g.reshape(g.cast(g.narrow(result[0], -1, 0, 1), "f32"), (x.shape[0], 1)))


SHORT, MEDIUM, LARGE = 1 << 12, 1 << 17, 1 << 20
# The ends first: several threads make large work cheaper by the element, so nothing may be extrapolated from small work.
_ALL = (SHORT, LARGE, MEDIUM)

# Most informative first: kinds that are not measured in time take the speed of their stand-in.
PROBES: tuple[Probe, ...] = (
    Probe("arithmetic", _line, _arithmetic, _ALL, LARGE),
    Probe("function", _line, lambda g, x: g.sigmoid(g.exp(g.sin(x))), _ALL, LARGE),
    Probe("softmax", _rows, lambda g, x: g.softmax(x), _ALL, LARGE, _short),
    Probe("norm", _rows, lambda g, x: g.layer_norm(x), _ALL, LARGE, _short),
    Probe("reduce", _rows, lambda g, x: g.maximum(x, g.mean(x, -1, True)), _ALL, LARGE, _short),
    Probe("transpose", _square, lambda g, x: g.reshape(g.transpose(x), x.shape), _ALL, LARGE),
    Probe("move", _twice(_rows), _roll, _ALL, LARGE, _twice(_short)),
    Probe("gather", _rows, _shuffled, _ALL, LARGE, _short),
    Probe("convolution", _images, _convolved, _ALL, LARGE),
    # With fewer keys the time would be hardly more than the dispatch.
    Probe("attention", _heads, _attended, (1 << 15, SHORT, 1 << 7), MEDIUM, waiting=1 << 15),
    Probe("fourier", _rows, lambda g, x: g.fft(x, norm="ortho"), _ALL, LARGE, _short),
    Probe("real_fourier", _rows, _real_fourier, _ALL, LARGE, _short),
    Probe("extreme", _rows, lambda g, x: g.minimum(x, g.max(x, -1, True)), _ALL, LARGE, _short),
    Probe("pool", _images, lambda g, x: g.max_pool(x, 3, stride=1, padding=1), _ALL, LARGE),
    Probe(
        "running", _rows, lambda g, x: g.cumsum(x, -1) * (1.0 / x.shape[-1]), _ALL, LARGE, _short
    ),
    Probe("select", _rows, _selected, _ALL, LARGE, _short),
    Probe("sort", _rows, lambda g, x: g.sort(g.sin(x * 100.0), -1), _ALL, MEDIUM),
    # ``[T, B, I]``: 16 steps of 64 features.
    Probe(
        "recurrence", lambda n: (16, max(1, n // 1024), 64), _recurrent, (1 << 10, MEDIUM), MEDIUM
    ),
    Probe("filter", lambda n: (n // 1024, 1024), _filtered, (1 << 14, LARGE, 1 << 10), LARGE),
    Probe("state_space", lambda n: (1, max(1, n // 64), 64), _state_space, _ALL, LARGE),
    Probe("peaks", _rows, _peaks, _ALL, MEDIUM),
)

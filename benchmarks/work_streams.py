"""Families bound by memory: elementwise, rows, reductions; convolutions, pooling, resizing."""

import math

import numpy as np
from work import F32, SUMS, Workload, by_rows, noise, wide
from work_products import F16, HALF, gelu

import rlx

# Functions of drivers, such as exp, are good to some units in the last place.
FUNCTIONS = 4e-6


def copy(rng, count):
    """Builds the bandwidth probe: each number is read, negated and written."""
    x = noise(rng, count)
    return Workload({"x": x}, lambda g, v: [-v["x"]], lambda outputs: (outputs[0], -x), 1.0 * count)


# The chain of eight, for any module with these functions.
def chain_of(np_like, x, y):
    """Eight elementwise operations on two operands."""
    return np_like.tanh((x * 1.5 + y) * x - 0.25) * 0.5 + np_like.maximum(x, y)


def chain(rng, count):
    """Eight operations in one go: two operands read, one result written."""
    x, y = noise(rng, count), noise(rng, count)
    return Workload(
        {"x": x, "y": y},
        lambda g, v: [chain_of(g, v["x"], v["y"])],
        lambda outputs: (outputs[0], chain_of(np, *wide(x, y))),
        8.0 * count,
        peer=("chain", {}),
        tolerance=FUNCTIONS,
    )


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x, w, b):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w + b


def _rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w


# kind: (weights, reference of rows in float64, flops of an element)
BY_ROWS = {
    "softmax": ((), _softmax, 5.0),
    "layer_norm": (("w", "b"), _layer_norm, 8.0),
    "rms_norm": (("w",), _rms_norm, 4.0),
}


def normed(rng, kind, rows, n):
    """A row operation on ``[rows, n]``."""
    names, reference, flops = BY_ROWS[kind]
    x, weights = noise(rng, rows, n), {name: noise(rng, n) for name in names}
    return Workload(
        {"x": x, **weights},
        lambda g, v: [getattr(g, kind)(v["x"], *(v[name] for name in names))],
        by_rows(x, lambda part: reference(part, *wide(*weights.values()))),
        flops * rows * n,
        weights=names,
        peer=(kind, {}),
        tolerance=FUNCTIONS,
    )


def reduced(rng, kind, shape, axis):
    """One axis summed, or its largest kept."""
    x = noise(rng, *shape)
    return Workload(
        {"x": x},
        lambda g, v: [getattr(g, kind)(v["x"], (axis,))],
        lambda outputs: (outputs[0], getattr(np, kind)(x.astype(np.float64), axis)),
        1.0 * x.size,
        peer=("reduce", {"kind": kind, "axis": axis}),
        tolerance=SUMS,
    )


def scanned(rng, shape, axis):
    """Running sums."""
    x = noise(rng, *shape)
    return Workload(
        {"x": x},
        lambda g, v: [g.cumsum(v["x"], axis)],
        lambda outputs: (outputs[0], np.cumsum(x, axis, np.float64)),
        1.0 * x.size,
        peer=("cumsum", {"axis": axis}),
        tolerance=SUMS,
    )


def _taps(x, w, stride, padding, groups):
    """A convolution in float64: one product for each tap of the kernel."""
    rank = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * rank])
    n, c = x.shape[:2]
    size = [(x.shape[2 + i] - w.shape[2 + i]) // stride + 1 for i in range(rank)]
    out = np.zeros((n, groups, w.shape[0] // groups, math.prod(size)))
    for tap in np.ndindex(*w.shape[2:]):
        indices = tuple(slice(t, t + (s - 1) * stride + 1, stride) for t, s in zip(tap, size))
        part = x[(..., *indices)].reshape(n, groups, c // groups, -1)
        weights = w[(..., *tap)].reshape(groups, w.shape[0] // groups, c // groups)
        out += weights[None] @ part
    return out.reshape(n, w.shape[0], *size)


def conv(rng, n, c, o, size, kernel, stride=1, padding=None, groups=1, dtype=F32):  # noqa: PLR0913 - the sizes of a convolution
    """A convolution with a bias; ``size`` has one number for audio, two for images."""
    padding = kernel // 2 if padding is None else padding
    x = noise(rng, n, c, *size, dtype=dtype)
    fan = c // groups * kernel ** len(size)
    w = noise(rng, o, c // groups, *[kernel] * len(size), dtype=dtype) * dtype(fan**-0.5)
    b, half = noise(rng, o, dtype=dtype), dtype == np.float16
    settings = {"stride": stride, "padding": padding, "groups": groups}
    results = [(s + 2 * padding - kernel) // stride + 1 for s in size]

    def reference(outputs):
        # Some images suffice: the others go the same way.
        some = slice(0, 2)
        expected = _taps(*wide(x[some], w), **settings) + b.reshape(-1, *[1] * len(size))
        last = _taps(*wide(x[-1:], w), **settings) + b.reshape(-1, *[1] * len(size))
        result = np.concatenate([outputs[0][some], outputs[0][-1:]])
        return result, np.concatenate([expected, last])

    return Workload(
        {"x": x, "w": w, "b": b},
        lambda g, v: [getattr(g, f"conv{len(size)}d")(v["x"], v["w"], v["b"], **settings)],
        reference,
        2.0 * n * o * fan * math.prod(results),
        weights=("w", "b"),
        peer=("conv", settings),
        tolerance=HALF if half else SUMS,
        options=F16 if half else rlx.CompileOptions(),
    )


def max_pool(rng, shape, kernel, stride, padding):
    """The largest of each window."""
    x = noise(rng, *shape)

    def reference(outputs):
        edge, some = [(0, 0), (0, 0), (padding, padding), (padding, padding)], [0, -1]
        padded = np.pad(x[some], edge, constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))
        return outputs[0][some], windows[:, :, ::stride, ::stride].max((-1, -2))

    settings = {"kernel": kernel, "stride": stride, "padding": padding}
    return Workload(
        {"x": x},
        lambda g, v: [g.max_pool(v["x"], **settings)],
        reference,
        1.0 * x.size * (kernel / stride) ** 2,
        peer=("max_pool", settings),
    )


def resize(rng, shape, factor):
    """Images made larger, linearly between pixel centres."""
    x = noise(rng, *shape)

    def line(y, axis):
        n = y.shape[axis]
        position = np.clip((np.arange(n * factor) + 0.5) / factor - 0.5, 0, n - 1)
        low = np.minimum(position.astype(int), n - 2)
        part = (position - low).reshape([-1 if i == axis else 1 for i in range(4)])
        return y.take(low, axis) * (1 - part) + y.take(low + 1, axis) * part

    size = (*shape[:2], shape[2] * factor, shape[3] * factor)
    return Workload(
        {"x": x},
        lambda g, v: [g.resize(v["x"], size, "linear")],
        lambda outputs: (outputs[0], line(line(x.astype(np.float64), 2), 3)),
        8.0 * math.prod(size),
        peer=("resize", {"factor": factor}),
    )


def _erf(x):
    from scipy.special import erf

    return erf(x)


# kind: (reference, flops of an element)
ONE_BY_ONE = {
    "exp": (np.exp, 10.0),
    "tanh": (np.tanh, 15.0),
    "erf": (_erf, 15.0),
    "gelu": (gelu, 18.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 12.0),
}


def unary(rng, kind, shape):
    """A function of each element."""
    x, (reference, flops) = noise(rng, *shape), ONE_BY_ONE[kind]
    return Workload(
        {"x": x},
        lambda g, v: [getattr(g, kind)(v["x"])],
        lambda outputs: (outputs[0], reference(x.astype(np.float64))),
        flops * x.size,
        peer=("unary", {"kind": kind}),
        tolerance=FUNCTIONS,
    )


# The names that NumPy has.
NUMPY = {"add": "add", "mul": "multiply", "maximum": "maximum"}


def binary(rng, kind, left, right):
    """Two operands, one of which may be broadcast."""
    x, y = noise(rng, *left), noise(rng, *right)
    return Workload(
        {"x": x, "y": y},
        lambda g, v: [getattr(g, kind)(v["x"], v["y"])],
        lambda outputs: (outputs[0], getattr(np, NUMPY[kind])(*wide(x, y))),
        1.0 * max(x.size, y.size),
        peer=("binary", {"kind": kind}),
    )

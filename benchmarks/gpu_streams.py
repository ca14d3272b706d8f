"""Workloads bound by memory, P9, and convolutions: elementwise, rows, reductions, pooling, resizing."""

import math

import numpy as np
from gpu_products import SUMS, wide
from gpu_work import F32, Goal, Row, Work, by_rows, noise

# Functions of drivers, such as exp, are good to some units in the last place.
FUNCTIONS = 4e-6
STREAM = Goal(part=0.8)
LARGE = 1 << 24


def copy(rng, count):
    """What measures the bandwidth: each number read, negated and written."""
    x = noise(rng, count)
    return Work({"x": x}, lambda g, v: [-v["x"]], lambda outputs: (outputs[0], -x), 1.0 * count)


# The chain of eight, for any module with these functions.
def chain_of(np_like, x, y):
    """Eight elementwise operations on two operands."""
    return np_like.tanh((x * 1.5 + y) * x - 0.25) * 0.5 + np_like.maximum(x, y)


def chain(rng, count):
    """Eight operations in one go: two operands read, one result written."""
    x, y = noise(rng, count), noise(rng, count)
    return Work(
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
    return Work(
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
    return Work(
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
    return Work(
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
        at = tuple(slice(t, t + (s - 1) * stride + 1, stride) for t, s in zip(tap, size))
        part = x[(..., *at)].reshape(n, groups, c // groups, -1)
        weights = w[(..., *tap)].reshape(groups, w.shape[0] // groups, c // groups)
        out += weights[None] @ part
    return out.reshape(n, w.shape[0], *size)


def conv(rng, n, c, o, size, kernel, stride=1, padding=None, groups=1):
    """A convolution with a bias; ``size`` has one number for audio, two for images."""
    padding = kernel // 2 if padding is None else padding
    x = noise(rng, n, c, *size)
    fan = c // groups * kernel ** len(size)
    w = noise(rng, o, c // groups, *[kernel] * len(size)) * F32(fan**-0.5)
    b = noise(rng, o)
    settings = {"stride": stride, "padding": padding, "groups": groups}
    made = [(s + 2 * padding - kernel) // stride + 1 for s in size]

    def reference(outputs):
        # Some images suffice: the others go the same way.
        some = slice(0, 2)
        expected = _taps(*wide(x[some], w), **settings) + b.reshape(-1, *[1] * len(size))
        last = _taps(*wide(x[-1:], w), **settings) + b.reshape(-1, *[1] * len(size))
        found = np.concatenate([outputs[0][some], outputs[0][-1:]])
        return found, np.concatenate([expected, last])

    return Work(
        {"x": x, "w": w, "b": b},
        lambda g, v: [getattr(g, f"conv{len(size)}d")(v["x"], v["w"], v["b"], **settings)],
        reference,
        2.0 * n * o * fan * math.prod(made),
        weights=("w", "b"),
        peer=("conv", settings),
        tolerance=SUMS,
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
    return Work(
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
        at = np.clip((np.arange(n * factor) + 0.5) / factor - 0.5, 0, n - 1)
        low = np.minimum(at.astype(int), n - 2)
        part = (at - low).reshape([-1 if i == axis else 1 for i in range(4)])
        return y.take(low, axis) * (1 - part) + y.take(low + 1, axis) * part

    size = (*shape[:2], shape[2] * factor, shape[3] * factor)
    return Work(
        {"x": x},
        lambda g, v: [g.resize(v["x"], size, "linear")],
        lambda outputs: (outputs[0], line(line(x.astype(np.float64), 2), 3)),
        8.0 * math.prod(size),
        peer=("resize", {"factor": factor}),
    )


def _rows_of_all():
    for kind, goal in (("softmax", STREAM), ("layer_norm", STREAM), ("rms_norm", STREAM)):
        for n in (128, 768, 1024, 4096, 16384, 50257):
            rows = LARGE // n
            small = (dict(kind=kind, rows=5, n=n), dict(kind=kind, rows=3, n=n // 2 + 1))
            size = dict(kind=kind, rows=rows, n=n)
            quick = n in (1024, 50257) and kind != "rms_norm"
            yield Row(f"{kind} {rows} x {n}", "P9", normed, size, small, goal, quick)


def _reductions():
    for kind in ("sum", "max"):
        for shape, axis, name in (
            ((4096, 4096), 1, "last axis"),
            ((65536, 256), 1, "short last axis"),
            ((4096, 4096), 0, "first axis"),
            ((64, 1024, 256), 1, "middle axis"),
            ((16, LARGE // 16), 1, "long last axis"),
        ):
            small = tuple(
                dict(kind=kind, shape=tuple(max(2, s // by) for s in shape), axis=axis)
                for by in (64, 100)
            )
            size = dict(kind=kind, shape=shape, axis=axis)
            yield Row(f"{kind} {name} {shape}", "P9", reduced, size, small, STREAM, kind == "sum")


NO_GOAL = Goal()


def _conv(name, small, goal=NO_GOAL, quick=False, **size):
    return Row(
        f"conv {name}", "", conv, size, small if isinstance(small, tuple) else (small,), goal, quick
    )


IMAGE = dict(n=2, c=12, o=20, size=(9, 11))
ROWS = (
    Row("elementwise chain of 8", "P9", chain, dict(count=LARGE), (dict(count=4099), dict(count=64)), STREAM, True),
    *_rows_of_all(),
    *_reductions(),
    Row("cumsum 4096 x 4096, last axis", "P9", scanned, dict(shape=(4096, 4096), axis=1),
        (dict(shape=(5, 700), axis=1),), STREAM, True),
    Row("cumsum 16 x 2^20", "P9", scanned, dict(shape=(16, 1 << 20), axis=1), (dict(shape=(2, 9000), axis=1),), STREAM),
    Row("cumsum 4096 x 4096, first axis", "P9", scanned, dict(shape=(4096, 4096), axis=0),
        (dict(shape=(300, 7), axis=0),), STREAM),
    _conv("3x3 64 of 56x56, batch 32", (IMAGE | dict(kernel=3), dict(n=1, c=64, o=70, size=(14, 15), kernel=3)), n=32, c=64, o=64, size=(56, 56), kernel=3, quick=True),
    _conv("3x3 256 of 14x14, batch 32", IMAGE | dict(kernel=3), n=32, c=256, o=256, size=(14, 14), kernel=3),
    _conv("3x3 512 of 7x7, batch 32", IMAGE | dict(kernel=3), n=32, c=512, o=512, size=(7, 7), kernel=3),
    _conv("3x3 stride 2, 128 of 56x56, batch 32", IMAGE | dict(kernel=3, stride=2),
          n=32, c=128, o=128, size=(56, 56), kernel=3, stride=2),
    _conv("7x7 stride 2 of 224x224, batch 32", dict(n=1, c=3, o=8, size=(30, 30), kernel=7, stride=2),
          n=32, c=3, o=64, size=(224, 224), kernel=7, stride=2),
    _conv("3x3 64 of 56x56, batch 1", IMAGE | dict(n=1, kernel=3), n=1, c=64, o=64, size=(56, 56), kernel=3),
    _conv("1x1 256 to 64 of 56x56, batch 32", (IMAGE | dict(kernel=1), dict(n=2, c=128, o=64, size=(14, 15), kernel=1)), n=32, c=256, o=64, size=(56, 56), kernel=1, quick=True),
    _conv("1x1 64 to 256 of 56x56, batch 32", IMAGE | dict(kernel=1), n=32, c=64, o=256, size=(56, 56), kernel=1),
    _conv("1x1 2048 to 512 of 7x7, batch 32", IMAGE | dict(kernel=1), n=32, c=2048, o=512, size=(7, 7), kernel=1),
    _conv("depthwise 3x3 256 of 56x56, batch 32", dict(n=2, c=6, o=6, size=(9, 11), kernel=3, groups=6), STREAM,
          n=32, c=256, o=256, size=(56, 56), kernel=3, groups=256, quick=True),
    _conv("1-D audio 64 to 128, kernel 9", dict(n=2, c=6, o=10, size=(70,), kernel=9, stride=2),
          n=16, c=64, o=128, size=(16000,), kernel=9, stride=2),
    Row("max_pool 3x3 stride 2", "", max_pool, dict(shape=(32, 64, 112, 112), kernel=3, stride=2, padding=1),
        (dict(shape=(2, 3, 13, 14), kernel=3, stride=2, padding=1),), STREAM, True),
    Row("resize linear 2x", "", resize, dict(shape=(16, 64, 64, 64), factor=2),
        (dict(shape=(1, 3, 7, 9), factor=2),), STREAM, True),
)  # fmt: skip

COPY = Row("copy", "", copy, dict(count=1 << 25), (dict(count=4096),), quick=True)

"""Pools: the maximum, mean or norm of sliding windows, and of whole planes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.abi.windows import DIVISORS
from rlx.errors import GraphError, ShapeError
from rlx.ir.dtype import HALVES, DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, PerAxis, Sample, TensorType
from rlx.ir.shape import Shape, estimated, size
from rlx.ops.declare import FLOAT_KERNELS, composite, op
from rlx.ops.windows import strips
from rlx.ops.windows.geometry import (
    Padding,
    Window,
    as_pads,
    per_axis,
    same_pads,
    tensor_axes,
    window_params,
    windows,
)
from rlx.sizes import SizeExpr

_RANKS = (1, 2, 3)
# WGSL: most taps of a window for one thread per window. Larger windows take a workgroup each.
_WIDE = 1024
_WORKGROUP = 256


def _normalise(name: str, shape: Shape, attrs: dict[str, Any]) -> Window:
    """Writes the window's attributes as one entry per axis, and gives the windows."""
    dims = tensor_axes(shape, _RANKS, where=name)
    rank = len(dims)
    if attrs["stride"] is None:
        attrs["stride"] = attrs["kernel"]
    for key in ("kernel", "stride", "dilation"):
        attrs[key] = per_axis(attrs[key], rank, what=key, where=name, least=1)
    attrs["ceil_mode"] = bool(attrs["ceil_mode"])
    kernel, stride, dilation = attrs["kernel"], attrs["stride"], attrs["dilation"]
    if isinstance(attrs["padding"], str):
        pads = same_pads(attrs["padding"], dims, kernel, stride, dilation, where=name)
    else:
        pads = as_pads(attrs["padding"], rank, where=name)
    attrs["padding"] = pads
    for k, d, pair in zip(kernel, dilation, pads, strict=True):
        if any(not isinstance(side, SizeExpr) and side > (k - 1) * d for side in pair):
            raise ShapeError(
                f"[{name}] a window would cover only padding",
                got=f"kernel {kernel}, dilation {dilation}, padding {pads}",
                expected="padding <= (kernel - 1) * dilation",
            )
    return _window(name, dims, attrs)


def _window(name: str, dims: Shape, attrs: Any) -> Window:
    kernel, stride, dilation, pads, ceil = (
        attrs[key] for key in ("kernel", "stride", "dilation", "padding", "ceil_mode")
    )
    return Window.of(dims, kernel, stride, dilation, pads, where=name, ceil=ceil)


def _infer(name: str, types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    if attrs.get("divide", "no") not in DIVISORS:
        raise GraphError(
            f"[{name}] divide", got=repr(attrs["divide"]), expected=", ".join(DIVISORS)
        )
    return TensorType((*shape[:2], *_normalise(name, shape, attrs).out), types[0].dtype)


def _lower(node: Node, emitter: Emitter, *, kind: str, webgpu: bool) -> None:
    window = _window(node.op, node.inputs[0].shape[2:], node.attrs).three()
    planes = size(node.shape[:2])
    params = {
        "batch": 1,
        "channels": planes,
        "outputs": planes,
        "parts": 1,
        **window.params(),
        "divide": DIVISORS.index(node.attrs.get("divide", "no")),
    }
    if not webgpu:
        known = {**window_params(params), "divide": params["divide"]}
        emitter.call(f"pool_{kind}", [emitter.operand(0)], [emitter.result()], known)
        return
    strip = strips.StripProblem.of(planes, window)
    cut = strips.POOL.choose(strip, emitter)
    if cut.name != "plain":
        params |= {"tall": strips.tall(strip, cut), "threads": cut.threads, "kind": kind}
        work = strips.work(strip, cut)
        emitter.call("pool_strips", [emitter.operand(0)], [emitter.result()], params, work)
        return
    shared = size(window.kernel) > _WIDE
    work = size(node.shape) if shared else math.ceil(size(node.shape) / _WORKGROUP)
    params = {**params, "kind": kind, "shared": int(shared)}
    emitter.call("pool", [emitter.operand(0)], [emitter.result()], params, work)


def _flops(node: Node) -> float:
    return float(estimated(size(node.shape) * size(node.attrs["kernel"])))


_CASES: tuple[tuple[Shape, dict[str, Any]], ...] = (
    ((1, 1, 1), {"kernel": 1}),
    ((0, 2, 5), {"kernel": 2}),
    ((2, 3, 11), {"kernel": 3}),
    ((2, 3, 11), {"kernel": 3, "stride": 2, "padding": 1}),
    ((2, 3, 10), {"kernel": 3, "stride": 3, "padding": ((1, 2),), "ceil_mode": True}),
    ((1, 2, 9), {"kernel": 2, "stride": 3, "padding": 1, "ceil_mode": True}),
    ((2, 3, 7, 9), {"kernel": (2, 3), "stride": 1}),
    ((1, 3, 8, 37), {"kernel": 3, "stride": 2, "padding": ((0, 1), (1, 1))}),
    ((1, 3, 8, 9), {"kernel": 3, "stride": 2, "padding": "same_upper"}),
    ((1, 3, 8, 9), {"kernel": (2, 4), "stride": 1, "padding": "same_lower"}),
    ((1, 2, 12, 11), {"kernel": 3, "stride": 2, "dilation": (2, 3), "padding": 2}),
    ((1, 2, 7, 10), {"kernel": 2, "stride": 2, "dilation": 3, "padding": 1, "ceil_mode": True}),
    ((1, 2, 5, 6, 7), {"kernel": (2, 3, 2), "padding": 1}),
    ((1, 2, 6, 5, 7), {"kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ((1, 2, 3000), {"kernel": 2500, "stride": 100, "padding": 7}),
)


def _samples(*more: dict[str, Any], **fields: Any) -> tuple[Sample, ...]:
    """The cases above, each of ``more`` on some of them, and one to be timed."""
    results = [Sample((shape,), attrs, **fields) for shape, attrs in _CASES]
    for extra in more:
        results += [Sample((s,), {**a, **extra}, **fields) for s, a in _CASES[3:] if len(s) < 5]
    bench = {"kernel": 3, "stride": 2, "padding": 1}
    return (*results, Sample(((1, 64, 112, 112),), bench, bench=True))


_HOLES = np.where(np.arange(2 * 3 * 6 * 7) % 11 == 0, np.nan, np.arange(2 * 3 * 6 * 7))


@op(
    infer=functools.partial(_infer, "max_pool"),
    flops=_flops,
    cpu=Kernels(("pool_max",), functools.partial(_lower, kind="max", webgpu=False)),
    webgpu=Kernels(("pool_strips", "pool"), functools.partial(_lower, kind="max", webgpu=True)),
    dtypes=FLOAT_KERNELS | {DType.I32},
    samples=lambda: (
        *_samples(low=-50, high=50),
        # NaN wins, wherever it stands in a window.
        Sample(
            ((2, 3, 6, 7),),
            {"kernel": 2, "stride": 1},
            values=(_HOLES.reshape(2, 3, 6, 7),),
            dtypes=(DType.F32,),
        ),
    ),
)
def max_pool(
    x: Array,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Array:
    """The largest element of each window; NaN where there is one. Padding never wins.

    Args:
        x: ``[N, C, ...]`` with one to three spatial axes.
        kernel: Size of a window; an int or one per axis.
        stride: Distance between windows; the kernel by default, so that they do not overlap.
        padding: An int, one per axis, a (before, after) pair per axis, "same_upper" or "same_lower".
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a window may hang over the end; it has to begin inside x or its padding.

    Returns:
        ``[N, C, ...]``, sizes as of a convolution, rounded up with ``ceil_mode``.
    """
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    window = _window("max_pool", x.shape[2:], {**attrs, "ceil_mode": ceil_mode})
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return np.asarray(np.max(windows(x, window, lowest), tuple(range(-len(window.dims), 0))))


# --- sums ------------------------------------------------------------------------------------------

# The divisor of a sum: 1, the elements in the window, or those and its padding.
_DEFAULTS: dict[str, Any] = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False}


def _counts(window: Window, padded: bool) -> Array:
    """Number of elements that each window has; what hangs over the padding never counts."""
    counts = []
    for a, (before, after) in enumerate(window.pads):
        first = np.arange(window.out[a])[:, None] * window.stride[a] - before
        pos = first + np.arange(window.kernel[a]) * window.dilation[a]
        low, high = (-before, window.dims[a] + after) if padded else (0, window.dims[a])
        counts.append(((pos >= low) & (pos < high)).sum(1))
    return functools.reduce(np.multiply.outer, counts)


@op(
    internal=True,
    infer=functools.partial(_infer, "window_sum"),
    flops=_flops,
    cpu=Kernels(("pool_sum",), functools.partial(_lower, kind="sum", webgpu=False)),
    webgpu=Kernels(("pool_strips", "pool"), functools.partial(_lower, kind="sum", webgpu=True)),
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},  # sums of up to thousands of elements, in f32
    samples=lambda: tuple(
        Sample((shape,), {**_DEFAULTS, **attrs, "divide": divide})
        for shape, attrs in _CASES
        for divide in DIVISORS
    ),
)
def window_sum(
    x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, divide: str
) -> Array:
    """The sum of each window, or its mean: what ``avg_pool`` and ``lp_pool`` are made of.

    All but ``divide`` is as of ``max_pool``: "no", "inside" (by the elements of x in the window) or "padded" (by
    those and its padding). A window without any gives 0.
    """
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    window = _window("window_sum", x.shape[2:], {**attrs, "ceil_mode": ceil_mode})
    total = np.asarray(np.sum(windows(x, window, 0.0), tuple(range(-len(window.dims), 0))))
    if divide == "no":
        return total
    return np.asarray(total / np.maximum(_counts(window, divide == "padded"), 1))


def _sum(g: Graph, x: Node, name: str, divide: str, attrs: dict[str, Any]) -> Node:
    # Checked under the name that the caller knows.
    _normalise(name, x.shape, attrs)
    return g.add_node("window_sum", [x], {**attrs, "divide": divide})


def _avg_pool(g: Graph, x: Node, count_include_pad: bool, **attrs: Any) -> Node:
    return _sum(g, x, "avg_pool", "padded" if count_include_pad else "inside", attrs)


@composite(
    _avg_pool,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},
    samples=lambda: _samples({"count_include_pad": True}),
)
def avg_pool(
    x: Array,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Array:
    """The mean of each window.

    Args:
        x: ``[N, C, ...]`` with one to three spatial axes.
        kernel: Size of a window; an int or one per axis.
        stride: Distance between windows; the kernel by default.
        padding: An int, one per axis, a (before, after) pair per axis, "same_upper" or "same_lower".
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a window may hang over the end; it has to begin inside x or its padding.
        count_include_pad: Whether padding counts as zeros, or not at all. What hangs over the padding
            never counts.

    Returns:
        ``[N, C, ...]``, sizes as of ``max_pool``.
    """
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    attrs["ceil_mode"] = ceil_mode
    window = _normalise("avg_pool", x.shape, attrs)
    total = np.sum(windows(x, window, 0.0), tuple(range(-len(window.dims), 0)))
    return np.asarray(total / np.maximum(_counts(window, count_include_pad), 1))


# --- norms -------------------------------------------------------------------------------------------


def _check_power(name: str, p: Any) -> float:
    if not (isinstance(p, (int, float)) and 0 < p < math.inf):
        raise GraphError(f"[{name}] p is no norm", got=repr(p), expected="a number > 0")
    return float(p)


def _norm(g: Graph, x: Node, p: float, total: Callable[[Node], Node]) -> Node:
    """(sum of abs(x) ** p) ** (1 / p) around a sum; p may be a number that half types round."""
    if p == 1:
        return total(g.abs(x))
    if p == 2:
        return g.sqrt(total(x * x))
    if x.dtype in HALVES:
        return g.cast(_norm(g, g.cast(x, DType.F32), p, total), x.dtype)
    return g.pow(total(g.pow(g.abs(x), p)), 1.0 / p)


def _lp_pool(g: Graph, x: Node, p: Any, **attrs: Any) -> Node:
    power = _check_power("lp_pool", p)
    return _norm(g, x, power, lambda y: _sum(g, y, "lp_pool", "no", dict(attrs)))


@composite(
    _lp_pool,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 2e-5},  # the errors of two powers
    samples=lambda: _samples({"p": 1}, {"p": 3}),
)
def lp_pool(
    x: Array,
    kernel: PerAxis,
    p: float = 2,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Array:
    """The norm (sum of abs(x) ** p) ** (1 / p) of each window.

    Args:
        x: ``[N, C, ...]`` with one to three spatial axes.
        kernel: Size of a window; an int or one per axis.
        p: The exponent, greater than 0.
        stride: Distance between windows; the kernel by default.
        padding: Zeros around x: an int, one per axis, a (before, after) pair per axis, "same_upper"
            or "same_lower".
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a window may hang over the end; it has to begin inside x or its padding.

    Returns:
        ``[N, C, ...]``, sizes as of ``max_pool``.
    """
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    attrs["ceil_mode"] = ceil_mode
    window = _normalise("lp_pool", x.shape, attrs)
    powers = windows(np.abs(x) ** p, window, 0.0)
    return np.asarray(np.sum(powers, tuple(range(-len(window.dims), 0))) ** (1.0 / p))


# --- whole planes --------------------------------------------------------------------------------------


def _plane(name: str, x: Node) -> dict[str, Any]:
    """Arguments of a reduction over the spatial axes."""
    if len(x.shape) < 3:
        raise ShapeError(
            f"[{name}] no axes to pool over", got=x.shape, expected="[N, C, size, ...]"
        )
    return {"axes": tuple(range(2, len(x.shape))), "keepdims": True}


_PLANES = tuple(
    Sample((shape,)) for shape in ((1, 1, 1), (2, 3, 7), (2, 3, 5, 9), (1, 2, 3, 4, 5), (0, 2, 3))
)


@composite(
    lambda g, x: g.max(x, **_plane("global_max_pool", x)),
    dtypes=FLOAT_KERNELS | {DType.I32},
    samples=_PLANES,
)
def global_max_pool(x: Array) -> Array:
    """The largest element of each plane: ``[N, C, ...]`` to ``[N, C, 1, ...]``; NaN wins."""
    return np.asarray(np.max(x, tuple(range(2, x.ndim)), keepdims=True))


@composite(
    lambda g, x: g.mean(x, **_plane("global_avg_pool", x)), dtypes=FLOAT_KERNELS, samples=_PLANES
)
def global_avg_pool(x: Array) -> Array:
    """The mean of each plane: ``[N, C, ...]`` to ``[N, C, 1, ...]``."""
    return np.asarray(np.mean(x, tuple(range(2, x.ndim)), keepdims=True))


def _global_lp_pool(g: Graph, x: Node, p: Any) -> Node:
    over = _plane("global_lp_pool", x)
    return _norm(g, x, _check_power("global_lp_pool", p), lambda y: g.sum(y, **over))


@composite(
    _global_lp_pool,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 2e-5},  # the errors of two powers
    samples=lambda: (*_PLANES, Sample(((2, 3, 7),), {"p": 1}), Sample(((2, 3, 4, 5),), {"p": 3})),
)
def global_lp_pool(x: Array, p: float = 2) -> Array:
    """(sum of abs(x) ** p) ** (1 / p) of each plane: ``[N, C, ...]`` to ``[N, C, 1, ...]``."""
    return np.asarray(np.sum(np.abs(x) ** p, tuple(range(2, x.ndim)), keepdims=True) ** (1.0 / p))

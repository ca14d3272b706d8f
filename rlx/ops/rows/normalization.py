"""Normalisation. Kernels normalise over the last axes; other axes are moved there first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_axis, size
from rlx.ops.declare import FLOAT_KERNELS, composite, named_operands, op, operand_names


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    attrs["axis"] = as_axis(attrs.get("axis", -1), len(shape), where="layer_norm")
    attrs["eps"] = float(attrs["eps"])
    for name, type in zip(attrs["present"], types[1:], strict=True):
        if type.shape != shape[attrs["axis"] :]:
            raise ShapeError(
                f"[normalisation] {name} does not have the shape of the normalised axes",
                got=type.shape,
                expected=shape[attrs["axis"] :],
            )
    return types[0]


def _lower(node: Node, emitter: Emitter) -> None:
    _call("layer_norm", node, emitter, size(node.inputs[0].shape[: node.attrs["axis"]]))


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    from rlx.ops.rows.tiles import ROWS, Rows, row_call

    shape = node.inputs[0].shape
    problem = Rows(size(shape[: node.attrs["axis"]]), size(shape[node.attrs["axis"] :]))
    variant = ROWS.choose(problem, emitter)
    if variant.name == "plain":
        _lower(node, emitter)
        return
    more, groups = row_call(problem, variant, emitter.limits)
    _call("norm_rows", node, emitter, groups, **more)


def _call(kernel: str, node: Node, emitter: Emitter, groups: int, **more: int) -> None:
    shape = node.inputs[0].shape
    inputs, results = operand_names(node), emitter.results()
    emitter.call(
        kernel,
        [emitter.operand(0), *named_operands(node, emitter, ("weight", "bias", "residual"))],
        results,
        {
            "rows": size(shape[: node.attrs["axis"]]),
            "n": size(shape[node.attrs["axis"] :]),
            "eps": node.attrs["eps"],
            "rms": int(node.attrs.get("rms", node.op == "rms_norm")),
        },
        groups,
        in_place=(0, 3) if "residual" in inputs else (0,),
        wgsl={
            "has_weight": int("weight" in inputs),
            "has_bias": int("bias" in inputs),
            "has_residual": int("residual" in inputs),
            "keep": int(len(results) > 1),
            "half": int(node.inputs[0].dtype is DType.F16),
            **more,
        },
    )


_KERNELS = Kernels(("layer_norm",), _lower)
_WEBGPU = Kernels(("layer_norm", "norm_rows"), _lower_webgpu)


@op(
    infer=_infer,
    flops=lambda node: 8.0 * size(node.shape),
    cpu=_KERNELS,
    webgpu=_WEBGPU,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    tolerance={DType.F32: 1e-5},  # the subtraction of the mean cancels
    samples=lambda: (
        Sample(((4, 8), (8,), (8,))),
        Sample(((4, 8), (8,)), {"bias": None}),
        Sample(((4, 8),), {"weight": None, "bias": None}),
        Sample(((2, 3, 5), (3, 5), (3, 5)), {"axis": 1}),
        Sample(((3, 700), (700,), (700,)), low=90, high=110),
        Sample(((1, 1), (1,), (1,))),
        Sample(((0, 4), (4,), (4,))),
        *(
            Sample(((rows, n), (n,), (n,)), low=90, high=110)
            for rows, n in (
                (70, 12),
                (33, 128),
                (9, 300),
                (5, 1028),
                (2, 4101),
                (2, 20000),
                (2, 70001),
            )
        ),
        Sample(((128, 768), (768,), (768,)), bench=True),
    ),
)
def layer_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    axis: int = -1,
    eps: float = 1e-5,
) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over ``axis`` to the last (arXiv:1607.06450).

    Args:
        x: Any shape of rank >= 1.
        weight: Shape of the normalised axes, or None for 1.
        bias: Shape of the normalised axes, or None for 0.
        axis: First normalised axis.
        eps: Added to the variance, which is the biased one.
    """
    axes = tuple(range(axis, x.ndim)) if x.size else ()  # NumPy warns of means of nothing
    centred = x - np.mean(x, axes, keepdims=True)
    y = centred / np.sqrt(np.mean(centred**2, axes, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@op(
    infer=_infer,
    flops=lambda node: 5.0 * size(node.shape),
    cpu=_KERNELS,
    webgpu=_WEBGPU,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    tolerance={DType.F32: 5e-6},
    samples=lambda: (
        Sample(((4, 8), (8,))),
        Sample(((4, 8),), {"weight": None}),
        Sample(((2, 3, 300), (300,))),
        Sample(((1, 1), (1,))),
        Sample(((0, 4), (4,))),
        *(Sample(((rows, n), (n,))) for rows, n in ((70, 12), (33, 128), (5, 1028), (2, 70001))),
        Sample(((128, 768), (768,)), bench=True),
    ),
)
def rms_norm(x: Array, weight: Array | None = None, eps: float = 1e-6, axis: int = -1) -> Array:
    """X / sqrt(mean(x^2) + eps) * weight over ``axis`` to the last (arXiv:1910.07467).

    Args:
        x: Any shape of rank >= 1.
        weight: Shape of the normalised axes, or None for 1.
        eps: Added to the mean square.
        axis: First normalised axis.
    """
    axes = tuple(range(axis, x.ndim)) if x.size else ()  # NumPy warns of means of nothing
    y = x / np.sqrt(np.mean(x * x, axes, keepdims=True) + eps)
    return y if weight is None else y * weight


def _infer_residual(
    types: Sequence[TensorType], attrs: dict[str, Any]
) -> TensorType | tuple[TensorType, ...]:
    x, residual, *rest = types
    if x.shape != residual.shape:
        raise ShapeError(
            "[residual_norm] the added operand has the wrong shape",
            got=residual.shape,
            expected=x.shape,
        )
    _infer([x, *rest], attrs)
    return (x, x) if attrs["keep"] else x


def _residual_samples() -> tuple[Sample, ...]:
    both, weight, none = ("weight", "bias"), ("weight",), ()
    table: tuple[tuple[tuple[int, ...], int, bool, tuple[str, ...]], ...] = (
        ((4, 8), -1, False, both),
        ((3, 5), -1, True, both),
        ((3, 5), -1, True, ("bias",)),
        ((2, 3, 300), -1, False, weight),
        ((2, 3, 257), 1, True, both),
        ((2, 1100), -1, True, weight),
        ((1, 1), -1, True, both),
        ((37, 128), -1, True, both),
        ((3, 2052), -1, False, both),
        ((2, 70000), -1, True, weight),
        ((2, 70001), -1, False, weight),
        ((0, 4), -1, True, none),
        ((3, 7), -1, False, none),
    )
    return tuple(
        Sample(
            (shape, shape, *(shape[axis % len(shape) :] for _ in present)),
            {"axis": axis, "eps": 1e-5, "rms": rms, "keep": keep, "present": present},
        )
        for rms in (False, True)
        for shape, axis, keep, present in table
        if not (rms and "bias" in present and "weight" not in present)
    )


@op(
    infer=_infer_residual,
    flops=lambda node: (6.0 if node.attrs["rms"] else 9.0) * size(node.inputs[0].shape),
    cpu=_KERNELS,
    webgpu=_WEBGPU,
    internal=True,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    tolerance={DType.F32: 1e-5},  # as layer_norm
    samples=lambda: _residual_samples(),
)
def residual_norm(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    axis: int = -1,
    eps: float = 1e-5,
    rms: bool = False,
    keep: bool = False,
) -> Any:
    """``layer_norm`` or ``rms_norm`` of x + residual, in one pass; with ``keep`` the sum is a second result."""
    total = x + residual
    if rms:
        y = rms_norm.reference(total, weight, eps, axis)
        y = y if bias is None else y + bias
    else:
        y = layer_norm.reference(total, weight, bias, axis, eps)
    return (y, total) if keep else y


def _per_channel(g: Graph, x: Node, values: Node, name: str) -> Node:
    """A vector of one number per channel, shaped to broadcast over [N, C, ...]."""
    if values.shape != x.shape[1:2]:
        raise ShapeError(
            f"[{name}] needs one number per channel", got=values.shape, expected=x.shape[1:2]
        )
    return g.reshape(values, (x.shape[1], *(1,) * (len(x.shape) - 2)))


def _check_channels(name: str, x: Node, least: int = 2) -> None:
    if len(x.shape) < least:
        raise ShapeError(f"[{name}] operand", got=x.shape, expected="[N, C, ...]")


def _group_norm(
    g: Graph, x: Node, groups: int, weight: Node | None, bias: Node | None, eps: float
) -> Node:
    _check_channels("group_norm", x)
    if groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            "[group_norm] channels do not divide", got=f"{x.shape[1]} by {groups} groups"
        )
    rest = size(x.shape[1:]) // groups
    y = g.layer_norm(g.reshape(x, (x.shape[0], groups, rest)), None, None, -1, eps)
    y = g.reshape(y, x.shape)
    weight = None if weight is None else _per_channel(g, x, weight, "group_norm")
    bias = None if bias is None else _per_channel(g, x, bias, "group_norm")
    y = y if weight is None else g.mul(y, weight)
    return y if bias is None else g.add(y, bias)


_GROUPED = ((2, 6, 5), (1, 4, 3, 2), (1, 2, 1), (0, 4, 3))


@composite(
    _group_norm,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},
    samples=lambda: (
        *(Sample((s, s[1:2], s[1:2]), {"groups": 2}) for s in _GROUPED),
        Sample(((2, 6, 5),), {"groups": 3, "weight": None, "bias": None}),
    ),
)
def group_norm(
    x: Array, groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Normalisation over groups of channels and everything behind them (arXiv:1803.08494).

    Args:
        x: ``[N, C, ...]``.
        groups: A divisor of C.
        weight: ``[C]``, or None for 1.
        bias: ``[C]``, or None for 0.
        eps: Added to the variance.
    """
    y = x.reshape(x.shape[0], groups, size(x.shape[1:]) // groups)
    y = y - y.mean(-1, keepdims=True)
    y = (y / np.sqrt((y * y).mean(-1, keepdims=True) + eps)).reshape(x.shape)
    channels = (-1, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * weight.reshape(channels)
    return y if bias is None else y + bias.reshape(channels)


def _instance_norm(g: Graph, x: Node, weight: Any, bias: Any, eps: float) -> Node:
    _check_channels("instance_norm", x)
    return g.group_norm(x, x.shape[1], weight, bias, eps)


@composite(
    _instance_norm,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},
    samples=lambda: tuple(Sample((s, s[1:2], s[1:2])) for s in _GROUPED),
)
def instance_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Normalisation of every channel of every sample by itself (arXiv:1607.08022); x ``[N, C, ...]``."""
    return group_norm.reference(x, x.shape[1], weight, bias, eps)


def _batch_norm(
    g: Graph, x: Node, scale: Node, bias: Node, mean: Node, var: Node, eps: float
) -> Node:
    _check_channels("batch_norm", x)
    factor, shift = _factor_and_shift(g, scale, bias, mean, var, float(eps))
    factor, shift = (_per_channel(g, x, v, "batch_norm") for v in (factor, shift))
    return g.fma(x, factor, shift)


def _factor_and_shift(
    g: Graph, scale: Node, bias: Node, mean: Node, var: Node, eps: float
) -> tuple[Node, Node]:
    """Computes them from params in a node each: a network has hundreds of these norms, and passes look at every node."""
    known = all(item.op == "param" and item.dtype is DType.F32 for item in (scale, bias, mean, var))
    least = float(np.float32(eps))
    if not known or not math.isfinite(least):
        factor = g.mul(scale, g.rsqrt(g.add(var, eps)))
        return factor, g.sub(bias, g.mul(mean, factor))
    program = ("literal", (), DType.F32, least), *_steps(add=(0, 2), rsqrt=(3,), mul=(1, 4))
    factor = g.add_node("region", (var, scale), {"program": program})
    program = _steps(mul=(0, 1), sub=(2, 3))
    return factor, g.add_node("region", (mean, factor, bias), {"program": program})


def _steps(**operands: tuple[int, ...]) -> tuple[Any, ...]:
    """Steps of a region, in f32, by their operands."""
    return tuple((op, numbers, DType.F32, None) for op, numbers in operands.items())


@composite(
    _batch_norm,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},
    samples=lambda: tuple(
        Sample((s, *(s[1:2],) * 4), low=(-2, -2, -2, -2, 0.5)) for s in (*_GROUPED, (3, 4))
    ),
)
def batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, eps: float = 1e-5
) -> Array:
    """(x - mean) / sqrt(var + eps) * scale + bias with given statistics (arXiv:1502.03167).

    Args:
        x: ``[N, C, ...]``.
        scale: ``[C]``.
        bias: ``[C]``.
        mean: ``[C]``, gathered in training.
        var: ``[C]``, gathered in training.
        eps: Added to the variance.
    """
    c = (-1, *(1,) * (x.ndim - 2))
    y = (x - mean.reshape(c)) / np.sqrt(var.reshape(c) + eps)
    return y * scale.reshape(c) + bias.reshape(c)


@composite(
    lambda g, x, axis, eps: g.div(x, g.maximum(g.l2(x, [axis], True), float(eps))),
    dtypes=FLOAT_KERNELS,
    samples=lambda: (
        Sample(((3, 5),)),
        Sample(((3, 5, 2),), {"axis": 1}),
        Sample(((1,),)),
        Sample(((0, 4),)),
    ),
)
def l2_normalize(x: Array, axis: int = -1, eps: float = 1e-12) -> Array:
    """X / max(||x||, eps), the Euclidean norm taken along ``axis``."""
    return x / np.maximum(np.sqrt(np.sum(x * x, axis, keepdims=True)), eps)

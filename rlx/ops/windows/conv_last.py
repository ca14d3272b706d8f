"""Convolutions of an operand whose channels are its last axis: the CPU's own form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import Shape, size
from rlx.ops.declare import FLOAT_KERNELS, named_operands, op
from rlx.ops.products.matmul import activated, check_activation
from rlx.ops.windows.convolution import CONVOLUTIONS
from rlx.ops.windows.convolution_cpu import CPU, LastConvolution
from rlx.ops.windows.geometry import Window, collapsed


def planes_first(shape: Shape) -> Shape:
    """A shape ``[N, ..., C]`` as ``[N, C, ...]``."""
    return (shape[0], shape[-1], *shape[1:-1])


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    check_activation("conv_last", attrs["act"])
    own = types[:-1] if "residual" in attrs["present"] else types
    x = TensorType(planes_first(own[0].shape), own[0].dtype)
    made = CONVOLUTIONS[len(x.shape) - 2].infer([x, *own[1:]], attrs)
    assert isinstance(made, TensorType)
    result = TensorType((made.shape[0], *made.shape[2:], made.shape[1]), made.dtype)
    if len(own) < len(types) and types[-1].shape != result.shape:
        raise ShapeError(
            "[conv_last] the added operand has the wrong shape",
            got=types[-1].shape,
            expected=result.shape,
        )
    return result


def _lower(node: Node, emitter: Emitter) -> None:
    x, w, a = node.inputs[0].shape, node.inputs[1].shape, node.attrs
    window = Window.of(x[1:-1], w[2:], a["stride"], a["dilation"], a["padding"], where=node.op)
    conv = LastConvolution(
        collapsed(window), x[0], x[-1], node.shape[-1], a["groups"], node.dtype, a["act"]
    )
    operands = named_operands(node, emitter, ("x", "w", "bias", "residual"))
    conv.call(emitter, operands, emitter.result())


def _samples() -> tuple[Sample, ...]:
    cases: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
        ((2, 9, 11, 7), (10, 7, 3, 3), {"padding": 1}),
        ((1, 6, 9, 8), (16, 4, 2, 3), {"groups": 2, "stride": 2}),
        ((1, 8, 10, 3), (20, 3, 3, 5), {"padding": ((1, 2), (2, 4))}),
        ((1, 7, 6, 20), (20, 1, 3, 3), {"groups": 20, "padding": 2, "dilation": (1, 2)}),
        ((2, 21, 5), (33, 5, 4), {"stride": 3}),
        ((1, 4, 5, 6, 6), (9, 6, 2, 3, 1), {"padding": 1}),
        ((0, 5, 5, 8), (8, 8, 3, 3), {}),
        ((3, 1, 1, 19), (6, 19, 1, 1), {}),
    )
    plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    present = ("bias",), ()
    return tuple(
        Sample(
            (x, w, (w[0],))[: 2 + len(present[i % 2])],
            {**plain, **attrs, "act": ("none", "relu", "silu")[i % 3], "present": present[i % 2]},
        )
        for i, (x, w, attrs) in enumerate(cases)
    )


@op(
    infer=_infer,
    flops=lambda node: 2.0 * size(node.shape) * size(node.inputs[1].shape[1:]),
    cpu=Kernels(CPU.names, _lower),
    host_reason=lambda node: "convolutions with channels last are made for the CPU alone",
    internal=True,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},  # as the convolution
    samples=_samples,
)
def conv_last(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    act: str = "none",
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """act(convolution(x, w, bias) + residual) of operands whose channels are the last axis.

    Args:
        x: ``[N, ..., C]`` with one to three spatial axes.
        w: ``[O, C / groups, K...]``, as of ``conv2d``.
        bias: ``[O]``, or None for 0.
        residual: The shape of the result, or None for 0.
        act: One of ``ACTIVATIONS``.
        stride: As for ``conv2d``.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.

    Returns:
        ``[N, ..., O]``.
    """
    convolution = CONVOLUTIONS[x.ndim - 2].reference
    y = convolution(np.moveaxis(x, -1, 1), w, bias, stride, padding, dilation, groups)
    y = np.moveaxis(y, 1, -1)
    return activated(y if residual is None else y + residual, act)

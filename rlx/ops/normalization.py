"""Normalisation over the last axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_axis, size
from rlx.ops.record import FLOAT_KERNELS, WEBGPU_FLOATS, op


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    attrs["axis"] = as_axis(attrs["axis"], len(shape), where="layer_norm")
    attrs["eps"] = float(attrs["eps"])
    for name, type in zip(attrs["present"], types[1:], strict=True):
        if type.shape != shape[attrs["axis"] :]:
            raise ShapeError(
                describe(
                    f"[layer_norm] {name} has another shape than what is normalised",
                    got=type.shape,
                    expected=shape[attrs["axis"] :],
                )
            )
    return types[0]


def _lower(node: Node, emitter: Emitter) -> None:
    if size(node.shape) == 0:
        return
    present = node.attrs["present"]
    given = dict(zip(present, range(1, len(node.inputs)), strict=True))
    extra = [emitter.operand(given[name]) if name in given else None for name in ("weight", "bias")]
    rows = size(node.shape[: node.attrs["axis"]])
    emitter.call(
        "layer_norm",
        [emitter.operand(0), *extra],
        [emitter.result()],
        {
            "rows": rows,
            "n": size(node.shape[node.attrs["axis"] :]),
            "has_weight": int("weight" in given),
            "has_bias": int("bias" in given),
            "eps": node.attrs["eps"],
        },
        rows,
    )


@op(
    infer=_infer,
    flops=lambda node: 8.0 * size(node.shape),
    cpu=Kernels(("layer_norm",), _lower),
    webgpu=Kernels(("layer_norm",), _lower),
    dtypes=FLOAT_KERNELS,
    webgpu_dtypes=WEBGPU_FLOATS,
    tolerance={DType.F32: 1e-5},  # the subtraction of the mean cancels
    samples=(
        Sample(((4, 8), (8,), (8,))),
        Sample(((4, 8), (8,)), {"bias": None}),
        Sample(((4, 8),), {"weight": None, "bias": None}),
        Sample(((2, 3, 5), (3, 5), (3, 5)), {"axis": 1}),
        Sample(((3, 700), (700,), (700,)), low=90, high=110),
        Sample(((1, 1), (1,), (1,))),
        Sample(((0, 4), (4,), (4,))),
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
    axes = tuple(range(axis, x.ndim))
    centred = x - np.mean(x, axes, keepdims=True)
    y = centred / np.sqrt(np.mean(centred**2, axes, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias

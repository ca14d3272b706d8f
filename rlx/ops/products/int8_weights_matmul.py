"""Products by weights in 8 bits whose other operand is rounded to 16 bits, where a model allows as much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import op
from rlx.ops.int8_weights import ROUNDED_TOLERANCE, check_scales, on_cpu
from rlx.ops.products.matmul import matmul_type

_DECODE = (
    ("cast", (0,), DType.I32, None),
    ("cast", (2,), DType.F32, None),
    ("mul", (3, 1), DType.F32, None),
)


# --- decoding -------------------------------------------------------------------------------------


def _infer_decoded(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    check_scales("coarse_weights", *types)
    return TensorType(types[0].shape, DType.F32)


def _lower_decoded(node: Node, emitter: Emitter) -> None:
    shapes = (node.shape, (*node.shape[:-1], 1))
    emitter.elementwise(_DECODE, [emitter.operand(0), emitter.operand(1)], emitter.result(), shapes)


@op(
    free=("scales",),
    infer=_infer_decoded,
    flops=lambda node: size(node.shape),
    cpu=Kernels((), _lower_decoded),
    webgpu=Kernels((), _lower_decoded),
    internal=True,
    dtypes=frozenset({DType.I8}),
    webgpu_dtypes=frozenset({DType.I8}),
    samples=lambda: tuple(
        Sample((shape, shape[:-1]), dtypes=(DType.I8, DType.F32), low=(-120, 0), high=(120, 1))
        for shape in ((3, 5), (2, 6, 7), (1, 1), (0, 4), (3, 0), (9,))
    ),
)
def coarse_weights(codes: Array, scales: Array) -> Array:
    """The f32 weights of 8-bit codes, for products whose model would round the other operand to 8 bits.

    Where the CPU multiplies by them, it keeps the codes ``[..., rows, k]`` and rounds the other operand to 16 bits.
    """
    return codes * scales[..., None]


# --- the product ----------------------------------------------------------------------------------


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    x, w, scales, *bias = types
    if len(w.shape) != 2:
        got = w.shape
        raise ShapeError("[rounded_matmul] w is no matrix", got=got, expected="[n, k]")
    check_scales("rounded_matmul", w, scales)
    result = matmul_type([x, TensorType((w.shape[1], w.shape[0]), x.dtype)])
    if any(item.shape != scales.shape for item in bias):
        got = bias[0].shape
        raise ShapeError("[rounded_matmul] bias", got=got, expected=scales.shape)
    return result


def _lower(node: Node, emitter: Emitter) -> None:
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    n, k = node.inputs[1].shape
    params = {"m": size(node.shape) // n, "n": n, "k": k}
    operands += [None] * (4 - len(operands))
    emitter.call("rounded_matmul", operands, [emitter.result()], params)


def _sample(m: tuple[int, ...], n: int, k: int, biased: bool = False) -> Sample:
    shapes = ((*m, k), (n, k), (n,), (n,))[: 4 if biased else 3]
    types = (DType.F32, DType.I8, DType.F32, DType.F32)[: len(shapes)]
    # Weights as large as those of other products.
    low, high = (-1.0, -128, 0.0, -1.0), (1.0, 127.9, 1 / 128, 1.0)
    return Sample(shapes, {}, types, low=low[: len(shapes)], high=high[: len(shapes)])


@op(
    free=("w",),
    infer=_infer,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[-1],
    cpu=Kernels(("rounded_matmul",), _lower),
    host_reason=on_cpu,
    internal=True,
    dtypes=frozenset({DType.F32}),
    tolerance={DType.F32: ROUNDED_TOLERANCE},
    samples=lambda: (
        _sample((1,), 1, 1),
        _sample((), 5, 7),
        _sample((5,), 9, 7, True),
        _sample((2, 3), 66, 71, True),
        _sample((50,), 130, 64),
        _sample((3,), 33, 1300),
        _sample((1,), 200, 513, True),
        _sample((0,), 4, 5),
        _sample((3,), 4, 0, True),
        _sample((3,), 0, 4),
    ),
)
def rounded_matmul(x: Array, w: Array, scales: Array, bias: Sequence[Array] = ()) -> Array:
    """X @ W^T + bias with weights in 8 bits, where the CPU rounds rows of x to 16 bits.

    A weight is its code times the scale of its row. A row of x that holds NaN or infinity makes a row of NaN.
    """
    return np.asarray(np.matmul(x, (w * scales[:, None]).T) + (bias[0] if len(bias) else 0.0))

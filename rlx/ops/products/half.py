"""Products of f32 by weights that stay in 16 bits: the CPU widens them as it multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import HALVES, DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import op
from rlx.ops.products.matmul import (
    Product,
    activated,
    call_product_cpu,
    check_activation,
    matmul_type,
    product_params,
)


def _matrix(node: Node) -> tuple[int, int]:
    """Rows and columns of the weight."""
    shape = node.inputs[1].shape
    return (shape[1], shape[0]) if node.attrs["transposed"] else (shape[0], shape[1])


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    check_activation("half_matmul", attrs.setdefault("act", "none"))
    x, w, *bias = types
    if w.dtype not in HALVES:
        raise DTypeError("[half_matmul] w", got=w.dtype, expected="f16 or bf16")
    if len(w.shape) != 2:
        raise ShapeError("[half_matmul] w is no matrix", got=w.shape, expected="[k, n]")
    transposed = attrs.setdefault("transposed", False)
    shape = (w.shape[1], w.shape[0]) if transposed else w.shape
    result = matmul_type([x, TensorType(shape, x.dtype)])
    if any(item.shape != shape[1:] for item in bias):
        raise ShapeError("[half_matmul] bias", got=bias[0].shape, expected=f"{shape[1:]}")
    return result


def _lower(node: Node, emitter: Emitter) -> None:
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    product = Product.of(node.inputs[0].shape, _matrix(node))
    transposed, biased = node.attrs["transposed"], len(operands) > 2
    if operands[1].kind not in ("param", "constant"):
        # Packed weights are widened by the kernel. Only params and constants are packed, so others are widened first.
        w = node.inputs[1]
        wide = emitter.temp(TensorType(w.shape, node.dtype))
        program = (("cast", (0,), node.dtype, None),)
        emitter.elementwise(program, [operands[1]], wide, (w.shape,))
        operands[1] = wide
    params = product_params(product, node.dtype, node.attrs["act"], biased, 0, transposed)
    call_product_cpu(emitter, operands, emitter.result(), params)


@op(
    free=("w",),
    infer=_infer,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[-1],
    cpu=Kernels(("matmul",), _lower),
    host_reason=lambda node: "products that widen their weights are made for the CPU alone",
    internal=True,
    dtypes=frozenset({DType.F32}),
    tolerance={DType.F32: 1e-5},  # the activation's own error, see elementwise
    samples=lambda: tuple(
        Sample(shapes, attrs, (DType.F32, DType.F16, DType.F32)[: len(shapes)])
        for shapes, attrs in (
            (((5, 7), (7, 9)), {}),
            (((1, 1), (1, 1)), {}),
            (((2, 3, 70), (70, 66), (66,)), {"act": "silu"}),
            (((4, 40), (33, 40)), {"transposed": True}),
            (((0, 7), (7, 9)), {}),
            (((3, 0), (0, 4), (4,)), {"act": "relu"}),
        )
    ),
)
def half_matmul(
    x: Array, w: Array, bias: Sequence[Array] = (), act: str = "none", transposed: bool = False
) -> Array:
    """act(x @ w + bias) in f32, with a weight ``[k, n]`` in 16 bits, or ``[n, k]`` where it is transposed."""
    wide = w.astype(x.dtype)
    return activated(
        np.matmul(x, wide.T if transposed else wide) + (bias[0] if len(bias) else 0.0), act
    )

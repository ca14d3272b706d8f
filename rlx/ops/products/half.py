"""Products of f32 by weights that stay in 16 bits: kernels widen them as they multiply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import HALVES, DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ir.variants import UNPACKS
from rlx.ops.declare import op
from rlx.ops.movement.gather import check_indices
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.products.calls import call_product_webgpu
from rlx.ops.products.dequant import call_packed_product
from rlx.ops.products.matmul import (
    Product,
    activated,
    call_product_cpu,
    check_activation,
    matmul_type,
    product_params,
)

# Threads of shaders/products/dequantize_blocks.wgsl.
_WORKGROUP = 256


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
        operands[1] = _widened(node, emitter)
    params = product_params(product, node.dtype, node.attrs["act"], biased, 0, transposed)
    call_product_cpu(emitter, operands, emitter.result(), params)


def _widened(node: Node, emitter: Emitter) -> Any:
    """The weight in a copy of f32."""
    w = node.inputs[1]
    wide = emitter.temp(TensorType(w.shape, node.dtype))
    program = (("cast", (0,), node.dtype, None),)
    emitter.elementwise(program, [emitter.operand(1)], wide, (w.shape,))
    return wide


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    w = node.inputs[1]
    if on_gpu(node):
        params = {
            **_scheme(w),
            "unpacks": emitter.limits.get(UNPACKS, 0),
            "m": size(node.shape[:-1]),
            "n": w.shape[0],
        }
        call_packed_product(node, emitter, [*operands, None, None], params)
        return
    operands[1] = _widened(node, emitter)
    product = Product.of(node.inputs[0].shape, _matrix(node))
    params = product_params(product, node.dtype, node.attrs["act"], len(operands) > 2)
    params["transposed_b"] = int(node.attrs["transposed"])
    call_product_webgpu(emitter, operands, [emitter.result()], params)


def _scheme(w: Node) -> dict[str, Any]:
    """Rows of 16 bits as shaders/lib/blocks.wgsl takes them."""
    k = w.shape[-1]
    return {
        "scheme": w.dtype.name, "weights": 32, "block_bytes": 64, "row_bytes": 2 * k, "group": 1,
        "scale_bytes": 0, "zero_bytes": 0, "k": k,
    }  # fmt: skip


def on_gpu(node: Node) -> bool:
    """Returns whether a WGSL kernel widens the weights as it multiplies: by rows of weights in whole pieces, and nothing behind it."""
    w, attrs = node.inputs[1], node.attrs
    plain = len(node.inputs) == 2 and attrs["act"] == "none"
    return plain and bool(attrs["transposed"]) and w.shape[1] % 32 == 0 and w.shape[1] > 0


@op(
    free=("w",),
    infer=_infer,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[-1],
    cpu=Kernels(("matmul", "round_rows"), _lower),
    webgpu=Kernels(
        (
            "dequant_matmul",
            "dequant_fragments",
            "dequant_gemv",
            "split_sum",
            "matmul",
            "matmul_fragments",
            "gemv",
        ),
        _lower_webgpu,
    ),
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
            (((2, 64), (33, 64)), {"transposed": True}),
            (((67, 96), (35, 96)), {"transposed": True}),
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


# --- rows of a table -----------------------------------------------------------------------------------


def _infer_rows(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    w, rows = types
    if w.dtype not in HALVES:
        raise DTypeError("[half_rows] w", got=w.dtype, expected="f16 or bf16")
    check_indices("half_rows", rows)
    if len(w.shape) != 2 or (w.shape[0] == 0 and rows.size):
        raise ShapeError("[half_rows] w", got=w.shape, expected="[rows, k]")
    return TensorType((*rows.shape, w.shape[1]), DType.F32)


def _lower_rows_cpu(node: Node, emitter: Emitter) -> None:
    g = Graph("half rows")
    w, rows = (g.input(f"x{i}", item.shape, item.dtype) for i, item in enumerate(node.inputs))
    g.set_outputs([g.cast(g.gather(w, rows, axis=0), "f32")])
    (made,) = emitter.inline(g, [emitter.operand(0), emitter.operand(1)])
    emit_strided_copy(emitter, made, emitter.result(), DType.F32, (node.type.size,), (1,), (1,))


def _lower_rows_webgpu(node: Node, emitter: Emitter) -> None:
    w, rows = node.inputs
    params = {
        **_scheme(w),
        "unpacks": emitter.limits.get(UNPACKS, 0),
        "count": rows.type.size,
        "table": w.shape[0],
    }
    params["index_bytes"] = rows.dtype.itemsize
    operands = [emitter.operand(0), None, None, emitter.operand(1)]
    work = math.ceil(node.type.size / (4 * _WORKGROUP))
    emitter.call("dequantize_blocks", operands, [emitter.result()], params, work)


@op(
    free=("rows",),
    infer=_infer_rows,
    flops=lambda node: 1.0 * size(node.shape),
    cpu=Kernels(("gather",), _lower_rows_cpu),
    webgpu=Kernels(("dequantize_blocks",), _lower_rows_webgpu),
    host_reason=lambda node: (
        "the GPU reads rows in whole pieces of 4" if node.inputs[0].shape[1] % 4 else None
    ),
    internal=True,
    dtypes=frozenset(HALVES),
    webgpu_dtypes=frozenset(HALVES),
    samples=lambda: tuple(
        Sample((w, rows), {}, (dtype, index), high=(3, w[0] - 0.01), low=(-3, -w[0]))
        for dtype, index in ((DType.F16, DType.I32), (DType.BF16, DType.I64))
        for w, rows in (
            ((5, 8), (3,)),
            ((1, 4), (1,)),
            ((7, 36), (2, 3)),
            ((3, 4), (0,)),
            ((4, 12), ()),
        )
    ),
)
def half_rows(w: Array, rows: Array) -> Array:
    """The rows of a table ``[n, k]`` in 16 bits that integers name, in f32 ``[*rows, k]``."""
    return w[rows].astype(np.float32)

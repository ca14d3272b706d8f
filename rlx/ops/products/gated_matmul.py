"""Products of one left operand by several weights in one kernel: gated ones, and several results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.constants import PANEL_COLUMNS
from rlx.abi.products import ACTIVATIONS
from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.products.matmul import (
    Product,
    activated,
    call_product_cpu,
    check_activation,
    matmul_type,
    product_params,
)

# Elements of the gate that the C kernel (kernels/products/gated.h) computes before those of the other product, so that
# both stay in the second-level cache.
_GATE = 1 << 15
# Most weights of one kernel: it can bind 8 buffers, which are x, a bias, the weights and as many results.
MAX_PARTS = 3


def _weight_types(where: str, x: TensorType, weights: Sequence[TensorType]) -> list[TensorType]:
    for w in weights:
        if len(w.shape) != 2:
            raise ShapeError(f"[{where}] a weight is no matrix", got=w, expected="[k, n]")
    return [matmul_type([x, w]) for w in weights]


# --- one product is the gate of the other --------------------------------------------------------------


def _infer_gated(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    check_activation("gated_product", attrs["act"])
    x, *weights = types[:3]
    gate, up = _weight_types("gated_product", x, weights)
    biases = [bias.shape for bias in types[3:]]
    if gate != up or biases not in ([], [gate.shape[-1:]] * 2):
        raise ShapeError(
            "[gated_product] operands do not fit",
            got=", ".join(map(str, types)),
            expected="x [..., k], two weights [k, n], and two biases [n] or none",
        )
    return gate


def _gated_params(node: Node) -> dict[str, Any]:
    p = Product.of(node.inputs[0].shape, node.inputs[1].shape)
    return product_params(p, node.dtype, node.attrs["act"], len(node.inputs) > 3)


def _lower_gated_cpu(node: Node, emitter: Emitter) -> None:
    known = _gated_params(node)
    params = {key: known[key] for key in ("m", "k", "n", "act")}
    m, columns = params["m"], -(-params["n"] // PANEL_COLUMNS) * PANEL_COLUMNS
    params["columns"] = min(columns, max(1, _GATE // m // PANEL_COLUMNS) * PANEL_COLUMNS)
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    emitter.call("gated_product", operands, [emitter.result()], params)


def _lower_gated_webgpu(node: Node, emitter: Emitter) -> None:
    from rlx.ops.products.calls import call_product_webgpu

    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    call_product_webgpu(emitter, operands, [emitter.result()], _gated_params(node), gated=True)


@op(
    infer=_infer_gated,
    flops=lambda node: (4.0 * node.inputs[1].shape[0] + 22.0) * size(node.shape),
    cpu=Kernels(("gated_product",), _lower_gated_cpu),
    webgpu=Kernels(("matmul", "matmul_fragments", "gemv"), _lower_gated_webgpu),
    internal=True,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    tolerance={DType.F32: 1e-5},  # the activation's own error, see elementwise
    samples=lambda: (
        *(Sample(((5, 7), (7, 9), (7, 9)), {"act": act}) for act in ACTIVATIONS),
        Sample(((1, 70), (70, 66), (70, 66), (66,), (66,)), {"act": "gelu"}),
        Sample(((3, 64), (64, 68), (64, 68), (68,), (68,)), {"act": "silu"}),
        Sample(((2, 35, 130), (130, 67), (130, 67)), {"act": "silu"}),
        Sample(((300, 132), (132, 72), (132, 72), (72,), (72,)), {"act": "gelu_approx"}),
        Sample(((7,), (7, 300), (7, 300)), {"act": "sigmoid"}),
        Sample(((1, 1), (1, 1), (1, 1)), {"act": "tanh"}),
        Sample(((0, 7), (7, 9), (7, 9)), {"act": "relu"}),
        Sample(((3, 7), (7, 0), (7, 0)), {"act": "relu"}),
        Sample(((5, 0), (0, 4), (0, 4), (4,), (4,)), {"act": "relu"}),
    ),
)
def gated_product(
    x: Array, wg: Array, wu: Array, biases: Sequence[Array] = (), act: str = "silu"
) -> Array:
    """act(x @ wg + bg) * (x @ wu + bu) in one kernel; weights are ``[k, n]``, both biases ``[n]`` or none."""
    bg, bu = biases if len(biases) else (0.0, 0.0)
    return activated(np.matmul(x, wg) + bg, act) * (np.matmul(x, wu) + bu)


# --- several results -----------------------------------------------------------------------------------


def _infer_shared(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    check_activation("shared_products", attrs["act"])
    first = 1 + len(attrs["present"])
    x, weights = types[0], types[first:]
    result = _weight_types("shared_products", x, weights)
    columns = sum(w.shape[1] for w in weights)
    if not 2 <= len(weights) <= MAX_PARTS or any(b.shape != (columns,) for b in types[1:first]):
        raise ShapeError(
            "[shared_products] operands do not fit",
            got=", ".join(map(str, types)),
            expected=f"x [..., k], a bias for all columns or none, 2 to {MAX_PARTS} weights [k, n]",
        )
    return tuple(result)


def _columns(node: Node) -> list[int]:
    """Columns of each result."""
    return [w.shape[1] for w in node.inputs[1 + len(node.attrs["present"]) :]]


def _shared_flops(node: Node) -> float:
    k = node.inputs[0].shape[-1]
    each = 2.0 * k + (21.0 if node.attrs["present"] else 0.0)
    return each * sum(size(type.shape) for type in node.types)


def _shared_operands(node: Node, emitter: Emitter) -> tuple[Any, list[Any], list[Any]]:
    """x, the weights, and the bias in a list."""
    x, *rest = (emitter.operand(i) for i in range(len(node.inputs)))
    biased = len(node.attrs["present"])
    return x, rest[biased:], rest[:biased]


def _lower_shared_cpu(node: Node, emitter: Emitter) -> None:
    x, weights, bias = _shared_operands(node, emitter)
    begin = 0
    for w, n, type, result in zip(
        weights, _columns(node), node.types, emitter.results(), strict=True
    ):
        if type.size:
            p = Product.of(node.inputs[0].shape, (node.inputs[0].shape[-1], n))
            params = product_params(p, type.dtype, node.attrs["act"], bool(bias), begin)
            call_product_cpu(emitter, [x, w, *bias], result, params)
        begin += n


def _lower_shared_webgpu(node: Node, emitter: Emitter) -> None:
    from rlx.ops.products.calls import call_product_webgpu

    x, weights, bias = _shared_operands(node, emitter)
    columns, results = _columns(node), emitter.results()
    there = [i for i, type in enumerate(node.types) if type.size]
    p = Product.of(node.inputs[0].shape, (node.inputs[0].shape[-1], columns[there[0]]))
    call_product_webgpu(
        emitter,
        [x, *(weights[i] for i in there), *bias],
        [results[i] for i in there],
        product_params(p, node.dtype, node.attrs["act"], bool(bias)),
        [columns[i] for i in there],
    )


def _shared(*shape: int, of: Sequence[int], act: str = "none", biased: bool = False) -> Sample:
    k = shape[-1]
    bias = [(sum(of),)] if biased else []
    attrs = {"act": act, "present": ("bias",) if biased else ()}
    return Sample((shape, *bias, *((k, n) for n in of)), attrs)


@op(
    infer=_infer_shared,
    flops=_shared_flops,
    cpu=Kernels(("matmul", "round_rows"), _lower_shared_cpu),
    webgpu=Kernels(("matmul", "matmul_fragments", "gemv"), _lower_shared_webgpu),
    internal=True,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    tolerance={DType.F32: 1e-5},  # the activation's own error, see elementwise
    samples=lambda: (
        _shared(5, 7, of=(9, 9, 9)),
        _shared(1, 1, of=(1, 1)),
        *(_shared(6, 7, of=(9, 4), act=act, biased=True) for act in ACTIVATIONS),
        _shared(70, 130, of=(132, 68, 66)),
        _shared(2, 35, 64, of=(64, 67, 128), biased=True),
        _shared(1, 257, of=(128, 64, 4), act="silu", biased=True),
        _shared(3, 66, of=(129, 1, 64), biased=True),
        _shared(7, of=(5, 130)),
        _shared(0, 7, of=(9, 3)),
        _shared(3, 7, of=(0, 9, 0), biased=True),
        _shared(5, 0, of=(4, 3), act="relu", biased=True),
    ),
)
def shared_products(
    x: Array, bias: Array | None = None, weights: Sequence[Array] = (), act: str = "none"
) -> Any:
    """act(x @ w + b) for each of 2 or 3 weights ``[k, n]``, in one kernel; ``bias`` holds those of all in order."""
    ends = np.cumsum([w.shape[1] for w in weights])
    biases = [0.0] * len(weights) if bias is None else np.split(bias, ends[:-1])
    return tuple(activated(np.matmul(x, w) + b, act) for w, b in zip(weights, biases, strict=True))

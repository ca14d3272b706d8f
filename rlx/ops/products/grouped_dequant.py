"""Rows by the packed weights of their experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.products import PANEL_SCHEMES, SCHEMES
from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.fragments import INT8
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.plan import OFFSETS
from rlx.ir.shape import size
from rlx.ops.block_formats import (
    FORMATS,
    decode_blocks,
    parse_scheme,
    row_weights,
    scrambled_blocks,
)
from rlx.ops.declare import op
from rlx.ops.movement.gather import check_indices
from rlx.ops.products.matmul import rounded_rows
from rlx.ops.products.packed_products import workgroups_of


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    name, (x, packed, idx) = "grouped_dequant_matmul", types
    scheme = attrs["scheme"] = parse_scheme(attrs["scheme"], where=name)
    if scheme not in FORMATS:
        raise ShapeError(f"[{name}] scheme", got=scheme, expected=", ".join(FORMATS))
    if x.dtype is not DType.F32 or packed.dtype is not DType.U8:
        got, expected = f"x {x.dtype}, packed {packed.dtype}", "x f32, packed u8"
        raise DTypeError(f"[{name}] operands", got=got, expected=expected)
    check_indices(name, idx)
    fits = len(x.shape) == 2 and len(packed.shape) == 3 and idx.shape == x.shape[:1]
    if not fits or row_weights(scheme, packed.shape[2], where=name) != x.shape[1]:
        got = f"x {x.shape}, packed {packed.shape}, idx {idx.shape}"
        expected = "x [M, K], packed [E, N, bytes of K weights], idx [M]"
        raise ShapeError(f"[{name}] operands do not fit", got=got, expected=expected)
    if x.shape[1] == 0 or packed.shape[0] == 0:
        raise ShapeError(f"[{name}] packed weights", got=packed.shape, expected="E >= 1, K >= 1")
    return TensorType((x.shape[0], packed.shape[1]), DType.F32)


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    (m, k), (experts, n, row_bytes) = node.inputs[0].shape, node.inputs[1].shape
    params = {
        "scheme": SCHEMES.index(node.attrs["scheme"]), "m": m, "n": n, "k": k, "row_bytes": row_bytes, "group": 1,
        "scale_bytes": 0, "zero_bytes": 0, "experts": experts, "index_bytes": node.inputs[2].dtype.itemsize, "bf16": 0,
    }  # fmt: skip
    x, packed, idx = (emitter.operand(i) for i in range(3))
    rows = None
    known = node.inputs[1].op in ("param", "constant") and n % 16 == 0
    if known and emitter.limits.get(INT8) and node.attrs["scheme"] in PANEL_SCHEMES:
        rows, sizes = rounded_rows(emitter, x, m, k)
        params |= sizes
    operands = [x, packed, None, None, rows, idx]
    emitter.call("dequant_matmul", operands, [emitter.result()], params)


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    (m, k), (experts, n, row_bytes) = node.inputs[0].shape, node.inputs[1].shape
    groups, shape = workgroups_of(emitter, k, [n])
    params = {
        **shape, "parts": ((node.attrs["scheme"], n, row_bytes),), "ends": (sum(groups),), "gated": 0, "act": 0, "normed": 0,
        "added": 0, "biased": 0, "turned": 0, "style": "", "head": 2, "eps": 0.0, "experts": experts, "halves": (0,), OFFSETS: (None,),
    }  # fmt: skip
    x, packed, idx = (emitter.operand(i) for i in range(3))
    emitter.call("packed_gemv", [x, idx, packed], [emitter.result()], params, sum(groups) * m)


def _samples() -> tuple[Sample, ...]:
    results = []
    for index, (scheme, form) in enumerate(FORMATS.items()):
        k, n = (1 + index % 2) * form.weights, (16, 21)[index % 2]
        for m, experts in ((1, 3), (7, 4)):
            packed = scrambled_blocks(scheme, experts * n, k).reshape(experts, n, -1)
            idx = (np.arange(m) * 5 + 1) // 2 % experts
            x = np.sin(np.arange(m * k)).reshape(m, k)
            dtypes = (DType.F32, DType.U8, (DType.I32, DType.I64)[index % 2])
            attrs = {"scheme": scheme}
            results.append(
                Sample((x.shape, packed.shape, idx.shape), attrs, dtypes, values=(x, packed, idx))
            )
    for scheme, m, n, k in (("Q4_K", 0, 32, 512), ("Q4_K", 170, 32, 512), ("Q8_0", 90, 560, 64)):
        packed = scrambled_blocks(scheme, 3 * n, k).reshape(3, n, -1)
        x, idx = np.cos(np.arange(m * k)).reshape(m, k), np.arange(m) ** 2 % 3
        shapes, dtypes = (x.shape, packed.shape, idx.shape), (DType.F32, DType.U8, DType.I32)
        results.append(Sample(shapes, {"scheme": scheme}, dtypes, values=(x, packed, idx)))
    return tuple(results)


@op(
    free=("packed", "idx"),
    infer=_infer,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[1],
    cpu=Kernels(("dequant_matmul", "round_rows"), _lower_cpu),
    webgpu=Kernels(("packed_gemv",), _lower_webgpu),
    dtypes=frozenset({DType.F32}),
    tolerance={DType.F32: 1e-5},  # as dequant_matmul
    samples=lambda: _samples(),
)
def grouped_dequant_matmul(x: Array, packed: Array, idx: Array, scheme: str) -> Array:
    """Each row times the packed matrix of its expert: y[m] = W[idx[m]] @ x[m].

    On the CPU up to 48 rows of one expert read its weights once.

    Args:
        x: f32 ``[M, K]``.
        packed: u8 ``[E, N, bytes of a row]``, one matrix per expert, as for ``dequant_matmul``.
        idx: i32 or i64 ``[M]``, 0 to E - 1. One out of range is an ``InputError`` on the CPU; WebGPU
            takes the nearest expert.
        scheme: A format of GGUF files, as for ``dequant_matmul``.

    Returns:
        f32 ``[M, N]``.
    """
    return np.einsum("mk,mnk->mn", x, decode_blocks(packed, scheme)[idx])

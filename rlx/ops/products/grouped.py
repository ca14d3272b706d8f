"""Other matrix products: rows by the matrices of their experts, with a low-rank update, of 8-bit integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.fragments import FragmentVariant, fragment_params, halves
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, NodeLike, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import FLOAT_KERNELS, composite, one_call, op
from rlx.ops.products.calls import few_rows_product
from rlx.ops.products.integer_tiles import INTEGER, KERNELS, Int8MatmulProblem, few_columns, groups
from rlx.ops.products.matmul import Product, matmul_type, product_params
from rlx.ops.products.tiles import EXPERTS, Grouped, expert_tiles

_COLUMNS = 64


# --- one expert per row --------------------------------------------------------------------------------


def _infer_grouped(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    x, w, idx = types
    if idx.dtype not in (DType.I32, DType.I64):
        raise DTypeError(
            "[grouped_matmul] idx is not of integers", got=idx.dtype, expected="i32 or i64"
        )
    fits = len(x.shape) == 2 and len(w.shape) == 3 and idx.shape == x.shape[:1]
    if not fits or x.shape[1] != w.shape[1] or (w.shape[0] == 0 and x.shape[0]):
        raise ShapeError(
            "[grouped_matmul] operands do not fit",
            got=f"x {x.shape}, w {w.shape}, idx {idx.shape}",
            expected="x [M, K], w [E, K, N], idx [M]",
        )
    return TensorType((x.shape[0], w.shape[2]), x.dtype)


def _grouped_params(node: Node) -> dict[str, Any]:
    (m, k), (experts, _, n) = node.inputs[0].shape, node.inputs[1].shape
    return {
        "m": m,
        "k": k,
        "n": n,
        "experts": experts,
        "index_bytes": node.inputs[2].dtype.itemsize,
        "partial": int(node.op == "partial_grouped_matmul"),
    }


def _lower_grouped_webgpu(node: Node, emitter: Emitter) -> None:
    (m, k), (experts, _, n) = node.inputs[0].shape, node.inputs[1].shape
    problem = Grouped(m, n, k, experts, halves(node.dtype, emitter.limits))
    variant = EXPERTS.choose(problem, emitter)
    operands, results = [emitter.operand(i) for i in range(3)], [emitter.result()]
    if variant.name == "plain":
        across = math.ceil(n / _COLUMNS)
        params = {**_grouped_params(node), "half": int(node.dtype is DType.F16)}
        emitter.call("grouped_matmul", operands, results, params, m * across, across)
    elif variant.name == "rows":
        params = product_params(Product(1, k, n, m, (m,), (1,), (0,)), node.dtype)
        few_rows_product("grouped_gemv", emitter, operands, results, {**params, "experts": experts})
    else:
        count = expert_tiles(problem, variant)
        table = emitter.temp(TensorType((m + 3 * count,), DType.I32))
        known = {"m": m, "experts": experts, "tiles": count, "bm": variant.params["bm"]}
        emitter.call("expert_tiles", [operands[2]], [table], known, 1, 0)
        params = product_params(Product(m, k, n, 1, (1,), (0,), (0,)), node.dtype)
        across = math.ceil(n / variant.params["bn"])
        params |= {"transposed_a": 0, "parts": (n,), "gated": 0, "splits": 1, "partition_k": k}
        params |= {**variant.params, "experts": experts, "tiles": count}
        kernel = "grouped_tiles"
        if isinstance(variant, FragmentVariant):
            kernel = "grouped_fragments"
            rounded = int(node.dtype is DType.F32)
            params |= {**fragment_params(emitter.limits), "rounded": rounded, "fragments": 1}
        emitter.call(kernel, [*operands[:2], table], results, params, count * across, 0)


_GROUPED = one_call("grouped_matmul", _grouped_params)
_GROUPED_WEBGPU = Kernels(
    (
        "grouped_matmul",
        "grouped_gemv",
        "grouped_tiles",
        "grouped_fragments",
        "expert_tiles",
        "split_sum",
    ),
    _lower_grouped_webgpu,
)


@op(
    free=("idx",),
    infer=_infer_grouped,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[1],
    cpu=_GROUPED,
    webgpu=_GROUPED_WEBGPU,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    samples=lambda: tuple(
        Sample(
            ((m, k), (e, k, n), (m,)),
            dtypes=(dtype, dtype, i),
            low=(-2, -2, 0),
            high=(2, 2, e - 0.01),
        )
        for dtype, i in ((DType.F32, DType.I32), (DType.F64, DType.I64), (DType.F16, DType.I32))
        for m, k, e, n in (
            (5, 7, 3, 9),
            (1, 1, 1, 1),
            (0, 4, 2, 3),
            (3, 0, 2, 4),
            (4, 130, 2, 67),
            (90, 36, 3, 68),
        )
    ),
)
def grouped_matmul(x: Array, w: Array, idx: Array) -> Array:
    """Each row times the matrix of its expert: y[m] = x[m] @ w[idx[m]].

    Args:
        x: ``[M, K]``.
        w: ``[E, K, N]``, one matrix per expert.
        idx: i32 or i64 ``[M]``, 0 to E - 1. One out of range is an ``InputError`` on the CPU; WebGPU
            takes the nearest expert.

    Returns:
        ``[M, N]``.
    """
    return np.einsum("mk,mkn->mn", x, w[idx])


@op(
    free=("idx",),
    infer=_infer_grouped,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[1],
    cpu=_GROUPED,
    host_reason=lambda node: "the weights of these experts stay on the host",
    internal=True,
    dtypes=FLOAT_KERNELS,
    samples=lambda: (
        Sample(
            ((5, 7), (3, 7, 9), (5,)),
            dtypes=(DType.F32, DType.F32, DType.I32),
            low=(-2, -2, -1.9),
            high=(2, 2, 2.99),
        ),
        Sample(((0, 4), (2, 4, 3), (0,)), dtypes=(DType.F64, DType.F64, DType.I64)),
        Sample(
            ((1, 1), (1, 1, 1), (1,)), dtypes=(DType.F32, DType.F32, DType.I64), high=(2, 2, 0.9)
        ),
    ),
)
def partial_grouped_matmul(x: Array, w: Array, idx: Array) -> Array:
    """``grouped_matmul`` of some rows: those whose index is negative are zero."""
    return np.where(idx[:, None] < 0, 0.0, np.einsum("mk,mkn->mn", x, w[np.maximum(idx, 0)]))


# --- a low-rank update -----------------------------------------------------------------------------------


def _lora(g: Graph, x: Node, w: Node, a: Node, b: Node, scale: float) -> Node:
    update = g.matmul(g.matmul(x, a), b)
    return g.add(g.matmul(x, w), g.mul(update, float(scale)))


@composite(
    _lora,
    dtypes=FLOAT_KERNELS,
    samples=lambda: (
        Sample(((5, 7), (7, 9), (7, 2), (2, 9))),
        Sample(((2, 3, 7), (7, 9), (7, 2), (2, 9)), {"scale": 0.25}),
        Sample(((1, 1), (1, 1), (1, 1), (1, 1))),
        Sample(((0, 7), (7, 9), (7, 2), (2, 9))),
    ),
)
def lora_matmul(x: Array, w: Array, a: Array, b: Array, scale: float = 1.0) -> Array:
    """X @ w + scale * (x @ a) @ b: a matrix with a low-rank update (arXiv:2106.09685).

    Args:
        x: ``[..., K]``.
        w: ``[K, N]``.
        a: ``[K, R]``.
        b: ``[R, N]``.
        scale: Weight of the update.
    """
    return x @ w + scale * ((x @ a) @ b)


# --- 8-bit integers --------------------------------------------------------------------------------------

_BYTES = frozenset({DType.I8, DType.U8})


def _infer_integer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    if types[1].dtype not in _BYTES:
        raise DTypeError("[qmatmul] b is not 8-bit", got=types[1].dtype, expected="i8, u8")
    return TensorType(matmul_type(types).shape, DType.I32)


def _integer_params(node: Node) -> dict[str, Any]:
    """The parameters of the C kernel (kernels/products/integers.h)."""
    a, b = node.inputs[:2]
    p = Product.of(a.shape, b.shape)
    return {
        "m": p.m, "k": p.k, "n": p.n, "batch": p.batch,
        "a_signed": int(a.dtype is DType.I8), "b_signed": int(b.dtype is DType.I8),
        "rank": len(p.dims), "dims": p.dims, "a_steps": p.a_steps, "b_steps": p.b_steps,
    }  # fmt: skip


def _lower_integer_webgpu(node: Node, emitter: Emitter) -> None:
    params = _integer_params(node)
    problem = Int8MatmulProblem(params["m"], params["n"], params["k"], params["batch"])
    variant = INTEGER.choose(problem, emitter)
    scales = size(node.inputs[2].shape) if len(node.inputs) > 2 else 0
    params |= {**variant.params, "columns": few_columns(problem), "scales": scales}
    if isinstance(variant, FragmentVariant):
        params |= {**fragment_params(emitter.limits, variant.operand), "fragments": 1}
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    work, across = groups(problem, variant)
    emitter.call(KERNELS[variant.name], operands, [emitter.result()], params, work, across)


@op(
    free=("b",),
    infer=_infer_integer,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[-1],
    cpu=one_call("matmul_integer", _integer_params),
    webgpu=Kernels(tuple(sorted({*KERNELS.values()})), _lower_integer_webgpu),
    dtypes=_BYTES,
    webgpu_dtypes=_BYTES,
    samples=lambda: tuple(
        Sample(shapes, dtypes=(a, b), low=-128, high=128)
        for a in (DType.I8, DType.U8)
        for b in (DType.I8, DType.U8)
        for shapes in (((3, 5), (5, 7)), ((1, 1), (1, 1)), ((0, 4), (4, 3)), ((5, 64), (64, 32)),
                       ((2, 3, 66), (2, 66, 260)), ((2, 0), (0, 3)), ((7,), (7, 5)), ((40, 36), (36, 68)),
                       ((3, 20, 132), (3, 132, 200)), ((16, 520), (520, 68)))
    ),
)  # fmt: skip
def matmul_integer(a: Array, b: Array) -> Array:
    """Product of i8 or u8 matrices in i32, exact; otherwise as ``matmul``."""
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


def _infer_scaled(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    result = _infer_integer(types[:2], attrs)
    if types[2].shape not in ((), (1,), result.shape[-1:]) or len(types[1].shape) != 2:
        raise ShapeError(
            "[scaled_matmul_integer] operands do not fit",
            got=", ".join(map(str, types)),
            expected="a [..., k], b [k, n], one scale or [n]",
        )
    if types[2].dtype is not DType.F32:
        raise DTypeError("[scaled_matmul_integer] scale", got=types[2].dtype, expected="f32")
    return TensorType(result.shape, DType.F32)


_SCALE = (("cast", (0,), DType.F32, None), ("mul", (2, 1), DType.F32, None))


def _lower_scaled_cpu(node: Node, emitter: Emitter) -> None:
    exact = emitter.temp(TensorType(node.shape, DType.I32))
    operands = [emitter.operand(0), emitter.operand(1)]
    emitter.call("matmul_integer", operands, [exact], _integer_params(node))
    shapes = (node.shape, node.inputs[2].shape)
    emitter.elementwise(_SCALE, [exact, emitter.operand(2)], emitter.result(), shapes)


@op(
    free=("b", "scale"),
    infer=_infer_scaled,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[-1],
    cpu=Kernels(("matmul_integer",), _lower_scaled_cpu),
    webgpu=Kernels(tuple(sorted({*KERNELS.values()})), _lower_integer_webgpu),
    internal=True,
    dtypes=_BYTES,
    webgpu_dtypes=_BYTES,
    samples=lambda: tuple(
        Sample((*shapes, scale), dtypes=(DType.I8, b, DType.F32), low=(-128, -128, -1), high=(128, 128, 1))
        for b in (DType.I8, DType.U8)
        for shapes, scale in ((((3, 5), (5, 7)), (7,)), (((1, 1), (1, 1)), ()), (((0, 4), (4, 3)), (1,)),
                              (((5, 64), (64, 32)), (32,)), (((2, 3, 64), (64, 36)), (36,)), (((4, 0), (0, 3)), ()),
                              (((40, 36), (36, 68)), (68,)), (((2, 300, 8), (8, 132)), ()), (((8,), (8, 5)), (5,)))
    ),
)  # fmt: skip
def scaled_matmul_integer(a: Array, b: Array, scale: Array) -> Array:
    """``matmul_integer`` of i8 or u8 ``[..., k]`` and ``[k, n]`` as f32, times a scale or one per column."""
    return np.asarray(np.matmul(a.astype(np.int32), b.astype(np.int32)).astype(np.float32) * scale)


def _column(g: Graph, value: Any, dtype: DType, axis: int) -> Any:
    """A number, or one per row (axis -2) or column (axis -1) of the result, ready to broadcast."""
    node = g.cast(value, dtype) if isinstance(value, Node) else g.constant(value, dtype)
    return node if axis == -1 or node.shape == () else g.unsqueeze(node, -1)


def _zero(value: Any) -> bool:
    """Returns whether a zero point is known, and 0 everywhere."""
    if isinstance(value, Node):
        return value.op == "constant" and not np.any(value.attrs["value"])
    return not np.any(value)


def _qmatmul(
    g: Graph, a: Node, b: Node, a_scale: Any, b_scale: Any, a_zero_point: Any, b_zero_point: Any
) -> Node:
    k = a.shape[-1]
    product = g.matmul_integer(a, b)
    # sum (a - za)(b - zb) = sum ab - zb sum a - za sum b + k za zb, all exact in i32.
    # Terms that a known zero point of 0 makes 0 are left out.
    za = None if _zero(a_zero_point) else _column(g, a_zero_point, DType.I32, -2)
    zb = None if _zero(b_zero_point) else _column(g, b_zero_point, DType.I32, -1)
    total = product
    if zb is not None:
        total = g.sub(total, g.mul(zb, g.sum(g.cast(a, DType.I32), [-1], True)))
    if za is not None:
        total = g.sub(total, g.mul(za, g.sum(g.cast(b, DType.I32), [-2], True)))
    if za is not None and zb is not None:
        total = g.add(total, g.mul(g.mul(za, zb), k))
    scale = g.mul(_column(g, a_scale, DType.F32, -2), _column(g, b_scale, DType.F32, -1))
    return g.mul(g.cast(total, DType.F32), scale)


@composite(
    _qmatmul,
    free=("b",),
    dtypes=_BYTES,
    samples=lambda: (
        Sample(((3, 5), (5, 7)), {"a_scale": 0.1, "b_scale": 0.2, "a_zero_point": 3},
               (DType.I8, DType.I8), low=-128, high=128),
        Sample(((3, 5), (5, 2)),
               {"a_scale": (0.1, 0.3, 0.2), "b_scale": (0.2, 0.5), "a_zero_point": (100, 128, 3),
                "b_zero_point": (4, -7)}, (DType.U8, DType.I8), low=-128, high=128),
        Sample(((2, 3, 64), (64, 8)), {"a_scale": 0.1, "b_scale": 1.0, "b_zero_point": 128},
               (DType.I8, DType.U8), low=-128, high=128),
        Sample(((0, 4), (4, 3)), {"a_scale": 1.0, "b_scale": 1.0}, (DType.I8, DType.I8)),
        Sample(((1, 1), (1, 1)), {"a_scale": 1.0, "b_scale": 1.0}, (DType.I8, DType.I8)),
    ),
)  # fmt: skip
def qmatmul(
    a: Array,
    b: Array,
    a_scale: NodeLike,
    b_scale: NodeLike,
    a_zero_point: NodeLike = 0,
    b_zero_point: NodeLike = 0,
) -> Array:
    """Product of quantised matrices: sum of (a - za) sa (b - zb) sb, summed in exact integers.

    Args:
        a: i8 or u8 ``[..., M, K]``.
        b: i8 or u8 ``[..., K, N]``.
        a_scale: A number, or one per row ``[M]``; a node or an array.
        b_scale: A number, or one per column ``[N]``.
        a_zero_point: The integer that stands for 0 in ``a``: a number or ``[M]``.
        b_zero_point: The same for ``b``: a number or ``[N]``.

    Returns:
        f32 ``[..., M, N]``.
    """
    za, sa = (np.asarray(v)[..., None] if np.ndim(v) else v for v in (a_zero_point, a_scale))
    exact = np.matmul(a.astype(np.int64) - za, b.astype(np.int64) - np.asarray(b_zero_point))
    return exact * (np.asarray(sa) * np.asarray(b_scale))

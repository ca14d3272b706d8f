"""Products of matrices, of floats and of quantised integers, and operators built on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import BY_NUMPY, UINT8
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.shapes import ones_but
from rlx.importers.onnx.values import Array, Coded, OnnxValue, RefusedError, as_dtype
from rlx.ir.dtype import HALVES, DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import broadcast

# Weights that may share a scale in the packed format, the most first.
_GROUPS = (256, 128, 64, 32, 16)
_FLOATS = (np.float32, np.float16)


@onnx_op("MatMul")
def matmul(call: OnnxCall) -> Any:
    """NumPy's product; integers wrap."""
    g, a = call.g, call.x(0)
    packed = packed_product(call, a, call.coded(1), 0)
    if packed is not None:
        return packed
    b = call.x(1)
    return g.matmul(a, b) if a.dtype.is_float else _wrapping(g, a, b)


# Bits of a limb: products of limbs and sums of 2^21 of them are exact in f64.
_LIMB = 16


def _wrapping(g: Graph, a: Node, b: Node) -> Node:
    """The product of integer matrices in their own type, by products of their 16-bit limbs."""
    kind = a.dtype
    if b.dtype is not kind:
        raise RefusedError(f"factors of {kind} and {b.dtype}")
    count = max(1, 8 * kind.itemsize // _LIMB)

    def limbs(x: Node) -> list[Node]:
        wide = g.cast(x, "i64")
        parts = [g.shift_right(wide, i * _LIMB) if i else wide for i in range(count)]
        return [g.cast(g.bit_and(part, (1 << _LIMB) - 1), "f64") for part in parts]

    total: Node | None = None
    left, right = limbs(a), limbs(b)
    for index in range(count):
        # The terms of one power of two; higher powers leave the type.
        products = [g.cast(g.matmul(left[i], right[index - i]), "i64") for i in range(index + 1)]
        for product in products:
            shifted = g.shift_left(product, index * _LIMB) if index else product
            total = shifted if total is None else g.add(total, shifted)
    assert total is not None, "there is at least one limb"
    return g.cast(total, kind)


@onnx_op("Gemm")
def gemm(call: OnnxCall) -> Any:
    """The sum alpha a b + beta c, with either factor transposed."""
    g, a = call.g, call.x(0)
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    kind = a.dtype
    whole = not kind.is_float and alpha == 1 and beta in (0, 1)
    shapes = call.shape(0), call.shape(1)
    call.need(len(shapes[0]) == len(shapes[1]) == 2, f"factors of shapes {shapes}")
    if not kind.is_float and not whole:
        a = g.cast(a, "f64")
    a = g.transpose(a) if call.integer("transA", 0) else a
    result = packed_product(call, a, call.coded(1), call.integer("transB", 0))
    if result is None:
        b = call.x(1) if kind.is_float or whole else g.cast(call.x(1), "f64")
        b = g.transpose(b) if call.integer("transB", 0) else b
        result = _wrapping(g, a, b) if whole else g.matmul(a, b)
    result = result if alpha == 1 else g.mul(result, alpha)
    c = call.opt(2)
    if c is not None and beta != 0:
        c = c if kind.is_float or whole else g.cast(c, "f64")
        rows = broadcast(c.shape, result.shape, where="Gemm")
        call.need(
            rows == result.shape, f"a summand of shape {c.shape} for a product {result.shape}"
        )
        result = g.add(result, c if beta == 1 else g.mul(c, beta))
    return as_dtype(g, result, kind)


@onnx_op("Einsum")
def einsum(call: OnnxCall) -> Any:
    """A sum of products named by letters."""
    equation = call.text("equation", "").replace(" ", "")
    if "->" not in equation:
        letters = equation.replace("...", "").replace(",", "")
        once = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        equation += "->" + ("..." if "..." in equation else "") + once
    return call.g.einsum(equation, *call.xs())


def less_zero(g: Graph, x: Node, zero: Node | None, axis: int | None = None) -> Node:
    """An 8-bit tensor as i32, less its zero point (one, or one per entry of an axis)."""
    wide: Node = g.cast(x, "i32")
    point = _point(g, zero, len(x.shape), axis)
    return wide if point is None else g.sub(wide, point)


def _point(g: Graph, zero: Node | None, rank: int, axis: int | None) -> Node | None:
    """A zero point as i32, shaped to go with the entries of an axis; None if it is known to be 0."""
    if zero is None or (zero.op == "constant" and not np.any(zero.attrs["value"])):
        return None
    return _along(g, g.cast(zero, "i32"), rank, axis)


def _along(g: Graph, x: Node, rank: int, axis: int | None) -> Node:
    """One number, or one per entry of an axis, shaped to go with a tensor of this rank."""
    if math.prod(x.shape) == 1:
        return g.reshape(x, ())
    if axis is not None and len(x.shape) == 1:
        return g.reshape(x, ones_but(rank, {axis: x.shape[0]}))
    return x


def integer_product(call: OnnxCall, indices: tuple[int, int], zeros: tuple[int, int]) -> Node:
    """The product of two 8-bit operands less their zero points, exact in i32."""
    first, second = (call.opt(place) for place in zeros)
    return exact_product(call.g, call.x(indices[0]), call.x(indices[1]), first, second)


def exact_product(
    g: Graph, a: Node, b: Node, left_zero: Node | None, right_zero: Node | None
) -> Node:
    """The product of 8-bit matrices less their zero points, exact in i32.

    (a - p)(b - q) is a b - p sum(b) - q sum(a) + K p q: the product is that of the 8-bit operands.
    """
    result = g.matmul_integer(a, b).shape
    # A vector is a matrix of one row, or of one column.
    a = g.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    b = g.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    output: Node = g.matmul_integer(a, b)
    rank, inner = len(output.shape), a.shape[-1]
    # Weights often have a zero point of 0, for which nothing has to be summed.
    p, q = _point(g, left_zero, rank, rank - 2), _point(g, right_zero, rank, rank - 1)
    if p is not None:
        columns = g.sum(g.cast(b, "i32"), (len(b.shape) - 2,), True)
        output = g.sub(output, g.mul(p, columns))
    if q is not None:
        rows = g.sum(g.cast(a, "i32"), (len(a.shape) - 1,), True)
        output = g.sub(output, g.mul(q, rows))
    if p is not None and q is not None:
        output = g.add(output, g.mul(g.mul(p, q), g.constant(np.int32(inner))))
    return output if output.shape == result else g.reshape(output, result)


@onnx_op("MatMulInteger")
def matmul_integer(call: OnnxCall) -> Any:
    """8-bit matrices, exact in i32."""
    return integer_product(call, (0, 1), (2, 3))


@onnx_op("QLinearMatMul")
def qlinear_matmul(call: OnnxCall) -> Any:
    """Quantised operands and result."""
    return requantized(call, integer_product(call, (0, 3), (2, 5)), (1, 4, 6), 7)


def requantized(
    call: OnnxCall, exact: Node, scales: tuple[int, int, int], zero: int, axis: int | None = None
) -> Node:
    """An exact product as a quantised result; ``scales`` and ``zero`` are places of operands.

    The second factor's scales go by ``axis`` of the result, the last by default.
    """
    g = call.g
    first, second, result = (g.cast(call.x(scale), "f32") for scale in scales)
    rank = len(exact.shape)
    by_row = _along(g, first, rank, rank - 2)
    scale = g.mul(by_row, _along(g, second, rank, rank - 1 if axis is None else axis))
    scaled = g.mul(g.cast(exact, "f32"), g.div(scale, _along(g, result, rank, rank - 2)))
    point = call.x(zero)
    output = g.add(g.round(scaled), _along(g, g.cast(point, "f32"), rank, rank - 2))
    low, high = limits(point.dtype)
    return g.cast(g.minimum(g.maximum(output, low), high), point.dtype)


# Elimination is written out row by row.
MAX_ROWS = 256


def limits(dtype: DType) -> tuple[float, float]:
    """The range of an integer type."""
    info = np.iinfo(dtype.numpy)
    return float(info.min), float(info.max)


@onnx_op("Det")
def det(call: OnnxCall) -> Any:
    """Determinants, by elimination with the rows in order of their largest entries.

    The rows are sorted at each step by the size of their first entry, so that the pivot is the largest.
    """
    g, kind = call.g, call.x().dtype
    # The product of some pivots may overflow f16 where the determinant does not.
    x = g.cast(call.x(), DType.F32) if kind in HALVES else call.x()
    n, batch = x.shape[-1], x.shape[:-2]
    call.need(len(x.shape) >= 2 and x.shape[-2] == n, f"a determinant of {x.shape}")
    if n > MAX_ROWS:
        raise RefusedError(f"a determinant of {n} rows")
    rows: Node = x
    result: Node | None = None
    for size in range(n, 0, -1):
        first = g.narrow(rows, len(batch) + 1, 0, 1)
        place = g.argmax(g.abs(g.reshape(first, (*batch, size))), len(batch), keepdims=True)
        ids = g.reshape(g.constant(np.arange(size, dtype=np.int32)), (*(1,) * len(batch), size))
        chosen = g.unsqueeze(g.eq(ids, place), (len(batch) + 1,))
        zero = g.constant(0.0, x.dtype)
        pivot_row = g.sum(g.where(chosen, rows, zero), (len(batch),), True)
        swapped = g.where(chosen, g.narrow(rows, len(batch), 0, 1), rows)
        pivot = g.reshape(g.narrow(pivot_row, len(batch) + 1, 0, 1), batch)
        # A swap turns the sign; a pivot already on top is none.
        moved = g.ne(g.reshape(place, batch), g.constant(np.int32(0)))
        signed = g.where(moved, g.neg(pivot), pivot)
        result = signed if result is None else g.mul(result, signed)
        if size == 1:
            break
        below = g.narrow(swapped, len(batch), 1, size - 1)
        safe = g.where(g.eq(pivot, zero), g.constant(1.0, x.dtype), pivot)
        factor = g.div(g.narrow(below, len(batch) + 1, 0, 1), g.reshape(safe, (*batch, 1, 1)))
        rows = g.narrow(g.sub(below, g.mul(factor, pivot_row)), len(batch) + 1, 1, size - 1)
    if result is None:
        result = g.expand(g.constant(1.0, x.dtype), batch)
    return as_dtype(g, result, kind)


# --- weights in 4-bit integers that stay packed -----------------------------------------------------------


def packed_product(call: OnnxCall, x: Node, weight: Coded | None, axis: int) -> Node | None:
    """The product of a tensor and a weight that stays packed, or None where the format does not take it.

    ``axis`` of the weight is that of x ``[..., K]`` which is summed over.
    """
    if (
        weight is None
        or x.dtype not in (DType.F32, DType.F16)
        or x.shape[-1:] != (weight.shape[axis],)
    ):
        return None
    scales = _by_group(weight, weight.scale, axis)
    if scales is None or weight.scale.dtype not in _FLOATS:
        return None
    codes = weight.codes.T if axis == 0 else weight.codes
    offset = 8 if codes.dtype == np.int8 else 0
    zeros = None
    if weight.zero is not None:
        zeros = _by_group(weight, weight.zero, axis)
    elif not offset:
        zeros = np.zeros(scales.shape, np.uint8)
    flat = (codes + np.int8(offset)).astype(np.uint8) if offset else codes
    packed = flat[:, 0::2] | flat[:, 1::2] << 4
    if zeros is not None:
        zeros = (zeros + zeros.dtype.type(offset)).astype(np.uint8)

    def add_constant(array: Array, suffix: str) -> Node:
        element = UINT8 if array.dtype == np.uint8 else BY_NUMPY[array.dtype]
        value = OnnxValue(element, np.ascontiguousarray(array), name=f"{weight.name}{suffix}")
        return call.site.node(value)

    return call.g.dequant_matmul(
        x, add_constant(packed, ""), "int4", add_constant(scales, ".scales"),
        None if zeros is None else add_constant(zeros, ".zeros"),
    )  # fmt: skip


def _by_group(weight: Coded, values: Array, axis: int) -> Array | None:
    """Scales or zero points as ``[N, groups]``, or None where groups of K do not share them."""
    k, n = weight.shape[axis], weight.shape[1 - axis]
    if weight.block:
        if weight.axis != axis or weight.block not in _GROUPS or k % weight.block:
            return None
        return values.T if axis == 0 else values
    if values.size > 1 and (values.ndim != 1 or weight.axis == axis):
        return None
    group = next((size for size in _GROUPS if k % size == 0), None)
    if group is None:
        return None
    return np.broadcast_to(values.reshape(-1, 1), (n, k // group))

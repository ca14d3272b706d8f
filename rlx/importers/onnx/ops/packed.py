"""Products with weights in 4-bit integers that stay packed."""

from __future__ import annotations

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import BY_NUMPY, UINT8
from rlx.importers.onnx.values import Array, Coded, OnnxValue
from rlx.ir.dtype import DType
from rlx.ir.graph import Node

# Weights that may share a scale in the packed format, the most first.
GROUPS = (256, 128, 64, 32, 16)
FLOATS = (np.float32, np.float16)


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
    if scales is None or weight.scale.dtype not in FLOATS:
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
        if weight.axis != axis or weight.block not in GROUPS or k % weight.block:
            return None
        return values.T if axis == 0 else values
    if values.size > 1 and (values.ndim != 1 or weight.axis == axis):
        return None
    group = next((size for size in GROUPS if k % size == 0), None)
    if group is None:
        return None
    return np.broadcast_to(values.reshape(-1, 1), (n, k // group))

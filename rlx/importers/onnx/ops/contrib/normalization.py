"""Layer norms of sums and of embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.contrib.quantization import decoded
from rlx.importers.onnx.ops.movement import axis_of
from rlx.importers.onnx.ops.normalization import scaled_rms_norm
from rlx.ir.graph import Node

EPSILON = 1e-12


def _inverse(call: OnnxCall, x: Node, eps: float, mean: Node | None, axis: int = -1) -> Node:
    """1 / deviation over ``axis`` to the last, or 1 / root mean square where there is no mean."""
    g, wide = call.g, call.widened(x)
    centred = wide if mean is None else g.sub(wide, mean)
    axes = tuple(range(len(x.shape)))[axis:]
    return g.rsqrt(g.add(g.mean(g.mul(centred, centred), axes, True), eps))


@contrib("SkipLayerNormalization")
def skip_layer_norm(call: OnnxCall) -> Any:
    """Layer norm of the sum of operand, skipped operand and bias; the sum is a result too."""
    g, eps = call.g, call.real("epsilon", EPSILON)
    total = _skipped(call, 4)
    y = g.layer_norm(total, call.x(2), call.opt(3), eps=eps)
    mean = None
    if call.wants(1) or call.wants(2):
        mean = g.mean(call.widened(total), (len(total.shape) - 1,), True)
    inverse = _inverse(call, total, eps, mean) if call.wants(2) else None
    return y, mean, inverse, total


@contrib("SkipSimplifiedLayerNormalization")
def skip_rms_norm(call: OnnxCall) -> Any:
    """The same by the root mean square; there is no mean to give."""
    g, eps = call.g, call.real("epsilon", EPSILON)
    total = _skipped(call, 3)
    y = g.rms_norm(total, call.x(2), eps=eps)
    inverse = _inverse(call, total, eps, None) if call.wants(2) else None
    return y, None, inverse, total


def _skipped(call: OnnxCall, bias: int) -> Node:
    g, x = call.g, call.x(0)
    result: Node = g.add(x, call.x(1))
    if call.has(bias):
        result = g.add(result, call.x(bias))
    call.need(result.shape == x.shape, f"a skipped operand of shape {call.shape(1)} for {x.shape}")
    return result


@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_norm(call: OnnxCall) -> Any:
    """Divided by the root mean square over ``axis`` to the last; its inverse is a result too.

    ONNX Runtime has it in ONNX's own domain, where the standard has it as RMSNormalization.
    """
    g, x, axis = call.g, call.x(), axis_of(call, -1)
    eps, scale = call.real("epsilon", 1e-5), call.x(1)
    call.need(call.integer("stash_type", 1) == 1, "stash_type is 1")
    y = scaled_rms_norm(g, x, scale, axis, eps, x.dtype)
    return (y, _inverse(call, x, eps, None, axis)) if call.wants(1) else y


@contrib("EmbedLayerNormalization")
def embed_layer_norm(call: OnnxCall) -> Any:
    """Layer norm of the sum of the embeddings of words, positions and segments."""
    g = call.g
    call.ignore("mask_index_type")

    def rows(index: int, ids: Node | None) -> Node:
        x = call.x(index)
        return x if ids is None else g.gather(x, ids, 0)

    y, total = _embedded(call, rows, call.opt(8))
    return y, _lengths(call), total


@contrib("QEmbedLayerNormalization")
def quantized_embed_layer_norm(call: OnnxCall) -> Any:
    """The same of tables in 8 bits, of which only the rows that are taken are decoded."""
    g = call.g

    def rows(index: int, ids: Node | None) -> Node:
        # The scales of operands 2 to 6 are operands 8 to 12, the zero points 13 to 17.
        x = call.x(index) if ids is None else g.gather(call.x(index), ids, 0)
        return decoded(call, x, index + 6, index + 11)

    y, _ = _embedded(call, rows, None)
    return y, _lengths(call)


def _embedded(
    call: OnnxCall, rows: Callable[[int, Node | None], Node], places: Node | None
) -> tuple[Node, Node]:
    """The norm of a sum of embeddings, and the sum; ``rows`` gives rows of the table in an operand, or all of it."""
    g, ids = call.g, call.x(0)
    call.need(len(ids.shape) == 2, f"words of shape {ids.shape}")
    s = ids.shape[1]
    if places is None:
        call.need(s <= call.shape(3)[0], f"{s} positions of {call.shape(3)[0]}")
        places = g.reshape(g.arange(s), (1, s))
    total = g.add(rows(2, ids), rows(3, places))
    call.need(call.has(1) == call.has(4), "segments and their embedding go together")
    if call.has(1):
        total = g.add(total, rows(4, call.x(1)))
    return g.layer_norm(
        total, rows(5, None), rows(6, None), eps=call.real("epsilon", EPSILON)
    ), total


def _lengths(call: OnnxCall) -> Node:
    """Counts the words of each row that the mask marks; 0 without a mask."""
    g, b = call.g, call.shape(0)[0]
    if not call.has(7):
        return g.expand(g.constant(np.int32(0)), (b,))
    return g.sum(g.cast(call.x(7), "i32"), (1,))

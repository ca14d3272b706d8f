"""Pools and convolutions of 8-bit tensors, with the channels in front of the spatial axes or behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.contrib.domain import contrib
from rlx.importers.onnx.ops.contrib.quantization import decoded, encoded
from rlx.importers.onnx.ops.convolution import quantized_conv
from rlx.importers.onnx.ops.pooling import pool_window
from rlx.ir.graph import Graph, Node


def channels_first(g: Graph, x: Node) -> Node:
    """``[N, ..., C]`` as ``[N, C, ...]``."""
    rank = len(x.shape)
    return g.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(g: Graph, x: Node) -> Node:
    """``[N, C, ...]`` as ``[N, ..., C]``."""
    return g.transpose(x, (0, *range(2, len(x.shape)), 1))


def _placed(call: OnnxCall, x: Node, function: Callable[[Node], Node]) -> Node:
    """A function of a tensor with the channels in front, whichever layout the node has."""
    if not call.integer("channels_last", 0):
        return function(x)
    return channels_last(call.g, function(channels_first(call.g, x)))


@contrib("NhwcMaxPool")
def nhwc_max_pool(call: OnnxCall) -> Any:
    """The largest of each window; the channels stand last."""
    g, x = call.g, channels_first(call.g, call.x())
    kernel, window = pool_window(call, x.shape)
    return channels_last(g, g.max_pool(x, kernel, **window))


@contrib("QLinearAveragePool", "QLinearGlobalAveragePool")
def average_pool(call: OnnxCall) -> Any:
    """The mean of each window, or of each channel."""

    def pool(x: Node) -> Node:
        if call.node.op == "QLinearGlobalAveragePool":
            return call.g.global_avg_pool(x)
        kernel, window = pool_window(call, x.shape)
        counted = bool(call.integer("count_include_pad", 0))
        return call.g.avg_pool(x, kernel, **window, count_include_pad=counted)

    return encoded(call, _placed(call, decoded(call, call.x(0), 1, 2), pool), 3, 4, call.dtype())


@contrib("QLinearConv")
def qlinear_conv(call: OnnxCall) -> Any:
    """A convolution of 8-bit operands."""
    return _placed(call, call.x(0), lambda x: quantized_conv(call, x))

"""Sums and their relatives, positions of the largest, running sums, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import INT64, UINT64
from rlx.importers.onnx.handlers import Handler, onnx_op
from rlx.importers.onnx.ops.movement import axis_of
from rlx.importers.onnx.ops.shapes import axes_of
from rlx.importers.onnx.values import OnnxValue, TypedResult
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import as_axes
from rlx.sizes import SizeExpr

# ONNX's name, rlx's, and the first version that takes the axes as an operand.
TABLE = (
    ("ReduceSum", "sum", 13), ("ReduceMean", "mean", 18), ("ReduceMax", "max", 18),
    ("ReduceMin", "min", 18), ("ReduceProd", "prod", 18), ("ReduceL1", "l1", 18),
    ("ReduceL2", "l2", 18), ("ReduceLogSumExp", "logsumexp", 18),
)  # fmt: skip


def _reduce(g: Graph, method: str, x: Node, axes: tuple[int, ...] | None, keep: bool) -> Node:
    """A reduction, of integers in floats where rlx has it for floats only."""
    if x.dtype is DType.BOOL:
        return g.gt(_reduce(g, method, g.cast(x, "i32"), axes, keep), 0)
    if not x.dtype.is_float and method in ("mean", "l1", "l2", "logsumexp"):
        return g.cast(getattr(g, method)(g.cast(x, "f64"), axes, keep), x.dtype)
    if method in _EMPTY and any(_is_none(g, x.shape[a]) for a in axes or range(len(x.shape))):
        return _nothing(g, method, x, axes, keep)
    result: Node = getattr(g, method)(x, axes, keep)
    return result


# The result of no elements: the end of the range that any element would move.
_EMPTY = {"max": -1, "logsumexp": -1, "min": 1}


def _is_none(g: Graph, size: int) -> bool:
    """Returns whether an axis has no entries. A size that the model computes is taken to be more; a run of none is refused."""
    if isinstance(size, SizeExpr) and not g.computed_dims.isdisjoint(size.names()):
        return False
    return size == 0


def _nothing(g: Graph, method: str, x: Node, axes: tuple[int, ...] | None, keep: bool) -> Node:
    dtype = x.dtype.numpy
    if x.dtype.is_float:
        end: Any = np.inf * _EMPTY[method]
    else:
        end = np.iinfo(dtype).max if _EMPTY[method] > 0 else np.iinfo(dtype).min
    gone = set(range(len(x.shape)) if axes is None else axes)
    shape = [1 if i in gone else d for i, d in enumerate(x.shape) if keep or i not in gone]
    return g.expand(g.constant(end, x.dtype), tuple(shape))


def _reduced(call: OnnxCall, x: Node, method: str = "sum", since: int = 18) -> Node:
    """A reduction of a node, over the axes that the ONNX node names, or all."""
    axes = axes_of(call, since)
    if not axes and call.integer("noop_with_empty_axes", 0):
        # Reduced over nothing: every element by itself.
        return call.g.abs(x) if method in ("l1", "l2") else x
    listed = as_axes(axes, call.rank(), where="axes") if axes else None
    return _reduce(call.g, method, x, listed, bool(call.integer("keepdims", 1)))


def _handler(method: str, since: int) -> Handler:
    return lambda call: _reduced(call, call.x(), method, since)


for _onnx, _rlx, _since in TABLE:
    onnx_op(_onnx)(_handler(_rlx, _since))


@onnx_op("ReduceSumSquare")
def reduce_sum_square(call: OnnxCall) -> Any:
    """The sum of squares."""
    g, x = call.g, call.x()
    wide = call.widened(x)
    return g.cast(_reduced(call, g.mul(wide, wide)), x.dtype)


@onnx_op("ReduceLogSum")
def reduce_log_sum(call: OnnxCall) -> Any:
    """The logarithm of the sum."""
    g, x = call.g, call.x()
    wide = call.widened(x) if x.dtype.is_float else g.cast(x, "f64")
    return g.cast(g.log(_reduced(call, wide)), x.dtype)


@onnx_op("ArgMax", "ArgMin")
def arg_extreme(call: OnnxCall) -> Any:
    """Position of the largest or smallest entry of an axis."""
    method = call.g.argmax if call.node.op == "ArgMax" else call.g.argmin
    result = method(
        call.x(),
        axis_of(call),
        keepdims=bool(call.integer("keepdims", 1)),
        select_last=bool(call.integer("select_last_index", 0)),
    )
    return call.g.cast(result, "i64")


@onnx_op("CumSum", "CumProd")
def running(call: OnnxCall) -> Any:
    """Running sums and products."""
    method = call.g.cumsum if call.node.op == "CumSum" else call.g.cumprod
    return method(
        call.x(),
        int(call.number(1)),
        exclusive=bool(call.integer("exclusive", 0)),
        reverse=bool(call.integer("reverse", 0)),
    )


@onnx_op("TopK", carried=True)
def topk(call: OnnxCall) -> Any:
    """The largest or smallest entries of an axis, and where they were."""
    g, x, element = call.g, call.x(), call.element()
    # The order of u64 in i64 is that of its numbers once the top bit is inverted.
    turn = g.constant(np.int64(-(1 << 63))) if element is UINT64 else None
    k = call.integer("k") if call.opset < 10 else call.sizes(1, call.shape()[axis_of(call, -1)])[0]
    values, indices = g.topk(
        x if turn is None else g.bit_xor(x, turn),
        k,
        axis=axis_of(call, -1),
        largest=bool(call.integer("largest", 1)),
    )
    values = values if turn is None else g.bit_xor(values, turn)
    return OnnxValue(element, node=values), TypedResult(INT64, node=g.cast(indices, "i64"))


@onnx_op("MeanVarianceNormalization")
def mean_variance(call: OnnxCall) -> Any:
    """Mean 0 and variance 1 over some axes."""
    g, x = call.g, call.x()
    axes = call.int_list("axes", (0, 2, 3))
    centred = g.sub(x, g.mean(x, axes, True))
    deviation = g.sqrt(g.mean(g.mul(centred, centred), axes, True))
    return g.div(centred, g.add(deviation, g.constant(np.float32(1e-9), x.dtype)))

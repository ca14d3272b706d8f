"""Sequences and optionals: they exist while the graph is made, and not as it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.movement import axis_of, parts_of
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.ops.subgraphs import stacked, written_out
from rlx.importers.onnx.values import Nothing, OnnxValue, SequenceItems
from rlx.ir.shape import as_axis


@onnx_op("SequenceConstruct", raw=True)
def construct(call: OnnxCall) -> Any:
    """The operands in order."""
    return [SequenceItems(call.value(i) for i in range(len(call.operands)))]


@onnx_op("SequenceEmpty", raw=True)
def empty(call: OnnxCall) -> Any:
    """A sequence of nothing."""
    return [SequenceItems()]


@onnx_op("SequenceLength", raw=True)
def length(call: OnnxCall) -> Any:
    """Returns the length of a sequence."""
    return np.array(len(call.items(0)), np.int64)


def _place(call: OnnxCall, index: int, last: int) -> int:
    place = int(call.number(index))
    if not -last <= place <= last:
        raise ImportModelError(f"place {place} in a sequence of {last}")
    return place


@onnx_op("SequenceAt", raw=True)
def pick(call: OnnxCall) -> Any:
    """One of them."""
    items = call.items(0)
    return [items[_place(call, 1, len(items))]]


@onnx_op("SequenceInsert", raw=True)
def insert(call: OnnxCall) -> Any:
    """One more, at the end by default."""
    items = SequenceItems(call.items(0))
    items.insert(_place(call, 2, len(items)) if call.has(2) else len(items), call.value(1))
    return [items]


@onnx_op("SequenceErase", raw=True)
def erase(call: OnnxCall) -> Any:
    """One less, the last by default."""
    items = SequenceItems(call.items(0))
    del items[_place(call, 1, len(items)) if call.has(1) else -1]
    return [items]


@onnx_op("ConcatFromSequence", raw=True)
def concat(call: OnnxCall) -> Any:
    """All joined along an axis, or along a new one."""
    items = call.items(0)
    axis = call.integer("axis")
    if call.integer("new_axis", 0):
        return stacked(call, items, axis)
    if not items:
        raise ImportModelError("no operands to concatenate")
    nodes = [call.site.node(value) for value in items]
    axis = as_axis(axis, len(nodes[0].shape), where="axis")
    joined = nodes[0] if len(nodes) == 1 else call.g.concat(nodes, axis)
    return OnnxValue(items[0].element, node=joined)


@onnx_op("SplitToSequence", raw=True)
def split(call: OnnxCall) -> Any:
    """Parts along an axis: single entries, parts of one size, or of given ones."""
    g, x, axis = call.g, call.x(0), axis_of(call)
    total = x.shape[axis]
    limited((total,))
    if not call.has(1):
        sizes = [1] * total
    elif call.rank(1) == 0:
        size = int(call.number(1))
        if size < 1:
            raise ImportModelError(f"parts of {size}")
        sizes = [min(size, total - i) for i in range(0, total, size)]
    else:
        sizes = list(parts_of(call, 1, total))
    parts = list(g.split(x, sizes, axis))
    if not call.has(1) and not call.integer("keepdims", 1):
        parts = [g.squeeze(part, (axis,)) for part in parts]
    return [SequenceItems(OnnxValue(call.element(), node=part) for part in parts)]


@onnx_op("SequenceMap", raw=True)
def mapped(call: OnnxCall) -> Any:
    """A subgraph for each of them."""
    body, count = call.subgraph("body"), len(call.items(0))
    others = [call.held(i) for i in range(1, len(call.operands))]
    rows = []
    for index in range(count):
        args = [o[index] if isinstance(o, SequenceItems) else o for o in others]
        rows.append(written_out(call, body, [call.items(0)[index], *args]))
    columns = list(zip(*rows, strict=True)) or [()] * len(body.outputs)
    return [SequenceItems(column) for column in columns]


@onnx_op("Optional", raw=True)
def optional(call: OnnxCall) -> Any:
    """The operand, or nothing."""
    return [call.held(0) if call.has(0) else Nothing()]


@onnx_op("OptionalHasElement", raw=True)
def has_element(call: OnnxCall) -> Any:
    """Returns whether an optional has an element."""
    there = call.has(0) and not isinstance(call.held(0), Nothing)
    return np.array(there)


@onnx_op("OptionalGetElement", raw=True)
def get_element(call: OnnxCall) -> Any:
    """Returns the element of an optional."""
    stored = call.held(0)
    if isinstance(stored, Nothing):
        raise ImportModelError("an optional that holds nothing")
    return [stored]

"""Rows that are written into a value: the state that a graph keeps from run to run, or any other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Sample, TensorType
from rlx.ir.shape import as_axis, same_size, strides
from rlx.ops.declare import composite, op
from rlx.ops.movement.strided import copied_by, emit_strided_copy
from rlx.sizes import SizeExpr, smallest


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    state, new = types[0].shape, types[1].shape
    axis = attrs["axis"] = as_axis(attrs["axis"], len(state), where="update")
    rest = (*state[:axis], *state[axis + 1 :]), (*new[:axis], *new[axis + 1 :])
    if len(state) != len(new) or rest[0] != rest[1]:
        raise ShapeError(
            "[update] shapes differ outside the axis",
            got=f"{new} into {state}",
            expected=f"equal but for axis {axis}",
        )
    rows, position, whole = new[axis], attrs["position"], state[axis]
    free = whole if attrs["circular"] else whole - position
    if position < 0 or rows > free:
        raise ShapeError(
            "[update] rows outside the axis",
            got=f"{rows} rows at {position}",
            expected=f"within 0 to {whole} of axis {axis} of {state}",
            hint=_hint(rows, position, whole, attrs["circular"]),
        )
    return types[0]


def _hint(rows: Any, position: Any, whole: Any, circular: bool) -> str:
    if circular:
        return ""
    if isinstance(position, SizeExpr):
        return f"give the position a bound: g.read_size(x, max={whole} - {rows})"
    return "circular=True goes on at the beginning"


def _lower(node: Node, emitter: Emitter) -> None:
    state, result = emitter.operand(0), emitter.result()
    if state is not result:  # the state is not updated in place
        dims = (math.prod(node.shape),)
        emit_strided_copy(emitter, state, result, node.dtype, dims, (1,), (1,))
    axis, whole = node.attrs["axis"], node.shape[node.attrs["axis"]]
    rows, position = node.inputs[1].shape[axis], node.attrs["position"]
    if not node.attrs["circular"]:
        _write(node, emitter, 0, rows, position)
        return
    position %= whole
    first = smallest(rows, whole - position)
    _write(node, emitter, 0, first, position)
    _write(node, emitter, first, rows - first, 0)


def _write(node: Node, emitter: Emitter, start: Any, rows: Any, position: Any) -> None:
    """Copies some of the new rows to a position."""
    axis, shape = node.attrs["axis"], node.inputs[1].shape
    if same_size(rows, 0):
        return
    source, target = strides(shape), strides(node.shape)
    if (
        axis == 0
        and same_size(rows, shape[0])
        and emitter.write_into_result(1, position * target[0])
    ):
        return  # the kernel that made the rows has written them there
    emit_strided_copy(
        emitter,
        emitter.operand(1),
        emitter.result(),
        node.dtype,
        (*shape[:axis], rows, *shape[axis + 1 :]),
        source,
        target,
        start * source[axis],
        position * target[axis],
        unit=0,
        may_be_empty=True,
    )


def _written(state: Array, new: Array, position: Any, axis: int) -> Array:
    whole, rows = state.shape[axis], new.shape[axis]
    entries = list(range(whole))
    for row in range(rows):
        entries[(position + row) % whole] = whole + row
    return np.take(np.concatenate([state, new], axis), entries, axis) if rows else state


@op(
    infer=_infer,
    **copied_by(_lower),
    internal=True,
    samples=lambda: (
        Sample(((6, 4), (2, 4)), {"position": 3, "axis": 0, "circular": False}),
        Sample(((2, 6, 3), (2, 4, 3)), {"position": 2, "axis": 1, "circular": False}),
        Sample(((5, 3), (3, 3)), {"position": 4, "axis": 0, "circular": True}),
        Sample(((1,), (1,)), {"position": 0, "axis": 0, "circular": False}),
        Sample(((4, 2), (0, 2)), {"position": 4, "axis": 0, "circular": False}),
    ),
)
def update_slice(state: Array, new: Array, position: int, axis: int, circular: bool) -> Array:
    """``state`` with ``new`` in the place of the entries of an axis from ``position`` on."""
    return _written(state, new, position, axis)


def _update(g: Graph, state: Node, new: Node, position: Any, axis: int, circular: bool) -> Node:
    if not state.shape:
        raise ShapeError("[update] of no axes", got=state.shape, expected="rank >= 1")
    if new.dtype is not state.dtype:
        raise DTypeError("[update] new", got=new.dtype, expected=state.dtype)
    axis = as_axis(axis, len(state.shape), where="update")
    if isinstance(position, Node):
        most = None
        if not circular and len(new.shape) == len(state.shape):
            most = state.shape[axis] - new.shape[axis]
        position = g.read_size(position, max=most)
    elif not isinstance(position, int | np.integer | SizeExpr) or isinstance(position, bool):
        raise ShapeError(
            "[update] position", got=repr(position), expected="a number, a size, or a node"
        )
    attrs = {"position": position, "axis": axis, "circular": bool(circular)}
    return g.add_node("update_slice", [state, new], attrs)


@composite(
    _update,
    samples=lambda: (
        Sample(((6, 4), (2, 4)), {"position": 3}),
        Sample(((2, 6, 3), (2, 4, 3)), {"position": 2, "axis": -2}),
        Sample(((3, 8), (3, 5)), {"position": 21, "axis": 1, "circular": True}),
        Sample(((7,), (7,)), {"position": 5, "circular": True}, dtypes=(DType.I64,) * 2),
        Sample(((7, 3), (2, 3)), {"position": 1}, dtypes=(DType.F16,) * 2),
        Sample(((1,), (1,)), {"position": 0}),
        Sample(((4, 2), (0, 2)), {"position": 4}),
    ),
)
def update(
    state: Array, new: Array, position: int | Node, axis: int = 0, circular: bool = False
) -> Array:
    """``state`` with the rows of ``new`` in the place of those from ``position`` on.

    Where ``state`` is an input of the graph, each run writes the new rows alone, into the input's own memory. A handle
    that is bound to that input keeps them for later runs: nothing else of it is copied. Such an input has a fixed shape,
    and the update alone reads it; later operations read the update's result. Other values, and arrays that a run is given, are
    copied before.

    Args:
        state: Any shape of rank >= 1.
        new: As ``state``, with fewer entries of the axis.
        position: The first entry that is replaced: a number, a size, or one i32 or i64, which becomes a dim.
        axis: The axis; counts from the end when negative.
        circular: Whether rows past the end go on at the beginning, as in a ring buffer. The position may be any number from
            0 on; it is taken modulo the length of the axis.

    Raises:
        SizesError: A run brings a position at which the rows do not fit.
    """
    return _written(state, new, position, axis)

"""Operations that move elements to places fixed by shapes: views, strided copies, concat."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import ALL, DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, ShapeLike, TensorType
from rlx.ir.shape import Shape, as_axis, as_shape, broadcast_strides, collapse, size, strides, walk
from rlx.ops.declare import op
from rlx.sizes import SizeExpr, positive

_COPY_WORKGROUP = 256


def emit_strided_copy(  # noqa: PLR0913 - sizes and strides of all operands
    emitter: Emitter,
    source: Any,
    target: Any,
    dtype: DType,
    dims: Shape,
    source_steps: Sequence[int],
    target_steps: Sequence[int],
    source_offset: int = 0,
    target_offset: int = 0,
    counter: Any = None,
    source_advance: int = 0,
    target_advance: int = 0,
    unit: int = 1,
    may_be_empty: bool = False,
) -> None:
    """A copy from one strided walk to another; steps and offsets count elements.

    What is copied has the rows of the node's result; with a unit of 0 it has not, and runs of fewer rows copy all.
    With a counter, an i32 value, the offsets grow by the advances for every unit that it holds. A copy that may be empty
    is one call for all sizes: whether there is something to copy is not decided for it.
    """
    count = size(dims)
    if not may_be_empty and count == 0:
        return
    merged, (source_merged, target_merged) = collapse(dims, source_steps, target_steps)
    emitter.call(
        "strided_copy",
        [source] if counter is None else [source, counter],
        [target],
        {
            "rank": len(merged),
            "dims": merged,
            "source_steps": source_merged,
            "target_steps": target_merged,
            "source_offset": source_offset,
            "target_offset": target_offset,
            "source_advance": source_advance,
            "target_advance": target_advance,
        },
        work=math.ceil(count / _COPY_WORKGROUP),
        unit=unit,
        wgsl={"count": count, "itemsize": dtype.itemsize},
    )


def _read_strided(node: Node, emitter: Emitter, steps: Sequence[int], offset: int = 0) -> None:
    """The node's result, in order, from a strided walk of its operand."""
    x, y, shape = emitter.operand(0), emitter.result(), node.shape
    emit_strided_copy(emitter, x, y, node.dtype, shape, steps, strides(shape), offset)


def copied_by(lower: Callable[[Node, Emitter], None]) -> dict[str, Any]:
    """The fields of an operation that every device computes by strided copies alone."""
    return {
        "cpu": Kernels(("strided_copy",), lower),
        "webgpu": Kernels(("strided_copy", "strided_copy_narrow"), lower),
        "webgpu_dtypes": ALL,
    }


# --- views: the operand's memory under another shape ---------------------------------------------


def _infer_reshape(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    args = attrs["shape"]
    listed = [args] if isinstance(args, int) else list(args)
    if listed.count(-1) > 1:
        raise ShapeError("[reshape] more than one -1", got=args)
    if -1 in listed:
        rest = math.prod(dim for dim in listed if dim != -1)
        listed[listed.index(-1)] = types[0].size // rest if rest else 0
    shape = as_shape(listed, where="reshape")
    if size(shape) != types[0].size:
        raise ShapeError(
            "[reshape] the number of elements changes",
            got=f"{types[0].shape} ({types[0].size} elements) to {args}",
            expected=f"a shape of {types[0].size} elements",
        )
    attrs["shape"] = shape
    return TensorType(shape, types[0].dtype)


@op(
    infer=_infer_reshape,
    view=True,
    webgpu_dtypes=ALL,
    samples=lambda: (
        Sample(((2, 6),), {"shape": (3, -1)}),
        Sample(((1,),), {"shape": ()}),
        Sample(((0, 3),), {"shape": (3, 0, 2)}),
    ),
)
def reshape(x: Array, shape: ShapeLike) -> Array:
    """``x`` under another shape of as many elements, in row-major order; one dimension may be -1."""
    return x.reshape(shape)


# --- strided copies --------------------------------------------------------------------------------


def _infer_transpose(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    rank = len(types[0].shape)
    args = attrs["perm"]
    perm = tuple(range(rank))[::-1] if args is None else args
    perm = tuple(as_axis(axis, rank, where="transpose") for axis in perm)
    if sorted(perm) != list(range(rank)):
        raise ShapeError(
            "[transpose] not a permutation", got=args, expected=f"each of 0 to {rank - 1}"
        )
    attrs["perm"] = perm
    return TensorType(tuple(types[0].shape[axis] for axis in perm), types[0].dtype)


def _lower_transpose(node: Node, emitter: Emitter) -> None:
    steps = strides(node.inputs[0].shape)
    _read_strided(node, emitter, [steps[axis] for axis in node.attrs["perm"]])


@op(
    infer=_infer_transpose,
    **copied_by(_lower_transpose),
    samples=lambda: (
        Sample(((3, 5),)),
        Sample(((2, 3, 4, 5),), {"perm": (0, 2, 1, 3)}),
        Sample(((2, 3, 4),), {"perm": (-1, 0, 1)}),
        Sample(((),)),
        Sample(((1, 4),)),
        Sample(((0, 4),)),
        Sample(((33, 65),)),
        Sample(((512, 1024),), bench=True),
    ),
)
def transpose(x: Array, perm: Sequence[int] | None = None) -> Array:
    """The axes of ``x`` in another order; without ``perm`` they are reversed."""
    return np.transpose(x, perm)


def _infer_narrow(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    axis = as_axis(attrs["axis"], len(shape), where="narrow")
    start, length = attrs["start"], attrs["length"]
    if start < 0:
        start += shape[axis]
    if length < 0 or not 0 <= start <= shape[axis] - length:
        raise ShapeError(
            "[narrow] range outside the axis",
            got=f"start {attrs['start']}, length {length}",
            expected=f"within 0 to {shape[axis]} of axis {axis} of {shape}",
        )
    attrs.update(axis=axis, start=start)
    return TensorType((*shape[:axis], length, *shape[axis + 1 :]), types[0].dtype)


def _lower_narrow(node: Node, emitter: Emitter) -> None:
    steps = strides(node.inputs[0].shape)
    _read_strided(node, emitter, steps, node.attrs["start"] * steps[node.attrs["axis"]])


@op(
    infer=_infer_narrow,
    **copied_by(_lower_narrow),
    samples=lambda: (
        Sample(((6, 4),), {"axis": 0, "start": 2, "length": 3}),
        Sample(((6, 5),), {"axis": -1, "start": 1, "length": 3}),
        Sample(((1,),), {"axis": 0, "start": 0, "length": 1}),
        Sample(((4, 3),), {"axis": 0, "start": 4, "length": 0}),
        Sample(((0, 3),), {"axis": 1, "start": 1, "length": 2}),
    ),
)
def narrow(x: Array, axis: int, start: int, length: int) -> Array:
    """``length`` entries of one axis from ``start`` on.

    Args:
        x: Any shape of rank >= 1.
        axis: The axis that is cut; counts from the end when negative.
        start: First entry; counts from the end when negative.
        length: Number of entries.
    """
    return np.take(x, range(start, start + length), axis)


def _infer_slice(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    axes = attrs["axes"]
    axes = range(len(attrs["starts"])) if axes is None else axes
    axes = [as_axis(axis, len(shape), where="slice") for axis in axes]
    steps = attrs["steps"] if attrs["steps"] is not None else (1,) * len(axes)
    steps = [operator.index(step) for step in steps]
    if len({len(axes), len(attrs["starts"]), len(attrs["stops"]), len(steps)}) != 1 or 0 in steps:
        raise ShapeError(
            "[slice] starts, stops, axes and steps do not fit",
            got=f"{attrs['starts']}, {attrs['stops']}, {attrs['axes']}, {attrs['steps']}",
            expected="one entry per axis each, no step of 0",
        )
    # Normalised to every axis: first entry, step, count.
    start, step, count = [0] * len(shape), [1] * len(shape), list(shape)
    for axis, begin, end, stride in zip(axes, attrs["starts"], attrs["stops"], steps, strict=True):
        start[axis], step[axis], count[axis] = walk(begin, end, stride, shape[axis])
        if count[axis] == 0:
            # An empty slice is normalised to start at 0: its own start may lie outside of the axis.
            start[axis], step[axis], count[axis] = 0, 1, 0
        elif isinstance(count[axis], SizeExpr):
            count[axis] = positive(count[axis])
            start[axis] = begin if stride > 0 and begin >= 0 else start[axis]
    attrs.update(
        axes=tuple(range(len(shape))),
        starts=tuple(start),
        steps=tuple(step),
        # The normal form is a fixed point: inference of normalised attributes gives them back.
        stops=tuple(
            end if (end := b + s * n) >= 0 else -dim - 1
            for b, s, n, dim in zip(start, step, count, shape, strict=True)
        ),
    )
    return TensorType(tuple(count), types[0].dtype)


def _lower_slice(node: Node, emitter: Emitter) -> None:
    steps = strides(node.inputs[0].shape)
    _read_strided(
        node,
        emitter,
        [a * b for a, b in zip(steps, node.attrs["steps"], strict=True)],
        sum(a * b for a, b in zip(steps, node.attrs["starts"], strict=True)),
    )


@op(
    name="slice",
    infer=_infer_slice,
    **copied_by(_lower_slice),
    samples=lambda: (
        Sample(((8, 5),), {"starts": (1,), "stops": (7,), "steps": (2,)}),
        Sample(((8, 5),), {"starts": (7, 4), "stops": (-9, 0), "steps": (-2, -1)}),
        Sample(((1,),), {"starts": (0,), "stops": (1,)}),
        Sample(((4, 3),), {"starts": (3,), "stops": (1,), "axes": (-2,)}),
        Sample(((0, 3),), {"starts": (0,), "stops": (2,), "axes": (1,)}),
        Sample(((2, 0),), {"starts": (-1, -2), "stops": (0, 0), "steps": (1, -1)}),
    ),
)
def slice_(
    x: Array,
    starts: Sequence[int],
    stops: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Array:
    """Python's slicing over the named axes (all leading ones by default), negative steps included."""
    assert axes is not None and steps is not None, "inference states them"  # noqa: PT018
    index = [slice(None)] * x.ndim
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


def _infer_expand(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = as_shape(attrs["shape"], where="expand")
    source = types[0].shape
    padded = (1,) * (len(shape) - len(source)) + source
    if len(padded) != len(shape) or any(
        a != b and a != 1 for a, b in zip(padded, shape, strict=True)
    ):
        raise ShapeError("[expand] can't be repeated to that shape", got=f"{source} to {shape}")
    attrs["shape"] = shape
    return TensorType(shape, types[0].dtype)


def _lower_expand(node: Node, emitter: Emitter) -> None:
    _read_strided(node, emitter, broadcast_strides(node.inputs[0].shape, node.shape))


@op(
    infer=_infer_expand,
    **copied_by(_lower_expand),
    samples=lambda: (
        Sample(((3, 1),), {"shape": (2, 3, 5)}),
        Sample(((),), {"shape": (4,)}),
        Sample(((1,),), {"shape": (1,)}),
        Sample(((1, 4),), {"shape": (0, 4)}),
        Sample(((0, 1),), {"shape": (0, 4)}),
    ),
)
def expand(x: Array, shape: ShapeLike) -> Array:
    """``x`` repeated along its axes of size 1 to ``shape`` (NumPy's ``broadcast_to``)."""
    return np.broadcast_to(x, shape)


def _infer_concat(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    if not types:
        raise ShapeError("[concat] no operands", expected="at least one operand")
    shapes = [type.shape for type in types]
    axis = as_axis(attrs["axis"], len(shapes[0]), where="concat")
    cut = [(*s[:axis], *s[axis + 1 :]) for s in shapes]
    if any(rest != cut[0] for rest in cut):
        raise ShapeError(
            "[concat] shapes differ outside the axis",
            got=", ".join(map(str, shapes)),
            expected=f"equal but for axis {axis}",
        )
    attrs["axis"] = axis
    total = sum(s[axis] for s in shapes)
    return TensorType((*shapes[0][:axis], total, *shapes[0][axis + 1 :]), types[0].dtype)


def _lower_concat(node: Node, emitter: Emitter) -> None:
    axis, steps, pos = node.attrs["axis"], strides(node.shape), 0
    for i, operand in enumerate(node.inputs):
        x, y, shape, at = emitter.operand(i), emitter.result(), operand.shape, pos * steps[axis]
        if axis != len(shape) - 1 or not emitter.write_rows_into_result(i, node.shape[axis], pos):
            emit_strided_copy(emitter, x, y, node.dtype, shape, strides(shape), steps, 0, at)
        pos += operand.shape[axis]


@op(
    infer=_infer_concat,
    **copied_by(_lower_concat),
    samples=lambda: (
        Sample(((2, 3), (2, 5)), {"axis": -1}),
        Sample(((2, 3), (0, 3), (1, 3)), {"axis": 0}),
        Sample(((1,),), {"axis": 0}),
        Sample(((2, 3, 2), (2, 1, 2), (2, 4, 2)), {"axis": 1}),
        Sample(((0,), (0,)), {"axis": 0}),
    ),
)
def concat(xs: Sequence[Array], axis: int) -> Array:
    """The operands one after the other along ``axis``; the other dimensions are equal."""
    return np.concatenate(xs, axis)

"""Operations that write at places given by integer tensors, in order, so that results do not vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.movement import REDUCTIONS, Reduction
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.dtype import NUMERIC, DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_axis, size, strides
from rlx.ops.declare import composite, op
from rlx.ops.movement.gather import check_indices, fit_beside
from rlx.ops.movement.strided import emit_strided_copy
from rlx.sizes import ceil_divide, largest, pinned, smallest, starts

# WebGPU: most updates that an invocation applies in one dispatch; invocations that the targets are divided among.
_CHUNK = 16384
_THREADS = 16384


def _emit_scatter(  # noqa: PLR0913 - sizes and strides of all operands
    node: Node,
    emitter: Emitter,
    lines: Sequence[int],
    data_steps: Sequence[int],
    index_steps: Sequence[int],
    update_steps: Sequence[int],
    updates: tuple[int, int, int],
    sizes: Sequence[int],
    axis_steps: Sequence[int],
) -> None:
    """A copy of the data, then updates in order, each line by itself so that the order is kept.

    ``updates``: the number of updates of a line, and the step of one through indices and updates.
    """
    count = size(node.shape)
    target = emitter.result()
    emit_strided_copy(emitter, emitter.operand(0), target, node.dtype, (count,), (1,), (1,))
    number, index_step, update_step = updates
    line_count = size(tuple(lines))
    places = size(tuple(sizes))
    # With few lines, several invocations work on a line, each on its own part of the places.
    parts = largest(1, smallest(places, _THREADS // largest(1, line_count)))
    for start in starts(number, _CHUNK) if line_count else ():
        emitter.call(
            "scatter",
            [emitter.operand(2), emitter.operand(1)],
            [target],
            {
                "rank": len(lines),
                "depth": len(sizes),
                "index_bytes": node.inputs[1].dtype.itemsize,
                "reduction": REDUCTIONS.index(node.attrs["reduction"]),
                "start": start,
                "stop": smallest(number, start + _CHUNK),
                "index_step": index_step,
                "update_step": update_step,
                "lines": line_count,
                "dims": tuple(lines),
                "data_steps": tuple(data_steps),
                "index_steps": tuple(index_steps),
                "update_steps": tuple(update_steps),
                "sizes": tuple(sizes),
                "axis_steps": tuple(axis_steps),
            },
            work=ceil_divide(line_count * parts, 64),
            wgsl={"parts": parts, "places": places},
        )


def _check_reduction(name: str, attrs: dict[str, Any], dtype: DType) -> None:
    attrs["reduction"] = attrs["reduction"] or "none"
    if attrs["reduction"] not in REDUCTIONS:
        raise GraphError(
            f"[{name}] no such reduction",
            got=repr(attrs["reduction"]),
            expected=", ".join(REDUCTIONS),
        )
    if attrs["reduction"] != "none" and dtype not in NUMERIC:
        raise DTypeError(f"[{name}] can't {attrs['reduction']} {dtype}")


def _coordinates(indices: Array, axis: int) -> list[Array]:
    """The place of every update: its own coordinates, but along ``axis`` the index."""
    positions: list[Array] = list(np.indices(indices.shape))
    positions[axis] = indices.astype(np.int64)
    return positions


def _apply(y: Array, pos: Any, updates: Array, reduction: str) -> Array:
    """NumPy's unbuffered updates, in order."""
    if reduction == "none":
        for place, value in zip(zip(*[i.ravel() for i in pos], strict=True), updates, strict=True):
            y[place] = value
        return y
    function = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[reduction]
    function.at(y, tuple(i.ravel() for i in pos), updates)
    return y


def _sample(
    x: Array, indices: Array, updates: Array, dtypes: tuple[DType, DType], **attrs: Any
) -> Sample:
    """A case of these operands, in the dtypes of data and of indices."""
    data, index = dtypes
    values = (x, indices, updates)
    shapes = tuple(value.shape for value in values)
    return Sample(shapes, attrs, dtypes=(data, index, data), values=values)


def _infer_scatter_elements(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    x, indices, updates = types
    axis = as_axis(attrs["axis"], len(x.shape), where="scatter_elements")
    check_indices("scatter_elements", indices)
    _check_reduction("scatter_elements", attrs, x.dtype)
    if indices.shape != updates.shape or not fit_beside(indices.shape, x.shape, axis):
        raise ShapeError(
            "[scatter_elements] indices and updates do not fit",
            got=f"indices {indices.shape}, updates {updates.shape} into {x.shape}",
            expected=f"one shape, no dimension larger than that of x but axis {axis}",
        )
    attrs["axis"] = axis
    return x


def _lower_scatter_elements(node: Node, emitter: Emitter) -> None:
    x, indices = node.shape, node.inputs[1].shape
    axis, steps, walk = node.attrs["axis"], strides(x), strides(indices)
    lines = (*indices[:axis], 1, *indices[axis + 1 :])
    _emit_scatter(
        node,
        emitter,
        lines,
        [0 if i == axis else step for i, step in enumerate(steps)],
        walk,
        walk,
        (indices[axis], walk[axis], walk[axis]),
        (x[axis],),
        (steps[axis],),
    )


_SCATTER_CPU = frozenset({DType.F32, DType.F64, DType.I32, DType.U32, DType.I64, DType.BOOL})
_SCATTER_WEBGPU = frozenset({DType.F32, DType.I32, DType.U32, DType.I64})


@op(
    free=("indices",),
    infer=_infer_scatter_elements,
    flops=lambda node: size(node.inputs[1].shape),
    cpu=Kernels(("scatter", "strided_copy"), _lower_scatter_elements),
    webgpu=Kernels(("scatter", "strided_copy", "strided_copy_narrow"), _lower_scatter_elements),
    dtypes=_SCATTER_CPU,
    webgpu_dtypes=_SCATTER_WEBGPU,
    samples=lambda: tuple(
        _sample(
            np.arange(math.prod(shape)).reshape(shape),
            np.array(indices, np.int32),
            (np.arange(np.size(indices)).reshape(np.shape(indices)) * 7 + 3) % 11,
            (dtype, i), axis=axis, reduction=reduction,
        )
        for dtype, i, reduction in (
            *((DType.F32, DType.I32, r) for r in (None, "add", "mul", "min", "max")),
            (DType.I32, DType.I32, "add"), (DType.F16, DType.I32, "add"), (DType.U8, DType.I64, None),
            (DType.F64, DType.I32, "max"), (DType.F32, DType.I64, "add"),
        )
        for shape, indices, axis in (
            ((3, 4), [[0, 2, -1, 1], [1, 1, 0, 1], [1, 1, 2, 2], [0, 0, 0, 0]], 0),
            ((3, 4), [[3, 3, 0], [0, 1, 1]], 1),
            ((2, 3, 2), [[[0, 1], [2, 2]]], 1),
            ((1,), [0, 0, 0], 0),
            ((3, 150), np.arange(300).reshape(2, 150) * 7 % 3, 0),
            ((2, 3), np.zeros((0, 3)), 0),
            ((0, 3), np.zeros((0, 3)), 1),
        )
    ),
)  # fmt: skip
def scatter_elements(
    x: Array, indices: Array, updates: Array, axis: int, reduction: Reduction | None = None
) -> Array:
    """``x`` with entries replaced along ``axis`` at places that ``indices`` name.

    Args:
        x: Any shape of rank >= 1.
        indices: i32 or i64 of the same rank; no dimension but ``axis`` is larger than that of ``x``.
            Negative ones count from the end; one out of range is an ``InputError`` on the CPU and
            is left out on WebGPU.
        updates: One value for every index.
        axis: The axis that the indices number.
        reduction: None replaces (the last of several updates of one place wins), "add", "mul", "min"
            and "max" combine with what is there, in order.
    """
    return _apply(np.array(x), _coordinates(indices, axis), updates.ravel(), reduction or "none")


def _infer_scatter_nd(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    x, indices, updates = types
    check_indices("scatter_nd", indices)
    _check_reduction("scatter_nd", attrs, x.dtype)
    depth = pinned(indices.shape[-1]) if indices.shape else 0
    if (
        not indices.shape
        or depth > len(x.shape)
        or updates.shape != (*indices.shape[:-1], *x.shape[depth:])
    ):
        raise ShapeError(
            "[scatter_nd] indices and updates do not fit",
            got=f"indices {indices.shape}, updates {updates.shape} into {x.shape}",
            expected="updates [*indices.shape[:-1], *x.shape[indices.shape[-1]:]]",
        )
    return x


def _lower_scatter_nd(node: Node, emitter: Emitter) -> None:
    x, indices = node.shape, node.inputs[1].shape
    depth, steps = pinned(indices[-1]), strides(x)
    inner = size(x[depth:])
    number = size(indices[:-1])
    _emit_scatter(
        node, emitter, (inner,), (1,), (0,), (1,), (number, depth, inner), x[:depth], steps[:depth]
    )


@op(
    free=("indices",),
    infer=_infer_scatter_nd,
    flops=lambda node: size(node.inputs[2].shape),
    cpu=Kernels(("scatter", "strided_copy"), _lower_scatter_nd),
    webgpu=Kernels(("scatter", "strided_copy", "strided_copy_narrow"), _lower_scatter_nd),
    dtypes=_SCATTER_CPU,
    webgpu_dtypes=_SCATTER_WEBGPU,
    samples=lambda: tuple(
        _sample(
            np.arange(math.prod(shape)).reshape(shape),
            np.array(indices, np.int32),
            np.arange(math.prod((*np.shape(indices)[:-1], *shape[np.shape(indices)[-1] :])))
            .reshape(*np.shape(indices)[:-1], *shape[np.shape(indices)[-1] :]) % 13,
            (dtype, i), reduction=reduction,
        )
        for dtype, i, reduction in (
            (DType.F32, DType.I32, None), (DType.F32, DType.I32, "add"), (DType.I32, DType.I64, "max"),
        )
        for shape, indices in (
            ((8,), [[4], [3], [1], [-1], [4]]),
            ((4, 3), [[0], [2], [0]]),
            ((4, 3), [[0, 1], [2, -1], [0, 1]]),
            ((2, 3, 2), [[[0, 1], [1, 2]]]),
            ((1,), [[0]]),
            ((3, 2), np.zeros((0, 1))),
            ((0, 3), np.zeros((0, 1))),
        )
    ),
)  # fmt: skip
def scatter_nd(
    x: Array, indices: Array, updates: Array, reduction: Reduction | None = None
) -> Array:
    """``x`` with slices replaced at the index tuples along the last axis of ``indices``.

    Args:
        x: Any shape.
        indices: i32 or i64 ``[..., depth]``.
        updates: ``[*indices.shape[:-1], *x.shape[depth:]]``.
        reduction: As in ``scatter_elements``.
    """
    y = np.array(x)
    depth = indices.shape[-1]
    rows = y.reshape(size(x.shape[:depth]), size(x.shape[depth:]))
    tuples = indices.reshape(-1, depth).astype(np.int64)
    wrapped = [np.where(i < 0, i + n, i) for i, n in zip(tuples.T, x.shape, strict=False)]
    flat = np.ravel_multi_index(wrapped, x.shape[:depth]) if tuples.size else np.zeros(0, np.int64)
    places = np.broadcast_to(flat[:, None], (len(flat), rows.shape[1]))
    columns = np.broadcast_to(np.arange(rows.shape[1]), places.shape)
    return _apply(rows, [places, columns], updates.reshape(-1), reduction or "none").reshape(
        x.shape
    )


@composite(
    lambda g, x, indices, updates, axis: g.scatter_elements(x, indices, updates, axis, "add"),
    free=("indices",),
    dtypes=_SCATTER_CPU - {DType.BOOL},
    samples=lambda: (
        _sample(
            np.ones((3, 4)),
            np.array([(0, 1, 2, 0), (0, 0, -1, 1)]),
            np.ones((2, 4)) * 2,
            (DType.F32, DType.I32),
            axis=0,
        ),
        _sample(np.ones(1), np.zeros(3), np.arange(3), (DType.I32, DType.I32)),
        _sample(np.ones((2, 3)), np.zeros((0, 3)), np.zeros((0, 3)), (DType.F32, DType.I32)),
    ),
)
def scatter_add(x: Array, indices: Array, updates: Array, axis: int = 0) -> Array:
    """``scatter_elements`` that adds: every update is added to the entry that its index names."""
    return _apply(np.array(x), _coordinates(indices, axis), updates.ravel(), "add")

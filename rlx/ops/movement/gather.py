"""Operations that read at places given by integer tensors: the gather family.

All of them are one walk: a result element has coordinates along some dimensions, each dimension steps
through the data and through the indices, and the indices say where along the indexed axes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import Shape, as_axis, collapse, is_sized, size, strides
from rlx.ops.declare import op
from rlx.sizes import pinned

_WORKGROUP = 256
_INDEX_DTYPES = (DType.I32, DType.I64)


def check_indices(name: str, type: TensorType) -> None:
    """Refuses indices that are not i32 or i64.

    Raises:
        DTypeError: They are not.
    """
    if type.dtype not in _INDEX_DTYPES:
        raise DTypeError(
            f"[{name}] indices are not integers",
            got=type.dtype,
            expected="i32 or i64",
            hint="add g.cast(indices, 'i32')",
        )


def fit_beside(indices: Shape, shape: Shape, axis: int) -> bool:
    """Returns whether indices along an axis have the rank of a shape, and elsewhere no larger dimensions."""
    return len(shape) == len(indices) and all(
        index == axis or i <= d for index, (i, d) in enumerate(zip(indices, shape, strict=True))
    )


# --- gather ----------------------------------------------------------------------------------------


def _emit_gather(
    node: Node,
    emitter: Emitter,
    dims: Sequence[int],
    data_steps: Sequence[int],
    index_steps: Sequence[int],
    sizes: Sequence[int],
    axis_steps: Sequence[int],
) -> None:
    """One gather: result element c reads ``data[c . data_steps + indices[...] . axis_steps]``.

    ``dims`` are the sizes of the result as it is walked, row-major. An index tuple lies side by side.
    """
    emitter.call(
        "gather",
        [emitter.operand(0), emitter.operand(1)],
        [emitter.result()],
        {
            "rank": len(dims),
            "depth": len(sizes),
            "index_bytes": node.inputs[1].dtype.itemsize,
            "count": size(node.shape),
            "dims": tuple(dims),
            "data_steps": tuple(data_steps),
            "index_steps": tuple(index_steps),
            "sizes": tuple(sizes),
            "axis_steps": tuple(axis_steps),
        },
        work=math.ceil(size(node.shape) / _WORKGROUP),
        wgsl={"half": int(node.dtype is DType.F16)},
    )


# Narrow elements share words on WebGPU: they are gathered as f32 or i32, halves as they are where a device has them.
_gathering = functools.partial(
    op,
    free=("indices",),
    webgpu_dtypes=frozenset({DType.F32, DType.I32, DType.U32, DType.I64, DType.F64}),
    webgpu_f16=True,
)


def _samples(
    attr: str, dtypes: Sequence[tuple[DType, DType]], cases: Sequence[tuple[Shape, Any, int]]
) -> tuple[Sample, ...]:
    """Cases of shape, indices and an attribute, for each pair of dtypes of data and indices."""
    return tuple(
        Sample(
            (shape, np.shape(indices)),
            {attr: value},
            values=(np.arange(math.prod(shape)).reshape(shape), np.array(indices, np.int32)),
            dtypes=pair,
        )
        for pair in dtypes
        for shape, indices, value in cases
    )


def _is_empty(entries: int, indices: TensorType) -> bool:
    """Returns whether indices pick from an axis of no entries. Where their number is not known, a run finds out."""
    return not is_sized(indices) and indices.size > 0 and entries == 0


def _infer_gather(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape, indices = types[0].shape, types[1]
    axis = as_axis(attrs["axis"], len(shape), where="gather")
    check_indices("gather", indices)
    if _is_empty(shape[axis], indices):
        raise ShapeError("[gather] the axis is empty", got=f"{shape} at axis {axis}")
    attrs["axis"] = axis
    return TensorType((*shape[:axis], *indices.shape, *shape[axis + 1 :]), types[0].dtype)


def _lower_gather(node: Node, emitter: Emitter) -> None:
    x, indices = node.inputs
    axis = node.attrs["axis"]
    outer, n = size(x.shape[:axis]), x.shape[axis]
    inner = size(x.shape[axis + 1 :])
    walk = [(outer, n * inner, 0), (size(indices.shape), 0, 1), (inner, 1, 0)]
    if inner == 1:  # the loop over the last dimension is then the one over the indices
        walk.pop()
    dims, data_steps, index_steps = zip(*walk, strict=True)
    _emit_gather(node, emitter, dims, data_steps, index_steps, (n,), (inner,))


@_gathering(
    infer=_infer_gather,
    cpu=Kernels(("gather",), _lower_gather),
    webgpu=Kernels(("gather",), _lower_gather),
    samples=lambda: _samples(
        "axis",
        (
            (DType.F32, DType.I32), (DType.I32, DType.I64), (DType.F16, DType.I32),
            (DType.BOOL, DType.I32), (DType.U8, DType.I64), (DType.F64, DType.I32),
            (DType.F32, DType.I64),
        ),
        (
            ((5, 3), [[0, 4], [2, -1]], 0),
            ((5, 3), [2, 0, 0], -1),
            ((2, 4, 3), 1, 1),
            ((1,), [0], 0),
            ((4, 0), [1], 0),
        ),
    ),
)  # fmt: skip
def gather(x: Array, indices: Array, axis: int = 0) -> Array:
    """Entries of one axis picked by an integer tensor; the axis is replaced by the indices' shape.

    Args:
        x: Any shape of rank >= 1.
        indices: i32 or i64, any shape; negative ones count from the end. One out of range is an
            ``InputError`` on the CPU; WebGPU, which can't tell, takes the nearest entry.
        axis: The axis that is picked from.
    """
    return np.take(x, indices, axis)


def _infer_elements(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape, indices = types[0].shape, types[1]
    axis = as_axis(attrs["axis"], len(shape), where="gather_elements")
    check_indices("gather_elements", indices)
    if not fit_beside(indices.shape, shape, axis) or _is_empty(shape[axis], indices):
        raise ShapeError(
            "[gather_elements] the indices do not fit",
            got=f"indices {indices.shape} into {shape}",
            expected=f"equal ranks, no dimension larger but axis {axis}",
        )
    attrs["axis"] = axis
    return TensorType(indices.shape, types[0].dtype)


def _lower_elements(node: Node, emitter: Emitter) -> None:
    x, indices = node.inputs
    axis, steps = node.attrs["axis"], strides(x.shape)
    through = [0 if i == axis else step for i, step in enumerate(steps)]
    sizes, along = (x.shape[axis],), (steps[axis],)
    dims, (data_steps, index_steps) = collapse(node.shape, through, strides(indices.shape))
    _emit_gather(node, emitter, dims, data_steps, index_steps, sizes, along)


@_gathering(
    infer=_infer_elements,
    cpu=Kernels(("gather",), _lower_elements),
    webgpu=Kernels(("gather",), _lower_elements),
    samples=lambda: _samples(
        "axis",
        (*((d, DType.I32) for d in (DType.F32, DType.I32, DType.I8)), (DType.F32, DType.I64)),
        (
            ((3, 4), [[0, 2, -1, 1], [1, 1, 0, 0]], 0),
            ((3, 4), [[3], [0], [-2]], 1),
            ((2, 3, 2), [[[0, 1], [2, 2]]], 1),
            ((1,), [0, 0, 0], 0),
            ((0, 3), np.zeros((0, 3)), 1),
        ),
    ),
)
def gather_elements(x: Array, indices: Array, axis: int) -> Array:
    """One entry along ``axis`` for every entry of ``indices`` (NumPy's ``take_along_axis``).

    Args:
        x: Any shape of rank >= 1.
        indices: i32 or i64 of the same rank; no dimension but ``axis`` is larger than that of ``x``.
        axis: The axis that the indices number; negative indices count from its end.
    """
    cut = tuple(slice(0, None if i == axis else n) for i, n in enumerate(indices.shape))
    return np.take_along_axis(x[cut], indices.astype(np.int64), axis)


def _infer_nd(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape, indices, batch = types[0].shape, types[1], int(attrs["batch_dims"])
    check_indices("gather_nd", indices)
    depth = pinned(indices.shape[-1]) if indices.shape else 0
    fits = 0 <= batch < len(indices.shape) and batch + depth <= len(shape)
    if not fits or shape[:batch] != indices.shape[:batch]:
        raise ShapeError(
            "[gather_nd] the index tuples do not fit",
            got=f"indices {indices.shape} into {shape}, {batch} batch dims",
            expected="equal batch dimensions, and tuples no longer than the axes left",
        )
    attrs["batch_dims"] = batch
    result = (*indices.shape[:-1], *shape[batch + depth :])
    if not is_sized(result) and 0 in shape[batch : batch + depth] and size(result):
        raise ShapeError("[gather_nd] the operand is empty", got=shape)
    return TensorType(result, types[0].dtype)


def _lower_nd(node: Node, emitter: Emitter) -> None:
    x, indices = node.inputs
    batch, depth = node.attrs["batch_dims"], pinned(indices.shape[-1])
    steps = strides(x.shape)
    inner = size(x.shape[batch + depth :])
    batches, picks = size(indices.shape[:batch]), size(indices.shape[batch:-1])
    per_batch = size(x.shape[batch:])
    sizes, along = x.shape[batch : batch + depth], steps[batch : batch + depth]
    index_steps = (picks * depth, depth, 0)
    _emit_gather(
        node, emitter, (batches, picks, inner), (per_batch, 0, 1), index_steps, sizes, along
    )


@_gathering(
    infer=_infer_nd,
    cpu=Kernels(("gather",), _lower_nd),
    webgpu=Kernels(("gather",), _lower_nd),
    samples=lambda: _samples(
        "batch_dims",
        ((DType.F32, DType.I32), (DType.I32, DType.I32), (DType.F32, DType.I64)),
        (
            ((3, 4), [[0, 1], [2, -1]], 0),
            ((3, 4), [[2], [0]], 0),
            ((2, 3, 4), [[[1], [0]], [[2], [2]]], 1),
            ((2, 3, 4), [[[1, 3]], [[2, -4]]], 1),
            ((1,), [[0]], 0),
            ((3, 4), np.zeros((0, 2)), 0),
        ),
    ),
)
def gather_nd(x: Array, indices: Array, batch_dims: int = 0) -> Array:
    """Slices of ``x`` picked by index tuples, which stand along the last axis of ``indices``.

    Args:
        x: Any shape.
        indices: i32 or i64 ``[*batch, ..., depth]``: each tuple names a slice of the first ``depth``
            axes after the batch.
        batch_dims: Leading axes that both operands share.

    Returns:
        ``[*indices.shape[:-1], *x.shape[batch_dims + depth:]]``.
    """
    batch, depth = indices.shape[:batch_dims], indices.shape[-1]
    flat_x = x.reshape(-1, *x.shape[batch_dims:]) if batch_dims else x[None]
    flat = indices.reshape(len(flat_x), -1, depth)
    results = [part[tuple(np.moveaxis(i, -1, 0))] for part, i in zip(flat_x, flat, strict=True)]
    rest = x.shape[batch_dims + depth :]
    return np.array(results).reshape((*batch, *indices.shape[batch_dims:-1], *rest))

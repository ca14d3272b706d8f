"""Shape arithmetic: checking, broadcasting, strides, and the collapsing of dimensions for kernels."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence

from rlx.errors import ShapeError

Shape = tuple[int, ...]
MAX_RANK = 32
MAX_SIZE = 1 << 59


def as_shape(value: int | Iterable[int], *, where: str) -> Shape:
    """Checks that ``value`` is a shape: whole numbers, none negative.

    Raises:
        ShapeError: A dimension is negative, NaN or not a whole number.
    """
    try:
        dims = (value,) if isinstance(value, int) else tuple(value)
        shape = tuple(operator.index(dim) for dim in dims)
    except TypeError:
        shape = (-1,)
    if any(dim < 0 for dim in shape):
        raise ShapeError(
            f"[{where}] not a shape",
            got=repr(value),
            expected="a tuple of whole numbers >= 0",
            hint="shapes inside a graph are static; bind symbolic dimensions before building",
        )
    return shape


def check_size(shape: Shape, *, where: str) -> None:
    """Checks that there could be such an array: at most 32 axes, its bytes countable in 63 bits.

    No axis is negative, as inference would give it for attributes that it does not look at.

    Axes of size 0 count as 1: strides have to fit, too.

    Raises:
        ShapeError: There could not.
    """
    sizes = [dim or 1 for dim in shape]
    if len(shape) > MAX_RANK or min(sizes, default=1) < 0 or math.prod(sizes) > MAX_SIZE:
        raise ShapeError(
            f"[{where}] a shape that no array can have",
            got=f"{shape!s:.120}",
            expected=f"at most {MAX_RANK} axes and 2^59 elements",
        )


def size(shape: Shape) -> int:
    """Number of elements."""
    return math.prod(shape)


def as_axis(axis: int, rank: int, *, where: str) -> int:
    """Normalises an axis that may count from the end.

    Raises:
        ShapeError: The axis is outside ``-rank ... rank - 1``.
    """
    axis = operator.index(axis)
    if not -rank <= axis < rank:
        raise ShapeError(
            f"[{where}] no such axis", got=axis, expected=f"{-rank} to {rank - 1} (rank {rank})"
        )
    return axis % rank


def as_axes(axes: int | Iterable[int] | None, rank: int, *, where: str) -> tuple[int, ...]:
    """Normalises a set of axes; None means all of them. Sorted, without repeats.

    Raises:
        ShapeError: An axis is out of range or named twice.
    """
    if axes is None:
        return tuple(range(rank))
    listed = [axes] if isinstance(axes, int) else list(axes)
    results = [as_axis(axis, rank, where=where) for axis in listed]
    if len(set(results)) != len(results):
        raise ShapeError(f"[{where}] an axis is named twice", got=listed)
    return tuple(sorted(results))


def broadcast(*shapes: Shape, where: str) -> Shape:
    """NumPy's broadcast of shapes.

    Raises:
        ShapeError: Two dimensions differ and neither is 1.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            if dim == 1 or dim == result[axis]:
                continue
            if result[axis] != 1:
                raise ShapeError(
                    f"[{where}] shapes do not broadcast",
                    got=" and ".join(map(str, shapes)),
                    expected="equal dimensions, or 1, counted from the last",
                )
            result[axis] = dim
    return tuple(result)


def strides(shape: Shape) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    result, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        result[axis] = step
        step *= shape[axis]
    return tuple(result)


def broadcast_strides(shape: Shape, to: Shape) -> tuple[int, ...]:
    """Element strides that read a row-major ``shape`` as if it had been expanded to ``to``."""
    padded = (1,) * (len(to) - len(shape)) + shape
    steps = (0,) * (len(to) - len(shape)) + strides(shape)
    return tuple(0 if dim == 1 else step for dim, step in zip(padded, steps, strict=True))


def collapse(dims: Shape, *steps: Sequence[int]) -> tuple[Shape, tuple[tuple[int, ...], ...]]:
    """Merges neighbouring dimensions that every stride list walks as one; drops those of size 1.

    Args:
        dims: The sizes that are walked.
        *steps: One stride list per operand, in elements.

    Returns:
        The merged sizes and stride lists; at least one dimension is left.

    Example:
        >>> collapse((2, 3, 4), (12, 4, 1), (0, 4, 1))
        ((2, 12), ((12, 1), (0, 1)))
    """
    kept_dims: list[int] = []
    kept_steps: list[list[int]] = [[] for _ in steps]
    for axis, dim in enumerate(dims):
        if dim == 1:
            continue
        mergeable = kept_dims and all(
            item[-1] == step[axis] * dim for item, step in zip(kept_steps, steps, strict=True)
        )
        if mergeable:
            kept_dims[-1] *= dim
            for item, step in zip(kept_steps, steps, strict=True):
                item[-1] = step[axis]
        else:
            kept_dims.append(dim)
            for item, step in zip(kept_steps, steps, strict=True):
                item.append(step[axis])
    if not kept_dims:
        return (1,), tuple((0,) for _ in steps)
    return tuple(kept_dims), tuple(tuple(step) for step in kept_steps)

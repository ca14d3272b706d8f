"""Shape arithmetic: checking, broadcasting, strides, the collapsing of dimensions for kernels; and the dims of a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from rlx.errors import ShapeError
from rlx.sizes import SizeExpr, ceil_divide, current, hinted, largest, smallest

# Sizes are ints, or those of ``rlx.sizes`` in graphs with dims: the arithmetic is the same.
Shape = tuple[int, ...]
MAX_RANK = 32
MAX_SIZE = 1 << 59
# The operation that makes a dim of a number which the graph computes.
READ_SIZE = "read_size"
# The op that writes rows into a value.
UPDATE = "update_slice"
# Operations whose results have dims of their own: the host runs their subgraphs.
HOST_CONTROL = ("loop", "branch")


def as_shape(value: int | Iterable[int], *, where: str) -> Shape:
    """Checks that ``value`` is a shape: whole numbers or sizes of dims, none negative.

    Raises:
        ShapeError: A dimension is negative, NaN or not a whole number.
    """
    try:
        dims = (value,) if isinstance(value, (int, SizeExpr)) else tuple(value)
        shape = tuple(as_size(dim) for dim in dims)
    except TypeError:
        shape = (-1,)
    if any(dim < 0 for dim in shape):
        raise ShapeError(
            f"[{where}] not a shape",
            got=repr(value),
            expected="a tuple of whole numbers >= 0",
            hint='rlx.Dim("n") stands for a size that is known only when the graph runs',
        )
    return shape


def as_size(dim: Any) -> int:
    """A size as shapes hold it.

    Raises:
        TypeError: It is no whole number.
    """
    return cast(int, dim) if isinstance(dim, SizeExpr) else operator.index(dim)


def check_size(shape: Shape, *, where: str) -> None:
    """Checks that there could be such an array: at most 32 axes, its bytes countable in 63 bits.

    No axis is negative, as inference would give it for attributes that it does not look at.

    Axes of size 0 count as 1: strides have to fit, too.

    Raises:
        ShapeError: There could not.
    """
    # The bytes of sizes that are known when the graph runs are counted then.
    sizes = [1 if isinstance(dim, SizeExpr) else dim or 1 for dim in shape]
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
            if is_one(dim):
                continue
            if not is_one(result[axis]) and dim != result[axis]:
                raise ShapeError(
                    f"[{where}] shapes do not broadcast",
                    got=" and ".join(map(str, shapes)),
                    expected="equal dimensions, or 1, counted from the last",
                )
            result[axis] = dim
    return tuple(result)


def estimated(size: Any) -> Any:
    """Returns a size or those of a shape as numbers, for estimates: at the hints of the assumptions where they are not known."""
    if isinstance(size, tuple):
        return tuple(map(estimated, size))
    return size if isinstance(size, int | float) else hinted(size)


def is_sized(value: Any) -> bool:
    """Returns whether a size of a shape, of types or of an attribute is known only when the graph runs."""
    if type(value) is int:
        return False
    if isinstance(value, tuple):
        return any(map(is_sized, value))
    return isinstance(value, SizeExpr) or is_sized(getattr(value, "shape", ()))


def is_size(value: Any) -> bool:
    """Returns whether a value is a whole number of Python or a size that is known only when the graph runs."""
    return type(value) is int or isinstance(value, SizeExpr)


def is_one(dim: int) -> bool:
    """Returns whether an axis is broadcast.

    A size that is known only when the graph runs never is, but under assumptions for sizes of 1.
    """
    if not isinstance(dim, SizeExpr):
        return dim == 1
    assumptions = current()
    return assumptions is not None and assumptions.ones and hinted(dim) == 1 and bool(dim == 1)


class SliceRange(NamedTuple):
    """The entries of an axis that a slice takes.

    Attributes:
        start: The first.
        step: The distance between two.
        length: How many there are.
    """

    start: int
    step: int
    length: int


def walk(start: int | None, stop: int | None, step: int | None, dim: int) -> SliceRange:
    """The entries that Python's ``slice(start, stop, step)`` takes of an axis of a size.

    It compares no size with another: the least and the largest of them take the place of that.

    Example:
        >>> walk(-3, None, 2, 8)
        SliceRange(start=5, step=2, length=2)
    """
    step = 1 if step is None else operator.index(step)
    if (
        not isinstance(dim, SizeExpr)
        and not isinstance(start, SizeExpr)
        and not isinstance(stop, SizeExpr)
    ):
        entries = range(dim)[start:stop:step]
        return SliceRange(entries.start, step, len(entries))
    start, stop = _bounded(start, -step), _bounded(stop, step)
    if step > 0:
        first = 0 if start is None else _from_front(start, dim, 0, dim)
        if stop is None or same_size(stop, dim):
            # The same as below in a shorter form: dim - min(a, dim) is max(dim - a, 0).
            low = 0 if start is None else start
            count = smallest(-low, dim) if low < 0 else largest(dim - low, 0)
        else:
            count = largest(_from_front(stop, dim, 0, dim) - first, 0)
        return SliceRange(first, step, ceil_divide(count, step))
    first = dim - 1 if start is None else _from_front(start, dim, -1, dim - 1)
    end = -1 if stop is None else _from_front(stop, dim, -1, dim - 1)
    return SliceRange(first, step, ceil_divide(largest(first - end, 0), -step))


def _bounded(index: int | None, side: int) -> int | None:
    """An end of a slice in numbers that sizes are computed with; None for one beyond all entries on its side."""
    if not isinstance(index, int) or abs(index) < MAX_SIZE:
        return index
    return None if (index > 0) == (side > 0) else max(min(index, MAX_SIZE), -MAX_SIZE)


def _from_front(index: int, dim: int, low: int, high: int) -> Any:
    """An index counted from the front, within the axis."""
    return largest(index + dim, low) if index < 0 else smallest(index, high)


def same_size(a: Any, b: Any) -> bool:
    """Returns whether two sizes have one form; nothing is decided for it."""
    if isinstance(a, SizeExpr) and isinstance(b, SizeExpr):
        return a.terms == b.terms
    return not isinstance(a, SizeExpr) and not isinstance(b, SizeExpr) and bool(a == b)


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
    return tuple(0 if is_one(dim) else step for dim, step in zip(padded, steps, strict=True))


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
        if is_one(dim):
            continue
        mergeable = kept_dims and all(
            same_size(item[-1], step[axis] * dim)
            for item, step in zip(kept_steps, steps, strict=True)
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

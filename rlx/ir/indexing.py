"""Parses an index: ``x[key]`` as one cut, a new shape, and entries that are picked from one axis."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.shape import as_size, same_size


class IndexKey(NamedTuple):
    """An index of a node.

    Attributes:
        parts: Start, stop and step along each axis; None for an axis that stays whole.
        axes: The axes of the result: an axis of the operand each, or None for a new one.
        many: The axis of that, and the array or node of integers that picks from it; None for no such index.
    """

    parts: list[tuple[int, int, int] | None]
    axes: tuple[int | None, ...]
    many: tuple[int, Any] | None


def read_key(node: Any, key: Any) -> IndexKey:
    """Reads the contents of the brackets of an indexed node.

    Raises:
        GraphError: An item is no index, or a mask, or there are several arrays.
        ShapeError: One is out of range, or there are too many.
    """
    items = _whole(node, key)
    parts: list[tuple[int, int, int] | None] = []
    axes: list[int | None] = []
    many: list[tuple[int, Any]] = []
    dims = iter(node.shape)
    for item in items:
        if item is None:
            axes.append(None)
            continue
        dim = next(dims)
        if _is_many(item):
            many.append((len(axes), _integers(node, item, dim)))
            item = slice(None)
        if isinstance(item, slice):
            axes.append(len(parts))
            parts.append(_cut(item, dim))
        else:
            start = _index(node, item, dim)
            parts.append((start, start + 1, 1))
    if len(many) > 1 or (many and _apart(items)):
        raise _not_an_index(
            node,
            key,
            "one array of integers, with any integers right beside it",
            "index one axis after the other, or use g.gather_nd for several arrays",
        )
    return IndexKey(parts, tuple(axes), many[0] if many else None)


class MaskKey(NamedTuple):
    """An index with a mask.

    Attributes:
        rest: The other items, with a slice for each axis of the mask.
        mask: The mask: a node, or an array.
        axis: The axis of ``x[rest]`` where those of the mask begin.
    """

    rest: tuple[Any, ...]
    mask: Any
    axis: int


def read_mask(node: Any, key: Any) -> MaskKey | None:
    """Reads an index with a mask; None for one without.

    Raises:
        GraphError: There is another array or mask beside it.
        ShapeError: There are too many items.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    masks = [i for i, item in enumerate(items) if _is_mask(item)]
    if not masks:
        return None
    if len(masks) > 1 or any(_is_many(item) and not _is_mask(item) for item in items):
        raise _not_an_index(
            node, key, "one mask, without other arrays", "index one axis after the other"
        )
    at = masks[0]
    mask = items[at] if _is_node(items[at]) else np.asarray(items[at])
    items[at : at + 1] = [slice(None)] * len(mask.shape)
    # Without an ellipsis before the mask the items before it are enough.
    dots = any(item is Ellipsis for item in items[:at])
    before = _whole(node, tuple(items) if dots else (*items[:at], Ellipsis))
    at += len(before) - len(items) if dots else 0
    axis = sum(item is None or isinstance(item, slice) for item in before[:at])
    return MaskKey(tuple(items), mask, axis)


def _is_mask(item: Any) -> bool:
    """Returns whether an item is a mask of one axis or more."""
    if _is_node(item):
        return item.dtype is DType.BOOL and len(item.shape) > 0
    if isinstance(item, np.ndarray):
        return item.dtype == bool and item.ndim > 0
    return (
        isinstance(item, list) and bool(item) and all(isinstance(i, bool | np.bool_) for i in item)
    )


def _cut(item: Any, dim: int) -> tuple[int, int, int] | None:
    """Start, stop and step of a slice; None for the whole axis."""
    step = 1 if item.step is None else operator.index(item.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    last = (0, dim) if step > 0 else (dim - 1, -dim - 1)
    start, stop = (
        default if given is None else as_size(given)
        for given, default in zip((item.start, item.stop), last, strict=True)
    )
    whole = item.stop is None or same_size(stop, dim)
    return None if whole and step == 1 and same_size(start, 0) else (start, stop, step)


def pick(node: Any, axis: int, index: Any) -> Any:
    """The entries of an axis that an array or a node of integers picks."""
    picked = index if _is_node(index) else node.graph.constant(index)
    return node.graph.gather(node, picked, axis)


def pick_true(node: Any, mask: Any, axis: int) -> Any:
    """The entries of the axes from ``axis`` on, as many as a mask has, for which it is true.

    Raises:
        ShapeError: The mask has another shape than these axes.
    """
    graph, stop = node.graph, axis + len(mask.shape)
    inner = node.shape[axis:stop]
    if inner != tuple(mask.shape):
        raise ShapeError(
            "a mask of another shape", where=node.where(), got=mask.shape, expected=inner
        )
    mask = mask if _is_node(mask) else graph.constant(mask)
    count = math.prod(inner)
    flat = graph.reshape(node, (*node.shape[:axis], count, *node.shape[stop:]))
    return graph.compress(graph.reshape(mask, (count,)), flat, axis)


def _is_node(item: Any) -> bool:
    return hasattr(item, "graph")


def _is_many(item: Any) -> bool:
    """Returns whether an item selects several entries, or an entry that is known only when the graph runs."""
    if isinstance(item, np.ndarray):
        return item.ndim > 0 or item.dtype == bool
    return _is_node(item) or isinstance(item, (list, tuple, bool, np.bool_))


def _apart(items: list[Any]) -> bool:
    """Returns whether a slice separates integers from an array: NumPy then moves the array's axes to the front."""
    kinds = "".join("s" if item is None or isinstance(item, slice) else "i" for item in items)
    return "i" in kinds.strip("s").replace("i", "", 1) and "s" in kinds.strip("s")


def _whole(node: Any, key: Any) -> list[Any]:
    """The items of a key, with a slice for every axis that it does not name."""
    items = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    taken = sum(item is not None for item in items) - len(dots)
    if len(dots) > 1 or taken > len(node.shape):
        raise ShapeError("too many indices", where=node.where(), got=f"{key!r:.120}")
    index = dots[0] if dots else len(items)
    items[index : index + 1] = [slice(None)] * (len(node.shape) - taken)
    return items


def _integers(node: Any, item: Any, dim: int) -> Any:
    """An array or a node of integers; an array's are checked, and count from the front.

    Raises:
        GraphError: It holds truth values, or no whole numbers.
        ShapeError: An index is out of range.
    """
    if _is_node(item):
        kind = "b" if item.dtype is DType.BOOL else "i" if item.dtype.is_integer else "f"
    else:
        result = np.asarray(item)
        kind = result.dtype.kind if result.size or result.dtype.kind == "b" else "i"
    if kind == "b":
        raise _not_an_index(
            node,
            item,
            "integers, or a mask of one axis or more",
            "g.where(mask, x, 0.0) keeps the shape",
        )
    if kind not in "iu":
        raise _not_an_index(node, item, "integers", "add g.cast(index, 'i32') for a node")
    if _is_node(item):
        return item
    result = result.astype(np.int64)
    if result.size and not (-dim <= result.min() and result.max() < dim):
        raise ShapeError(
            "index out of range", where=node.where(), got=f"{item!r:.80}", expected=f"size {dim}"
        )
    return result % max(dim, 1)


def _index(node: Any, item: Any, dim: int) -> int:
    try:
        index = as_size(item)
    except TypeError:
        raise _not_an_index(
            node,
            item,
            "integers, slices, ..., None, or an array or node of integers",
            "g.gather(x, indices, axis) picks entries of an axis",
        ) from None
    if not -dim <= index < dim:
        raise ShapeError(
            "index out of range", where=node.where(), got=index, expected=f"size {dim}"
        )
    return index if index >= 0 else index + dim


def _not_an_index(node: Any, got: Any, expected: str, hint: str) -> GraphError:
    return GraphError(
        "not an index", where=node.where(), got=f"{got!r:.80}", expected=expected, hint=hint
    )

"""Tables of trees as kernels walk them, made of the attributes of ``tree_scores``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.abi.constants import TREE_GROUP
from rlx.ir.opdef import Array
from rlx.sizes import pinned

# The comparison of a feature with its split: at most, below, or equal. With the last one added NaN
# answers yes, otherwise no.
LE, LT, EQ, OR_NAN = 0, 1, 2, 4
# The same as the bits that the C kernel reads, where LE and LT are one question.
_EQUAL, _MISSING = 1, 2


def depths(attrs: Mapping[str, Any]) -> Array:
    """Splits on the longest way down each tree, ``[trees]`` of i64."""
    children, splits = attrs["children"].tolist(), np.flatnonzero(attrs["features"] >= 0)
    deep = [0] * len(children)
    # Nodes follow their split, so that those that follow are known when a split is reached.
    for i in reversed(splits.tolist()):
        yes = children[i]
        deep[i] = 1 + max(deep[yes], deep[yes + 1])
    return np.array(deep, np.int64)[attrs["roots"]]


def groups(attrs: Mapping[str, Any]) -> Array:
    """The roots of trees that are walked side by side: those that are alike in depth.

    Returns:
        ``[groups, TREE_GROUP]`` of i32. A place without a tree has the node behind the last one, which ``records`` makes
        a leaf that holds nothing.
    """
    order = np.argsort(-depths(attrs), kind="stable")
    count = max(1, -(-order.size // TREE_GROUP))
    roots = np.full((count, TREE_GROUP), attrs["features"].size, np.int32)
    roots.flat[: order.size] = attrs["roots"][order]
    return roots


def records(attrs: Mapping[str, Any], columns: int, dtype: Any) -> tuple[Array, Array | None, bool]:
    """A record for each node, and an empty leaf behind them: ``tree_node`` of the C kernel as words of i32.

    A step goes to the node ``next``, and one further where the feature is not at most the split. A leaf leads to itself,
    since nothing is at most NaN. Where NaN answers yes, the feature is that of a second copy of the row, in which -inf
    stands for NaN.

    Args:
        attrs: The attributes.
        columns: The features of a row.
        dtype: That of x.

    Returns:
        The records; bits for each of them, i32, where some nodes ask something else than whether the feature is at most
        the split; whether rows need their second copy.
    """
    count = attrs["features"].size
    leaf = np.append(attrs["features"] < 0, True)
    questions = np.where(leaf, LE, np.append(attrs["questions"], LE))
    split = np.where(leaf, np.nan, np.append(attrs["splits"], 0)).astype(dtype)
    # A number is below the split if it is at most the number before the split; none is before -inf.
    lower = np.where(split == -np.inf, np.nan, np.nextafter(split, dtype.type(-np.inf)))
    split = np.where(questions % OR_NAN == LT, lower, split)
    equal, missing = questions % OR_NAN == EQ, questions >= OR_NAN
    # -inf is at most every split but NaN.
    copied = missing & ~equal & ~np.isnan(split)
    result = np.zeros(count + 1, [("split", dtype), ("feature", np.int32), ("next", np.int32)])
    result["split"] = split
    result["feature"] = (
        np.where(leaf, 0, np.append(attrs["features"], 0)) + pinned(columns) * copied
    )
    result["next"] = np.where(leaf, np.arange(-1, count), np.append(attrs["children"], 0))
    bits = (_EQUAL * equal + _MISSING * (missing & ~copied)).astype(np.int32)
    return result.view(np.int32), bits if bits.any() else None, bool(copied.any())


def spans(attrs: Mapping[str, Any]) -> tuple[Array | None, Array, Array]:
    """Builds the position of each node's entries, and the entries: of splits and of the empty leaf there are none.

    Returns:
        The first entry of each node and the one behind its last, ``[nodes + 1, 2]`` of i32: None where every leaf has
        one entry, and each node then the entry of its own number. The targets of the entries, and their weights, with
        one more entry at the end, which changes no total.
    """
    starts, targets, weights = attrs["starts"], attrs["targets"], attrs["weights"]
    leaf = attrs["features"] < 0
    number = np.where(leaf, attrs["children"], 0)
    nothing = 0.0 if attrs["join"] == "sum" else np.nan
    targets, weights = np.append(targets, np.int32(0)), np.append(weights, nothing)
    if (np.diff(starts) == 1).all():
        number = np.append(np.where(leaf, number, -1), -1)
        return None, targets[number], weights[number]
    both = np.zeros((leaf.size + 1, 2), np.int32)
    both[:-1][leaf] = np.stack([starts[:-1], starts[1:]], 1)[number[leaf]]
    return both, targets, weights

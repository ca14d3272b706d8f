"""Trees as tables of nodes, read from both forms that ONNX has for them, and as a node of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.values import Array, RefusedError
from rlx.ir.graph import Graph, Node
from rlx.ops.rows.tree_tables import EQ, LE, LT, OR_NAN
from rlx.resource_limits import charge

NAMES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER",
)  # fmt: skip
# Each comparison of the file as a question, and whether its answer is turned round.
ASKED = {
    "BRANCH_LEQ": (LE, False),
    "BRANCH_LT": (LT, False),
    "BRANCH_GTE": (LT, True),
    "BRANCH_GT": (LE, True),
    "BRANCH_EQ": (EQ, False),
    "BRANCH_NEQ": (EQ, True),
}
LEAF = "LEAF"


@dataclass(frozen=True)
class Forest:
    """Trees as tables with a row for each node.

    Attributes:
        roots: The node where each tree begins.
        modes: The comparison of a node, an index of ``NAMES``; -1 for a leaf.
        features: The feature that a node looks at.
        splits: The threshold of each node.
        missing: Whether NaN goes the way of a comparison that holds.
        yes: The node that follows where the comparison holds; of a leaf the leaf itself.
        no: The one where it does not.
        weights: The value of each leaf for each target, ``[nodes, targets]``.
        given: Whether they hold anything for it.
        order: The splits that a row can come to, each behind those that lead to it.
    """

    roots: Array
    modes: Array
    features: Array
    splits: Array
    missing: Array
    yes: Array
    no: Array
    weights: Array
    given: Array
    order: Array


def _order(call: OnnxCall, roots: Array, yes: Array, no: Array, leaf: Array) -> Array:
    """The splits that can be reached, each behind all that lead to it.

    Raises:
        ImportModelError: A way leads back.
    """
    met = np.zeros(leaf.size, bool)
    level = np.unique(roots)
    while level.size:
        charge("the levels of trees", elements=level.size)
        met[level] = True
        level = level[~leaf[level]]
        level = np.unique(np.concatenate([yes[level], no[level]]))
        level = level[~met[level]]
    splits = np.flatnonzero(met & ~leaf)
    # Ways that still lead to a node from splits that are not in order yet.
    left = np.bincount(np.concatenate([yes[splits], no[splits]]), minlength=leaf.size)
    result, level = [splits[:0]], splits[left[splits] == 0]
    while level.size:
        charge("the levels of trees", elements=level.size)
        result.append(level)
        following = np.concatenate([yes[level], no[level]])
        np.subtract.at(left, following, 1)
        level = np.unique(following)
        level = level[(left[level] == 0) & ~leaf[level]]
    order = np.concatenate(result)
    call.need(order.size == splits.size, "a tree in which a way leads back")
    return order


def _numbers(call: OnnxCall, name: str, tensor: str) -> Array:
    """An attribute of floats, which may be a tensor of another type instead."""
    stored = call.tensor(tensor)
    if stored is not None and stored.array is not None:
        return stored.array.ravel()
    return np.array(call.float_list(name, ()), np.float32)


def _ints(call: OnnxCall, name: str, count: int | None = None) -> Array:
    result = np.array(call.int_list(name, ()), np.int64)
    call.need(count in (None, result.size), f"{result.size} {name}, not {count}")
    return result


def from_nodes(call: OnnxCall, prefix: str, targets: int) -> Forest:
    """The trees of a node of versions 1 to 3: splits and leaves in one list, each tree numbered by itself.

    ``prefix`` is how the attributes of what leaves hold begin: "target" or "class".

    Raises:
        ImportModelError: The lists do not fit each other.
    """
    call.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees = _ints(call, "nodes_treeids")
    count = trees.size
    call.need(count > 0, "an ensemble without trees")
    charge("reading trees", elements=count * (8 + targets))
    ids = _ints(call, "nodes_nodeids", count)
    features = _ints(call, "nodes_featureids", count)
    splits = _numbers(call, "nodes_values", "nodes_values_as_tensor")
    names = call.text_list("nodes_modes", ())
    call.need(len(names) == splits.size == count, f"{len(names)} modes, {splits.size} splits")
    known = (*ASKED, LEAF)
    for name in set(names):
        call.need(name in known, f"a node of mode {name!r}; there are {', '.join(known)}")
    modes = np.array([-1 if name == LEAF else NAMES.index(name) for name in names])
    missing = np.array(call.int_list("nodes_missing_value_tracks_true", ()) or (0,) * count)
    call.need(missing.size == count, f"{missing.size} nodes_missing_value_tracks_true")
    place = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    call.need(len(place) == count, "two nodes of a tree with one number")
    leaf, own = modes < 0, np.arange(count)

    def following(name: str) -> Array:
        wanted = _ints(call, name, count)
        pairs = zip(trees.tolist(), wanted.tolist(), strict=True)
        result = np.array([place.get(pair, -1) for pair in pairs], np.int64)
        call.need(bool((result[~leaf] >= 0).all()), f"{name} that name no node of their tree")
        return np.where(leaf, own, result)

    yes, no = following("nodes_truenodeids"), following("nodes_falsenodeids")
    # A tree begins with its first node.
    _, roots = np.unique(trees, return_index=True)
    weights = np.zeros((count, targets))
    args = np.zeros((count, targets), bool)
    values = _numbers(call, f"{prefix}_weights", f"{prefix}_weights_as_tensor")
    holders = zip(
        _ints(call, f"{prefix}_treeids", values.size).tolist(),
        _ints(call, f"{prefix}_nodeids", values.size).tolist(),
        strict=True,
    )
    pos = np.array([place.get(pair, -1) for pair in holders], np.int64)
    scored = _ints(call, f"{prefix}_ids", values.size)
    call.need(bool((pos >= 0).all()), f"{prefix}_nodeids that name no node of their tree")
    inside = bool(((scored >= 0) & (scored < targets)).all())
    call.need(inside, f"{prefix}_ids that are not below {targets}")
    np.add.at(weights, (pos, scored), values)
    args[pos, scored] = True
    order = _order(call, roots, yes, no, leaf)
    return Forest(
        np.sort(roots), modes, features, splits, missing != 0, yes, no, weights, args, order
    )


def from_splits(call: OnnxCall, targets: int) -> Forest:
    """The trees of version 5: splits lead to splits or to leaves, which stand in lists of their own.

    Raises:
        ImportModelError: The lists do not fit each other.
    """
    call.ignore("nodes_hitrates")
    stored = {name: call.tensor(name) for name in ("nodes_splits", "nodes_modes", "leaf_weights")}
    arrays = {}
    for name, value in stored.items():
        call.need(value is not None and value.array is not None, f"attribute {name!r} is missing")
        assert value is not None
        assert value.array is not None
        arrays[name] = value.array.ravel()
    weights, modes = arrays["leaf_weights"], arrays["nodes_modes"].astype(np.int64)
    count, leaves = modes.size, weights.size
    call.need(count > 0 and leaves > 0, "an ensemble without splits or leaves")
    call.need(arrays["nodes_splits"].size == count, f"{arrays['nodes_splits'].size} nodes_splits")
    call.need(bool((modes < len(NAMES)).all()), f"nodes_modes from {len(NAMES)} on")
    members = call.tensor("membership_values")
    sets = _sets(np.zeros(0) if members is None or members.array is None else members.array)
    total = count + sum(len(item) - 1 for item in sets)
    charge("reading trees", elements=(total + leaves) * (8 + targets))
    missing = np.array(call.int_list("nodes_missing_value_tracks_true", ()) or (0,) * count)
    call.need(missing.size == count, f"{missing.size} nodes_missing_value_tracks_true")
    sides = []
    for side in ("true", "false"):
        ids = _ints(call, f"nodes_{side}nodeids", count)
        at_leaf = _ints(call, f"nodes_{side}leafs", count) != 0
        bound = np.where(at_leaf, leaves, count)
        call.need(bool(((ids >= 0) & (ids < bound)).all()), f"nodes_{side}nodeids out of range")
        sides.append(np.where(at_leaf, total + ids, ids))
    roots, scored = _ints(call, "tree_roots"), _ints(call, "leaf_targetids", leaves)
    call.need(roots.size > 0 and bool(((roots >= 0) & (roots < count)).all()), "tree_roots")
    call.need(bool(((scored >= 0) & (scored < targets)).all()), "leaf_targetids out of range")
    features = _ints(call, "nodes_featureids", count)
    columns = [modes, features, arrays["nodes_splits"], missing != 0, *sides]
    modes, features, splits, tracked, yes, no = _with_members(call, columns, sets)
    own, fill = np.arange(total, total + leaves), np.zeros(leaves, np.int64)
    modes, features = np.concatenate([modes, fill - 1]), np.concatenate([features, fill])
    splits = np.concatenate([splits, fill.astype(splits.dtype)])
    tracked = np.concatenate([tracked, fill != 0])
    yes, no = np.concatenate([yes, own]), np.concatenate([no, own])
    held_weights = np.zeros((total + leaves, targets))
    args = np.zeros((total + leaves, targets), bool)
    held_weights[own, scored], args[own, scored] = weights, True
    order = _order(call, roots, yes, no, modes < 0)
    return Forest(roots, modes, features, splits, tracked, yes, no, held_weights, args, order)


def _sets(values: Array) -> list[list[float]]:
    """Sets of numbers that stand one behind the other with NaN between them."""
    parts = np.split(values.ravel(), np.flatnonzero(np.isnan(values)))
    return [item for part in parts if (item := part[~np.isnan(part)].tolist())]


def _with_members(call: OnnxCall, columns: list[Array], sets: list[list[float]]) -> list[Array]:
    """Splits that ask for several numbers become one for each number; ``sets`` are the numbers, in order."""
    modes = columns[0]
    asked = np.flatnonzero(modes == NAMES.index("BRANCH_MEMBER"))
    call.need(len(sets) == asked.size, f"{len(sets)} sets of members for {asked.size} splits")
    free, extra = modes.size, sum(len(item) - 1 for item in sets)
    wide = [np.concatenate([column, np.zeros(extra, column.dtype)]) for column in columns]
    modes, _, splits, _, _, no = wide
    for node, numbers in zip(asked.tolist(), sets, strict=True):
        modes[node], otherwise, last = NAMES.index("BRANCH_EQ"), no[node], node
        splits[node] = numbers[0]
        for number in numbers[1:]:
            no[last] = free
            for column in wide:
                column[free] = column[node]
            splits[free] = number
            last, free = free, free + 1
        no[last] = otherwise
    return wide


def scores(g: Graph, x: Node, forest: Forest, aggregate: str) -> Node:
    """Sums the leaves of all trees for each row, ``[N, F]`` to ``[N, targets]``, or joins them as ``aggregate`` says.

    Raises:
        RefusedError: A tree looks at a feature that there is not.
    """
    used = forest.features[forest.order]
    if used.size and (used.min() < 0 or used.max() >= x.shape[1]):
        raise RefusedError(f"feature {used.max()} of {x.shape[1]}")
    attrs = {**_nodes(forest, x.dtype.numpy), **_entries(forest)}
    join = "sum" if aggregate == "AVERAGE" else aggregate.lower()
    y = g.add_node("tree_scores", [x], {**attrs, "join": join})
    return g.mul(y, 1 / len(forest.roots)) if aggregate == "AVERAGE" else y


def _nodes(forest: Forest, kind: Any) -> dict[str, Array]:
    """The nodes as ``tree_scores`` takes them: the roots, then for each split the two nodes that follow it."""
    order, trees = forest.order, len(forest.roots)
    asked = [ASKED[NAMES[mode]] if mode >= 0 else (LE, False) for mode in range(-1, len(ASKED))]
    question, turned = (np.array(column)[forest.modes + 1] for column in zip(*asked, strict=True))
    # NaN equals nothing, so that it always goes the way of a split that asks for another number.
    tracked = np.where(question == EQ, forest.missing & ~turned, forest.missing != turned)
    question = question + OR_NAN * tracked
    first = np.where(turned, forest.no, forest.yes)
    second = np.where(turned, forest.yes, forest.no)
    pair = np.zeros(forest.modes.size, np.int64)
    pair[order] = trees + 2 * np.arange(order.size)
    leaf = forest.modes < 0
    pair[leaf] = np.arange(np.count_nonzero(leaf))
    pos = np.concatenate([forest.roots, np.stack([first[order], second[order]], 1).ravel()])
    with np.errstate(over="ignore"):
        splits = forest.splits.astype(kind).astype(np.float64)
    return {
        "features": np.where(leaf, -1, forest.features)[pos].astype(np.int32),
        "splits": np.where(leaf, 0.0, splits)[pos],
        "questions": np.where(leaf, 0, question)[pos].astype(np.uint8),
        "children": pair[pos].astype(np.int32),
        "roots": np.arange(trees, dtype=np.int32),
    }


def _entries(forest: Forest) -> dict[str, Any]:
    """Returns the entries of each leaf in the form of ``tree_scores``."""
    leaf = forest.modes < 0
    args, weights = forest.given[leaf], forest.weights[leaf]
    starts = np.concatenate([[0], np.cumsum(args.sum(1))])
    return {
        "starts": starts.astype(np.int32),
        "targets": np.nonzero(args)[1].astype(np.int32),
        "weights": weights[args].astype(np.float64),
        "count": weights.shape[1],
    }

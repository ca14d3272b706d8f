"""Trees as tables of nodes, read from both forms that ONNX has for them, and how rows go down in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.budget import spend
from rlx.importers.onnx.call import Call
from rlx.importers.onnx.values import Array, RefusedError
from rlx.ir.graph import Graph, Node

NAMES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER",
)  # fmt: skip
# What is asked at a split. NaN is below and equal to nothing, so it answers no but to the last question.
QUESTIONS: tuple[Callable[[Graph, Node, Node], Any], ...] = (
    lambda g, x, split: g.le(x, split),
    lambda g, x, split: g.lt(x, split),
    lambda g, x, split: g.eq(x, split),
    lambda g, x, split: g.logical_or(g.eq(x, split), g.is_nan(x)),
)
LE, LT, EQ, EQ_OR_NAN = range(4)
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
# Nodes of a graph that one level of splits takes, about.
NODES_OF_A_LEVEL = 12
# Stands for what no leaf gave, where the least or the largest is taken.
NOTHING = 3.0e38


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees as tables with a row for each node.

    Attributes:
        roots: The node where each tree begins.
        modes: What a node compares by, a place in ``NAMES``; -1 for a leaf.
        features: The feature that a node looks at.
        splits: What it compares that with.
        missing: Whether NaN goes the way of a comparison that holds.
        yes: The node that follows where the comparison holds; of a leaf the leaf itself.
        no: The one where it does not.
        weights: What leaves hold for each target, ``[nodes, targets]``.
        given: Whether they hold anything for it.
        depth: Splits on the longest way.
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
    depth: int


def _depth(call: Call, roots: Array, yes: Array, no: Array, leaf: Array) -> int:
    """Splits on the longest way down.

    Raises:
        ImportModelError: A way leads back.
    """
    level, depth = np.unique(roots), 0
    while True:
        level = level[~leaf[level]]
        if not level.size:
            return depth
        depth += 1
        spend("the levels of trees", nodes=NODES_OF_A_LEVEL)
        call.need(depth <= leaf.size, "a tree in which a way leads back")
        level = np.unique(np.concatenate([yes[level], no[level]]))


def _numbers(call: Call, name: str, tensor: str) -> Array:
    """An attribute of floats, which may be a tensor of another type instead."""
    held = call.tensor(tensor)
    if held is not None and held.array is not None:
        return held.array.ravel()
    return np.array(call.float_list(name, ()), np.float32)


def _ints(call: Call, name: str, count: int | None = None) -> Array:
    found = np.array(call.int_list(name, ()), np.int64)
    call.need(count in (None, found.size), f"{found.size} {name}, not {count}")
    return found


def from_nodes(call: Call, prefix: str, targets: int) -> Forest:
    """The trees of a node of versions 1 to 3: splits and leaves in one list, each tree numbered by itself.

    Args:
        call: The node.
        prefix: How the attributes of what leaves hold begin: "target" or "class".
        targets: How many scores there are.

    Raises:
        ImportModelError: The lists do not fit each other.
    """
    call.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    trees = _ints(call, "nodes_treeids")
    count = trees.size
    call.need(count > 0, "an ensemble without trees")
    spend("reading trees", elements=count * (8 + targets))
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
    place = {key: at for at, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    call.need(len(place) == count, "two nodes of a tree with one number")
    leaf, own = modes < 0, np.arange(count)

    def following(name: str) -> Array:
        wanted = _ints(call, name, count)
        pairs = zip(trees.tolist(), wanted.tolist(), strict=True)
        found = np.array([place.get(pair, -1) for pair in pairs], np.int64)
        call.need(bool((found[~leaf] >= 0).all()), f"{name} that name no node of their tree")
        return np.where(leaf, own, found)

    yes, no = following("nodes_truenodeids"), following("nodes_falsenodeids")
    # A tree begins with its first node.
    _, roots = np.unique(trees, return_index=True)
    weights = np.zeros((count, targets))
    given = np.zeros((count, targets), bool)
    values = _numbers(call, f"{prefix}_weights", f"{prefix}_weights_as_tensor")
    holders = zip(
        _ints(call, f"{prefix}_treeids", values.size).tolist(),
        _ints(call, f"{prefix}_nodeids", values.size).tolist(),
        strict=True,
    )
    at = np.array([place.get(pair, -1) for pair in holders], np.int64)
    scored = _ints(call, f"{prefix}_ids", values.size)
    call.need(bool((at >= 0).all()), f"{prefix}_nodeids that name no node of their tree")
    inside = bool(((scored >= 0) & (scored < targets)).all())
    call.need(inside, f"{prefix}_ids that are not below {targets}")
    np.add.at(weights, (at, scored), values)
    given[at, scored] = True
    depth = _depth(call, roots, yes, no, leaf)
    return Forest(
        np.sort(roots), modes, features, splits, missing != 0, yes, no, weights, given, depth
    )


def from_splits(call: Call, targets: int) -> Forest:
    """The trees of version 5: splits lead to splits or to leaves, which stand in lists of their own.

    Args:
        call: The node.
        targets: How many scores there are.

    Raises:
        ImportModelError: The lists do not fit each other.
    """
    call.ignore("nodes_hitrates")
    held = {name: call.tensor(name) for name in ("nodes_splits", "nodes_modes", "leaf_weights")}
    arrays = {}
    for name, value in held.items():
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
    total = count + sum(len(one) - 1 for one in sets)
    spend("reading trees", elements=(total + leaves) * (8 + targets))
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
    given = np.zeros((total + leaves, targets), bool)
    held_weights[own, scored], given[own, scored] = weights, True
    depth = _depth(call, roots, yes, no, modes < 0)
    return Forest(roots, modes, features, splits, tracked, yes, no, held_weights, given, depth)


def _sets(values: Array) -> list[list[float]]:
    """Sets of numbers that stand one behind the other with NaN between them."""
    sets: list[list[float]] = [[]]
    for value in values.ravel().tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    return [one for one in sets if one]


def _with_members(call: Call, columns: list[Array], sets: list[list[float]]) -> list[Array]:
    """Splits of which each asks for one number, where one could ask for several.

    Args:
        call: The node.
        columns: Modes, features, splits, whether NaN holds, and both ways: an entry for each split.
        sets: The numbers of the splits that ask for several, in order.

    Returns:
        The columns, with splits behind those of the file that ask for one more number each.
    """
    modes = columns[0]
    asked = np.flatnonzero(modes == NAMES.index("BRANCH_MEMBER"))
    call.need(len(sets) == asked.size, f"{len(sets)} sets of members for {asked.size} splits")
    free, extra = modes.size, sum(len(one) - 1 for one in sets)
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
    """What the leaves of all trees hold for each row.

    Args:
        g: The graph.
        x: Rows of features, ``[N, F]``.
        forest: The trees.
        aggregate: How they are joined: "SUM", "AVERAGE", "MIN" or "MAX".

    Returns:
        ``[N, targets]``.

    Raises:
        RefusedError: A tree looks at a feature that there is not.
    """
    used = forest.features[forest.modes >= 0]
    if used.size and (used.min() < 0 or used.max() >= x.shape[1]):
        raise RefusedError(f"feature {used.max()} of {x.shape[1]}")
    n, count, targets = x.shape[0], len(forest.roots), forest.weights.shape[1]
    leaf = _descended(g, x, forest)
    kind = x.dtype.numpy

    def held(table: Array) -> Node:
        if targets > 1:
            rows: Node = g.gather(g.constant(table.astype(kind)), leaf, 0)
        else:
            rows = g.gather_elements(g.constant(table.astype(kind).ravel()), leaf, 0)
        found: Node = g.reshape(rows, (n, count, targets))
        return found

    if aggregate in ("SUM", "AVERAGE"):
        total: Node = g.sum(held(forest.weights), (1,))
        return total if aggregate == "SUM" else g.mul(total, 1 / count)
    none = NOTHING if aggregate == "MIN" else -NOTHING
    each = held(np.where(forest.given, forest.weights, none))
    best = g.min(each, (1,)) if aggregate == "MIN" else g.max(each, (1,))
    found: Node = g.where(g.eq(best, none), g.constant(0.0, x.dtype), best)
    return found


def _descended(g: Graph, x: Node, forest: Forest) -> Node:
    """The leaf that each row comes to in each tree, ``[N * trees]``."""
    n, trees, features = x.shape[0], len(forest.roots), forest.features
    split = forest.modes >= 0
    asked = [ASKED[NAMES[mode]] if mode >= 0 else (LE, False) for mode in forest.modes.tolist()]
    question, turned = (np.array(column) for column in zip(*asked, strict=True))
    question[(question == EQ) & forest.missing & ~turned] = EQ_OR_NAN
    first = np.where(turned, forest.no, forest.yes)
    second = np.where(turned, forest.yes, forest.no)
    # Where NaN has to answer yes to an order, the split looks at a copy of its feature that is far below.
    low = split & (question <= LT) & (forest.missing != turned)
    if low.any():
        x = g.concat([x, g.where(g.is_nan(x), g.constant(-np.inf, x.dtype), x)], 1)
        features = features + np.where(low, x.shape[1] // 2, 0)

    def looked_up(values: Array, at: Node, kind: Any = np.int32) -> Node:
        found: Node = g.gather_elements(g.constant(values.astype(kind)), at, 0)
        return found

    present = sorted(set(question[split].tolist()))
    at = g.reshape(g.expand(g.constant(forest.roots.astype(np.int32)), (n, trees)), (n * trees,))
    for _ in range(forest.depth):
        columns = g.reshape(looked_up(features, at), (n, trees))
        value = g.reshape(g.gather_elements(x, columns, 1), (n * trees,))
        limit = looked_up(forest.splits, at, x.dtype.numpy)
        answer = QUESTIONS[present[0]](g, value, limit)
        if len(present) > 1:
            which = looked_up(question, at)
            for number in present[1:]:
                here = g.eq(which, g.constant(np.int32(number)))
                answer = g.where(here, QUESTIONS[number](g, value, limit), answer)
        place = g.add(g.mul(at, 2), g.cast(g.logical_not(answer), "i32"))
        at = looked_up(np.stack([first, second], 1).ravel(), place)
    leaf: Node = at
    return leaf

"""Ensembles of decision trees: the ``tree_scores`` record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import InputError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.rows.tree_tables import EQ, LE, LT, OR_NAN, depths, groups, records, spans

# How scores are joined: what the next one does to a table of scores at some places, and where nothing is joined yet.
JOINS: Mapping[str, tuple[Callable[..., None], float]] = {
    "sum": (np.add.at, 0.0),
    "min": (np.fmin.at, math.nan),
    "max": (np.fmax.at, math.nan),
}
# The cost of one step down a tree, in floating-point operations.
_STEP_FLOPS = 8.0
_WORKGROUP = 64
_DTYPES = {
    "features": np.int32, "splits": np.float64, "questions": np.uint8, "children": np.int32,
    "roots": np.int32, "starts": np.int32, "targets": np.int32, "weights": np.float64,
}  # fmt: skip


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    x = types[0]
    if len(x.shape) != 2:
        raise ShapeError("[tree_scores] x", got=x.shape, expected="[N, F]")
    for name, dtype in _DTYPES.items():
        stored = attrs[name]
        if not isinstance(stored, np.ndarray) or stored.ndim != 1 or stored.dtype != dtype:
            got = getattr(stored, "dtype", type(stored).__name__)
            raise _wrong(name, got, f"an array of one axis of {np.dtype(dtype)}")
    if attrs["join"] not in JOINS:
        raise _wrong("join", attrs["join"], ", ".join(JOINS))
    if attrs["count"] < 1:
        raise _wrong("count", attrs["count"], "at least 1")
    _check_ways(x, attrs)
    _check_entries(attrs)
    return TensorType((x.shape[0], attrs["count"]), x.dtype)


def _wrong(name: str, got: Any, expected: str) -> InputError:
    return InputError(f"[tree_scores] {name}", got=got, expected=expected)


def _check_ways(x: TensorType, attrs: Mapping[str, Any]) -> None:
    """Refuses trees in which a way leads back, out of the tables, or to a feature that there is not."""
    features, children, roots = attrs["features"], attrs["children"], attrs["roots"]
    nodes, leaves = features.size, attrs["starts"].size - 1
    for name in ("splits", "questions", "children"):
        if attrs[name].size != nodes:
            raise _wrong(name, attrs[name].size, f"{nodes} entries, as features")
    split = features >= 0
    if nodes and not -1 <= features.min() <= features.max() < x.shape[1]:
        raise _wrong("features", features.max(), f"below the {x.shape[1]} of x, and -1 for leaves")
    if not ((roots >= 0) & (roots < nodes)).all():
        raise _wrong("roots", roots, f"below {nodes}")
    down = (children > np.arange(nodes)) & (children < nodes - 1)
    leaf = (children >= 0) & (children < leaves)
    if not np.where(split, down, leaf).all():
        raise _wrong("children", "others", "pairs of nodes behind each split, and a leaf's number")
    if not (attrs["questions"] <= EQ + OR_NAN).all() or (attrs["questions"] % OR_NAN > EQ).any():
        raise _wrong("questions", attrs["questions"].max(), "0, 1 or 2, and 4 more for NaN")
    splits = attrs["splits"]
    with np.errstate(over="ignore"):
        exact = x.dtype is DType.F64 or np.array_equal(
            splits.astype(np.float32), splits, equal_nan=True
        )
    if not exact:
        raise _wrong("splits", "numbers of f64", f"numbers of f32, as x is {x.dtype}")


def _check_entries(attrs: Mapping[str, Any]) -> None:
    """Refuses lists of leaf values that do not fit each other."""
    starts, targets, size = attrs["starts"], attrs["targets"], attrs["weights"].size
    if not starts.size or starts[0] != 0 or starts[-1] != size or (np.diff(starts) < 0).any():
        raise _wrong("starts", starts, f"numbers that rise from 0 to {size}")
    if targets.size != size:
        raise _wrong("targets", targets.size, f"{size} entries, as weights")
    if not ((targets >= 0) & (targets < attrs["count"])).all():
        raise _wrong("targets", targets.max(), f"below {attrs['count']}")


def _flops(node: Node) -> float:
    attrs = node.attrs
    rows, trees = node.inputs[0].shape[0], max(1, attrs["roots"].size)
    # The splits of a tree of that many nodes that has all of its leaves on one level, or two.
    steps = math.log2(1 + attrs["features"].size / trees)
    leaves = max(1, attrs["starts"].size - 1)
    return float(rows * trees * (_STEP_FLOPS * steps + 2 * attrs["weights"].size / leaves))


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    rows, features = node.inputs[0].shape
    attrs, dtype = node.attrs, np.dtype(node.dtype.numpy)
    nodes, questions, copied = records(attrs, features, dtype)
    entries, targets, weights = spans(attrs)
    tables = [nodes, groups(attrs), targets, weights.astype(dtype), entries, questions]
    emitter.call(
        "tree_scores",
        [
            emitter.operand(0),
            *(None if table is None else emitter.table(table) for table in tables),
        ],
        [emitter.result()],
        {
            "rows": rows,
            "features": features,
            "count": attrs["count"],
            "trees": attrs["roots"].size,
            "join": tuple(JOINS).index(attrs["join"]),
            "copied": int(copied),
        },
    )


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    (rows, features), attrs = node.inputs[0].shape, node.attrs
    trees, count, leaves = attrs["roots"].size, attrs["count"], attrs["starts"].size - 1
    split = attrs["splits"].astype(np.float32).view(np.int32)
    columns = (split, attrs["features"], attrs["children"], attrs["questions"])
    # A number for each leaf and target. The bits of NaN are where a leaf holds none.
    retained = np.full((max(leaves, 1), count), JOINS[attrs["join"]][1], np.float32)
    holder = np.repeat(np.arange(leaves), np.diff(attrs["starts"]))
    JOINS[attrs["join"]][0](retained, (holder, attrs["targets"]), attrs["weights"])
    result = emitter.temp(TensorType((rows, max(trees, 1)), DType.I32))
    params = {"rows": rows, "features": features, "trees": trees, "count": count}
    if trees:
        tables = [np.stack(columns, 1).astype(np.int32), attrs["roots"]]
        emitter.call(
            "tree_leaves",
            [emitter.operand(0), *(emitter.table(table) for table in tables)],
            [result],
            {**params, "depth": int(depths(attrs).max())},
            math.ceil(rows * trees / _WORKGROUP),
        )
    emitter.call(
        "tree_scores",
        [result, emitter.table(retained.view(np.uint32))],
        [emitter.result()],
        {**params, "join": attrs["join"]},
        rows * count,
    )


def _sample(seed: int, rows: int, features: int, trees: int, **more: Any) -> Sample:
    """Trees made at random, and rows of small whole numbers of which some are NaN."""
    rng = np.random.default_rng(seed)
    depth, count = more.get("depth", 3), more.get("count", 1)
    # Level by level: each node but those of the last level splits, or is a leaf already.
    kinds: list[Array] = []
    last = trees
    for level in range(depth + 1):
        kinds.append((rng.random(last) < (0 if level == depth else 0.8)) & (features > 0))
        last = 2 * int(kinds[-1].sum())
    split = np.concatenate(kinds)
    nodes = split.size
    children = np.where(split, trees + 2 * (np.cumsum(split) - 1), np.cumsum(~split) - 1)
    stored = rng.integers(more.get("least", 1), 1 + more.get("most", 1), int((~split).sum()))
    starts = np.concatenate([[0], np.cumsum(stored)])
    attrs = {
        "features": np.where(split, rng.integers(0, max(features, 1), nodes), -1),
        "splits": rng.integers(0, 4, nodes) - 1.0 + rng.choice([0, 0.5], nodes),
        "questions": rng.choice(more.get("asked", (LE,)), nodes),
        "children": children,
        "roots": rng.permutation(trees),
        "starts": starts,
        "targets": rng.integers(0, count, starts[-1]),
        "weights": rng.standard_normal(starts[-1]).astype(np.float32),
    }
    typed = {name: attrs[name].astype(dtype) for name, dtype in _DTYPES.items()}
    x = rng.integers(-1, 4, (rows, features)).astype(np.float32)
    x[rng.random(x.shape) < more.get("nan", 0.0)] = np.nan
    join = more.get("join", "sum")
    return Sample(
        ((rows, features),),
        {**typed, "count": count, "join": join},
        values=(x,),
        bench=more.get("bench", False),
    )


_ALL = tuple(item + nan for item in (LE, LT, EQ) for nan in (0, OR_NAN))


@op(
    infer=_infer,
    flops=_flops,
    cpu=Kernels(("tree_scores",), _lower_cpu),
    webgpu=Kernels(("tree_leaves", "tree_scores"), _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    internal=True,
    samples=lambda: (
        _sample(0, 1, 1, 1),
        _sample(1, 0, 3, 4),
        _sample(2, 5, 0, 3),
        _sample(3, 3, 2, 0),
        _sample(4, 9, 5, 17, depth=5),
        _sample(5, 70, 4, 9, depth=6, asked=(LE, LT), nan=0.2),
        _sample(6, 70, 4, 9, asked=(LE, LT, LE + OR_NAN, LT + OR_NAN), nan=0.1),
        _sample(7, 40, 6, 30, asked=_ALL, nan=0.1, count=3),
        _sample(8, 40, 6, 30, count=3, least=0, most=4),
        _sample(9, 6, 3, 11, join="min"),
        _sample(10, 33, 3, 5, asked=_ALL, nan=0.1, join="max", count=5, least=0, most=3),
        _sample(11, 2, 3, 200, depth=2, count=90, least=90, most=90),
        _sample(12, 200, 30, 100, depth=6, bench=True),
    ),
)
def tree_scores(  # noqa: PLR0913 - trees are eight tables
    x: Array,
    features: Any,
    splits: Any,
    questions: Any,
    children: Any,
    roots: Any,
    starts: Any,
    targets: Any,
    weights: Any,
    count: int,
    join: str = "sum",
) -> Array:
    """Sums, or otherwise joins, the scores of the leaves that a row reaches in every tree, for each target.

    A row begins at the root of a tree. At a split it goes on to the first of two nodes where the answer is yes, to
    the second where it is no, until it comes to a leaf.

    Args:
        x: Rows of features, ``[N, F]``.
        features: The feature that a node looks at, -1 for a leaf: an array of i32, an entry for each node.
        splits: f64, what it compares that with.
        questions: u8, what it asks: 0 whether the feature is at most the split, 1 whether it is below, 2 whether it
            is equal. With 4 added NaN answers yes, otherwise no.
        children: i32, the first of the two nodes that follow a split, a node behind the split; the other one follows
            it. Of a leaf its number among leaves.
        roots: i32, the node where each tree begins.
        starts: i32, where the entries of each leaf begin, and of the last one end.
        targets: i32, the target of each entry.
        weights: f64, the number that an entry adds to its target.
        count: How many targets there are.
        join: "sum", "min" or "max" of the numbers. The least and the largest leave NaN out, and are 0 without numbers.

    Returns:
        ``[N, count]``.
    """
    rows, trees = len(x), roots.size
    pos = np.tile(roots, rows)
    of = np.repeat(np.arange(rows), trees)
    while (walking := features[pos] >= 0).any():
        value, limit = (x[of, features[pos]] if x.size else np.zeros(pos.size), splits[pos])
        question = questions[pos] % OR_NAN
        answers = value <= limit, value < limit, value == limit
        yes = np.choose(question, answers)
        yes |= (questions[pos] >= OR_NAN) & np.isnan(value)
        pos = np.where(walking, children[pos] + ~yes, pos)
    leaf = children[pos]
    stored = starts[leaf + 1] - starts[leaf]
    # The entries of all leaves one after the other: each list begins where the lists before it end.
    inside = np.arange(stored.sum()) - np.repeat(np.cumsum(stored) - stored, stored)
    entry = np.repeat(starts[leaf], stored) + inside
    next_one, nothing = JOINS[join]
    y = np.full((rows, count), nothing)
    next_one(y, (np.repeat(of, stored), targets[entry]), weights[entry])
    return y if join == "sum" else np.nan_to_num(y, nan=0.0, posinf=np.inf, neginf=-np.inf)

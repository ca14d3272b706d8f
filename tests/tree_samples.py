"""Samples of ensembles of trees: made at random, of all modes, depths and ways to join what leaves hold."""

import numpy as np
from ml_samples import ML
from node_samples import NodeSample, normal, of
from onnx import numpy_helper

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
# Rows, features, trees, depth, targets.
SIZES = [(5, 3, 1, 1, 1), (9, 4, 3, 2, 1), (33, 6, 10, 5, 3), (1, 2, 5, 3, 2), (20, 8, 30, 7, 1)]
WHOLE = 4  # x are whole numbers then, so that equality happens


def grown(rng, depth, features, modes, index=0, nodes=None):
    """A tree as rows (feature, split, mode, yes, no); leaves have mode LEAF."""
    nodes = [] if nodes is None else nodes
    place = len(nodes)
    nodes.append(None)
    if depth == 0 or (index > 0 and rng.random() < 0.2):
        nodes[place] = (0, 0.0, "LEAF", 0, 0)
        return nodes
    mode = modes[rng.integers(len(modes))]
    split = (
        float(np.float32(rng.integers(0, WHOLE)))
        if "EQ" in mode
        else float(np.float32(rng.normal() + 1.5))
    )
    yes = len(nodes)
    grown(rng, depth - 1, features, modes, index + 1, nodes)
    no = len(nodes)
    grown(rng, depth - 1, features, modes, index + 1, nodes)
    nodes[place] = (int(rng.integers(features)), split, mode, yes, no)
    return nodes


def forest(rng, size, targets, modes, prefix, ids=None, positive=False):
    """The attributes of an ensemble in the form of versions 1 to 3."""
    features, trees, depth = size
    names = (
        "treeids nodeids featureids values modes truenodeids falsenodeids missing_value_tracks_true"
    )
    lists = {f"nodes_{name}": [] for name in names.split()}
    stored = {f"{prefix}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        for number, row in enumerate(grown(rng, depth, features, modes)):
            feature, split, mode, yes, no = row
            values = (tree, number, feature, split, mode, yes, no, int(rng.random() < 0.5))
            for name, value in zip(lists, values, strict=True):
                lists[name].append(value)
            if mode != "LEAF":
                continue
            for target in (
                ids if ids is not None else rng.permutation(targets)[: rng.integers(1, targets + 1)]
            ):
                weight = rng.random() / trees if positive else rng.normal()
                for name, value in zip(
                    stored, (tree, number, int(target), float(np.float32(weight))), strict=True
                ):
                    stored[name].append(value)
    return lists | stored


def rows(rng, n, c, index):
    x = normal(rng, n, c) + 1.5 if index % 2 else rng.integers(0, WHOLE, (n, c)).astype("f4")
    x[rng.random((n, c)) < 0.1] = np.nan
    return x


@of(ML, "TreeEnsembleRegressor")
def regressor(rng, index):
    n, c, trees, depth, targets = SIZES[index]
    modes = [MODES[:1], MODES[1:3], MODES, MODES[3:5], MODES[:2]][index]
    attrs = forest(rng, (c, trees, depth), targets, modes, "target")
    attrs |= {
        "n_targets": targets,
        "aggregate_function": ["SUM", "AVERAGE", "MIN", "MAX", "SUM"][index],
    }
    if index in (1, 3, 4):
        attrs["base_values"] = list(normal(rng, targets))
    if index == 2:
        attrs["post_transform"] = "SOFTMAX"
    return NodeSample([rows(rng, n, c, index)], attrs=attrs)


@of(ML, "TreeEnsembleClassifier")
def classifier(rng, index):
    n, c, trees, depth, _ = SIZES[index]
    labels, ids, positive, post = [
        ([3, 7], [0], True, "NONE"), ([3, 7], [0], False, "LOGISTIC"), ([4, 2, 9], None, True, "SOFTMAX"),
        ([5, 6], [1], True, "NONE"), ([0, 1, 2, 3], [0, 1, 2, 3], False, "SOFTMAX_ZERO"),
    ][index]  # fmt: skip
    modes = [MODES[:1], MODES[1:3], MODES[:1], MODES[3:5], MODES][index]
    attrs = forest(rng, (c, trees, depth), len(labels), modes, "class", ids, positive)
    attrs |= {"classlabels_int64s": labels, "post_transform": post}
    if index == 1:
        attrs["base_values"] = [0.25]
    if index == 4:
        attrs["base_values"] = list(normal(rng, 4))
    return NodeSample(
        [rows(rng, n, c, index).astype(["f4", "f4", "f8", "f4", "f4"][index])],
        outputs=2,
        attrs=attrs,
    )


def tensor(values, dtype):
    return numpy_helper.from_array(np.array(values, dtype))


@of(f"{ML}", "TreeEnsemble")
def ensemble(rng, index):
    """Version 5: the random trees of the other form, with the leaves taken out into a list of their own."""
    n, c, trees, depth, targets = SIZES[index]
    dtype = "f8" if index == 3 else "f4"
    modes = [MODES[:1], MODES[1:3], MODES, [*MODES, "MEMBER"], ["MEMBER"]][index]
    lists = {
        name: []
        for name in "featureids splits modes truenodeids falsenodeids trueleafs falseleafs".split()
    }
    weights, ids, roots, members, tracked = [], [], [], [], []
    for _ in range(trees):
        nodes = grown(rng, depth, c, modes)
        splits = [number for number, row in enumerate(nodes) if row[2] != "LEAF"]
        base, first = len(lists["modes"]), len(weights)
        leaves = [number for number, row in enumerate(nodes) if row[2] == "LEAF"]
        roots.append(base)
        for number in splits:
            feature, split, mode, yes, no = nodes[number]
            place = lambda to: first + leaves.index(to) if to in leaves else base + splits.index(to)  # noqa: B023, E731
            code = 6 if mode == "MEMBER" else MODES.index(mode)
            row = (
                feature,
                split,
                code,
                place(yes),
                place(no),
                int(yes in leaves),
                int(no in leaves),
            )
            for name, value in zip(lists, row, strict=True):
                lists[name].append(value)
            tracked.append(int(rng.random() < 0.5))
            if code == 6:
                members += [*rng.permutation(WHOLE)[: rng.integers(1, 4)].astype(float), np.nan]
        for _ in leaves:
            weights.append(rng.normal())
            ids.append(int(rng.integers(targets)))
    attrs = {f"nodes_{name}": values for name, values in lists.items()}
    attrs["nodes_splits"] = tensor(lists["splits"], dtype)
    attrs["nodes_modes"] = tensor(lists["modes"], "u1")
    attrs |= {"tree_roots": roots, "leaf_weights": tensor(weights, dtype), "leaf_targetids": ids}
    attrs |= {
        "n_targets": targets,
        "aggregate_function": [1, 0, 2, 3, 1][index],
        "post_transform": [0, 0, 3, 0, 0][index],
    }
    if members:
        attrs["membership_values"] = tensor(members, dtype)
    if index in (1, 2):
        attrs["nodes_missing_value_tracks_true"] = tracked
    return NodeSample([rows(rng, n, c, index if index < 3 else 0).astype(dtype)], attrs=attrs)

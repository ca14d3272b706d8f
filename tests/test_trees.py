"""The op ``tree_scores``: how rows go down trees, in which order weights are added, and which tables are refused."""

import numpy as np
import pytest

import rlx
from rlx.ops.rows.tree_tables import EQ, LE, LT, OR_NAN

pytestmark = pytest.mark.by_program

DTYPES = {
    "features": "i4", "splits": "f8", "questions": "u1", "children": "i4", "roots": "i4", "starts": "i4",
    "targets": "i4", "weights": "f8",
}  # fmt: skip


def tables(count=1, join="sum", **lists):
    return {name: np.array(lists[name], kind) for name, kind in DTYPES.items()} | {
        "count": count,
        "join": join,
    }


def stump(split, question=LE, **more):
    """One split on feature 0; yes gives 1, no gives 2."""
    inputs = {
        "features": [0, -1, -1], "splits": [split, 0, 0], "questions": [question, 0, 0], "children": [1, 0, 1],
        "roots": [0], "starts": [0, 1, 2], "targets": [0, 0], "weights": [1, 2],
    }  # fmt: skip
    return tables(**inputs | more)


def run(x, attrs, device="cpu", **options):
    g = rlx.Graph()
    g.set_outputs(
        [g.add_node("tree_scores", [g.input("x", x.shape, KINDS[x.dtype.str[1:]])], attrs)]
    )
    with rlx.compile(g, device=device, options=rlx.CompileOptions(**options)) as cg:
        return cg.run({"x": x})[0].copy()


KINDS = {"f4": "f32", "f8": "f64"}
TINY = {"f4": np.float32(1e-45), "f8": np.float64(5e-324)}
FLOATS = pytest.mark.parametrize("kind", ["f4", "f8"])
ASKED = {
    LE: lambda x, split: x <= split,
    LT: lambda x, split: x < split,
    EQ: lambda x, split: x == split,
}


@FLOATS
@pytest.mark.parametrize("question", [LE, LT, EQ])
@pytest.mark.parametrize("missing", [False, True])
def test_a_split_compares_as_numpy_does(kind, question, missing):
    """Also next to the split, at zeros of both signs, subnormal numbers and infinities."""
    tiny = TINY[kind]
    x = np.array(
        [
            -np.inf,
            -3,
            -tiny,
            -0.0,
            0.0,
            tiny,
            1,
            np.nextafter(np.array(1, kind), 2),
            np.inf,
            np.nan,
        ],
        kind,
    )
    for split in (-np.inf, -tiny, -0.0, 0.0, tiny, 1.0, np.inf, np.nan):
        yes = ASKED[question](x, np.array(split, kind)) | (np.isnan(x) & missing)
        result = run(x[:, None], stump(split, question + OR_NAN * missing))
        np.testing.assert_array_equal(result[:, 0], np.where(yes, 1, 2), err_msg=str(split))


def grown(seed, trees, count, depth=6, features=9):
    """Trees of all splits down to one depth, each leaf with one number."""
    rng = np.random.default_rng(seed)
    inner, leaves = trees * (2**depth - 1), trees * 2**depth
    children = np.concatenate([trees + 2 * np.arange(inner), np.arange(leaves)])
    return tables(
        features=np.concatenate([rng.integers(0, features, inner), np.full(leaves, -1)]),
        splits=rng.standard_normal(inner + leaves).astype("f4"),
        questions=rng.choice([LE, LE + OR_NAN], inner + leaves),
        children=children,
        roots=np.arange(trees),
        starts=np.arange(leaves + 1),
        targets=rng.integers(0, count, leaves),
        weights=rng.standard_normal(leaves).astype("f4"),
        count=count,
    )


@FLOATS
@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("trees", [1, 13, 61])
def test_a_row_has_the_same_bits_in_any_company(kind, trees, count):
    """Alone, among others, beside rows with NaN, and on any number of threads."""
    attrs, rng = grown(1, trees, count), np.random.default_rng(2)
    x = rng.standard_normal((133, 9)).astype(kind)
    x[::5, 3] = np.nan
    together = run(x, attrs, threads=1)
    np.testing.assert_array_equal(run(x, attrs, threads=2), together)
    for row in (0, 1, 40, 132):
        np.testing.assert_array_equal(run(x[row : row + 1], attrs)[0], together[row])


def test_weights_are_added_in_f64():
    """A large number and its opposite leave the small ones between them as they are."""
    attrs = grown(3, 24, 1, depth=1)
    attrs["weights"] = np.repeat(np.resize([1e8, 1.0, -1e8], 24), 2)
    np.testing.assert_array_equal(run(np.zeros((2, 9), "f4"), attrs), [[8], [8]])


@pytest.mark.parametrize("join", ["min", "max"])
def test_extremes_leave_out_what_no_leaf_holds(device, join):
    """Target 1 has a number in one of the leaves alone, target 2 in none."""
    attrs = stump(
        0.0, starts=[0, 1, 3], targets=[0, 0, 1], weights=[-5, -7, -9], count=3, join=join
    )
    result = run(np.float32([[-1], [1]]), attrs, device)
    np.testing.assert_array_equal(result, [[-5, 0, 0], [-7, -9, 0]])


def test_trees_go_through_a_file():
    g = rlx.Graph()
    g.set_outputs([g.add_node("tree_scores", [g.input("x", (5, 9))], grown(4, 11, 3))])
    again = rlx.Graph.from_json(g.to_json())
    x = np.random.default_rng(5).standard_normal((5, 9)).astype("f4")
    with rlx.compile(g, device="cpu") as first, rlx.compile(again, device="cpu") as other:
        np.testing.assert_array_equal(first.run({"x": x})[0], other.run({"x": x})[0])


WRONG = {
    "a feature that there is not": {"features": [2, -1, -1]},
    "a feature below -1": {"features": [-2, -1, -1]},
    "a way back": {"children": [0, 0, 1]},
    "a pair that ends behind the nodes": {"children": [2, 0, 1]},
    "a leaf without a list": {"children": [1, 0, 2]},
    "a root behind the nodes": {"roots": [3]},
    "a root before the nodes": {"roots": [-1]},
    "fewer splits than nodes": {"splits": [0, 0]},
    "an unknown question": {"questions": [3, 0, 0]},
    "a question too far": {"questions": [8, 0, 0]},
    "no beginning of lists": {"starts": []},
    "lists that do not begin": {"starts": [1, 1, 2]},
    "lists that fall": {"starts": [0, 3, 2]},
    "lists behind the entries": {"starts": [0, 1, 3]},
    "a target that there is not": {"targets": [0, 1]},
    "fewer targets than weights": {"targets": [0]},
    "no target": {"count": 0},
    "an unknown join": {"join": "mean"},
    "a split that f32 can't hold": {"splits": [0.1, 0, 0]},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tables_are_refused(name):
    g = rlx.Graph()
    with pytest.raises(rlx.InputError, match=r"\[tree_scores\]"):
        g.add_node("tree_scores", [g.input("x", (4, 2))], stump(0.0, **WRONG[name]))


def test_other_arrays_and_shapes_are_refused():
    g, attrs = rlx.Graph(), stump(0.0)
    x = g.input("x", (4, 2))
    for name in DTYPES:
        for other in (attrs[name][None], attrs[name].astype("i8"), attrs[name].tolist()):
            with pytest.raises(rlx.InputError, match=name):
                g.add_node("tree_scores", [x], attrs | {name: other})
    with pytest.raises(rlx.ShapeError, match="tree_scores"):
        g.add_node("tree_scores", [g.input("row", (2,))], attrs)

"""``ai.onnx.ml``: what the standard says and ONNX Runtime does otherwise, and what is refused."""

import numpy as np
import onnx
import pytest
import tree_samples
from ml_samples import ML
from node_samples import samples
from onnx_oracle import node_model, run_model
from samples import looped

import rlx

pytestmark = pytest.mark.by_program

X = np.float32([[0.5, -1], [2, 0.25]])


def run(op, inputs, attrs, device, outputs=1):
    data, feeds = node_model(op, inputs, attrs, outputs, domain=ML)
    with rlx.onnx.Model(data, device=device) as model:
        return model.run(feeds)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_transforms_of_version_5_have_the_numbers_of_the_standard(device):
    """1 is softmax and 2 the logistic function; ONNX Runtime has them the other way round."""
    sample = samples(ML, "TreeEnsemble")[2]
    data, feeds = node_model(
        "TreeEnsemble", sample.inputs, sample.attrs | {"post_transform": 0}, domain=ML
    )
    (plain,) = run_model(data, feeds)
    for number, function in ((1, softmax), (2, lambda x: 1 / (1 + np.exp(-x)))):
        (y,) = run("TreeEnsemble", sample.inputs, sample.attrs | {"post_transform": number}, device)
        np.testing.assert_allclose(y, function(plain), rtol=1e-5, atol=1e-6)


def test_a_single_score_is_transformed(device):
    """ONNX Runtime leaves a single score as it is."""
    attrs = {"coefficients": [1.0, 2.0], "post_transform": "LOGISTIC"}
    (y,) = run("LinearRegressor", [X], attrs, device)
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-X @ np.float32([[1], [2]]))), rtol=1e-6)


def test_the_label_of_two_classes_is_that_of_the_larger_score(device):
    """Leaves hold scores of both classes; ONNX Runtime gives 0 or 1 whatever the labels are."""
    attrs = {
        "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3,
        "nodes_values": [1.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0] * 4,
        "class_nodeids": [1, 2, 1, 2], "class_ids": [0, 0, 1, 1], "class_weights": [0.9, 0.3, 0.1, 0.7],
        "classlabels_int64s": [30, 70],
    }  # fmt: skip
    label, scores = run("TreeEnsembleClassifier", [X], attrs, device, 2)
    np.testing.assert_array_equal(label, [30, 70])
    np.testing.assert_allclose(scores, [[0.9, 0.1], [0.3, 0.7]], rtol=1e-6)


def test_the_inverse_of_the_normal_distribution(device):
    """To two digits, as ONNX Runtime has it."""
    from scipy.stats import norm

    p = np.linspace(0.02, 0.98, 13, dtype="f4")[:, None]
    attrs = {"coefficients": [1.0, 1.0], "targets": 2, "post_transform": "PROBIT"}
    (y,) = run("LinearRegressor", [p], attrs, device)
    np.testing.assert_allclose(y, np.repeat(norm.ppf(p), 2, 1), atol=0.02)


@looped("gamma", [0.01, 0.5, 900.0, -0.2])
@looped("mean", [0.0, 1000.0])
def test_radial_kernels_of_rows_that_are_vectors(rng, device, gamma, mean):
    vectors = np.float32(rng.standard_normal((7, 5)) / 4 + mean)
    x = np.concatenate([vectors, vectors + np.float32(2.0**-9), np.zeros((3, 5), "f4")])
    x[-3:, 2] = np.inf, -np.inf, np.nan
    attrs = {"kernel_type": "RBF", "kernel_params": [gamma, 0.0, 0.0], "rho": [0.0]}
    attrs |= {
        "support_vectors": vectors.ravel().tolist(),
        "n_supports": 7,
        "coefficients": [1.0] * 7,
    }
    (y,) = run("SVMRegressor", [x], attrs, device)
    squares = ((x[:, None].astype("f8") - vectors) ** 2).sum(2)
    expected = np.exp(-np.float32(gamma) * squares).sum(1)
    np.testing.assert_allclose(y[:, 0], expected, rtol=1e-5)


def test_an_unknown_category_is_loud(device):
    """An unknown category is an error: a compiled graph can't raise one, so its row is NaN."""
    x = np.array([[1, 9, 2]])
    (y,) = run("OneHotEncoder", [x], {"cats_int64s": [1, 2], "zeros": 0}, device)
    np.testing.assert_array_equal(y, [[[1, 0], [np.nan, np.nan], [0, 1]]])


def test_of_equal_keys_the_last_one_counts(device):
    attrs = {"keys_int64s": [1, 2, 1], "values_int64s": [10, 20, 30], "default_int64": 0}
    (y,) = run("LabelEncoder", [np.array([1, 2, 3])], attrs, device)
    np.testing.assert_array_equal(y, [30, 20, 0])


def test_no_rows_and_one_row(device):
    (sample,) = [s for s in samples(ML, "TreeEnsembleRegressor")[:1]]
    for rows in (0, 1):
        x = sample.inputs[0][:rows]
        (y,) = run("TreeEnsembleRegressor", [x], sample.attrs, device)
        assert y.shape == (rows, 1)


def like_a_list(depth):
    """A tree with as many levels as splits, on 32 features."""
    total, splits = 2 * depth + 1, np.arange(depth)
    modes = ["BRANCH_LEQ"] * depth + ["LEAF"] * (depth + 1)
    return {
        "nodes_treeids": [0] * total, "nodes_nodeids": list(range(total)),
        "nodes_featureids": [int(s % 32) for s in splits] + [0] * (depth + 1),
        "nodes_values": [float(s) for s in splits] + [0.0] * (depth + 1), "nodes_modes": modes,
        "nodes_truenodeids": [int(depth + s) for s in splits] + [0] * (depth + 1),
        "nodes_falsenodeids": [*(int(s + 1) for s in splits[:-1]), total - 1] + [0] * (depth + 1),
        "target_treeids": [0] * (depth + 1), "target_nodeids": list(range(depth, total)),
        "target_ids": [0] * (depth + 1), "target_weights": [float(n) for n in range(depth + 1)],
    }  # fmt: skip


def test_trees_of_32_features_and_200_levels(device):
    """Each row goes down to its leaf."""
    x = np.repeat(np.float32([[-1], [57.5], [500]]), 32, 1)
    (y,) = run("TreeEnsembleRegressor", [x], like_a_list(200), device)
    np.testing.assert_array_equal(y, [[0], [58], [200]])


def test_a_tree_of_3000_levels_is_one_node(device):
    """Its levels are steps of a kernel, and do not count toward the limit of nodes."""
    x = np.repeat(np.float32([[-1], [1500.5], [5000]]), 32, 1)
    with rlx.limits(nodes=500):
        (y,) = run("TreeEnsembleRegressor", [x], like_a_list(3000), device)
    np.testing.assert_array_equal(y, [[0], [1501], [3000]])


@pytest.mark.parametrize("count", [8, 41])
def test_trees_that_share_splits(device, count):
    """Both ways of each split lead to the next one: there are 2 ** 40 ways, and 41 nodes."""
    splits = count - 1
    following = [*range(1, splits), 0]
    attrs = {
        "nodes_featureids": [0] * splits, "nodes_splits": tree_samples.tensor([0.0] * splits, "f4"),
        "nodes_modes": tree_samples.tensor([0] * splits, "u1"), "tree_roots": [0, 3],
        "nodes_truenodeids": following, "nodes_falsenodeids": [*following[:-1], 1],
        "nodes_trueleafs": [0] * (splits - 1) + [1], "nodes_falseleafs": [0] * (splits - 1) + [1],
        "leaf_weights": tree_samples.tensor([2.0, 5.0], "f4"), "leaf_targetids": [0, 0],
    }  # fmt: skip
    (y,) = run("TreeEnsemble", [np.float32([[-1], [1]])], attrs, device)
    np.testing.assert_array_equal(y, [[4], [10]])


TREE = samples(ML, "TreeEnsembleRegressor")[0].attrs
SPLITS = samples(ML, "TreeEnsemble")[0].attrs
CLASSES = samples(ML, "TreeEnsembleClassifier")[0].attrs
assert tree_samples.SIZES[0][1] == 3
THREE = np.ones((2, 3), np.float32)


def changed(attrs, **more):
    return {**attrs, **more}


@looped(
    ("op", "x", "attrs", "says"),
    [
        ("Scaler", X, {"offset": [0.0], "scale": [1.0], "extra": 1}, "attribute 'extra'"),
        ("LabelEncoder", X, {"keys_floats": [1.0], "values_strings": ["a"]}, "values are strings; convert"),
        ("LabelEncoder", X, {"keys_strings": ["a"], "values_floats": [1.0]}, "keys are strings; convert"),
        ("OneHotEncoder", X, {"cats_strings": ["a", "b"]}, "categories are strings; convert"),
        ("TreeEnsembleRegressor", X[:, :1], TREE, "feature"),
        ("CategoryMapper", X, {}, "no such operator"),
        (
            "LinearClassifier", X,
            {"coefficients": [1.0, 1.0], "intercepts": [0.1], "classlabels_ints": [0, 1], "post_transform": "PROBIT"},
            "PROBIT",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(op, x, attrs, says):
    data, _ = node_model(op, [x], attrs, domain=ML)
    with pytest.raises(rlx.UnsupportedOpError, match=says) as caught:
        rlx.onnx.load(data)
    assert f"ai.onnx.ml.{op}" in str(caught.value)


@looped(
    ("op", "x", "attrs", "says"),
    [
        ("Scaler", X, {"offset": [0.0, 1.0, 2.0], "scale": [1.0] * 3}, "offset of 3"),
        ("Normalizer", X, {"norm": "L3"}, "norm"),
        ("Imputer", X, {"imputed_value_floats": [1.0, 2.0, 3.0]}, "3 values"),
        ("LinearRegressor", X, {"coefficients": [1.0] * 3}, "3 coefficients"),
        (
            "LinearRegressor",
            X,
            {"coefficients": [1.0] * 2, "post_transform": "COSINE"},
            "post_transform",
        ),
        (
            "LinearClassifier",
            X,
            {"coefficients": [1.0] * 4, "classlabels_ints": [1, 2, 3]},
            "2 scores for 3",
        ),
        (
            "LabelEncoder",
            X,
            {"keys_floats": [1.0], "values_floats": [1.0, 2.0]},
            "1 keys and 2 values",
        ),
        ("ZipMap", X, {"classlabels_int64s": [1, 2, 3]}, "3 labels"),
        ("FeatureVectorizer", X, {"inputdimensions": [3]}, "2 features of operand 0, not 3"),
        (
            "SVMRegressor",
            X,
            {"coefficients": [1.0] * 3, "n_supports": 2, "rho": [0.0]},
            "3 coefficients",
        ),
        (
            "TreeEnsembleRegressor",
            THREE,
            changed(TREE, nodes_modes=["BRANCH"] * 3),
            "mode 'BRANCH'",
        ),
        (
            "TreeEnsembleRegressor",
            THREE,
            changed(TREE, nodes_truenodeids=[7, 0, 0]),
            "name no node",
        ),
        ("TreeEnsembleRegressor", THREE, changed(TREE, nodes_truenodeids=[0, 0, 0]), "leads back"),
        ("TreeEnsembleRegressor", THREE, changed(TREE, nodes_nodeids=[0, 1, 1]), "one number"),
        ("TreeEnsembleRegressor", THREE, changed(TREE, nodes_values=[0.0]), "1 splits"),
        ("TreeEnsembleRegressor", THREE, changed(TREE, target_ids=[3, 0]), "not below 1"),
        ("TreeEnsembleRegressor", THREE, changed(TREE, base_values=[1.0, 2.0]), "2 base values"),
        (
            "TreeEnsembleClassifier",
            THREE,
            changed(CLASSES, classlabels_int64s=None),
            "without labels",
        ),
        ("TreeEnsemble", THREE, changed(SPLITS, tree_roots=[9]), "tree_roots"),
        ("TreeEnsemble", THREE, changed(SPLITS, leaf_targetids=[5, 5]), "leaf_targetids"),
        (
            "TreeEnsemble",
            THREE,
            changed(SPLITS, nodes_modes=tree_samples.tensor([9], "u1")),
            "nodes_modes",
        ),
        ("TreeEnsemble", THREE, changed(SPLITS, leaf_weights=None), "'leaf_weights' is missing"),
    ],
)
def test_what_makes_no_sense(op, x, attrs, says):
    data, _ = node_model(op, [x], attrs, domain=ML)
    with pytest.raises(rlx.ImportModelError, match=says):
        rlx.onnx.load(data)


def test_version_1_of_the_label_encoder_has_strings():
    data, _ = node_model(
        "LabelEncoder", [np.array([1])], {"classes_strings": ["a", "b"]}, domain=ML
    )
    proto = onnx.load_model_from_string(data)
    proto.opset_import[1].version = 1
    with pytest.raises(rlx.UnsupportedOpError, match="strings; convert"):
        rlx.onnx.load(proto.SerializeToString())

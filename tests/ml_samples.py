"""Samples of ``ai.onnx.ml``: scaling, encoding, linear models, support vectors."""

import numpy as np
from node_samples import NodeSample, normal, of

ML = "ai.onnx.ml"
ROWS = [(3, 4), (1, 5), (7, 2), (5, 16), (33, 9)]


@of(ML, "Binarizer")
def binarizer(rng, index):
    return NodeSample([normal(rng, *ROWS[index])], attrs={"threshold": 0.3 * index})


@of(ML, "ArrayFeatureExtractor")
def features(rng, index):
    n, c = ROWS[index]
    x = normal(rng, c) if index == 1 else normal(rng, n, c)
    return NodeSample([x, rng.integers(0, c, index + 1)])


@of(ML, "Scaler")
def scaler(rng, index):
    n, c = ROWS[index]
    count = 1 if index == 3 else c
    x = normal(rng, n, c).astype(["f4", "f8", "i8", "f4", "i4"][index])
    return NodeSample(
        [x], attrs={"offset": list(rng.random(count)), "scale": list(rng.random(count) + 0.5)}
    )


@of(ML, "Normalizer")
def normalizer(rng, index):
    x = normal(rng, *ROWS[index])
    if index == 2:
        x[0] = 0
    return NodeSample([x], attrs={"norm": ["MAX", "L1", "L2", "L2", "L1"][index]})


@of(ML, "Imputer")
def imputer(rng, index):
    n, c = ROWS[index]
    x = rng.integers(0, 4, (n, c)).astype("i8" if index == 1 else "f4")
    count = 1 if index == 3 else c
    if index == 1:
        return NodeSample(
            [x], attrs={"imputed_value_int64s": list(range(9, 9 + c)), "replaced_value_int64": 2}
        )
    replaced = 2.0 if index == 2 else float("nan")
    x[x == 2] = replaced
    return NodeSample(
        [x],
        attrs={"imputed_value_floats": list(rng.random(count)), "replaced_value_float": replaced},
    )


@of(ML, "FeatureVectorizer")
def vectorizer(rng, index):
    n, _ = ROWS[index]
    sizes = [[1, 2], [3], [2, 2, 2], [1, 5], [4, 1]][index]
    kind = ["f4", "f8", "i8", "f4", "i4"][index]
    return NodeSample(
        [normal(rng, n, size, scale=5).astype(kind) for size in sizes],
        attrs={"inputdimensions": sizes},
    )


@of(ML, "LabelEncoder")
def label_encoder(rng, index):
    x = rng.integers(0, 6, ROWS[index])
    attrs = [
        {"keys_int64s": [4, 1, 3], "values_floats": [0.5, -1.0, 2.0], "default_float": 9.0},
        {"keys_floats": [0.0, 1.0, 2.0], "values_int64s": [7, 8, 9], "default_int64": -5},
        {"keys_int64s": [0, 1, 2, 3, 4, 5], "values_int64s": [5, 4, 3, 2, 1, 0]},
        {"keys_floats": [float("nan"), 3.0], "values_floats": [1.0, 2.0], "default_float": 0.5},
        {"keys_int64s": [1, 2], "values_int64s": [10, 20]},
    ][index]
    x = x.astype("f4") if "keys_floats" in attrs else x
    if index == 3:
        x[0, 0] = np.nan
    return NodeSample([x], attrs=attrs)


@of(ML, "OneHotEncoder")
def one_hot(rng, index):
    x = rng.integers(0, 5, ROWS[index]).astype(["i8", "f4", "f8", "f4", "i8"][index])
    return NodeSample(
        [x],
        attrs={
            "cats_int64s": [0, 1, 2, 3, 4] if index == 4 else [3, 0, 2],
            "zeros": int(index != 4),
        },
    )


@of(ML, "ZipMap")
def zip_map(rng, index):
    x = normal(rng, *ROWS[index])
    labels = list(range(5, 5 + x.shape[1]))
    named = (
        {"classlabels_strings": [f"class {n}" for n in labels]}
        if index % 2
        else {"classlabels_int64s": labels}
    )
    return NodeSample([x], attrs=named, wanted=[x])


POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "NONE"]


@of(ML, "LinearRegressor")
def linear_regressor(rng, index):
    n, c = ROWS[index]
    targets = [1, 3, 2, 4, 1][index]
    attrs = {
        "coefficients": list(normal(rng, targets * c)),
        "targets": targets,
        "post_transform": POSTS[index],
    }
    if index != 3:
        attrs["intercepts"] = list(normal(rng, targets))
    return NodeSample([normal(rng, n, c)], attrs=attrs)


@of(ML, "LinearClassifier")
def linear_classifier(rng, index):
    n, c = ROWS[index]
    count, labels = [(3, [0, 1, 2]), (1, [3, 8]), (2, [5, -5]), (4, [4, 3, 2, 1]), (1, [0, 1])][
        index
    ]
    post = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "NONE"][index]
    return NodeSample(
        [normal(rng, n, c)], outputs=2,
        attrs={
            "coefficients": list(normal(rng, count * c)), "intercepts": list(normal(rng, count)),
            "classlabels_ints": labels, "post_transform": post, "multi_class": index % 2,
        },
    )  # fmt: skip


SVM_KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID", "RBF"]
SVM_PARAMS = [[0.0, 0.0, 0.0], [0.5, 1.0, 3.0], [0.3, 0.0, 0.0], [0.2, 0.1, 0.0], [0.1, 0.0, 0.0]]


@of(ML, "SVMRegressor")
def svm_regressor(rng, index):
    n, c = ROWS[index]
    count = [5, 3, 4, 0, 9][index]
    attrs = {"coefficients": list(normal(rng, count or c)), "rho": [0.3], "n_supports": count}
    attrs |= {
        "kernel_params": SVM_PARAMS[index],
        "kernel_type": SVM_KERNELS[index] if count else "LINEAR",
    }
    if count:
        attrs["support_vectors"] = list(normal(rng, count * c))
    if index == 4:
        attrs["one_class"] = 1
    return NodeSample([normal(rng, n, c)], attrs=attrs, rtol=1e-4)


@of(ML, "SVMClassifier")
def svm_classifier(rng, index):
    n, c = ROWS[index]
    sizes = [[2, 3], [2, 1, 3], [4, 2], [3, 3, 2, 4], [5, 4, 6]][index]
    count, classes = sum(sizes), len(sizes)
    decisions = classes * (classes - 1) // 2
    labels = [[1, 2], [7, 5, 6], [0, 1], [0, 1, 2, 3], [3, 1, 2]][index]
    attrs = {
        "coefficients": list(normal(rng, (classes - 1) * count)), "rho": list(normal(rng, decisions) * 0.2),
        "support_vectors": list(normal(rng, count * c)), "vectors_per_class": sizes, "classlabels_ints": labels,
        "kernel_type": SVM_KERNELS[index], "kernel_params": SVM_PARAMS[index],
    }  # fmt: skip
    if index in (2, 3, 4):
        attrs |= {
            "prob_a": list(-1 - rng.random(decisions)),
            "prob_b": list(rng.random(decisions) * 0.1),
        }
    return NodeSample([normal(rng, n, c)], outputs=2, attrs=attrs, rtol=1e-4)

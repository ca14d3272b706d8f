"""Models of scikit-learn, converted by skl2onnx: rlx against ONNX Runtime and against scikit-learn itself."""

import warnings

import numpy as np
import pytest
from onnx_oracle import run_model
from skl2onnx import to_onnx
from sklearn import datasets, ensemble, linear_model, naive_bayes, neural_network, svm, tree
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

import rlx

pytestmark = pytest.mark.by_program

IRIS, CANCER, DIABETES = (
    datasets.load_iris(),
    datasets.load_breast_cancer(),
    datasets.load_diabetes(),
)
SEED = {"random_state": 0}
# A model, and the data that it is made of.
CLASSIFIERS = {
    "random forest": (ensemble.RandomForestClassifier(20, **SEED), IRIS),
    "random forest of two classes": (ensemble.RandomForestClassifier(20, **SEED), CANCER),
    "extra trees": (ensemble.ExtraTreesClassifier(15, **SEED), IRIS),
    "one tree": (tree.DecisionTreeClassifier(**SEED), IRIS),
    "gradient boosting": (ensemble.GradientBoostingClassifier(n_estimators=10, **SEED), IRIS),
    "gradient boosting of two classes": (
        ensemble.GradientBoostingClassifier(n_estimators=10, **SEED), CANCER,
    ),
    "logistic regression": (make_pipeline(StandardScaler(), linear_model.LogisticRegression()), IRIS),
    "logistic regression of two classes": (
        make_pipeline(StandardScaler(), linear_model.LogisticRegression()), CANCER,
    ),
    "discriminant": (LinearDiscriminantAnalysis(), IRIS),
    "support vectors": (svm.SVC(kernel="rbf"), IRIS),
    "support vectors of two classes": (make_pipeline(StandardScaler(), svm.SVC(kernel="poly")), CANCER),
    "linear support vectors": (svm.LinearSVC(**SEED), IRIS),
    "naive Bayes": (naive_bayes.GaussianNB(), IRIS),
    "nearest neighbours": (KNeighborsClassifier(3), IRIS),
    "perceptron": (neural_network.MLPClassifier((8,), max_iter=30, **SEED), IRIS),
    "scaled, chosen, projected": (
        make_pipeline(RobustScaler(), SelectKBest(k=3), PCA(2), linear_model.LogisticRegression()), IRIS,
    ),
}  # fmt: skip
REGRESSORS = {
    "random forest": (ensemble.RandomForestRegressor(20, **SEED), DIABETES),
    "gradient boosting": (ensemble.GradientBoostingRegressor(n_estimators=20, **SEED), DIABETES),
    "boosted trees": (ensemble.AdaBoostRegressor(n_estimators=5, **SEED), DIABETES),
    "one tree": (tree.DecisionTreeRegressor(max_depth=6, **SEED), DIABETES),
    "ridge": (make_pipeline(PolynomialFeatures(2), linear_model.Ridge()), DIABETES),
    "lasso of normed rows": (make_pipeline(Normalizer(), linear_model.Lasso(0.01)), DIABETES),
    "support vectors": (svm.SVR(C=50), DIABETES),
    "nearest neighbours": (KNeighborsRegressor(4), DIABETES),
    "perceptron": (
        neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=20, **SEED),
        DIABETES,
    ),
}


def converted(model, data, rows=40, **options):
    """The ONNX file of a fitted model, and rows to try it on."""
    x = data.data.astype("f4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, data.target)
        if options.pop("plain", False) and not isinstance(model, svm.LinearSVC):
            options["options"] = {id(model): {"zipmap": False}}
        result = to_onnx(model, x[:1], target_opset={"": 18, "ai.onnx.ml": 3}, **options)
    return result.SerializeToString(), {result.graph.input[0].name: x[:: len(x) // rows]}


def compare(data, feeds, device, rtol):
    wanted = run_model(data, feeds)
    with rlx.onnx.Model(data, device=device) as model:
        result = model.run(feeds)
    assert len(result) == len(wanted)
    for f, w in zip(result, wanted, strict=True):
        if w.dtype.kind in "iu":
            np.testing.assert_array_equal(f.reshape(w.shape), w)
        else:
            np.testing.assert_allclose(
                f.reshape(w.shape), w, rtol=rtol, atol=rtol * max(1, np.abs(w).max())
            )
    return result


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, device):
    model, data = CLASSIFIERS[name]
    result, feeds = converted(model, data, plain=True)
    label, _ = compare(result, feeds, device, 2e-4)
    (x,) = feeds.values()
    assert (label == model.predict(x)).mean() >= 0.97


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name, device):
    model, data = REGRESSORS[name]
    result, feeds = converted(model, data)
    (y,) = compare(result, feeds, device, 1e-3)
    (x,) = feeds.values()
    np.testing.assert_allclose(y.ravel(), model.predict(x), rtol=2e-3, atol=0.5)


def test_probabilities_of_support_vectors(device):
    """Coupled from those of the decisions between two classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn will drop them
        model = svm.SVC(probability=True, **SEED)
        result, feeds = converted(model, IRIS, plain=True)
    compare(result, feeds, device, 1e-3)


def test_values_that_are_missing(device):
    """Holes in the data are filled; trees take them as they are."""
    x = IRIS.data.astype("f4").copy()
    x[::7, 1] = np.nan
    data = datasets._base.Bunch(data=x, target=IRIS.target)
    filled = make_pipeline(SimpleImputer(), StandardScaler(), linear_model.LogisticRegression())
    for model in (filled, ensemble.RandomForestClassifier(5, **SEED)):
        result, feeds = converted(model, data, rows=75, plain=True)
        assert np.isnan(next(iter(feeds.values()))).any()
        compare(result, feeds, device, 2e-4)


def test_columns_of_categories(device):
    x = np.stack([np.arange(60) % 4, np.arange(60) % 3, np.linspace(-2, 2, 60)], 1).astype("f4")
    data = datasets._base.Bunch(data=x, target=(x[:, 0] * x[:, 2] > 0).astype(int))
    parts = [("code", OneHotEncoder(handle_unknown="ignore"), [0, 1]), ("cut", Binarizer(), [2])]
    model = make_pipeline(ColumnTransformer(parts), linear_model.LogisticRegression())
    result, feeds = converted(model, data, plain=True)
    compare(result, feeds, device, 2e-4)


def test_maps_are_tables(device):
    """ZipMap gives the probabilities, a column for each label in order."""
    model = linear_model.LogisticRegression()
    result, feeds = converted(model, IRIS)
    (x,) = feeds.values()
    with rlx.onnx.Model(result, device=device) as loaded:
        _, output = loaded.run(feeds)
    np.testing.assert_allclose(output, model.predict_proba(x), rtol=1e-4, atol=1e-5)


def test_labels_that_are_strings():
    """String labels are refused with a hint, and only if they are requested."""
    named = datasets._base.Bunch(data=IRIS.data, target=IRIS.target_names[IRIS.target])
    model = linear_model.LogisticRegression()
    result, feeds = converted(model, named, plain=True)
    with pytest.raises(rlx.UnsupportedOpError, match="integer labels"):
        rlx.onnx.Model(result, device="cpu").run(feeds)
    import onnx

    proto = onnx.load_model_from_string(result)
    del proto.graph.output[0]
    with rlx.onnx.Model(proto.SerializeToString(), device="cpu") as loaded:
        (output,) = loaded.run(feeds)
    np.testing.assert_allclose(
        output, model.predict_proba(next(iter(feeds.values()))), rtol=1e-4, atol=1e-5
    )

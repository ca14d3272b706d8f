"""Quantised models, ensembles of trees and others from packages against ONNX Runtime, at two sizes each."""

import pytest
from package_models import MODELS, check, data_of


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if row.slow else n for n, row in MODELS.items()],
)
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
@pytest.mark.by_program
def test_as_onnx_runtime(name, device, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    check(name, device)


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("vowels, in 8 bits", "com.microsoft.DynamicQuantizeLSTM"),
        ("trees of traffic", "ai.onnx.ml.TreeEnsemble"),
    ],
)
def test_these_models_hold_operators_of_both_domains(name, operator):
    import onnx

    graph = onnx.load_model_from_string(data_of(name)).graph
    assert operator in {f"{node.domain}.{node.op_type}" for node in graph.node}

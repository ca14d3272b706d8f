"""Tiny random language models, written as GGUF files, which run without a download.

Run by itself, it writes one: ``python examples/tiny_lm.py tiny.gguf``.
"""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

try:
    from tokenizers import pre_tokenizers
except ImportError:
    raise ImportError("tiny models need: pip install tokenizers jinja2") from None

import rlx
from rlx.importers.gguf import TYPES
from rlx.ir.dtype import DType, store
from rlx.ops import quantize_blocks
from rlx.ops.block_formats import FORMATS

_ALIGNMENT = 32
CONTEXT = 96
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }} </s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
_NUMBERS = {name: number for number, name in TYPES.items()}


def model(  # noqa: PLR0913 - the sizes of a model
    types: Sequence[str] = ("Q4_K", "Q6_K", "Q8_0"),
    architecture: str = "llama",
    layers: int = 2,
    width: int = 256,
    heads: int = 4,
    kv_heads: int = 2,
    tied: bool = False,
    seed: int = 0,
    vocabulary: dict[str, Any] | None = None,
    **metadata: Any,
) -> bytes:
    """A model as the bytes of a GGUF file.

    Args:
        types: Block formats or plain types ("F32", "F16", "BF16") of the matrices, in turns.
        architecture: A name of ``rlx.lm.ARCHITECTURES``.
        layers: Layers.
        width: Entries of a token's vector, a multiple of 256 for formats that end in K.
        heads: Heads of queries.
        kv_heads: Heads of keys and values.
        tied: Whether the output matrix is the table of the tokens' vectors.
        seed: Of the weights.
        vocabulary: Keys of the vocabulary; a small one of bytes if left out.
        **metadata: More keys, with "__" for dots; those that begin with "__" belong to the architecture. A tuple is the
            shape of a tensor of F32.
    """
    rng, kinds = np.random.default_rng(seed), itertools.cycle(types)
    record, vocabulary = rlx.lm.ARCHITECTURES[architecture], vocabulary or byte_vocabulary()
    count = len(vocabulary["tokenizer.ggml.tokens"])
    experts = metadata.get("__expert_count", 0)
    matrices, sizes = tensors_of(record, layers, width, heads, kv_heads, experts)
    matrices = {"token_embd": (count, width), **matrices}
    if record.causal and not tied:
        matrices["output"] = (count, width)
    if not record.causal:
        matrices |= {"token_types": (2, width)} | (
            {} if record.rope else {"position_embd": (CONTEXT, width)}
        )
    tensors = {}
    for name, shape in matrices.items():
        # Small vectors of tokens: what the layers add decides what comes next.
        weights = rng.standard_normal(shape) / np.sqrt(shape[-1])
        plain = name == "token_types" or name.endswith("gate_inp")
        kind = "F32" if plain else next(kinds)
        tensors[f"{name}.weight"] = encoded(weights.astype(np.float32), kind)
    for name, size in sizes.items():
        mean = 0 if name.endswith("bias") else 1
        weights = mean + 0.1 * rng.standard_normal(size)
        tensors[name] = encoded(weights.astype(np.float32), "F32")
    eps = "layer_norm_rms_epsilon" if record.norm == "rms" else "layer_norm_epsilon"
    keys = {
        "general.architecture": architecture,
        f"{architecture}.context_length": CONTEXT,
        f"{architecture}.embedding_length": width,
        f"{architecture}.block_count": layers,
        f"{architecture}.feed_forward_length": width if experts else 2 * width,
        f"{architecture}.attention.head_count": heads,
        f"{architecture}.attention.head_count_kv": kv_heads,
        f"{architecture}.attention.{eps}": 1e-5,
    }
    more = {key.replace("__", "."): value for key, value in metadata.items()}
    more = {f"{architecture}{key}" if key[0] == "." else key: value for key, value in more.items()}
    for name, shape in more.items():
        if not isinstance(shape, tuple):
            continue
        mean = 1 if name.startswith("rope") else 0
        weights = mean + 0.1 * rng.standard_normal(shape)
        tensors[name] = encoded(weights.astype(np.float32), "F32")
    more = {name: value for name, value in more.items() if not isinstance(value, tuple)}
    return gguf(keys | vocabulary | more, tensors)


def tensors_of(
    record: Any, layers: int, width: int, heads: int, kv_heads: int, experts: int = 0
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Shapes of the matrices of all blocks, and sizes of vectors by their whole names."""
    size, matrices, vectors = width // heads, dict[str, tuple[int, ...]](), dict[str, int]()
    ends = ("weight",) if record.norm == "rms" else ("weight", "bias")

    def norm(name: str, count: int) -> None:
        vectors.update({f"{name}.{end}": count for end in ends})

    norm("output_norm" if record.causal else "token_embd_norm", width)
    for blk in (f"blk.{index}" for index in range(layers)):
        rows = {"q": heads * size, "k": kv_heads * size, "v": kv_heads * size}
        if record.name in ("phi3", "nomic-bert"):
            matrices[f"{blk}.attn_qkv"] = (sum(rows.values()), width)
        else:
            matrices |= {f"{blk}.attn_{name}": (count, width) for name, count in rows.items()}
        matrices[f"{blk}.attn_output"] = (width, heads * size)
        both = 4 if record.name == "phi3" else 2
        if experts:
            matrices |= expert_shapes(blk, experts, width, record.name == "qwen2moe")
        elif record.gated and both == 2:
            matrices[f"{blk}.ffn_gate"] = (2 * width, width)
        if not experts:
            matrices[f"{blk}.ffn_up"] = (both * width, width)
            matrices[f"{blk}.ffn_down"] = (width, 2 * width)
        if record.name == "qwen2moe":
            vectors[f"{blk}.ffn_gate_inp_shexp.weight"] = width
        for name in record.norms:
            norm(f"{blk}.{name}", width)
        for name in "qk" if record.qk_norm else "":
            norm(f"{blk}.attn_{name}_norm", size if record.qk_norm == "head" else rows[name])
        if record.name in ("qwen2", "qwen2moe", "starcoder2", "bert"):
            vectors |= {f"{blk}.attn_{name}.bias": count for name, count in rows.items()}
        if record.name in ("starcoder2", "bert"):
            vectors |= {
                f"{blk}.attn_output.bias": width,
                f"{blk}.ffn_up.bias": 2 * width,
                f"{blk}.ffn_down.bias": width,
            }
    return matrices, vectors


def expert_shapes(blk: str, experts: int, width: int, shared: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of a block whose feed-forward part has experts, each of width rows."""
    results: dict[str, tuple[int, ...]] = {f"{blk}.ffn_gate_inp": (experts, width)}
    for name in ("gate", "up", "down"):
        results[f"{blk}.ffn_{name}_exps"] = (experts, width, width)
        if shared:
            results[f"{blk}.ffn_{name}_shexp"] = (width, width)
    return results


def byte_vocabulary() -> dict[str, Any]:
    """Keys of a small byte-level vocabulary: every byte, some merges, and two control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["t h", "th e", "i s", "Ġ the", "o n", "e r", "Ġ o"]
    words = [merge.replace(" ", "") for merge in merges]
    tokens = [*alphabet, *words, "<s>", "</s>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([1] * (len(tokens) - 2) + [3, 3], np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens) - 2,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": TEMPLATE,
    }


def encoded(weights: np.ndarray, kind: str) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor of the file: type, shape, bytes."""
    plain = kind not in FORMATS
    raw = store(weights, DType[kind]) if plain else quantize_blocks(weights, kind)
    return kind, weights.shape, raw.tobytes()


def gguf(metadata: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A GGUF file of version 3."""
    keys = b"".join(_text(key) + _value(value) for key, value in metadata.items())
    entries, body = b"", b""
    for name, (kind, shape, raw) in tensors.items():
        entries += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        entries += struct.pack("<IQ", _NUMBERS[kind], len(body))
        body += raw + bytes(-len(raw) % _ALIGNMENT)
    front = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)) + keys + entries
    return front + bytes(-len(front) % _ALIGNMENT) + body


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, np.ndarray):
        number = {"float32": 6, "int32": 5}[value.dtype.name]
        return struct.pack("<IIQ", 9, number, value.size) + value.tobytes()
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tiny_lm.py FILE.gguf")
    Path(sys.argv[1]).write_bytes(model())

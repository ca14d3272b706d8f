"""Tiny random models of the llama architecture, written as GGUF files: what runs without a download."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import pre_tokenizers

from rlx.importers.gguf import TYPES
from rlx.ir.dtype import DType, store
from rlx.ops import quantize_blocks
from rlx.ops.products.block_formats import FORMATS

_ALIGNMENT = 32
_NUMBERS = {name: number for number, name in TYPES.items()}


def model(
    types: Sequence[str] = ("Q4_K", "Q6_K", "Q8_0"),
    layers: int = 2,
    width: int = 256,
    heads: int = 4,
    kv_heads: int = 2,
    context: int = 96,
    tied: bool = False,
    seed: int = 0,
    **metadata: Any,
) -> bytes:
    """A model as the bytes of a GGUF file.

    Args:
        types: Block formats or plain types ("F32", "F16", "BF16") of the matrices, in turns.
        layers: Layers.
        width: Entries of a token's vector, a multiple of 256 for formats that end in K.
        heads: Heads of queries.
        kv_heads: Heads of keys and values.
        context: Most tokens.
        tied: Whether the output matrix is the table of the tokens' vectors.
        seed: Of the weights.
        **metadata: More keys, with "__" for dots.
    """
    rng, kinds = np.random.default_rng(seed), itertools.cycle(types)
    vocabulary = byte_vocabulary()
    size, count = width // heads, len(vocabulary["tokenizer.ggml.tokens"])
    matrices = {"token_embd": (count, width)} | ({} if tied else {"output": (count, width)})
    norms = ["output_norm"]
    for index in range(layers):
        matrices |= {
            f"blk.{index}.attn_q": (heads * size, width),
            f"blk.{index}.attn_k": (kv_heads * size, width),
            f"blk.{index}.attn_v": (kv_heads * size, width),
            f"blk.{index}.attn_output": (width, heads * size),
            f"blk.{index}.ffn_gate": (2 * width, width),
            f"blk.{index}.ffn_up": (2 * width, width),
            f"blk.{index}.ffn_down": (width, 2 * width),
        }
        norms += [f"blk.{index}.attn_norm", f"blk.{index}.ffn_norm"]
    tensors = {}
    for name, shape in matrices.items():
        # Small vectors of tokens: what the layers add decides what comes next.
        weights = rng.standard_normal(shape) / np.sqrt(shape[1])
        tensors[f"{name}.weight"] = encoded(weights.astype(np.float32), next(kinds))
    for name in norms:
        weights = 1 + 0.1 * rng.standard_normal(width)
        tensors[f"{name}.weight"] = encoded(weights.astype(np.float32), "F32")
    keys = {
        "general.architecture": "llama",
        "llama.context_length": context,
        "llama.embedding_length": width,
        "llama.block_count": layers,
        "llama.feed_forward_length": 2 * width,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    more = {key.replace("__", "."): value for key, value in metadata.items()}
    return gguf(keys | vocabulary | more, tensors)


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

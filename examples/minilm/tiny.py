"""A tiny random MiniLM in a folder: what runs without a download."""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np


def model(
    folder: Path, layers: int = 2, width: int = 48, heads: int = 4, longest: int = 64
) -> None:
    """Writes model.safetensors, vocab.txt and config.json.

    Args:
        folder: Where.
        layers: Layers.
        width: Entries of a vector.
        heads: Heads of attention.
        longest: Most tokens of a sentence.
    """
    letters = [*string.ascii_lowercase, *string.punctuation]
    words = [
        "the",
        "cat",
        "sleep",
        "##s",
        "##ing",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    words = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    config = {"num_attention_heads": heads, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {
        "embeddings.word_embeddings.weight": (len(words), width),
        "embeddings.position_embeddings.weight": (longest, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        **_norm("embeddings.LayerNorm", width),
    }
    for index in range(layers):
        layer = f"encoder.layer.{index}"
        for name in ("query", "key", "value"):
            shapes |= _dense(f"{layer}.attention.self.{name}", width, width)
        shapes |= _dense(f"{layer}.attention.output.dense", width, width)
        shapes |= _norm(f"{layer}.attention.output.LayerNorm", width)
        shapes |= _dense(f"{layer}.intermediate.dense", 4 * width, width)
        shapes |= _dense(f"{layer}.output.dense", width, 4 * width)
        shapes |= _norm(f"{layer}.output.LayerNorm", width)
    rng, header, body = np.random.default_rng(0), {}, b""
    for name, shape in shapes.items():
        spread = 0.2 if len(shape) == 1 else shape[-1] ** -0.5
        centre = float("LayerNorm.weight" in name)
        first, body = (
            len(body),
            body + np.float32(centre + spread * rng.standard_normal(shape)).tobytes(),
        )
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [first, len(body)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)


def _dense(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}

"""Sentences to vectors: tokens, batches of like lengths, and one compiled graph for all lengths."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from minilm.network import MiniLmNetwork
from minilm.pieces import WordPieces
from rlx import ImportModelError

_BATCH = 8
# all-MiniLM-L6-v2 was trained on sentences up to this many tokens.
_LONGEST = 256


class Encoder:
    """A compiled model.

    Args:
        folder: Where ``model.safetensors``, ``vocab.txt`` and, where it is not MiniLM's, ``config.json``
            lie.
        device: A device or its name.

    Raises:
        ImportModelError: A file is missing, malformed, or of another model.

    Example:
        with Encoder("all-MiniLM-L6-v2") as encoder:
            a, b = encoder.embed(["A cat sleeps.", "The kitten is asleep."])
            print(a @ b)
    """

    def __init__(self, folder: str | os.PathLike[str], device: rlx.Device | str = "auto") -> None:
        folder = Path(folder)
        weights = rlx.safetensors.load(folder / "model.safetensors")
        self.network = MiniLmNetwork(weights, **_config(folder / "config.json"))
        longest = min(_LONGEST, self.network.longest)
        self.pieces = WordPieces(folder / "vocab.txt", longest)
        if self.pieces.size > self.network.vocabulary:
            raise ImportModelError("the vocabulary has more tokens than the model", where=folder)
        sentences, length = rlx.Dim("sentences", max=_BATCH), rlx.Dim("length", max=longest)
        self._compiled = rlx.compile(self.network.graph(sentences, length), device)

    def embed(self, sentences: Sequence[str]) -> np.ndarray:
        """A vector of length 1 per sentence: f32 ``[sentences, width]``; products are cosines."""
        tokens = self.pieces.encode(sentences)
        result = np.zeros((len(tokens), self.network.width), np.float32)
        # Sentences of like lengths go together, so that little is padded.
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index]))
        for first in range(0, len(order), _BATCH):
            batch = order[first : first + _BATCH]
            shape = len(batch), len(tokens[batch[-1]])
            ids, seen = np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
            for row, index in enumerate(batch):
                ids[row, : len(tokens[index])] = tokens[index]
                seen[row, : len(tokens[index])] = True
            (result[batch],) = self._compiled.run_slots(ids, seen)
        return result

    def close(self) -> None:
        """Frees what the graph holds."""
        self._compiled.close()

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _config(path: Path) -> dict[str, Any]:
    """Heads and the norms' eps, where a file says so."""
    if not path.exists():
        return {}
    try:
        result = json.loads(path.read_text("utf-8"))
        heads, eps = result["num_attention_heads"], result["layer_norm_eps"]
        if result["hidden_act"] != "gelu" or type(heads) is not int or heads < 1 or not 0 < eps < 1:
            raise ValueError("not the settings of a MiniLM")
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise ImportModelError("config.json", where=path, got=got) from None
    return {"heads": heads, "eps": eps}

"""The graph of a BERT encoder with mean pooling, from the tensors of its file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import rlx
from rlx import ImportModelError
from rlx.errors import did_you_mean

# MiniLM's, whose files state them beside the tensors; config.json says so for each model.
_HEADS, _EPS = 12, 1e-12
_WORDS = "embeddings.word_embeddings.weight"
_PLACES = "embeddings.position_embeddings.weight"
_TYPES = "embeddings.token_type_embeddings.weight"


class MiniLmNetwork:
    """Builds graphs whose params are the tensors of a file.

    Args:
        weights: Arrays by the names that BERT's files have.
        heads: Heads of attention.
        eps: What the norms add to the variance.
        normalize: Whether vectors are made as long as 1, so that their products are cosines.

    Attributes:
        width: Entries of a vector.
        longest: Most tokens of a sentence.
        vocabulary: How many tokens there are.
        layers: Layers.

    Raises:
        ImportModelError: Tensors are missing or do not fit.
    """

    def __init__(
        self,
        weights: Mapping[str, np.ndarray],
        heads: int = _HEADS,
        eps: float = _EPS,
        normalize: bool = True,
    ) -> None:
        self._weights, self._heads, self._eps = weights, heads, eps
        self._normalize = normalize
        shapes = [self._weight(name).shape for name in (_WORDS, _PLACES)]
        if any(len(shape) != 2 or not all(shape) for shape in shapes) or shapes[0][1] % heads:
            raise _error("the embeddings do not fit", shapes, f"matrices, {heads} heads wide")
        self.vocabulary, self.width = shapes[0]
        self.longest = shapes[1][0]
        names = (name.split(".") for name in weights if name.startswith("encoder.layer."))
        self.layers = len({parts[2] for parts in names})

    def graph(self, sentences: int | rlx.Dim, length: int | rlx.Dim) -> rlx.Graph:
        """The encoder of so many sentences; a dim stands for any number.

        Returns:
            A graph. In: "tokens" i32 and "seen" bool, both ``[sentences, length]``, False for padding.
            Out: a vector per sentence, f32 ``[sentences, width]``; zeros where nothing is seen.
        """
        g = rlx.Graph(f"MiniLM, {sentences} x {length}")
        tokens = g.input("tokens", (sentences, length), "i32")
        seen = g.input("seen", (sentences, length), "bool")
        places = g.narrow(self._param(g, _PLACES, (self.longest, self.width)), 0, 0, length)
        kind = g.narrow(self._param(g, _TYPES, None), 0, 0, 1)
        words = self._param(g, _WORDS, (self.vocabulary, self.width))
        x = self._norm(g, g.gather(words, tokens, axis=0) + places + kind, "embeddings.LayerNorm")
        for index in range(self.layers):
            layer = f"encoder.layer.{index}"
            q, k, v = (
                self._dense(g, x, f"{layer}.attention.self.{name}", self.width)
                for name in ("query", "key", "value")
            )
            y = g.attention(q, k, v, mask=seen, kind="custom", num_heads=self._heads)
            y = self._dense(g, y, f"{layer}.attention.output.dense", self.width)
            x = self._norm(g, x + y, f"{layer}.attention.output.LayerNorm")
            y = g.gelu(self._dense(g, x, f"{layer}.intermediate.dense"))
            y = self._dense(g, y, f"{layer}.output.dense", self.width)
            x = self._norm(g, x + y, f"{layer}.output.LayerNorm")
        weight = g.unsqueeze(g.cast(seen, "f32"), 2)
        # A sentence of nothing but padding is divided by 1.
        count = g.maximum(g.sum(weight, [1]), np.float32(1))
        pooled = g.sum(x * weight, [1]) / count
        g.set_outputs([g.l2_normalize(pooled) if self._normalize else pooled])
        return g

    def _dense(self, g: rlx.Graph, x: rlx.Node, name: str, size: int | None = None) -> rlx.Node:
        rows = self._weight(f"{name}.weight").shape[0] if size is None else size
        w = self._param(g, f"{name}.weight", (rows, x.shape[-1]))
        return x @ g.transpose(w) + self._param(g, f"{name}.bias", (rows,))

    def _norm(self, g: rlx.Graph, x: rlx.Node, name: str) -> rlx.Node:
        weight, bias = (
            self._param(g, f"{name}.{part}", (self.width,)) for part in ("weight", "bias")
        )
        return g.layer_norm(x, weight, bias, eps=self._eps)

    def _param(self, g: rlx.Graph, name: str, shape: tuple[int, ...] | None) -> rlx.Node:
        value = self._weight(name)
        if value.dtype != np.float32 or (shape is not None and value.shape != shape):
            raise _error(
                f"tensor {name!r} does not fit", f"{value.dtype}{list(value.shape)}", shape
            )
        return g.param(name, value.shape, value=value)

    def _weight(self, name: str) -> np.ndarray:
        if name not in self._weights:
            hint = did_you_mean(name, self._weights) if len(self._weights) < 50 else None
            raise ImportModelError(f"the file has no tensor {name!r}", hint=hint)
        return self._weights[name]


def _error(what: str, got: object, expected: object) -> ImportModelError:
    return ImportModelError(what, got=got, expected=expected)

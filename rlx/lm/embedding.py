"""Vectors of whole texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback
from rlx.device.names import DeviceLike
from rlx.errors import InputError
from rlx.ir.opdef import Array
from rlx.lm.compiling import compile_model
from rlx.lm.config import Pooling
from rlx.lm.network import Network
from rlx.lm.token_cache import checked_tokens
from rlx.runtime.compiled import CompiledGraph

# Most texts and most tokens of a run.
TEXTS, TOKENS = 32, 4096


class Embedder:
    """Turns texts into vectors, several of like lengths at once.

    Args:
        network: The model.
        longest: Most tokens of a text.
        device: The device.
        options: Options of the compiler.
        progress: See ``rlx.compile``.
        cancel: See ``rlx.compile``.

    Attributes:
        compiled: The graph of whole texts.
        choice: Why its device was chosen.
    """

    compiled: CompiledGraph
    choice: Choice

    def __init__(
        self,
        network: Network,
        longest: int,
        device: DeviceLike,
        options: CompileOptions | None = None,
        progress: ProgressCallback | None = None,
        cancel: CancelToken | None = None,
    ) -> None:
        self._config, self._longest = network.config, longest
        self._vocabulary = network.vocabulary
        self.compiled, self.choice = compile_model(
            lambda _: network.encoder(longest, TEXTS), device, options, progress, cancel
        )

    def embed(self, texts: Sequence[Sequence[int]], pooling: Pooling) -> Array:
        """Returns vectors of length 1, f32 ``[texts, width]``; products are cosines.

        Args:
            texts: The tokens of each.
            pooling: "mean" of all tokens, the first ("cls") or the "last" one.

        Raises:
            InputError: A text has no tokens, more than the context, or some that the model does not know.
        """
        for index, text in enumerate(texts):
            if not 1 <= len(text) <= self._longest:
                got, expected = f"{len(text)} tokens", f"1 to {self._longest}"
                raise InputError(f"text {index} does not fit", got=got, expected=expected)
        checked = [checked_tokens(text, self._longest, self._vocabulary) for text in texts]
        result = np.zeros((len(checked), self._config.width), np.float32)
        # Texts of like lengths go together, so that little is padded.
        order = sorted(range(len(checked)), key=lambda index: len(checked[index]))
        while order:
            # The longest one says how many fit into a run.
            most = max(1, min(TEXTS, TOKENS // len(checked[order[-1]])))
            batch, order = order[-most:], order[:-most]
            (result[batch],) = self.compiled.run(self._inputs([checked[i] for i in batch], pooling))
        return result

    def _inputs(self, texts: Sequence[Array], pooling: Pooling) -> dict[str, Array]:
        shape = len(texts), max(map(len, texts))
        tokens, seen = np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
        weights = np.zeros(shape, np.float32)
        for row, text in enumerate(texts):
            count = len(text)
            tokens[row, :count], seen[row, :count] = text, True
            if pooling == "mean":
                weights[row, :count] = 1 / count
            else:
                weights[row, 0 if pooling == "cls" else count - 1] = 1
        named = {"tokens": tokens, "pooling": weights}
        return named if self._config.causal else {**named, "seen": seen}

"""The sizes and rotary angles of a llama-architecture model, read from its file and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import ImportModelError

_SCALINGS = ("none", "linear", "yarn")
# YaRN's bounds: turns within the trained context above and below which a pair is left alone and
# interpolated whole (arXiv:2309.00071).
_FAST, _SLOW = 32.0, 1.0


@dataclass(frozen=True)
class LlamaSettings:
    """Sizes of a model.

    Attributes:
        layers: Blocks of attention and feed-forward.
        width: Entries of a token's vector.
        heads: Heads of queries.
        kv_heads: Heads of keys and values, each shared by ``heads / kv_heads``.
        key: Entries of a key, and of a query, of one head.
        value: Entries of a value of one head.
        context: Longest text in tokens that it was made for.
        eps: What the norms add to the mean square.
        rotary: How many entries of a key turn with the position.
        base: Base of the angles' frequencies.
        scaling: "none", "linear" or "yarn".
        factor: How much longer than the trained context the text may be.
        trained: Tokens of the trained context, for YaRN.
        magnitude: What cosines and sines are multiplied by.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    key: int
    value: int
    context: int
    eps: float
    rotary: int
    base: float
    scaling: str
    factor: float
    trained: int
    magnitude: float

    @staticmethod
    def read(metadata: Mapping[str, Any]) -> LlamaSettings:
        """The settings that a file's metadata state.

        Raises:
            ImportModelError: Another architecture, a mixture of experts, a missing key, or an illegal value.
        """
        kind = metadata.get("general.architecture")
        if not isinstance(kind, str) or kind != "llama":
            raise _error("not a model of the llama architecture", f"{kind!r:.80}", "llama")
        experts = metadata.get("llama.expert_count", 0)
        if type(experts) is not int or experts:
            raise _error("a mixture of experts", f"{experts!r:.80}", "a dense model")
        heads = _whole(metadata, "attention.head_count")
        width = _whole(metadata, "embedding_length")
        context = _whole(metadata, "context_length")
        key = _whole(metadata, "attention.key_length", width // heads)
        # Older files have one key for the linear factor; 0 means none was set.
        factor = _real(metadata, "rope.scaling.factor", _real(metadata, "rope.scale_linear", 0.0))
        result = LlamaSettings(
            layers=_whole(metadata, "block_count"),
            width=width,
            heads=heads,
            kv_heads=_whole(metadata, "attention.head_count_kv", heads),
            key=key,
            value=_whole(metadata, "attention.value_length", width // heads),
            context=context,
            eps=_real(metadata, "attention.layer_norm_rms_epsilon"),
            rotary=_whole(metadata, "rope.dimension_count", key),
            base=_real(metadata, "rope.freq_base", 10000.0),
            scaling=str(metadata.get("llama.rope.scaling.type", "linear")),
            factor=factor or 1.0,
            trained=_whole(metadata, "rope.scaling.original_context_length", context),
            magnitude=_real(metadata, "rope.scaling.attn_factor", 1.0),
        )
        if result.heads % result.kv_heads:
            raise _error("heads can't be shared", f"{heads} over {result.kv_heads}", "a divisor")
        if result.rotary % 2 or result.rotary > result.key:
            raise _error("llama.rope.dimension_count", result.rotary, f"even, up to {result.key}")
        if result.scaling not in _SCALINGS:
            raise _error("llama.rope.scaling.type", f"{result.scaling:.80}", ", ".join(_SCALINGS))
        # A bound well inside the range of f32.
        reals = (result.eps, result.base, result.factor, result.magnitude)
        if not all(1e-20 < real < 1e20 for real in reals) or result.eps >= 1 or result.base <= 1:
            raise _error("a setting is out of range", result)
        return result

    def angles(
        self, positions: int, factors: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of the rotary embedding, f32 ``[positions, rotary / 2]``.

        Args:
            positions: How many, from 0 on.
            factors: What each frequency is divided by (``rope_freqs.weight`` of a file).

        Raises:
            ImportModelError: The factors do not fit.
        """
        pairs = np.arange(self.rotary // 2)
        frequencies = self.base ** (-2.0 * pairs / self.rotary)
        if factors is not None:
            if factors.shape != pairs.shape or not np.all(factors > 0):
                raise _error("rope_freqs.weight", factors.shape, f"{pairs.shape}, all above 0")
            frequencies = frequencies / factors
        magnitude = self.magnitude
        if self.scaling == "linear":
            frequencies = frequencies / self.factor
        elif self.scaling == "yarn":
            keep = self._kept(pairs)
            frequencies = frequencies * (keep + (1 - keep) / self.factor)
            magnitude *= 1 + 0.1 * math.log(self.factor)
        turned = np.arange(positions)[:, None] * frequencies
        cos, sin = (magnitude * function(turned) for function in (np.cos, np.sin))
        return cos.astype(np.float32), sin.astype(np.float32)

    def _kept(self, pairs: np.ndarray) -> np.ndarray:
        """YaRN's share of the unscaled frequency in each pair: 1 for fast ones, 0 for slow ones."""

        def pair(turns: float) -> float:
            around = self.trained / (turns * 2 * math.pi)
            return self.rotary * math.log(around) / (2 * math.log(self.base))

        low = max(0, math.floor(pair(_FAST)))
        high = min(self.rotary - 1, math.ceil(pair(_SLOW)))
        return 1 - np.clip((pairs - low) / max(0.001, high - low), 0, 1)


def _error(what: str, got: object = None, expected: object = None) -> ImportModelError:
    return ImportModelError(what, got=got, expected=expected)


def _whole(metadata: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number from 1 on; files may state one per layer, all the same."""
    result = metadata.get(f"llama.{name}", default)
    if isinstance(result, np.ndarray) and result.size and np.all(result == result[0]):
        result = result[0].item()
    if type(result) is not int or result < 1:
        raise _error(f"llama.{name}", f"{result!r:.80}", "a whole number from 1 on")
    return result


def _real(metadata: Mapping[str, Any], name: str, default: float | None = None) -> float:
    result = metadata.get(f"llama.{name}", default)
    if type(result) not in (int, float) or not math.isfinite(result):
        raise _error(f"llama.{name}", f"{result!r:.80}", "a finite number")
    return float(result)

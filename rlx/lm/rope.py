"""Rotary position embeddings: the angles of a model, with the ways to stretch them over longer texts."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import ImportModelError
from rlx.ir.attributes import frozen
from rlx.ir.opdef import Array

SCALINGS = ("none", "linear", "yarn", "longrope")
# YaRN's bounds: pairs that turn more often than the first within the trained context are left alone, and those that turn
# less often than the second are interpolated whole (arXiv:2309.00071).
_FAST, _SLOW = 32.0, 1.0


@dataclass(frozen=True)
class Rope:
    """The rotation of keys and queries by their position (arXiv:2104.09864).

    Attributes:
        pairs: Entries that make a pair: "gptj" neighbours, "neox" i and i + half.
        size: Entries that turn; those behind them stay.
        base: Base of the frequencies.
        scaling: "none", "linear", "yarn" or "longrope".
        factor: How much longer than the trained context a text may be.
        trained: Tokens of the trained context.
        magnitude: The factor of cosines and sines, besides that of YaRN.
    """

    pairs: Literal["gptj", "neox"]
    size: int
    base: float
    scaling: str = "none"
    factor: float = 1.0
    trained: int = 0
    magnitude: float = 1.0

    def tables(self, positions: int, divisors: Array | None = None) -> tuple[Array, Array]:
        """Returns the cosines and sines, f32 ``[positions, size / 2]``.

        Args:
            positions: Their number, from 0 on.
            divisors: Divisors of the frequencies, ``[size / 2]`` (``rope_freqs.weight`` of a file).

        Raises:
            ImportModelError: The divisors do not fit.
        """
        index = np.arange(self.size // 2)
        frequencies = self.base ** (-2.0 * index / self.size)
        if divisors is not None:
            if divisors.shape != index.shape or not np.all(divisors > 0):
                expected = f"{index.shape}, all above 0"
                raise ImportModelError(
                    "factors of frequencies", got=divisors.shape, expected=expected
                )
            frequencies = frequencies / divisors
        magnitude = self.magnitude
        if self.scaling == "linear":
            frequencies = frequencies / self.factor
        elif self.scaling == "yarn":
            kept = self._kept(index)
            frequencies = frequencies * (kept + (1 - kept) / self.factor)
            magnitude *= 1 + 0.1 * math.log(self.factor)
        turned = np.arange(positions)[:, None] * frequencies
        # Programs share arrays that nobody can change.
        cos, sin = (frozen((magnitude * f(turned)).astype(np.float32)) for f in (np.cos, np.sin))
        return cos, sin

    def _kept(self, index: Array) -> Any:
        """YaRN's share of the unscaled frequency in each pair: 1 for fast ones, 0 for slow ones."""

        def pair(turns: float) -> float:
            around = self.trained / (turns * 2 * math.pi)
            return self.size * math.log(around) / (2 * math.log(self.base))

        low = max(0, math.floor(pair(_FAST)))
        high = min(self.size - 1, math.ceil(pair(_SLOW)))
        return 1 - np.clip((index - low) / max(0.001, high - low), 0, 1)


def smoothed_divisors(
    size: int, base: float, factor: float, low: float, high: float, trained: int
) -> Array:
    """Returns Llama 3.1's divisors of frequencies, which its GGUF files store as ``rope_freqs.weight``.

    Pairs that turn more than ``high`` times within the trained context stay, those that turn less than ``low`` times are
    divided by ``factor``, and those between pass from one to the other.

    Args:
        size: Entries that turn.
        base: Base of the frequencies.
        factor: The divisor of slow pairs.
        low: Turns of slow pairs.
        high: Turns of fast pairs.
        trained: Tokens of the trained context.

    Returns:
        f32 ``[size / 2]``.
    """
    frequencies = base ** (-2.0 * np.arange(size // 2) / size)
    turns = trained * frequencies / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / (share + (1 - share) / factor)).astype(np.float32)

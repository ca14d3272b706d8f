"""Which token comes next: penalties, temperature and the filters that users of such models know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx import InputError
from rlx.errors import describe


@dataclass
class Sampler:
    """Draws tokens from logits; equal seeds draw equal tokens on every device.

    The steps, in this order: repetition penalty, temperature, top-k (ties stay), softmax, top-p, min-p.

    Attributes:
        temperature: Divides the logits; 0 takes the largest.
        top_k: How many of the largest stay; 0 keeps all.
        top_p: The most probable stay whose sum reaches this; 1 keeps all.
        min_p: Those below this share of the largest probability go; 0 keeps all.
        penalty: Positive logits of recent tokens are divided by it, negative ones multiplied.
        window: How many tokens are recent; 0 means all.
        seed: Of the generator.

    Raises:
        InputError: A setting is out of its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    penalty: float = 1.0
    window: int = 64
    seed: int = 0
    _generator: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ranges = (
            ("temperature", self.temperature >= 0, "0 or above"),
            ("top_k", self.top_k >= 0, "0 or above"),
            ("top_p", 0 < self.top_p <= 1, "above 0, up to 1"),
            ("min_p", 0 <= self.min_p <= 1, "0 to 1"),
            ("penalty", self.penalty > 0, "above 0"),
            ("window", self.window >= 0, "0 or above"),
        )
        for name, fits, expected in ranges:
            if not fits:
                got = getattr(self, name)
                raise InputError(describe(f"[Sampler] {name}", got=got, expected=expected))
        self._generator = np.random.default_rng(self.seed)

    def probabilities(self, logits: np.ndarray, recent: Sequence[int] = ()) -> np.ndarray:
        """The distribution that is drawn from.

        Args:
            logits: ``[vocabulary]``.
            recent: The tokens before, the last one last.

        Returns:
            float64 ``[vocabulary]``, of sum 1.
        """
        scores = np.array(logits, np.float64)
        seen = np.unique(np.asarray(recent, np.int64)[-self.window :])
        held = scores[seen]
        scores[seen] = np.where(held > 0, held / self.penalty, held * self.penalty)
        if self.temperature == 0:
            return np.float64(np.arange(len(scores)) == scores.argmax())
        scores /= self.temperature
        if 0 < self.top_k < len(scores):
            least = np.partition(scores, -self.top_k)[-self.top_k]
            scores[scores < least] = -np.inf
        p = np.exp(scores - scores.max())
        p /= p.sum()
        if self.top_p < 1:
            order = np.argsort(-p, kind="stable")
            # One goes where those before it reach the sum already; the first always stays.
            before = np.cumsum(p[order]) - p[order]
            p[order[before >= self.top_p]] = 0
        p[p < self.min_p * p.max()] = 0
        return p / p.sum()

    def draw(self, logits: np.ndarray, recent: Sequence[int] = ()) -> int:
        """The next token; arguments as for ``probabilities``."""
        p = self.probabilities(logits, recent)
        sums = np.cumsum(p)
        at = np.searchsorted(sums, self._generator.random() * sums[-1], side="right")
        # Rounding may carry the drawn number to the very end, behind the last token that stays.
        return int(min(at, np.flatnonzero(p)[-1]))

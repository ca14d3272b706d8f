"""Chooses the next token: penalty, temperature and the usual filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import InputError
from rlx.ir.opdef import Array
from rlx.ops.selection.draw_token import CANDIDATES, SETTINGS

# Recent tokens that the device looks at.
RECENT = 64
_RANGES = {
    "temperature": (0.0, 1e6, "0 or above"),
    "top_k": (0, 2**31, "0 or above"),
    "top_p": (1e-9, 1.0, "above 0, up to 1"),
    "min_p": (0.0, 1.0, "0 to 1"),
    "repetition_penalty": (1e-6, 1e6, "above 0"),
    "repetition_window": (0, 2**31, "0 or above"),
}


@dataclass(frozen=True)
class Sampling:
    """Settings that say how tokens are drawn from logits.

    The steps, in this order: repetition penalty, temperature, top-k (ties stay), softmax, top-p, min-p. The device draws
    where ``top_k`` is 1 to 63 or the temperature 0, and the penalty is 1, or above it for up to 64 tokens; otherwise the host does,
    which waits for all logits.

    Attributes:
        temperature: Divides the logits; 0 takes the largest.
        top_k: The number of the largest that stay; 0 keeps all.
        top_p: The most probable stay whose sum reaches this; 1 keeps all.
        min_p: Those below this share of the largest probability go; 0 keeps all.
        repetition_penalty: Positive logits of recent tokens are divided by it, negative ones multiplied.
        repetition_window: The number of tokens that are recent; 0 for all.
        seed: Equal seeds draw equal tokens on one device; None takes another one each time.

    Raises:
        InputError: A setting is out of its range.

    Example:
        >>> Sampling(temperature=0.0).probabilities([1.0, 3.0, 2.0]).tolist()
        [0.0, 1.0, 0.0]
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    repetition_window: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most, expected) in _RANGES.items():
            value = getattr(self, name)
            kinds = (int,) if isinstance(least, int) else (int, float)
            if type(value) not in kinds or not least <= value <= most:
                raise InputError(f"[Sampling] {name}", got=repr(value), expected=expected)
        if self.seed is not None and (type(self.seed) is not int or self.seed < 0):
            raise InputError("[Sampling] seed", got=repr(self.seed), expected="0 or above, or None")

    def probabilities(self, logits: Any, recent: Sequence[int] = ()) -> Array:
        """Returns the distribution that tokens are drawn from.

        Args:
            logits: ``[vocabulary]``.
            recent: The tokens before, the last one last.

        Returns:
            f64 ``[vocabulary]``, of sum 1.

        Raises:
            InputError: No logit is finite, or one is NaN.
        """
        index, p = self._candidates(np.asarray(logits), recent)
        result = np.zeros(len(logits))
        result[index] = p
        return result

    @property
    def on_device(self) -> bool:
        """True where the device draws tokens; see ``rlx.ops.selection.draw_token``."""
        penalty, window = self.repetition_penalty, self.repetition_window
        few = self.temperature == 0 or 1 <= self.top_k < CANDIDATES
        return few and (penalty == 1 or (penalty > 1 and 1 <= window <= RECENT))

    def settings(self, number: float, recent: Sequence[int] = ()) -> Array:
        """Returns what the device draws a token by: f32 ``[SETTINGS + RECENT]``.

        Args:
            number: A random number below 1.
            recent: The tokens before those of the run.
        """
        result = np.full(SETTINGS + RECENT, -1, np.float32)
        wide = (self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty)
        result[:SETTINGS] = *wide, min(number, 1 - 2.0**-24)
        # The last token of the run counts as well.
        few = recent[len(recent) - min(len(recent), self.repetition_window - 1) :]
        if self.repetition_penalty != 1:
            result[SETTINGS : SETTINGS + len(few)] = few
        return result

    def _candidates(self, logits: Array, recent: Sequence[int]) -> tuple[Array, Array]:
        """The tokens that may be drawn and their probabilities; with ``top_k`` in falling order."""
        scores = logits
        if self.repetition_penalty != 1 and len(recent):
            seen = np.unique(np.asarray(recent[-self.repetition_window :], np.int64))
            scores, stored = scores.copy(), scores[seen]
            factor = self.repetition_penalty
            scores[seen] = np.where(stored > 0, stored / factor, stored * factor)
        if not math.isfinite(scores.max()):
            raise InputError("logits that are not finite", hint="the model's file may be damaged")
        if self.temperature == 0:
            return np.array([scores.argmax()]), np.ones(1)
        index = np.arange(len(scores))
        if 0 < self.top_k < len(scores):
            index = np.flatnonzero(scores >= np.partition(scores, -self.top_k)[-self.top_k])
        if self.top_k:
            index = index[np.argsort(-scores[index], kind="stable")]
        p = scores[index].astype(np.float64)
        p = np.exp((p - p.max()) / self.temperature)
        p /= p.sum()
        if self.top_p < 1:
            order = np.argsort(-p, kind="stable")
            # One goes where those before it reach the sum already; the first always stays.
            before = np.cumsum(p[order]) - p[order]
            p[order[before >= self.top_p]] = 0
        p[p < self.min_p * p.max()] = 0
        kept = p > 0
        index, p = index[kept], p[kept]
        return index, p / p.sum()


class Sampler:
    """Draws tokens one after the other.

    Args:
        sampling: How.
    """

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._generator = np.random.default_rng(sampling.seed)

    def number(self) -> float:
        """Returns the random number of the next token."""
        return float(self._generator.random())

    def draw(self, logits: Array, recent: Sequence[int] = (), number: float | None = None) -> int:
        """Returns the next token.

        Args:
            logits: ``[vocabulary]``.
            recent: The tokens before, the last one last.
            number: Its random number; None takes the next one.
        """
        index, p = self.sampling._candidates(logits, recent)
        number = self.number() if number is None else number
        position = int(np.searchsorted(np.cumsum(p), number, side="right"))
        # Rounding may carry the drawn number to the very end.
        return int(index[min(position, len(index) - 1)])

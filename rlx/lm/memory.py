"""The memory that a model takes, stated before it is taken."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from rlx.importers.gguf import File
from rlx.ir.opdef import TensorType
from rlx.lm.config import ModelConfig


class MemoryNeeds(NamedTuple):
    """Bytes of a model.

    Attributes:
        weights: The tensors of the network.
        cache: Keys and values of one conversation.
        work: Values of a run.
    """

    weights: int
    cache: int
    work: int

    @property
    def total(self) -> int:
        """All together."""
        return sum(self)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size(value)}" for name, value in zip(self._fields, self))
        return f"{size(self.total)} ({parts})"


def size(nbytes: int) -> str:
    """Returns bytes as a person reads them.

    Example:
        >>> size(1536 * 1024)
        '1.5 MiB'
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(int(math.log(max(nbytes, 1), 1024)), len(units) - 1)
    return f"{nbytes / 1024**power:.{0 if power == 0 else 1}f} {units[power]}"


def estimate(
    file: File, config: ModelConfig, vocabulary: int, chunk: int, states: Iterable[TensorType]
) -> MemoryNeeds:
    """Returns the memory that a model will take.

    Args:
        file: The tensors.
        config: The sizes.
        vocabulary: The number of tokens.
        chunk: Most tokens of a run.
        states: The types of keys and values of a conversation.
    """
    weights = sum(tensor.packed.nbytes for tensor in file.tensors.values())
    wide = 4 * config.width + 3 * config.inner + (config.heads + config.kv_heads) * config.key
    cache = sum(type.nbytes for type in states)
    return MemoryNeeds(weights, cache, 4 * (chunk * wide + vocabulary))

"""Pairs of a row that turn."""

from __future__ import annotations

import numpy as np

from rlx.ir.opdef import Array


def rotated(x: Array, cos: Array, sin: Array, n: int, style: str) -> Array:
    """Returns ``rope`` of arrays."""
    entries, rest = x[..., :n], x[..., n:]
    if style == "neox":
        a, b = entries[..., : n // 2], entries[..., n // 2 :]
        y = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = entries[..., ::2], entries[..., 1::2]
        y = np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(entries.shape)
    return np.concatenate([y, rest], -1)

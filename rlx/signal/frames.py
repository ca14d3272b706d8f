"""Cutting a signal into frames, and block layout for ``fft``."""

from __future__ import annotations

import numpy as np

from rlx.errors import ShapeError, describe
from rlx.ir.graph import Node


def frame(x: Node, length: int, hop: int) -> Node:
    """Overlapping frames of the last axis.

    Args:
        x: ``[..., samples]``.
        length: Samples per frame; a multiple of ``hop``.
        hop: Samples from one frame to the next.

    Returns:
        ``[..., frames, length]`` with frames = (samples - length) // hop + 1; samples after the last
        whole frame are left out.

    Raises:
        ShapeError: The signal is shorter than a frame, or ``length`` is no multiple of ``hop``.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> frame(g.input("x", (3, 10)), 4, 2).shape
        (3, 4, 4)
    """
    g = x.graph
    if not x.shape or hop < 1 or length < hop or length % hop or x.shape[-1] < length:
        raise ShapeError(
            describe(
                "[frame] does not fit",
                got=f"x {x.shape}, length {length}, hop {hop}",
                expected="samples >= length, and length a multiple of hop",
            )
        )
    # Frame f is the hops f, f + 1, ... side by side, so each part of all frames is one narrow.
    parts = length // hop
    frames = (x.shape[-1] - length) // hop + 1
    hops = frames + parts - 1
    cut: Node = g.narrow(x, -1, 0, hops * hop)
    rows: Node = g.reshape(cut, (*x.shape[:-1], hops, hop))
    joined: Node = g.concat([g.narrow(rows, -2, part, frames) for part in range(parts)], -1)
    return joined


def complex_block(x: Node) -> Node:
    """A real signal in block layout, imaginary parts 0: what ``fft`` takes.

    Args:
        x: ``[..., n]``.

    Returns:
        ``[..., 2n]``.
    """
    zeros = x.graph.constant(np.zeros(x.shape, x.dtype.numpy))
    block: Node = x.graph.concat([x, zeros], -1)
    return block

"""Shapes of signals: frames, their overlap-add, continuation past the ends, block layout."""

from __future__ import annotations

from rlx.errors import ShapeError, UnknownNameError, did_you_mean
from rlx.ir.graph import Node

PAD_MODES = ("constant", "edge", "reflect", "odd")


def frame(x: Node, length: int, hop: int) -> Node:
    """Frames of the last axis.

    Args:
        x: ``[..., samples]``.
        length: Samples per frame.
        hop: Samples from one frame to the next, >= 1.

    Returns:
        ``[..., frames, length]`` with frames = (samples - length) // hop + 1; samples after the last
        whole frame are left out.

    Raises:
        ShapeError: The signal is shorter than a frame, or a length is below 1.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> frame(g.input("x", (3, 10)), 4, 2).shape
        (3, 4, 4)
    """
    if not x.shape or hop < 1 or length < 1 or x.shape[-1] < length:
        raise ShapeError(
            "[frame] does not fit",
            got=f"x {x.shape}, length {length}, hop {hop}",
            expected="samples >= length >= 1, and hop >= 1",
        )
    return x.graph.add_node("frames", [x], {"length": length, "hop": hop})


def overlap_add(frames: Node, hop: int) -> Node:
    """The sum of frames laid out ``hop`` samples apart: what undoes ``frame``.

    Args:
        frames: ``[..., frames, length]``.
        hop: Samples from one frame to the next, >= 1.

    Returns:
        ``[..., (frames - 1) * hop + length]``.
    """
    *outer, count, length = frames.shape
    # Each frame is cut into parts of one hop; part p of frame f adds to hop f + p of the result.
    parts = -(-length // hop)
    g, wide = frames.graph, extend(frames, 0, parts * hop - length)
    cells = g.reshape(wide, (*outer, count, parts, hop))
    total = None
    for part in range(parts):
        row = g.reshape(g.narrow(cells, -2, part, 1), (*outer, count * hop))
        shifted = extend(row, part * hop, (parts - 1 - part) * hop)
        total = shifted if total is None else total + shifted
    assert total is not None, "a frame has a part"
    return narrow(total, 0, (count - 1) * hop + length)


def extend(x: Node, before: int, after: int, mode: str = "constant") -> Node:
    """The last axis continued past its ends.

    Args:
        x: ``[..., n]``.
        before: Samples added in front.
        after: Samples added behind.
        mode: "constant" (zeros), "edge", "reflect" (NumPy's), or "odd": reflected about the end's
            value, 2 x[0] - x[k] (``scipy.signal.filtfilt``).

    Returns:
        ``[..., before + n + after]``.

    Raises:
        UnknownNameError: There is no such mode.
        ShapeError: "reflect" and "odd" need n > before and n > after, "edge" needs n >= 1.
    """
    if mode not in PAD_MODES:
        raise UnknownNameError(
            f"no padding is named {mode!r}", hint=did_you_mean(str(mode), PAD_MODES)
        )
    if mode == "constant":
        return x.graph.pad(x, [*[(0, 0)] * (len(x.shape) - 1), (before, after)])
    n, limit = x.shape[-1], max(before, after)
    least = 1 if mode == "edge" else limit + 1
    if limit and n < least:
        raise ShapeError(
            f"[extend] too short for {mode} padding",
            got=f"{n} samples, {before} before and {after} after",
            expected=f"at least {least} samples",
        )

    def part(count: int, first: bool) -> Node:
        end = x[..., :1] if first else x[..., n - 1 :]
        if mode == "edge":
            return x.graph.expand(end, (*x.shape[:-1], count))
        mirror = x[..., count:0:-1] if first else x[..., n - 1 - count : n - 1][..., ::-1]
        return mirror if mode == "reflect" else end * 2.0 - mirror

    pieces = [part(before, True)] if before else []
    pieces += [x, *([part(after, False)] if after else [])]
    return x.graph.concat(pieces, -1) if len(pieces) > 1 else x


def narrow(x: Node, start: int, length: int) -> Node:
    """``length`` samples of the last axis from ``start`` on."""
    if (start, length) == (0, x.shape[-1]):
        return x
    return x.graph.narrow(x, -1, start, length)


def complex_block(x: Node) -> Node:
    """A real signal in block layout, imaginary parts 0: what ``fft`` takes.

    Args:
        x: ``[..., n]``.

    Returns:
        ``[..., 2n]``.
    """
    return extend(x, 0, x.shape[-1])

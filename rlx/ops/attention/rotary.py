"""Rotary position embedding, in one and two dimensions (arXiv:2104.09864)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Sample
from rlx.ir.shape import broadcast
from rlx.ops.declare import FLOAT_KERNELS, composite
from rlx.ops.rows.rotation import rotated
from rlx.sizes import pinned

Style = Literal["neox", "gptj"]
_STYLES: tuple[Style, ...] = get_args(Style)


def _rope(g: Graph, x: Node, cos: Node, sin: Node, n_rot: int | None, style: str) -> Node:
    d = x.shape[-1] if x.shape else 0
    n = d if n_rot is None else n_rot
    if n % 2 or not 0 < n <= d or style not in _STYLES:
        raise GraphError(
            "[rope] does not fit",
            got=f"x {x.shape}, n_rot {n_rot}, style {style!r}",
            expected="an even n_rot within the last axis, style neox or gptj",
        )
    half = (*x.shape[:-1], n // 2)
    for name, table in (("cos", cos), ("sin", sin)):
        if broadcast(table.shape, half, where="rope") != half or table.shape[-1] != n // 2:
            raise ShapeError(f"[rope] {name}", got=table.shape, expected=f"broadcasts to {half}")
    entries = g.narrow(x, -1, 0, n) if n < d else x
    # Along this axis stand the two entries of a pair: one copy exchanges them, and one kernel does the rest.
    axis = -2 if style == "neox" else -1
    shape = (2, n // 2) if style == "neox" else (n // 2, 2)
    pairs = g.reshape(entries, (*x.shape[:-1], *shape))
    signs = g.constant(np.array([-1, 1]).reshape((2, 1) if style == "neox" else (2,)), x.dtype)
    cos, sin = (g.unsqueeze(table, axis) for table in (cos, sin))
    turned = g.add(g.mul(pairs, cos), g.mul(g.flip(pairs, axis), g.mul(sin, signs)))
    result = g.reshape(turned, entries.shape)
    return g.concat([result, g.narrow(x, -1, n, d - n)], -1) if n < d else result


@composite(
    _rope,
    dtypes=FLOAT_KERNELS,
    samples=lambda: tuple(
        Sample(shapes, {"n_rot": n, "style": style})
        for style in _STYLES
        for shapes, n in (
            (((2, 3, 5, 8), (5, 4), (5, 4)), 8),
            (((2, 5, 8), (5, 2), (5, 2)), 4),
            (((1, 2), (1, 1), (1, 1)), None),
            (((0, 5, 8), (5, 4), (5, 4)), 8),
        )
    ),
)
def rope(
    x: Array, cos: Array, sin: Array, n_rot: int | None = None, style: Style = "neox"
) -> Array:
    """Pairs of the last axis rotated by angles that depend on the position.

    Args:
        x: ``[..., positions, D]``.
        cos: Cosines, broadcast to ``[..., positions, n_rot / 2]``.
        sin: Sines, likewise.
        n_rot: How many entries are rotated, even; the rest stays as it is. None: all.
        style: Which entries make a pair: "neox" i and i + n_rot / 2, "gptj" 2i and 2i + 1.
    """
    return rotated(x, cos, sin, x.shape[-1] if n_rot is None else n_rot, style)


def axial_angles(height: int, width: int, d: int, theta: float) -> Array:
    """``[height * width, d / 2]``: angles of a row-major grid, the first half by row, the second by column."""
    frequencies = theta ** (-np.arange(d // 4) / (d // 4))
    rows, columns = np.divmod(np.arange(height * width), width)
    return np.concatenate([rows[:, None] * frequencies, columns[:, None] * frequencies], -1)


def _axial(g: Graph, x: Node, height: int, width: int, theta: float, style: Style) -> Node:
    if len(x.shape) < 2 or x.shape[-1] % 4 or x.shape[-1] == 0 or x.shape[-2] != height * width:
        raise ShapeError(
            "[axial_rope2d] does not fit",
            got=f"{x.shape} on a grid of {height} x {width}",
            expected="[..., height * width, D] with D divisible by 4",
        )
    angles = axial_angles(height, width, pinned(x.shape[-1]), theta)
    cos, sin = (g.constant(f(angles), x.dtype) for f in (np.cos, np.sin))
    return g.rope(x, cos, sin, None, style)


@composite(
    _axial,
    dtypes=FLOAT_KERNELS,
    samples=lambda: (
        Sample(((2, 6, 8),), {"height": 2, "width": 3}),
        Sample(((6, 4),), {"height": 3, "width": 2, "style": "gptj", "theta": 100.0}),
        Sample(((1, 1, 4),), {"height": 1, "width": 1}),
        Sample(((0, 4, 4),), {"height": 2, "width": 2}),
    ),
)
def axial_rope2d(
    x: Array, height: int, width: int, theta: float = 10000.0, style: Style = "neox"
) -> Array:
    """Rotary embedding of an image grid: half of the pairs turn with the row, half with the column.

    Args:
        x: ``[..., height * width, D]``, positions in row-major order, D divisible by 4.
        height: Rows of the grid.
        width: Columns.
        theta: Base of the frequencies theta^(-4i / D).
        style: As in ``rope``.
    """
    angles = axial_angles(height, width, x.shape[-1], theta)
    return rotated(x, np.cos(angles), np.sin(angles), x.shape[-1], style)

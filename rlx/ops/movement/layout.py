"""Rearrangements that are made of other operations: split, squeeze, flip, pad, tile, and the like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Axes, PerAxis, Sample, ShapeLike
from rlx.ir.shape import Shape, as_axes, as_axis, is_sized
from rlx.ops.declare import composite
from rlx.resource_limits import charge
from rlx.sizes import largest

# --- split -------------------------------------------------------------------------------------------


def _split(g: Graph, x: Node, sizes: Any, axis: int) -> tuple[Node, ...]:
    axis = as_axis(axis, len(x.shape), where="split")
    if any(size < 0 for size in sizes) or sum(sizes) != x.shape[axis]:
        raise ShapeError(
            "[split] the sizes do not make up the axis",
            got=f"{tuple(sizes)}, sum {sum(sizes)}",
            expected=f"sizes >= 0 whose sum is {x.shape[axis]}",
        )
    starts = np.cumsum([0, *sizes]).tolist()
    return tuple(g.narrow(x, axis, s, n) for s, n in zip(starts, sizes, strict=False))


@composite(
    _split,
    samples=lambda: (
        Sample(((5, 4),), {"sizes": (2, 3), "axis": 0}),
        Sample(((2, 5),), {"sizes": (1, 0, 4), "axis": -1}),
        Sample(((1,),), {"sizes": (1,), "axis": 0}),
        Sample(((0, 4),), {"sizes": (1, 3), "axis": 1}),
    ),
)
def split(x: Array, sizes: Sequence[int], axis: int) -> tuple[Array, ...]:
    """``x`` cut along ``axis`` into parts of the given sizes.

    Args:
        x: Any shape of rank >= 1.
        sizes: Length of each part; their sum is the length of the axis.
        axis: The axis that is cut.

    Returns:
        A tuple of as many results as there are sizes.
    """
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


# --- axes of size 1 ------------------------------------------------------------------------------------


def _squeeze(g: Graph, x: Node, axes: Any) -> Node:
    ones = [axis for axis, dim in enumerate(x.shape) if dim == 1] if axes is None else axes
    result = as_axes(ones, len(x.shape), where="squeeze")
    if any(x.shape[axis] != 1 for axis in result):
        raise ShapeError("[squeeze] an axis is not of size 1", got=f"axes {result} of {x.shape}")
    return g.reshape(x, tuple(d for axis, d in enumerate(x.shape) if axis not in result))


@composite(
    _squeeze,
    samples=lambda: (
        Sample(((1, 3, 1),), {"axes": (0,)}),
        Sample(((1, 3, 1),), {"axes": -1}),
        Sample(((1, 1),), {"axes": None}),
        Sample(((0, 1),), {"axes": (1,)}),
    ),
)
def squeeze(x: Array, axes: Axes = None) -> Array:
    """``x`` without the named axes, which are of size 1 (all such axes by default)."""
    return np.squeeze(x, tuple(axes) if isinstance(axes, Iterable) else axes)


def _unsqueeze(g: Graph, x: Node, axes: Any) -> Node:
    listed = [axes] if isinstance(axes, int) else list(axes)
    rank = len(x.shape) + len(listed)
    result = as_axes(listed, rank, where="unsqueeze")
    dims = iter(x.shape)
    return g.reshape(x, tuple(1 if axis in result else next(dims) for axis in range(rank)))


@composite(
    _unsqueeze,
    samples=lambda: (
        Sample(((3, 4),), {"axes": (0, -1)}),
        Sample(((),), {"axes": 0}),
        Sample(((0, 2),), {"axes": (1,)}),
    ),
)
def unsqueeze(x: Array, axes: ShapeLike) -> Array:
    """``x`` with axes of size 1 put in; ``axes`` number them in the result."""
    return np.expand_dims(x, tuple(axes) if isinstance(axes, Iterable) else axes)


# --- order ---------------------------------------------------------------------------------------------


def _flip(g: Graph, x: Node, axes: Any) -> Node:
    result = as_axes(axes, len(x.shape), where="flip")
    if not result:
        return x
    starts = [x.shape[axis] - 1 for axis in result]
    return g.slice(x, starts, [-x.shape[axis] - 1 for axis in result], result, [-1] * len(result))


@composite(
    _flip,
    samples=lambda: (
        Sample(((3, 4),), {"axes": (0,)}),
        Sample(((3, 4, 5),), {"axes": (0, -1)}),
        Sample(((2, 3),), {"axes": None}),
        Sample(((1,),), {"axes": 0}),
        Sample(((0, 3),), {"axes": (0, 1)}),
    ),
)
def flip(x: Array, axes: Axes = None) -> Array:
    """``x`` in reverse along ``axes`` (all of them by default)."""
    return np.flip(x, tuple(axes) if isinstance(axes, Iterable) else axes)


def _tile(g: Graph, x: Node, repeats: Any) -> Node:
    listed = [repeats] if isinstance(repeats, int) else list(repeats)
    if len(listed) != len(x.shape) or any(n < 0 for n in listed):
        raise ShapeError(
            "[tile] repeats do not fit", got=listed, expected=f"{len(x.shape)} numbers >= 0"
        )
    paired = [part for dim in x.shape for part in (1, dim)]
    wanted = [part for n, dim in zip(listed, x.shape, strict=True) for part in (n, dim)]
    spread = g.expand(g.reshape(x, paired), wanted)
    return g.reshape(spread, [n * dim for n, dim in zip(listed, x.shape, strict=True)])


@composite(
    _tile,
    samples=lambda: (
        Sample(((2, 3),), {"repeats": (2, 3)}),
        Sample(((1,),), {"repeats": 4}),
        Sample(((2, 3),), {"repeats": (0, 1)}),
        Sample(((2, 1, 3),), {"repeats": (1, 5, 1)}),
    ),
)
def tile(x: Array, repeats: PerAxis) -> Array:
    """``x`` repeated as a whole, ``repeats[i]`` times along axis i (NumPy's ``tile``)."""
    return np.tile(x, repeats)


def _pixels(name: str, x: Node, block: int) -> Shape:
    if len(x.shape) != 4 or block < 1:
        raise ShapeError(
            f"[{name}] does not fit",
            got=f"{x.shape}, block {block}",
            expected="[N, C, H, W] and a block >= 1",
        )
    return x.shape


def _depth_to_space(g: Graph, x: Node, block: int, mode: str) -> Node:
    n, c, h, w = _pixels("depth_to_space", x, block)
    if c % (block * block) or mode not in ("dcr", "crd"):
        raise ShapeError(
            "[depth_to_space] does not fit",
            got=f"{c} channels, block {block}, mode {mode!r}",
            expected="channels divisible by block * block, mode dcr or crd",
        )
    depth = c // (block * block)
    if mode == "dcr":
        parts, order = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    return g.reshape(g.transpose(g.reshape(x, parts), order), (n, depth, h * block, w * block))


@composite(
    _depth_to_space,
    samples=lambda: (
        Sample(((1, 8, 2, 3),), {"block": 2}),
        Sample(((2, 8, 2, 3),), {"block": 2, "mode": "crd"}),
        Sample(((1, 1, 1, 1),), {"block": 1}),
        Sample(((0, 4, 2, 2),), {"block": 2}),
    ),
)
def depth_to_space(x: Array, block: int, mode: Literal["dcr", "crd"] = "dcr") -> Array:
    """Channels spread over blocks of pixels: [N, C, H, W] -> [N, C / b^2, H b, W b].

    Args:
        x: ``[N, C, H, W]``.
        block: The block's side b.
        mode: Order of the channels: "dcr" (block row, block column, channel) or "crd".
    """
    n, c, h, w = x.shape
    d = c // block**2
    if mode == "dcr":
        y = x.reshape(n, block, block, d, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, d, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, d, h * block, w * block)


def _space_to_depth(g: Graph, x: Node, block: int) -> Node:
    n, c, h, w = _pixels("space_to_depth", x, block)
    if h % block or w % block:
        raise ShapeError("[space_to_depth] does not divide", got=f"{h} x {w} by block {block}")
    parts = g.reshape(x, (n, c, h // block, block, w // block, block))
    moved = g.transpose(parts, (0, 3, 5, 1, 2, 4))
    return g.reshape(moved, (n, c * block * block, h // block, w // block))


@composite(
    _space_to_depth,
    samples=lambda: (
        Sample(((1, 2, 4, 6),), {"block": 2}),
        Sample(((1, 1, 1, 1),), {"block": 1}),
        Sample(((0, 2, 3, 3),), {"block": 3}),
    ),
)
def space_to_depth(x: Array, block: int) -> Array:
    """Blocks of pixels gathered into channels: the inverse of ``depth_to_space`` (dcr)."""
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * block * block, h // block, w // block)


# --- padding -------------------------------------------------------------------------------------------

PadMode = Literal["constant", "reflect", "edge", "wrap"]
_MODES: tuple[PadMode, ...] = get_args(PadMode)


def _pad(g: Graph, x: Node, pads: Any, mode: str, value: Any) -> Node:
    pairs = [tuple(pair) for pair in pads]
    if len(pairs) != len(x.shape) or any(len(pair) != 2 for pair in pairs):
        raise ShapeError("[pad] one (before, after) pair per axis", got=pads, expected=len(x.shape))
    if mode not in _MODES:
        raise GraphError("[pad] no such mode", got=repr(mode), expected=", ".join(_MODES))
    for axis, (before, after) in enumerate(pairs):
        x = _cut_axis(g, x, axis, largest(0, -before), largest(0, -after))
    extra = tuple((largest(0, before), largest(0, after)) for before, after in pairs)
    axes = [axis for axis, pair in enumerate(extra) if is_sized(pair) or any(pair)]
    if not axes:
        return x
    if mode != "constant":
        for axis in axes:
            if x.shape[axis] == 0:
                raise ShapeError(f"[pad] {mode} of an empty axis", got=f"{x.shape}, axis {axis}")
            # A few numbers in a file may ask for a result of any size.
            charge(f"[pad] {mode}", elements=x.shape[axis] + sum(extra[axis]))
        return g.add_node("pad_repeat", [x], {"pads": extra, "mode": mode})
    filler = g.constant(np.full((), value), x.dtype)
    if len(axes) > 1 or is_sized(extra):  # what is known only when the graph runs may be 0
        return g.add_node("pad_constant", [x, filler], {"pads": extra})
    # Around one axis the value is joined on, which fusions look for.
    (axis,) = axes
    sides = [
        [g.expand(filler, (*x.shape[:axis], count, *x.shape[axis + 1 :]))] if count else []
        for count in extra[axis]
    ]
    return g.concat([*sides[0], x, *sides[1]], axis)


def _cut_axis(g: Graph, x: Node, axis: int, before: int, after: int) -> Node:
    n = x.shape[axis] - before - after
    if n < 0:
        raise ShapeError("[pad] removes more than the axis has", got=f"{x.shape}, axis {axis}")
    return g.narrow(x, axis, before, n) if before + after else x


@composite(
    _pad,
    samples=lambda: (
        Sample(((2, 3),), {"pads": ((1, 2), (0, 3)), "value": 1}),
        Sample(((2, 3),), {"pads": ((-1, 2), (2, -2))}),
        Sample(((4, 5),), {"pads": ((2, 1), (3, 4)), "mode": "reflect"}),
        Sample(((4, 5),), {"pads": ((2, 1), (0, 7)), "mode": "edge"}),
        Sample(((4, 5),), {"pads": ((5, 1), (0, 7)), "mode": "wrap"}),
        Sample(((3,),), {"pads": ((5, 7),), "mode": "reflect"}),
        Sample(((1, 1),), {"pads": ((0, 0), (0, 0))}),
        Sample(((0, 2),), {"pads": ((1, 1), (0, 1))}),
        Sample(((),), {"pads": ()}),
    ),
)
def pad(
    x: Array, pads: Sequence[Sequence[int]], mode: PadMode = "constant", value: float = 0
) -> Array:
    """``x`` with entries added before and after each axis.

    Args:
        x: Any shape.
        pads: One (before, after) pair per axis; a negative number takes entries away.
        mode: "constant" (``value``), "reflect" (mirrored, the edge not repeated), "edge" (the edge
            repeated) or "wrap" (from the other side), as NumPy's ``pad``.
        value: The value that "constant" adds.
    """
    for axis, (before, after) in enumerate(pads):
        cut = [slice(None)] * x.ndim
        cut[axis] = slice(largest(0, -before), x.shape[axis] - largest(0, -after))
        extra = [(0, 0)] * x.ndim
        extra[axis] = (largest(0, before), largest(0, after))
        fill: dict[str, Any] = {"constant_values": value} if mode == "constant" else {}
        x = np.pad(x[tuple(cut)], extra, mode, **fill)
    return x

"""Masking rules of leaves, elementwise operations and operations that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx.ir.graph import Node
from rlx.passes.masking.dim_sizes import Axis, UnmaskableError, regrouped, sizes_of, varies, whole
from rlx.passes.masking.rules import (
    ORDERS,
    At,
    Mask,
    MaskStep,
    aligned,
    one,
    one_factor,
    rule,
    same,
    same_values,
)

# --- leaves ---------------------------------------------------------------------------------------


@rule("input", "param")
def _leaf(pos: At) -> MaskStep:
    pos.same_but("shape")
    if pos.node.op == "param":
        pos.attr("shape")
        if not same_values(pos.nodes):
            raise UnmaskableError("has different values for different shapes")
    return one([whole(sizes) for sizes in pos.sizes()])


@rule("constant")
def _constant(pos: At) -> MaskStep:
    pos.same_but("value")
    sizes = pos.sizes()
    longest = np.asarray(pos.node.attrs["value"])
    for node in pos.nodes[1:]:
        value = np.asarray(node.attrs["value"])
        begin = longest[tuple(slice(size) for size in value.shape)]
        if not same(np.ascontiguousarray(begin), np.ascontiguousarray(value)):
            raise UnmaskableError("holds different numbers for different shapes")
    return one([whole(size) for size in sizes])


# --- one element for each -------------------------------------------------------------------------


@rule("elementwise")
def _elementwise(pos: At) -> MaskStep:
    pos.same_but()
    return one(aligned(pos.operands, len(pos.node.shape)))


# --- movement -------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(pos: At) -> MaskStep:
    return one(regrouped(pos.operands[0], pos.sizes()))


@rule("transpose")
def _transpose(pos: At) -> MaskStep:
    return one([pos.operands[0][axis] for axis in pos.attr("perm")])


@rule("expand")
def _expand(pos: At) -> MaskStep:
    args, sizes = pos.operands[0], pos.sizes()
    missing = len(sizes) - len(args)
    return one(
        [
            args[axis - missing] if axis >= missing and args[axis - missing] else whole(sizes[axis])
            for axis in range(len(sizes))
        ]
    )


@rule("part")
def _part(pos: At) -> MaskStep:
    # Its operand has several results; the analysis hands over those of the one that it takes.
    pos.same_but()
    return one(pos.operands[0])


@rule("narrow")
def _narrow(pos: At) -> MaskStep:
    axis, start = pos.attr("axis"), [node.attrs["start"] for node in pos.nodes]
    return _cut(pos, {axis: (start, 1)})


@rule("slice")
def _slice(pos: At) -> MaskStep:
    steps = pos.attr("steps")
    starts = list(zip(*[node.attrs["starts"] for node in pos.nodes], strict=True))
    return _cut(pos, {axis: (starts[axis], steps[axis]) for axis in range(len(steps))})


def _cut(pos: At, cuts: Mapping[int, tuple[Sequence[int], int]]) -> MaskStep:
    """Every ``step``-th element from a start: from the front, or, as many as ever, from the end."""
    axes, sizes = list(pos.operands[0]), pos.sizes()
    from_end: list[int] = []
    for axis, (starts, step) in cuts.items():
        args = sizes_of(axes[axis], pos.count)
        if sizes[axis] == args and step == 1:
            continue
        one_factor(axes[axis])
        padded = varies(axes[axis])
        axes[axis] = whole(sizes[axis])
        if len(set(starts)) == 1 and (step > 0 or not padded):
            continue
        ends = {start - size for start, size in zip(starts, args, strict=True)}
        if not padded or from_end or len(ends) > 1 or varies(axes[axis]):
            text = f"slices axis {axis} at different places for different shapes"
            raise UnmaskableError(text)
        from_end.append(axis)
    if not from_end:
        return one(axes)
    return MaskStep((tuple(axes),), special="from_end", axis=from_end[0])


@rule("concat")
def _concat(pos: At) -> MaskStep:
    axis, sizes = pos.attr("axis"), pos.sizes()
    results = []
    for other in range(len(sizes)):
        args = {axes[other] for axes in pos.operands}
        if other != axis and len(args) > 1:
            raise UnmaskableError(ORDERS)
        results.append(pos.operands[0][other])
    padded = [number for number, axes in enumerate(pos.operands) if varies(axes[axis])]
    masks: tuple[Mask, ...] = ()
    if len(pos.operands) > 1 and padded:
        behind = pos.node.inputs[padded[0] + 1 :]
        if behind:
            _check_filling(behind, axis, len(padded))
            masks = pos.masks(padded[0], [axis], padded[0] + 1)
        one_factor(pos.operands[padded[0]][axis])
    if len(pos.operands) > 1:
        results[axis] = whole(sizes[axis])
    return one(results, masks)


def _check_filling(behind: Sequence[Node], axis: int, padded: int) -> None:
    """Checks that the elements after the padding are one number: the padding is filled with it, too."""
    filled = [node.op == "expand" and node.inputs[0].type.size == 1 for node in behind]
    if padded > 1 or not all(filled) or len({node.inputs[0].id for node in behind}) > 1:
        raise UnmaskableError(f"appends to padding along axis {axis}")


@rule("pad_constant")
def _pad_constant(pos: At) -> MaskStep:
    pads = pos.attr("pads")
    _pads(pos, pads)
    behind = [axis for axis, (_, after) in enumerate(pads) if after > 0]
    return one(_padded(pos, pads), pos.masks(0, behind, 1))


@rule("pad_repeat")
def _pad_repeat(pos: At) -> MaskStep:
    pads, mode = pos.attr("pads"), pos.attr("mode")
    _pads(pos, pads)
    for axis, (before, after) in enumerate(pads):
        # Reflections of more than the axis turn at its end.
        turns = mode != "edge" and before >= min(sizes_of(pos.operands[0][axis], pos.count))
        if after > 0 or turns or (mode == "wrap" and before > 0):
            pos.fixed(0, [axis])
    return one(_padded(pos, pads))


def _pads(pos: At, pads: Sequence[tuple[int, int]]) -> None:
    for axis, pair in enumerate(pads):
        if tuple(pair) != (0, 0):
            one_factor(pos.operands[0][axis])


def _padded(pos: At, pads: Sequence[tuple[int, int]]) -> list[Axis]:
    sizes = pos.sizes()
    return [
        operand if tuple(pair) == (0, 0) else whole(size)
        for operand, pair, size in zip(pos.operands[0], pads, sizes, strict=True)
    ]


@rule("gather")
def _gather(pos: At) -> MaskStep:
    axis = pos.attr("axis")
    x, indices = pos.operands
    if varies(x[axis]):
        least = min(sizes_of(x[axis], pos.count))
        known = pos.nodes[0].inputs[1]
        value = np.asarray(known.attrs["value"]) if known.op == "constant" else np.array([-1])
        if value.size and not (0 <= value.min() and value.max() < least):
            raise UnmaskableError(
                f"gathers along axis {axis} by indices that may count from its end"
            )
    masks = pos.masks(1, range(len(indices)))
    return one([*x[:axis], *indices, *x[axis + 1 :]], masks)


@rule("gather_elements")
def _gather_elements(pos: At) -> MaskStep:
    axis = pos.attr("axis")
    pos.fixed(0, [axis])
    return one(pos.operands[1], pos.masks(1, range(len(pos.operands[1]))))

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
def _leaf(position: At) -> MaskStep:
    position.same_but("shape")
    if position.node.op == "param":
        position.attr("shape")
        if not same_values(position.nodes):
            raise UnmaskableError("has other values for other shapes")
    return one([whole(sizes) for sizes in position.sizes()])


@rule("constant")
def _constant(position: At) -> MaskStep:
    position.same_but("value")
    sizes = position.sizes()
    longest = np.asarray(position.node.attrs["value"])
    for node in position.nodes[1:]:
        value = np.asarray(node.attrs["value"])
        begin = longest[tuple(slice(size) for size in value.shape)]
        if not same(np.ascontiguousarray(begin), np.ascontiguousarray(value)):
            raise UnmaskableError("holds other numbers for other shapes")
    return one([whole(size) for size in sizes])


# --- one element for each -------------------------------------------------------------------------


@rule("elementwise")
def _elementwise(position: At) -> MaskStep:
    position.same_but()
    return one(aligned(position.operands, len(position.node.shape)))


# --- movement -------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(position: At) -> MaskStep:
    return one(regrouped(position.operands[0], position.sizes()))


@rule("transpose")
def _transpose(position: At) -> MaskStep:
    return one([position.operands[0][axis] for axis in position.attr("perm")])


@rule("expand")
def _expand(position: At) -> MaskStep:
    arguments, sizes = position.operands[0], position.sizes()
    missing = len(sizes) - len(arguments)
    return one(
        [
            arguments[axis - missing]
            if axis >= missing and arguments[axis - missing]
            else whole(sizes[axis])
            for axis in range(len(sizes))
        ]
    )


@rule("part")
def _part(position: At) -> MaskStep:
    # Its operand has several results; the analysis hands over those of the one that it takes.
    position.same_but()
    return one(position.operands[0])


@rule("narrow")
def _narrow(position: At) -> MaskStep:
    axis, start = position.attr("axis"), [node.attrs["start"] for node in position.nodes]
    return _cut(position, {axis: (start, 1)})


@rule("slice")
def _slice(position: At) -> MaskStep:
    steps = position.attr("steps")
    starts = list(zip(*[node.attrs["starts"] for node in position.nodes], strict=True))
    return _cut(position, {axis: (starts[axis], steps[axis]) for axis in range(len(steps))})


def _cut(position: At, cuts: Mapping[int, tuple[Sequence[int], int]]) -> MaskStep:
    """Every ``step``-th element from a start: from the front, or, as many as ever, from the end."""
    axes, sizes = list(position.operands[0]), position.sizes()
    from_end: list[int] = []
    for axis, (starts, step) in cuts.items():
        arguments = sizes_of(axes[axis], position.count)
        if sizes[axis] == arguments and step == 1:
            continue
        one_factor(axes[axis])
        padded = varies(axes[axis])
        axes[axis] = whole(sizes[axis])
        if len(set(starts)) == 1 and (step > 0 or not padded):
            continue
        ends = {start - size for start, size in zip(starts, arguments, strict=True)}
        if not padded or from_end or len(ends) > 1 or varies(axes[axis]):
            text = f"takes a piece of axis {axis} that lies elsewhere for other shapes"
            raise UnmaskableError(text)
        from_end.append(axis)
    if not from_end:
        return one(axes)
    return MaskStep((tuple(axes),), special="from_end", axis=from_end[0])


@rule("concat")
def _concat(position: At) -> MaskStep:
    axis, sizes = position.attr("axis"), position.sizes()
    results = []
    for other in range(len(sizes)):
        arguments = {axes[other] for axes in position.operands}
        if other != axis and len(arguments) > 1:
            raise UnmaskableError(ORDERS)
        results.append(position.operands[0][other])
    padded = [number for number, axes in enumerate(position.operands) if varies(axes[axis])]
    masks: tuple[Mask, ...] = ()
    if len(position.operands) > 1 and padded:
        behind = position.node.inputs[padded[0] + 1 :]
        if behind:
            _check_filling(behind, axis, len(padded))
            masks = position.masks(padded[0], [axis], padded[0] + 1)
        one_factor(position.operands[padded[0]][axis])
    if len(position.operands) > 1:
        results[axis] = whole(sizes[axis])
    return one(results, masks)


def _check_filling(behind: Sequence[Node], axis: int, padded: int) -> None:
    """Checks that what stands behind padding is one number: the padding is filled with it, too."""
    filled = [node.op == "expand" and node.inputs[0].type.size == 1 for node in behind]
    if padded > 1 or not all(filled) or len({node.inputs[0].id for node in behind}) > 1:
        raise UnmaskableError(f"puts something behind padding along axis {axis}")


@rule("pad_constant")
def _pad_constant(position: At) -> MaskStep:
    pads = position.attr("pads")
    _pads(position, pads)
    behind = [axis for axis, (_, after) in enumerate(pads) if after > 0]
    return one(_padded(position, pads), position.masks(0, behind, 1))


@rule("pad_repeat")
def _pad_repeat(position: At) -> MaskStep:
    pads, mode = position.attr("pads"), position.attr("mode")
    _pads(position, pads)
    for axis, (before, after) in enumerate(pads):
        # Reflections of more than the axis turn at its end.
        turns = mode != "edge" and before >= min(
            sizes_of(position.operands[0][axis], position.count)
        )
        if after > 0 or turns or (mode == "wrap" and before > 0):
            position.fixed(0, [axis])
    return one(_padded(position, pads))


def _pads(position: At, pads: Sequence[tuple[int, int]]) -> None:
    for axis, pair in enumerate(pads):
        if tuple(pair) != (0, 0):
            one_factor(position.operands[0][axis])


def _padded(position: At, pads: Sequence[tuple[int, int]]) -> list[Axis]:
    sizes = position.sizes()
    return [
        operand if tuple(pair) == (0, 0) else whole(size)
        for operand, pair, size in zip(position.operands[0], pads, sizes, strict=True)
    ]


@rule("gather")
def _gather(position: At) -> MaskStep:
    axis = position.attr("axis")
    x, indices = position.operands
    if varies(x[axis]):
        least = min(sizes_of(x[axis], position.count))
        known = position.nodes[0].inputs[1]
        value = np.asarray(known.attrs["value"]) if known.op == "constant" else np.array([-1])
        if value.size and not (0 <= value.min() and value.max() < least):
            raise UnmaskableError(
                f"looks up places along axis {axis}, which may count from its end"
            )
    masks = position.masks(1, range(len(indices)))
    return one([*x[:axis], *indices, *x[axis + 1 :]], masks)


@rule("gather_elements")
def _gather_elements(position: At) -> MaskStep:
    axis = position.attr("axis")
    position.fixed(0, [axis])
    return one(position.operands[1], position.masks(1, range(len(position.operands[1]))))

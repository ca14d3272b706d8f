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
def _leaf(at: At) -> MaskStep:
    at.same_but("shape")
    if at.node.op == "param":
        at.attr("shape")
        if not same_values(at.nodes):
            raise UnmaskableError("has other values for other shapes")
    return one([whole(sizes) for sizes in at.sizes()])


@rule("constant")
def _constant(at: At) -> MaskStep:
    at.same_but("value")
    sizes = at.sizes()
    longest = np.asarray(at.node.attrs["value"])
    for node in at.nodes[1:]:
        value = np.asarray(node.attrs["value"])
        begin = longest[tuple(slice(size) for size in value.shape)]
        if not same(np.ascontiguousarray(begin), np.ascontiguousarray(value)):
            raise UnmaskableError("holds other numbers for other shapes")
    return one([whole(size) for size in sizes])


# --- one element for each -------------------------------------------------------------------------


@rule("elementwise")
def _elementwise(at: At) -> MaskStep:
    at.same_but()
    return one(aligned(at.operands, len(at.node.shape)))


# --- movement -------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(at: At) -> MaskStep:
    return one(regrouped(at.operands[0], at.sizes()))


@rule("transpose")
def _transpose(at: At) -> MaskStep:
    return one([at.operands[0][axis] for axis in at.attr("perm")])


@rule("expand")
def _expand(at: At) -> MaskStep:
    given, sizes = at.operands[0], at.sizes()
    missing = len(sizes) - len(given)
    return one(
        [
            given[axis - missing]
            if axis >= missing and given[axis - missing]
            else whole(sizes[axis])
            for axis in range(len(sizes))
        ]
    )


@rule("part")
def _part(at: At) -> MaskStep:
    # Its operand has several results; the analysis hands over those of the one that it takes.
    at.same_but()
    return one(at.operands[0])


@rule("narrow")
def _narrow(at: At) -> MaskStep:
    axis, start = at.attr("axis"), [node.attrs["start"] for node in at.nodes]
    return _cut(at, {axis: (start, 1)})


@rule("slice")
def _slice(at: At) -> MaskStep:
    steps = at.attr("steps")
    starts = list(zip(*[node.attrs["starts"] for node in at.nodes], strict=True))
    return _cut(at, {axis: (starts[axis], steps[axis]) for axis in range(len(steps))})


def _cut(at: At, cuts: Mapping[int, tuple[Sequence[int], int]]) -> MaskStep:
    """Every ``step``-th element from a start: from the front, or, as many as ever, from the end."""
    axes, sizes = list(at.operands[0]), at.sizes()
    from_end: list[int] = []
    for axis, (starts, step) in cuts.items():
        given = sizes_of(axes[axis], at.count)
        if sizes[axis] == given and step == 1:
            continue
        one_factor(axes[axis])
        padded = varies(axes[axis])
        axes[axis] = whole(sizes[axis])
        if len(set(starts)) == 1 and (step > 0 or not padded):
            continue
        ends = {start - size for start, size in zip(starts, given, strict=True)}
        if not padded or from_end or len(ends) > 1 or varies(axes[axis]):
            text = f"takes a piece of axis {axis} that lies elsewhere for other shapes"
            raise UnmaskableError(text)
        from_end.append(axis)
    if not from_end:
        return one(axes)
    return MaskStep((tuple(axes),), special="from_end", axis=from_end[0])


@rule("concat")
def _concat(at: At) -> MaskStep:
    axis, sizes = at.attr("axis"), at.sizes()
    found = []
    for other in range(len(sizes)):
        given = {axes[other] for axes in at.operands}
        if other != axis and len(given) > 1:
            raise UnmaskableError(ORDERS)
        found.append(at.operands[0][other])
    padded = [number for number, axes in enumerate(at.operands) if varies(axes[axis])]
    masks: tuple[Mask, ...] = ()
    if len(at.operands) > 1 and padded:
        behind = at.node.inputs[padded[0] + 1 :]
        if behind:
            _check_filling(behind, axis, len(padded))
            masks = at.masks(padded[0], [axis], padded[0] + 1)
        one_factor(at.operands[padded[0]][axis])
    if len(at.operands) > 1:
        found[axis] = whole(sizes[axis])
    return one(found, masks)


def _check_filling(behind: Sequence[Node], axis: int, padded: int) -> None:
    """Checks that what stands behind padding is one number: the padding is filled with it, too."""
    filled = [node.op == "expand" and node.inputs[0].type.size == 1 for node in behind]
    if padded > 1 or not all(filled) or len({node.inputs[0].id for node in behind}) > 1:
        raise UnmaskableError(f"puts something behind padding along axis {axis}")


@rule("pad_constant")
def _pad_constant(at: At) -> MaskStep:
    pads = at.attr("pads")
    _pads(at, pads)
    behind = [axis for axis, (_, after) in enumerate(pads) if after > 0]
    return one(_padded(at, pads), at.masks(0, behind, 1))


@rule("pad_repeat")
def _pad_repeat(at: At) -> MaskStep:
    pads, mode = at.attr("pads"), at.attr("mode")
    _pads(at, pads)
    for axis, (before, after) in enumerate(pads):
        # Reflections of more than the axis turn at its end.
        turns = mode != "edge" and before >= min(sizes_of(at.operands[0][axis], at.count))
        if after > 0 or turns or (mode == "wrap" and before > 0):
            at.fixed(0, [axis])
    return one(_padded(at, pads))


def _pads(at: At, pads: Sequence[tuple[int, int]]) -> None:
    for axis, pair in enumerate(pads):
        if tuple(pair) != (0, 0):
            one_factor(at.operands[0][axis])


def _padded(at: At, pads: Sequence[tuple[int, int]]) -> list[Axis]:
    sizes = at.sizes()
    return [
        given if tuple(pair) == (0, 0) else whole(size)
        for given, pair, size in zip(at.operands[0], pads, sizes, strict=True)
    ]


@rule("gather")
def _gather(at: At) -> MaskStep:
    axis = at.attr("axis")
    x, indices = at.operands
    if varies(x[axis]):
        least = min(sizes_of(x[axis], at.count))
        known = at.nodes[0].inputs[1]
        value = np.asarray(known.attrs["value"]) if known.op == "constant" else np.array([-1])
        if value.size and not (0 <= value.min() and value.max() < least):
            raise UnmaskableError(
                f"looks up places along axis {axis}, which may count from its end"
            )
    masks = at.masks(1, range(len(indices)))
    return one([*x[:axis], *indices, *x[axis + 1 :]], masks)


@rule("gather_elements")
def _gather_elements(at: At) -> MaskStep:
    axis = at.attr("axis")
    at.fixed(0, [axis])
    return one(at.operands[1], at.masks(1, range(len(at.operands[1]))))

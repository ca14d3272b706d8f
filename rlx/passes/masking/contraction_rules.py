"""Masking rules of operations that join elements along an axis: rows, products, windows, attention, recurrence."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.passes.masking.dim_sizes import Axis, UnmaskableError, sizes_of, varies, whole
from rlx.passes.masking.rules import ORDERS, At, MaskStep, aligned, one, one_factor, places, rule

# --- rows -----------------------------------------------------------------------------------------

# What padding is replaced with before it is joined along an axis.
_NEUTRAL = {
    "sum": "zero",
    "sum_abs": "zero",
    "sum_squares": "zero",
    "prod": "one",
    "max": "low",
    "min": "high",
    "mean": "zero",
}


def _reduced(position: At, axes: Sequence[int], keepdims: bool) -> list[Axis]:
    arguments = position.operands[0]
    return [
        () if axis in axes else item
        for axis, item in enumerate(arguments)
        if keepdims or axis not in axes
    ]


@rule(*_NEUTRAL)
def _reduce(position: At) -> MaskStep:
    axes, keepdims = position.attr("axes"), position.attr("keepdims")
    masks = position.masks(0, axes, _NEUTRAL[position.node.op])
    special = "mean" if masks and position.node.op == "mean" else ""
    if special:
        position.countable()
    return one(_reduced(position, axes, keepdims), masks, special)


@rule("argmax", "argmin")
def _arg(position: At) -> MaskStep:
    position.same_but()
    axis = position.node.attrs["axis"]
    if position.node.attrs["select_last"]:
        position.fixed(0, [axis])
    masks = position.masks(0, [axis], "low" if position.node.op == "argmax" else "high")
    return one(_reduced(position, [axis], position.node.attrs["keepdims"]), masks)


@rule("softmax", "log_softmax")
def _softmax(position: At) -> MaskStep:
    axis = position.attr("axis") % len(position.operands[0])
    masks = position.masks(0, [axis], "low")
    clean = frozenset({axis} if masks and position.node.op == "softmax" else ())
    return MaskStep((position.operands[0],), masks, "", clean)


@rule("cumsum", "cumprod")
def _cumulate(position: At) -> MaskStep:
    position.same_but()
    axis = position.node.attrs["axis"]
    one_factor(position.operands[0][axis])
    fill = "zero" if position.node.op == "cumsum" else "one"
    return one(
        position.operands[0],
        position.masks(0, [axis], fill) if position.node.attrs["reverse"] else (),
    )


@rule("layer_norm", "rms_norm")
def _norm(position: At) -> MaskStep:
    position.same_but()
    rank, axis = len(position.operands[0]), position.node.attrs["axis"]
    masks = position.masks(0, range(axis, rank))
    if masks:
        position.countable()
    if any(other != position.operands[0][axis:] for other in position.operands[1:]):
        raise UnmaskableError(ORDERS)
    return one(position.operands[0], masks, "norm" if masks else "")


@rule("rfft", "fft", "ordered", "find_peaks", "tree_scores")
def _last_axis(position: At) -> MaskStep:
    """What joins the elements of the last axis alone, whose rows do not depend on each other."""
    position.same_but()
    return _rows(position, 1)


@rule("lfilter", "sosfilt")
def _filter(position: At) -> MaskStep:
    """Filters along the last axis end where padding begins."""
    position.same_but()
    x = position.operands[0]
    one_factor(x[-1])
    position.fixed(0, range(len(x) - 1))
    for other in range(1, len(position.operands)):
        position.fixed(other)
    states = [
        tuple(map(whole, position.sizes(result))) for result in range(1, len(position.node.types))
    ]
    return MaskStep((x, *states), special="counted" if varies(x[-1]) else "")


@rule("frames")
def _frames(position: At) -> MaskStep:
    """Frames of what is valid see no padding."""
    position.same_but()
    one_factor(position.operands[0][-1])
    sizes = position.sizes()
    return one([*position.operands[0][:-1], whole(sizes[-2]), whole(sizes[-1])])


def _rows(position: At, last: int) -> MaskStep:
    retained = len(position.operands[0]) - last
    position.fixed(0, range(retained, len(position.operands[0])))
    for other in range(1, len(position.operands)):
        position.fixed(other)
    results = []
    for result in range(len(position.node.types)):
        sizes = position.sizes(result)
        results.append((*position.operands[0][:retained], *map(whole, sizes[retained:])))
    return MaskStep(tuple(results))


@rule("interpolate", "interpolate_plane")
def _interpolate(position: At) -> MaskStep:
    position.same_but("size")
    attrs = position.node.attrs
    several = isinstance(attrs["axis"], tuple)
    axes = attrs["axis"] if several else (attrs["axis"],)
    scales = attrs["scale"] if several else (attrs["scale"],)
    sizes = position.sizes()
    results: list[Axis] = list(position.operands[0])
    for axis, scale in zip(axes, scales, strict=True):
        # Copies of elements, as many of each: the last one is copied from what is valid.
        copies = (
            attrs["mode"] == "nearest" and (attrs["coordinates"], attrs["nearest_mode"]) in _COPIES
        )
        arguments = sizes_of(results[axis], position.count)
        exact = [size * scale for size in arguments] == list(sizes[axis]) and scale == int(scale)
        if not (copies and exact and not attrs["antialias"]):
            position.fixed(0, [axis])
            position.attr("size")
        one_factor(results[axis])
        results[axis] = whole(sizes[axis])
    return one(results)


_COPIES = (
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
    ("half_pixel", "floor"),
)


# --- products and windows -------------------------------------------------------------------------


@rule("matmul", "matmul_integer", "scaled_matmul_integer")
def _matmul(position: At) -> MaskStep:
    position.same_but()
    a, b = position.operands[:2]
    for other in range(2, len(position.operands)):
        position.fixed(other)
    if len(a) < 2 or len(b) < 2:
        position.fixed(0)
        position.fixed(1)
        return one([whole(size) for size in position.sizes()])
    if a[-1] != b[-2]:
        raise UnmaskableError(ORDERS)
    masks = (*position.masks(0, [len(a) - 1]), *position.masks(1, [len(b) - 2]))
    batch = aligned([a[:-2], b[:-2]], max(len(a), len(b)) - 2)
    return one([*batch, a[-2], b[-1]], masks)


@rule("dequant_matmul")
def _dequant_matmul(position: At) -> MaskStep:
    position.same_but()
    return _rows(position, 1)


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d")
def _convolution(position: At) -> MaskStep:
    position.same_but("padding")
    for other in range(1, len(position.operands)):
        position.fixed(other)
    position.fixed(0, [1])
    # A window of one element sees no neighbour.
    taps, pads = position.node.inputs[1].shape[2:], position.node.attrs["padding"]
    seen = [
        2 + axis
        for axis, (tap, pair) in enumerate(zip(taps, pads, strict=True))
        if tap > 1 or any(pair) or len({node.attrs["padding"] for node in position.nodes}) > 1
    ]
    return _windows(position, seen, "zero")


@rule("max_pool")
def _max_pool(position: At) -> MaskStep:
    position.same_but("padding")
    spatial = range(2, len(position.operands[0]))
    if position.node.attrs["ceil_mode"]:
        position.fixed(0, spatial)
    return _windows(position, spatial, "low")


@rule("window_sum")
def _window_sum(position: At) -> MaskStep:
    position.same_but("padding")
    attrs = position.node.attrs
    spatial = range(2, len(position.operands[0]))
    for axis in spatial:
        after = any(node.attrs["padding"][axis - 2][1] for node in position.nodes)
        # Windows at the end hold fewer elements: the padded graph divides by more.
        if attrs["ceil_mode"] or (after and attrs["divide"] == "inside"):
            position.fixed(0, [axis])
    return _windows(position, spatial, "zero")


def _windows(position: At, seen: Sequence[int], fill: str) -> MaskStep:
    """Windows along the axes from the third on, which see padding along some of them."""
    for axis in range(len(position.node.attrs["padding"])):
        if len({node.attrs["padding"][axis][0] for node in position.nodes}) > 1:
            raise UnmaskableError("begins before its operand by another number for other shapes")
    arguments, sizes = position.operands[0], position.sizes()
    for spatial in arguments[2:]:
        one_factor(spatial)
    return one(
        [arguments[0], whole(sizes[1]), *map(whole, sizes[2:])], position.masks(0, seen, fill)
    )


@rule("attention")
def _attention(position: At) -> MaskStep:
    position.same_but()
    attrs = position.node.attrs
    at_keys = 2 if len(position.node.shape) == 4 and attrs["layout"] == "bhsd" else 1
    q, k, v = position.operands[:3]
    for operand, axes in enumerate((q, k, v)):
        position.fixed(operand, [axis for axis in range(1, len(axes)) if axis != at_keys])
    if k[at_keys] != v[at_keys] or not q[0] == k[0] == v[0]:
        raise UnmaskableError(ORDERS)
    masks = (*position.masks(1, [at_keys]), *position.masks(2, [at_keys]))
    kind = attrs["kind"]
    special = ""
    if masks and kind in ("none", "custom", "bias"):
        special = "attention"
    lengths = {q[at_keys], k[at_keys]}
    if kind not in ("none", "custom", "bias") and len(lengths) > 1 and any(map(varies, lengths)):
        raise UnmaskableError(
            f"sees keys by their distance from queries ({kind}) of another length"
        )
    if kind == "custom":
        expected: Sequence[Axis] = (k[0], k[at_keys])
    else:
        heads = whole((attrs["num_heads"],) * position.count)
        expected = (q[0], heads, q[at_keys], k[at_keys])
    for axes in position.operands[3:]:
        for value, wanted in zip(axes[::-1], expected[::-1], strict=False):
            if value and value != wanted:
                raise UnmaskableError(ORDERS)
    result = list(q)
    result[-1] = whole(position.sizes()[-1])
    return one(result, masks, special)


@rule("recurrence")
def _recurrence(position: At) -> MaskStep:
    position.same_but()
    xw = position.operands[0]
    position.fixed(0, [2])
    one_factor(xw[0])
    arguments = places(position.node)
    position.fixed(1)
    for name in ("bias", "p"):
        if name in arguments:
            position.fixed(arguments[name])
    for name, axis in (("h0", 1), ("c0", 1), ("seq_lens", 0)):
        if name in arguments and position.operands[arguments[name]][axis] != xw[1]:
            raise UnmaskableError(ORDERS)
    y, *states = [list(map(whole, position.sizes(r))) for r in range(len(position.node.types))]
    y[0], y[2] = xw[0], xw[1]
    for state in states:
        state[1] = xw[1]
    padded = varies(xw[0])
    return MaskStep(
        (tuple(y), *map(tuple, states)),
        (),
        "recurrence" if padded else "",
        frozenset({0} if padded else ()),
    )

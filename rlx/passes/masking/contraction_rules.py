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


def _reduced(at: At, axes: Sequence[int], keepdims: bool) -> list[Axis]:
    given = at.operands[0]
    return [
        () if axis in axes else one
        for axis, one in enumerate(given)
        if keepdims or axis not in axes
    ]


@rule(*_NEUTRAL)
def _reduce(at: At) -> MaskStep:
    axes, keepdims = at.attr("axes"), at.attr("keepdims")
    masks = at.masks(0, axes, _NEUTRAL[at.node.op])
    special = "mean" if masks and at.node.op == "mean" else ""
    if special:
        at.countable()
    return one(_reduced(at, axes, keepdims), masks, special)


@rule("argmax", "argmin")
def _arg(at: At) -> MaskStep:
    at.same_but()
    axis = at.node.attrs["axis"]
    if at.node.attrs["select_last"]:
        at.fixed(0, [axis])
    masks = at.masks(0, [axis], "low" if at.node.op == "argmax" else "high")
    return one(_reduced(at, [axis], at.node.attrs["keepdims"]), masks)


@rule("softmax", "log_softmax")
def _softmax(at: At) -> MaskStep:
    axis = at.attr("axis") % len(at.operands[0])
    masks = at.masks(0, [axis], "low")
    clean = frozenset({axis} if masks and at.node.op == "softmax" else ())
    return MaskStep((at.operands[0],), masks, "", clean)


@rule("cumsum", "cumprod")
def _cumulate(at: At) -> MaskStep:
    at.same_but()
    axis = at.node.attrs["axis"]
    one_factor(at.operands[0][axis])
    fill = "zero" if at.node.op == "cumsum" else "one"
    return one(at.operands[0], at.masks(0, [axis], fill) if at.node.attrs["reverse"] else ())


@rule("layer_norm", "rms_norm")
def _norm(at: At) -> MaskStep:
    at.same_but()
    rank, axis = len(at.operands[0]), at.node.attrs["axis"]
    masks = at.masks(0, range(axis, rank))
    if masks:
        at.countable()
    if any(other != at.operands[0][axis:] for other in at.operands[1:]):
        raise UnmaskableError(ORDERS)
    return one(at.operands[0], masks, "norm" if masks else "")


@rule("rfft", "fft", "ordered", "find_peaks", "tree_scores")
def _last_axis(at: At) -> MaskStep:
    """What joins the elements of the last axis alone, whose rows do not depend on each other."""
    at.same_but()
    return _rows(at, 1)


@rule("lfilter", "sosfilt")
def _filter(at: At) -> MaskStep:
    """Filters along the last axis end where padding begins."""
    at.same_but()
    x = at.operands[0]
    one_factor(x[-1])
    at.fixed(0, range(len(x) - 1))
    for other in range(1, len(at.operands)):
        at.fixed(other)
    states = [tuple(map(whole, at.sizes(result))) for result in range(1, len(at.node.types))]
    return MaskStep((x, *states), special="counted" if varies(x[-1]) else "")


@rule("frames")
def _frames(at: At) -> MaskStep:
    """Frames of what is valid see no padding."""
    at.same_but()
    one_factor(at.operands[0][-1])
    sizes = at.sizes()
    return one([*at.operands[0][:-1], whole(sizes[-2]), whole(sizes[-1])])


def _rows(at: At, last: int) -> MaskStep:
    kept = len(at.operands[0]) - last
    at.fixed(0, range(kept, len(at.operands[0])))
    for other in range(1, len(at.operands)):
        at.fixed(other)
    results = []
    for result in range(len(at.node.types)):
        sizes = at.sizes(result)
        results.append((*at.operands[0][:kept], *map(whole, sizes[kept:])))
    return MaskStep(tuple(results))


@rule("interpolate", "interpolate_plane")
def _interpolate(at: At) -> MaskStep:
    at.same_but("size")
    attrs = at.node.attrs
    several = isinstance(attrs["axis"], tuple)
    axes = attrs["axis"] if several else (attrs["axis"],)
    scales = attrs["scale"] if several else (attrs["scale"],)
    sizes = at.sizes()
    found: list[Axis] = list(at.operands[0])
    for axis, scale in zip(axes, scales, strict=True):
        # Copies of elements, as many of each: the last one is copied from what is valid.
        copies = (
            attrs["mode"] == "nearest" and (attrs["coordinates"], attrs["nearest_mode"]) in _COPIES
        )
        given = sizes_of(found[axis], at.count)
        exact = [size * scale for size in given] == list(sizes[axis]) and scale == int(scale)
        if not (copies and exact and not attrs["antialias"]):
            at.fixed(0, [axis])
            at.attr("size")
        one_factor(found[axis])
        found[axis] = whole(sizes[axis])
    return one(found)


_COPIES = (
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
    ("half_pixel", "floor"),
)


# --- products and windows -------------------------------------------------------------------------


@rule("matmul", "matmul_integer", "scaled_matmul_integer")
def _matmul(at: At) -> MaskStep:
    at.same_but()
    a, b = at.operands[:2]
    for other in range(2, len(at.operands)):
        at.fixed(other)
    if len(a) < 2 or len(b) < 2:
        at.fixed(0)
        at.fixed(1)
        return one([whole(one) for one in at.sizes()])
    if a[-1] != b[-2]:
        raise UnmaskableError(ORDERS)
    masks = (*at.masks(0, [len(a) - 1]), *at.masks(1, [len(b) - 2]))
    batch = aligned([a[:-2], b[:-2]], max(len(a), len(b)) - 2)
    return one([*batch, a[-2], b[-1]], masks)


@rule("dequant_matmul")
def _dequant_matmul(at: At) -> MaskStep:
    at.same_but()
    return _rows(at, 1)


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d")
def _convolution(at: At) -> MaskStep:
    at.same_but("padding")
    for other in range(1, len(at.operands)):
        at.fixed(other)
    at.fixed(0, [1])
    # A window of one element sees no neighbour.
    taps, pads = at.node.inputs[1].shape[2:], at.node.attrs["padding"]
    seen = [
        2 + axis
        for axis, (tap, pair) in enumerate(zip(taps, pads, strict=True))
        if tap > 1 or any(pair) or len({node.attrs["padding"] for node in at.nodes}) > 1
    ]
    return _windows(at, seen, "zero")


@rule("max_pool")
def _max_pool(at: At) -> MaskStep:
    at.same_but("padding")
    spatial = range(2, len(at.operands[0]))
    if at.node.attrs["ceil_mode"]:
        at.fixed(0, spatial)
    return _windows(at, spatial, "low")


@rule("window_sum")
def _window_sum(at: At) -> MaskStep:
    at.same_but("padding")
    attrs = at.node.attrs
    spatial = range(2, len(at.operands[0]))
    for axis in spatial:
        after = any(node.attrs["padding"][axis - 2][1] for node in at.nodes)
        # Windows at the end hold fewer elements: the padded graph divides by more.
        if attrs["ceil_mode"] or (after and attrs["divide"] == "inside"):
            at.fixed(0, [axis])
    return _windows(at, spatial, "zero")


def _windows(at: At, seen: Sequence[int], fill: str) -> MaskStep:
    """Windows along the axes from the third on, which see padding along some of them."""
    for axis in range(len(at.node.attrs["padding"])):
        if len({node.attrs["padding"][axis][0] for node in at.nodes}) > 1:
            raise UnmaskableError("begins before its operand by another number for other shapes")
    given, sizes = at.operands[0], at.sizes()
    for spatial in given[2:]:
        one_factor(spatial)
    return one([given[0], whole(sizes[1]), *map(whole, sizes[2:])], at.masks(0, seen, fill))


@rule("attention")
def _attention(at: At) -> MaskStep:
    at.same_but()
    attrs = at.node.attrs
    at_keys = 2 if len(at.node.shape) == 4 and attrs["layout"] == "bhsd" else 1
    q, k, v = at.operands[:3]
    for operand, axes in enumerate((q, k, v)):
        at.fixed(operand, [axis for axis in range(1, len(axes)) if axis != at_keys])
    if k[at_keys] != v[at_keys] or not q[0] == k[0] == v[0]:
        raise UnmaskableError(ORDERS)
    masks = (*at.masks(1, [at_keys]), *at.masks(2, [at_keys]))
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
        heads = whole((attrs["num_heads"],) * at.count)
        expected = (q[0], heads, q[at_keys], k[at_keys])
    for axes in at.operands[3:]:
        for given, wanted in zip(axes[::-1], expected[::-1], strict=False):
            if given and given != wanted:
                raise UnmaskableError(ORDERS)
    result = list(q)
    result[-1] = whole(at.sizes()[-1])
    return one(result, masks, special)


@rule("recurrence")
def _recurrence(at: At) -> MaskStep:
    at.same_but()
    xw = at.operands[0]
    at.fixed(0, [2])
    one_factor(xw[0])
    given = places(at.node)
    at.fixed(1)
    for name in ("bias", "p"):
        if name in given:
            at.fixed(given[name])
    for name, axis in (("h0", 1), ("c0", 1), ("seq_lens", 0)):
        if name in given and at.operands[given[name]][axis] != xw[1]:
            raise UnmaskableError(ORDERS)
    y, *states = [list(map(whole, at.sizes(r))) for r in range(len(at.node.types))]
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

"""Masking rules of operations that join elements along an axis: rows, products, windows, attention, recurrence."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.passes.masking.dim_sizes import Axis, UnmaskableError, sizes_of, varies, whole
from rlx.passes.masking.rules import ORDERS, At, MaskStep, aligned, one, one_factor, places, rule

# --- rows -----------------------------------------------------------------------------------------

# The value that replaces padding before a reduction along its axis.
_NEUTRAL = {
    "sum": "zero",
    "sum_abs": "zero",
    "sum_squares": "zero",
    "prod": "one",
    "max": "low",
    "min": "high",
    "mean": "zero",
}


def _reduced(pos: At, axes: Sequence[int], keepdims: bool) -> list[Axis]:
    args = pos.operands[0]
    return [
        () if axis in axes else item
        for axis, item in enumerate(args)
        if keepdims or axis not in axes
    ]


@rule(*_NEUTRAL)
def _reduce(pos: At) -> MaskStep:
    axes, keepdims = pos.attr("axes"), pos.attr("keepdims")
    masks = pos.masks(0, axes, _NEUTRAL[pos.node.op])
    special = "mean" if masks and pos.node.op == "mean" else ""
    if special:
        pos.countable()
    return one(_reduced(pos, axes, keepdims), masks, special)


@rule("argmax", "argmin")
def _arg(pos: At) -> MaskStep:
    pos.same_but()
    axis = pos.node.attrs["axis"]
    if pos.node.attrs["select_last"]:
        pos.fixed(0, [axis])
    masks = pos.masks(0, [axis], "low" if pos.node.op == "argmax" else "high")
    return one(_reduced(pos, [axis], pos.node.attrs["keepdims"]), masks)


@rule("softmax", "log_softmax")
def _softmax(pos: At) -> MaskStep:
    axis = pos.attr("axis") % len(pos.operands[0])
    masks = pos.masks(0, [axis], "low")
    clean = frozenset({axis} if masks and pos.node.op == "softmax" else ())
    return MaskStep((pos.operands[0],), masks, "", clean)


@rule("cumsum", "cumprod")
def _cumulate(pos: At) -> MaskStep:
    pos.same_but()
    axis = pos.node.attrs["axis"]
    one_factor(pos.operands[0][axis])
    fill = "zero" if pos.node.op == "cumsum" else "one"
    return one(pos.operands[0], pos.masks(0, [axis], fill) if pos.node.attrs["reverse"] else ())


@rule("layer_norm", "rms_norm")
def _norm(pos: At) -> MaskStep:
    pos.same_but()
    rank, axis = len(pos.operands[0]), pos.node.attrs["axis"]
    masks = pos.masks(0, range(axis, rank))
    if masks:
        pos.countable()
    if any(other != pos.operands[0][axis:] for other in pos.operands[1:]):
        raise UnmaskableError(ORDERS)
    return one(pos.operands[0], masks, "norm" if masks else "")


@rule("rfft", "fft", "ordered", "find_peaks", "tree_scores")
def _last_axis(pos: At) -> MaskStep:
    """Rule for operations that join the elements of the last axis alone; their rows do not depend on each other."""
    pos.same_but()
    return _rows(pos, 1)


@rule("lfilter", "sosfilt")
def _filter(pos: At) -> MaskStep:
    """Filters along the last axis end where padding begins."""
    pos.same_but()
    x = pos.operands[0]
    one_factor(x[-1])
    pos.fixed(0, range(len(x) - 1))
    for other in range(1, len(pos.operands)):
        pos.fixed(other)
    states = [tuple(map(whole, pos.sizes(result))) for result in range(1, len(pos.node.types))]
    return MaskStep((x, *states), special="counted" if varies(x[-1]) else "")


@rule("frames")
def _frames(pos: At) -> MaskStep:
    """Rule of frames: frames of valid elements see no padding."""
    pos.same_but()
    one_factor(pos.operands[0][-1])
    sizes = pos.sizes()
    return one([*pos.operands[0][:-1], whole(sizes[-2]), whole(sizes[-1])])


def _rows(pos: At, last: int) -> MaskStep:
    retained = len(pos.operands[0]) - last
    pos.fixed(0, range(retained, len(pos.operands[0])))
    for other in range(1, len(pos.operands)):
        pos.fixed(other)
    results = []
    for result in range(len(pos.node.types)):
        sizes = pos.sizes(result)
        results.append((*pos.operands[0][:retained], *map(whole, sizes[retained:])))
    return MaskStep(tuple(results))


@rule("interpolate", "interpolate_plane")
def _interpolate(pos: At) -> MaskStep:
    pos.same_but("size")
    attrs = pos.node.attrs
    several = isinstance(attrs["axis"], tuple)
    axes = attrs["axis"] if several else (attrs["axis"],)
    scales = attrs["scale"] if several else (attrs["scale"],)
    sizes = pos.sizes()
    results: list[Axis] = list(pos.operands[0])
    for axis, scale in zip(axes, scales, strict=True):
        # Copies of elements, as many of each: the last one is copied from what is valid.
        copies = (
            attrs["mode"] == "nearest" and (attrs["coordinates"], attrs["nearest_mode"]) in _COPIES
        )
        args = sizes_of(results[axis], pos.count)
        exact = [size * scale for size in args] == list(sizes[axis]) and scale == int(scale)
        if not (copies and exact and not attrs["antialias"]):
            pos.fixed(0, [axis])
            pos.attr("size")
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
def _matmul(pos: At) -> MaskStep:
    pos.same_but()
    a, b = pos.operands[:2]
    for other in range(2, len(pos.operands)):
        pos.fixed(other)
    if len(a) < 2 or len(b) < 2:
        pos.fixed(0)
        pos.fixed(1)
        return one([whole(size) for size in pos.sizes()])
    if a[-1] != b[-2]:
        raise UnmaskableError(ORDERS)
    masks = (*pos.masks(0, [len(a) - 1]), *pos.masks(1, [len(b) - 2]))
    batch = aligned([a[:-2], b[:-2]], max(len(a), len(b)) - 2)
    return one([*batch, a[-2], b[-1]], masks)


@rule("dequant_matmul")
def _dequant_matmul(pos: At) -> MaskStep:
    pos.same_but()
    return _rows(pos, 1)


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d")
def _convolution(pos: At) -> MaskStep:
    pos.same_but("padding")
    for other in range(1, len(pos.operands)):
        pos.fixed(other)
    pos.fixed(0, [1])
    # A window of one element sees no neighbour.
    taps, pads = pos.node.inputs[1].shape[2:], pos.node.attrs["padding"]
    seen = [
        2 + axis
        for axis, (tap, pair) in enumerate(zip(taps, pads, strict=True))
        if tap > 1 or any(pair) or len({node.attrs["padding"] for node in pos.nodes}) > 1
    ]
    return _windows(pos, seen, "zero")


@rule("max_pool")
def _max_pool(pos: At) -> MaskStep:
    pos.same_but("padding")
    spatial = range(2, len(pos.operands[0]))
    if pos.node.attrs["ceil_mode"]:
        pos.fixed(0, spatial)
    return _windows(pos, spatial, "low")


@rule("window_sum")
def _window_sum(pos: At) -> MaskStep:
    pos.same_but("padding")
    attrs = pos.node.attrs
    spatial = range(2, len(pos.operands[0]))
    for axis in spatial:
        after = any(node.attrs["padding"][axis - 2][1] for node in pos.nodes)
        # Windows at the end hold fewer elements: the padded graph divides by more.
        if attrs["ceil_mode"] or (after and attrs["divide"] == "inside"):
            pos.fixed(0, [axis])
    return _windows(pos, spatial, "zero")


def _windows(pos: At, seen: Sequence[int], fill: str) -> MaskStep:
    """Windows along the axes from the third on, which see padding along some of them."""
    for axis in range(len(pos.node.attrs["padding"])):
        if len({node.attrs["padding"][axis][0] for node in pos.nodes}) > 1:
            raise UnmaskableError("starts at a different offset for different shapes")
    args, sizes = pos.operands[0], pos.sizes()
    for spatial in args[2:]:
        one_factor(spatial)
    return one([args[0], whole(sizes[1]), *map(whole, sizes[2:])], pos.masks(0, seen, fill))


@rule("attention")
def _attention(pos: At) -> MaskStep:
    pos.same_but()
    attrs = pos.node.attrs
    at_keys = 2 if len(pos.node.shape) == 4 and attrs["layout"] == "bhsd" else 1
    q, k, v = pos.operands[:3]
    for operand, axes in enumerate((q, k, v)):
        pos.fixed(operand, [axis for axis in range(1, len(axes)) if axis != at_keys])
    if k[at_keys] != v[at_keys] or not q[0] == k[0] == v[0]:
        raise UnmaskableError(ORDERS)
    masks = (*pos.masks(1, [at_keys]), *pos.masks(2, [at_keys]))
    kind = attrs["kind"]
    special = ""
    if masks and kind in ("none", "custom", "bias"):
        special = "attention"
    lengths = {q[at_keys], k[at_keys]}
    if kind not in ("none", "custom", "bias") and len(lengths) > 1 and any(map(varies, lengths)):
        raise UnmaskableError(
            f"masks keys by their distance from queries ({kind}) of a different length"
        )
    if kind == "custom":
        expected: Sequence[Axis] = (k[0], k[at_keys])
    else:
        heads = whole((attrs["num_heads"],) * pos.count)
        expected = (q[0], heads, q[at_keys], k[at_keys])
    for axes in pos.operands[3:]:
        for value, wanted in zip(axes[::-1], expected[::-1], strict=False):
            if value and value != wanted:
                raise UnmaskableError(ORDERS)
    result = list(q)
    result[-1] = whole(pos.sizes()[-1])
    return one(result, masks, special)


@rule("recurrence")
def _recurrence(pos: At) -> MaskStep:
    pos.same_but()
    xw = pos.operands[0]
    pos.fixed(0, [2])
    one_factor(xw[0])
    args = places(pos.node)
    pos.fixed(1)
    for name in ("bias", "p"):
        if name in args:
            pos.fixed(args[name])
    for name, axis in (("h0", 1), ("c0", 1), ("seq_lens", 0)):
        if name in args and pos.operands[args[name]][axis] != xw[1]:
            raise UnmaskableError(ORDERS)
    y, *states = [list(map(whole, pos.sizes(r))) for r in range(len(pos.node.types))]
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

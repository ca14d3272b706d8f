"""Resizing and sampling images between their entries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.ops.shapes import checked_shape, limited
from rlx.importers.onnx.values import RefusedError, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import as_axis
from rlx.sizes import largest


@onnx_op("Resize", since=11)
def resize(call: OnnxCall) -> Any:
    """By scales or to sizes."""
    x = call.x()
    axes = call.int_list("axes") or tuple(range(len(x.shape)))
    axes = tuple(as_axis(a, len(x.shape), where="axes") for a in axes)
    call.need(len(set(axes)) == len(axes), "an axis is named twice")
    scales: list[float] | None = None
    size = list(x.shape)
    if call.has(3) and call.shape(3) != (0,):
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        wanted = checked_shape(call.sizes(3) if policy == "stretch" else call.ints(3))
        if policy != "stretch":
            pick = min if policy == "not_larger" else max
            scale = pick(w / x.shape[a] for w, a in zip(wanted, axes, strict=True))
            wanted = tuple(math.floor(scale * x.shape[a] + 0.5) for a in axes)
            scales = [1.0] * len(x.shape)
            for a in axes:
                scales[a] = scale
        for a, w in zip(axes, wanted, strict=True):
            size[a] = w
    elif call.has(2):
        args = call.known(2).ravel()
        scales = [1.0] * len(x.shape)
        for a, s in zip(axes, args, strict=True):
            scales[a] = float(s)
            size[a] = math.floor(x.shape[a] * float(s))
    else:
        raise ImportModelError("neither scales nor sizes")
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_half_pixel_for_nn":
        raise RefusedError("coordinates tf_half_pixel_for_nn")
    roi = None
    if coordinates == "tf_crop_and_resize":
        args = call.known(1).ravel()
        rank = len(x.shape)
        first, last = [0.0] * rank, [1.0] * rank
        for i, a in enumerate(axes):
            first[a], last[a] = float(args[i]), float(args[i + len(axes)])
        roi = (*first, *last)
    limited((largest(*size, 0),))
    return call.g.resize(
        x, size, scales=scales, coordinates=coordinates, mode=call.text("mode", "nearest"),
        nearest_mode=call.text("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=call.real("cubic_coeff_a", -0.75),
        exclude_outside=bool(call.integer("exclude_outside", 0)),
        extrapolation_value=call.real("extrapolation_value", 0.0),
        roi=roi,
        antialias=bool(call.integer("antialias", 0)),
    )  # fmt: skip


@onnx_op("Resize", since=10)
@onnx_op("Upsample", since=7)
def upsample(call: OnnxCall) -> Any:
    """By scales alone, entry i taken from i / scale."""
    x = call.x()
    args = call.known(1).ravel() if call.has(1) else call.float_list("scales")
    scales = [float(s) for s in args]
    size = [math.floor(d * s) for d, s in zip(x.shape, scales, strict=True)]
    mode: Any = call.text("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    limited((largest(*size, 0),))
    return call.g.resize(
        x, size, mode=mode, scales=scales, coordinates="asymmetric", nearest_mode="floor"
    )


Taps = list[tuple[Node, Node]]


def _as_float(g: Graph, size: int, like: Node) -> Node:
    """A size as a number of a node's dtype."""
    return g.cast(g.as_node(size, DType.I64, where="a size"), like.dtype)


def _at(g: Graph, image: Node, sizes: Sequence[int], axes: Sequence[Taps]) -> Node:
    """Sums of entries of images ``[N, C, ...]`` by weights: ``[N, C, P]``.

    ``axes``: for each axis its taps, positions (floats, whole and inside) and weights ``[N, P]``.
    """
    n, c = image.shape[:2]
    rows = g.reshape(image, (n, c, math.prod(sizes)))
    result: Node | None = None
    for taps in itertools.product(*axes):
        place, weight = taps[0]
        for (pos, w), size in zip(taps[1:], sizes[1:], strict=True):
            place = g.add(g.mul(place, _as_float(g, size, place)), pos)
            weight = g.mul(weight, w)
        points = place.shape[1]
        i = g.expand(g.reshape(g.cast(place, "i32"), (n, 1, points)), (n, c, points))
        part = g.mul(g.gather_elements(rows, i, 2), g.reshape(weight, (n, 1, points)))
        result = part if result is None else g.add(result, part)
    assert result is not None
    return result


def _inside(g: Graph, indices: Node, weight: Node, size: int) -> tuple[Node, Node]:
    """A tap that weighs nothing outside of the image."""
    last, zero = float(size - 1), g.constant(0.0, indices.dtype)
    there = g.logical_and(g.ge(indices, 0.0), g.le(indices, last))
    return g.minimum(g.maximum(indices, 0.0), last), g.where(there, weight, zero)


def bilinear(g: Graph, image: Node, ys: Node, xs: Node) -> Node:
    """Entries of images ``[N, C, H, W]`` between their neighbours, at rows and columns ``[N, P]``; 0 outside."""
    sizes = image.shape[2:]
    axes = [
        [_inside(g, i, w, size) for i, w in _linear(g, place)]
        for place, size in zip((ys, xs), sizes, strict=True)
    ]
    return _at(g, image, sizes, axes)


def _linear(g: Graph, place: Node) -> Taps:
    low = g.floor(place)
    part = g.sub(place, low)
    return [(low, g.add(g.neg(part), 1.0)), (g.add(low, 1.0), part)]


def _cubic(g: Graph, place: Node, a: float = -0.75) -> Taps:
    low = g.floor(place)
    part = g.sub(place, low)
    taps = []
    for offset in range(-1, 3):
        d = g.abs(g.sub(part, float(offset)))
        if offset in (0, 1):
            weight = g.add(g.mul(g.sub(g.mul(d, a + 2), a + 3), g.mul(d, d)), 1.0)
        else:
            weight = g.sub(g.mul(g.add(g.mul(g.sub(g.mul(d, a), 5 * a), d), 8 * a), d), 4 * a)
        taps.append((g.add(low, float(offset)), weight))
    return taps


def _reflected(g: Graph, indices: Node, low: float, high: float) -> Node:
    """Positions mirrored at both ends until they are inside."""
    span = high - low
    if span <= 0:
        return g.mul(indices, 0.0)
    turn = g.mod(g.sub(indices, low), 2 * span)
    return g.add(g.neg(g.abs(g.sub(turn, span))), low + span)


@onnx_op("GridSample", since=16)
def grid_sample(call: OnnxCall) -> Any:
    """An image sampled where a grid says, -1 to 1 along each axis, the last axis first."""
    g, x, grid = call.g, call.x(0), call.x(1)
    sizes = x.shape[2:]
    rank = len(sizes)
    if not 1 <= rank <= 3:
        raise RefusedError(f"sampling over {rank} axes")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        call.text("mode", "linear"), call.text("mode", "linear")
    )
    padding, corners = call.text("padding_mode", "zeros"), call.integer("align_corners", 0)
    n, out = x.shape[0], grid.shape[1:-1]
    fits = len(grid.shape) == len(x.shape) and grid.shape[0] == n
    call.need(fits, f"a grid of {grid.shape} for images of {x.shape}")
    points = math.prod(out)
    flat = g.reshape(as_dtype(g, grid, x.dtype), (n, points, rank))
    axes = []
    for axis, size in enumerate(sizes):
        unit = g.reshape(g.narrow(flat, 2, rank - 1 - axis, 1), (n, points))
        if corners:
            place, low, high = g.mul(g.add(unit, 1.0), (size - 1) / 2), 0.0, size - 1.0
        else:
            place = g.sub(g.mul(g.add(unit, 1.0), size / 2), 0.5)
            low, high = -0.5, size - 0.5
        if mode == "nearest":
            place = g.round(place)
        if padding == "border":
            place = g.minimum(g.maximum(place, 0.0), size - 1.0)
        elif padding == "reflection":
            place = _reflected(g, place, low, high)
        single = g.expand(g.constant(1.0, x.dtype), place.shape)
        if mode == "nearest":
            taps = [(g.round(place), single)]
        else:
            taps = _linear(g, place) if mode == "linear" else _cubic(g, place)
        stored = []
        for index, weight in taps:
            if padding == "zeros":
                stored.append(_inside(g, index, weight, size))
                continue
            if padding == "reflection":
                index = _reflected(g, index, low, high)
            stored.append((g.minimum(g.maximum(index, 0.0), size - 1.0), weight))
        axes.append(stored)
    return g.reshape(_at(g, x, sizes, axes), (n, x.shape[1], *out))


@onnx_op("AffineGrid")
def affine_grid(call: OnnxCall) -> Any:
    """The grid that an affine map makes of an image's own."""
    g, theta, size = call.g, call.x(0), checked_shape(call.ints(1))
    sizes = limited(size)[2:]
    lines = []
    for d in sizes:
        steps = np.arange(d, dtype=np.float64)
        if call.integer("align_corners", 0):
            lines.append(steps * (2 / (d - 1)) - 1 if d > 1 else steps)
        else:
            lines.append((2 * steps + 1) / d - 1)
    mesh = np.meshgrid(*lines, indexing="ij")
    base = np.stack([*(m.ravel() for m in mesh[::-1]), np.ones(math.prod(sizes))], axis=1)
    grid = g.matmul(g.constant(base.astype(np.float32), theta.dtype), g.transpose(theta, (0, 2, 1)))
    return g.reshape(grid, (size[0], *sizes, len(sizes)))


@onnx_op("RoiAlign", since=10)
def roi_align(call: OnnxCall) -> Any:
    """Regions of images sampled on a grid, each cell the mean or the largest of its samples."""
    g, x, rois = call.g, call.x(0), call.x(1)
    oh, ow = call.integer("output_height", 1), call.integer("output_width", 1)
    scale, ratio = call.real("spatial_scale", 1.0), call.integer("sampling_ratio", 0)
    call.need(ratio >= 0, f"a sampling_ratio of {ratio}")
    mode = call.text("mode", "avg")
    half = call.text(
        "coordinate_transformation_mode", "half_pixel" if call.opset >= 16 else "output_half_pixel"
    ) == "half_pixel"  # fmt: skip
    count = rois.shape[0]
    call.need(rois.shape == (count, 4), f"regions of shape {rois.shape}")
    call.need(call.shape(2) == (count,), f"images of {count} regions of shape {call.shape(2)}")
    call.need(len(x.shape) == 4, f"images of shape {x.shape}")
    limited((oh, max(ratio, 1)))
    limited((ow, max(ratio, 1)))
    edges = [
        g.sub(g.mul(g.reshape(g.narrow(rois, 1, i, 1), (count,)), scale), 0.5 if half else 0.0)
        for i in range(4)
    ]
    spans = [g.sub(edges[3], edges[1]), g.sub(edges[2], edges[0])]
    if not half:
        spans = [g.maximum(span, 1.0) for span in spans]
    if ratio > 0:
        return _rois(call, x, [edges[1], edges[0]], spans, (ratio, ratio), None, mode)
    # As many samples as a cell has entries: their number is a shape, so the regions must be known.
    known = call.known(1).astype(np.float64) * scale
    sizes = [known[:, 3] - known[:, 1], known[:, 2] - known[:, 0]]
    sizes = sizes if half else [np.maximum(s, 1.0) for s in sizes]
    grids = [np.ceil(s / o).astype(int).clip(0) for s, o in zip(sizes, (oh, ow), strict=True)]
    parts = []
    for index in range(count):
        single = [g.narrow(e, 0, index, 1) for e in (edges[1], edges[0])]
        span = [g.narrow(s, 0, index, 1) for s in spans]
        grid = (int(grids[0][index]), int(grids[1][index]))
        if 0 in grid:  # a region of no size has no samples
            parts.append(g.expand(g.constant(0.0, x.dtype), (1, x.shape[1], oh, ow)))
            continue
        parts.append(_rois(call, x, single, span, grid, index, mode))
    if not parts:
        return g.constant(np.zeros((0, x.shape[1], oh, ow), np.float32), x.dtype)
    return parts[0] if len(parts) == 1 else g.concat(parts, 0)


def _rois(
    call: OnnxCall, x: Node, starts: Sequence[Node], spans: Sequence[Node], grid: tuple[int, int],
    which: int | None, mode: str,
) -> Node:  # fmt: skip
    """Regions with one number of samples per cell: ``[R, C, oh, ow]``."""
    g = call.g
    out = (call.integer("output_height", 1), call.integer("output_width", 1))
    count, channels, sizes = starts[0].shape[0], x.shape[1], x.shape[2:]
    batch = g.cast(call.x(2), "i64")
    images = g.gather(x, batch if which is None else g.narrow(batch, 0, which, 1), 0)
    lines = []
    for axis in range(2):
        cells = (np.arange(out[axis] * grid[axis]) + 0.5) / grid[axis] / out[axis]
        unit = g.constant(cells.astype(np.float32)[None], x.dtype)
        place = g.add(
            g.mul(g.reshape(spans[axis], (count, 1)), unit), g.reshape(starts[axis], (count, 1))
        )
        lines.append(place)
    ny, nx = out[0] * grid[0], out[1] * grid[1]
    places = [
        g.reshape(g.expand(g.reshape(lines[0], (count, ny, 1)), (count, ny, nx)), (count, ny * nx)),
        g.reshape(g.expand(g.reshape(lines[1], (count, 1, nx)), (count, ny, nx)), (count, ny * nx)),
    ]
    axes = []
    zero = g.constant(0.0, x.dtype)
    for place, size in zip(places, sizes, strict=True):
        length = _as_float(g, size, x)
        last = g.sub(length, 1.0)
        near = g.logical_and(g.ge(place, -1.0), g.le(place, length))
        stored = g.minimum(g.maximum(place, 0.0), last)
        axes.append([
            (g.minimum(i, last), g.where(near, weight, zero))
            for i, weight in _linear(g, stored)
        ])  # fmt: skip
    cells = (count, channels, out[0], grid[0], out[1], grid[1])
    if mode == "avg":
        return g.mean(g.reshape(_at(g, images, sizes, axes), cells), (3, 5))
    corners = [_at(g, images, sizes, [[a], [b]]) for a in axes[0] for b in axes[1]]
    return g.max(g.reshape(reduce(g.maximum, corners), cells), (3, 5))

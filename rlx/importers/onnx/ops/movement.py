"""Joining, cutting, picking and placing: ONNX's ops that move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.errors import ImportModelError, ShapeError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.data_sizes import (
    as_number,
    as_size,
    expected,
    from_front,
    is_known,
    positions,
)
from rlx.importers.onnx.handlers import builder, onnx_op
from rlx.importers.onnx.ops.shapes import limited, ones_but
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import RefusedError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.shape import as_axes, as_axis, is_sized
from rlx.resource_limits import charge
from rlx.sizes import largest, smallest

# The types that ``Graph.unique`` takes.
UNIQUE_DTYPES = (DType.F32, DType.F64, DType.I32, DType.U32, DType.I64)


def axis_of(call: OnnxCall, default: int = 0, name: str = "axis", index: int = 0) -> int:
    """An axis attribute, counted from the front.

    Raises:
        ImportModelError: Operand ``index`` has no such axis.
    """
    rank, axis = call.rank(index), call.integer(name, default)
    if not -rank <= axis < rank:
        raise ImportModelError(f"axis {axis} of a tensor of rank {rank}")
    return int(axis % rank)


@onnx_op("Concat", carried=True)
def concat(call: OnnxCall) -> Any:
    """One after the other along an axis."""
    xs, axis = call.xs(), axis_of(call)
    return xs[0] if len(xs) == 1 else call.g.concat(xs, axis)


def parts_of(call: OnnxCall, index: int, total: Any) -> tuple[Any, ...]:
    """The sizes of parts, of which the graph may compute some: the last of these is the rest, and checked."""
    numbers = call.numbers(index)
    computed = [i for i, number in enumerate(numbers) if isinstance(number, Node)]
    for i in computed[:-1]:
        numbers[i] = as_size(call.site, numbers[i], total)
    for i in computed[-1:]:
        rest = total - sum(number for at, number in enumerate(numbers) if at != i)
        numbers[i] = expected(call.site, numbers[i], rest)
    return tuple(numbers)


@onnx_op("Split", carried=True)
def split(call: OnnxCall) -> Any:
    """Parts along an axis: of given sizes, or as equal as they get."""
    x, axis = call.x(), axis_of(call)
    sizes = call.int_list("split") if call.opset < 13 else None
    if call.opset >= 13 and call.has(1):
        sizes = parts_of(call, 1, x.shape[axis])
    both = call.opset >= 18 and sizes is not None and "num_outputs" in call.attributes
    call.need(not both, "both the sizes of the parts and their number")
    total = x.shape[axis]
    if sizes is None:
        parts = call.integer("num_outputs", call.results)
        if parts < call.results:
            raise ImportModelError(f"{parts} parts for {call.results} outputs")
        charge(f"a split into {parts}", nodes=parts)
        size = -(-total // parts)
        sizes = tuple(largest(smallest(size, total - i * size), 0) for i in range(parts))
    call.need(len(sizes) >= call.results, f"{len(sizes)} parts for {call.results} outputs")
    return call.g.split(x, sizes, axis)


@onnx_op("Slice", carried=True)
def slice_(call: OnnxCall) -> Any:
    """A range of every axis, with any step."""
    g, x = call.g, call.x()
    if call.opset < 10:
        starts, stops = call.int_list("starts"), call.int_list("ends")
        axes, steps = call.int_list("axes"), None
    else:
        starts, stops = tuple(call.numbers(1)), tuple(call.numbers(2))
        axes = call.ints(3) if call.has(3) else None
        steps = call.ints(4) if call.has(4) else None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(stops) == len(axes) == len(steps):
        raise ImportModelError("starts, ends, axes and steps differ in length")
    as_axes(axes, len(x.shape), where="axes")  # refuses an axis that is named twice
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if isinstance(start, Node) or isinstance(stop, Node):
            x = _computed_slice(call, x, axes[i] % len(x.shape), (start, stop, steps[i]))
    listed = [
        part
        for part in zip(starts, stops, axes, steps, strict=True)
        if not (isinstance(part[0], Node) or isinstance(part[1], Node))
    ]
    if not listed:
        return x
    starts, stops, axes, steps = zip(*listed, strict=True)
    sized = [is_sized((x.shape[a], b, e)) for a, b, e in zip(axes, starts, stops, strict=True)]
    if any(sized) and min(steps) > 0:
        return g.slice(x, starts, stops, axes, steps)
    begin, end, by = [], [], []
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        dim = x.shape[axis]
        first, last, step = slice(start, stop, step).indices(dim)
        if first < 0:
            # A slice backwards from before the front begins at the first entry, as the standard says.
            first, last = 0, last if dim else 0
        begin.append(first)
        # Behind the front there is no index: before it stands -dim - 1.
        end.append(last if last >= 0 else -dim - 1)
        by.append(step)
    if all(s == 0 and e == x.shape[a] and b == 1 for s, e, a, b in zip(begin, end, axes, by)):
        return x
    if any(s >= x.shape[a] > 0 > b for s, a, b in zip(begin, axes, by)):
        raise ImportModelError("a slice that begins behind the end")
    return g.slice(x, begin, end, tuple(axes), by)


def _computed_slice(call: OnnxCall, x: Node, axis: int, part: tuple[Any, Any, int]) -> Node:
    """A range of an axis whose ends the graph computes."""
    g, n = call.g, x.shape[axis]
    start, stop, step = part
    last = 0 if step > 0 else -1
    # A slice backwards from before the front begins at the first entry, as the standard says.
    first, end = from_front(g, start, n, 0, last), from_front(g, stop, n, last, last)
    span = g.sub(end, first) if step > 0 else g.sub(first, end)
    by = np.int64(abs(step))
    count = g.div(g.add(g.maximum(span, np.int64(0)), by - 1), by)
    length = as_size(call.site, count, n)
    if is_known(start, 0) and step == 1:
        return g.narrow(x, axis, 0, length)
    return g.gather(x, g.add(g.mul(positions(g, length), np.int64(step)), first), axis)


@onnx_op("Gather", "GatherElements", carried=True)
def gather(call: OnnxCall) -> Any:
    """Entries of an axis, or one entry of an axis for every index."""
    method = call.g.gather if call.node.op == "Gather" else call.g.gather_elements
    return method(call.x(), call.x(1), axis_of(call))


gather_nd = builder("gather_nd", 2, batch_dims=0)
onnx_op("GatherND", carried=True)(gather_nd)


def _reduction(call: OnnxCall) -> Any:
    result = call.text("reduction", "none")
    return None if result == "none" else result


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(call: OnnxCall) -> Any:
    """Entries placed along an axis."""
    return call.g.scatter_elements(call.x(), call.x(1), call.x(2), axis_of(call), _reduction(call))


@onnx_op("ScatterND")
def scatter_nd(call: OnnxCall) -> Any:
    """Slices placed at index tuples."""
    return call.g.scatter_nd(call.x(), call.x(1), call.x(2), _reduction(call))


@onnx_op("TensorScatter")
def tensor_scatter(call: OnnxCall) -> Any:
    """New entries of a cache written along an axis, from a place of its own for each sample."""
    g, past, update = call.g, call.x(0), call.x(1)
    axis = axis_of(call, -2)
    call.need(axis > 0, "axis 0 is that of the samples")
    total, length, batch = past.shape[axis], update.shape[axis], past.shape[0]
    call.need(length <= total, f"{length} new entries of a cache of {total}")
    expected = tuple(length if i == axis else dim for i, dim in enumerate(past.shape))
    call.need(update.shape == expected, f"an update of shape {update.shape}, not {expected}")
    limited((batch, length))
    starts = call.x(2) if call.has(2) else g.constant(np.zeros(batch, np.int64))
    steps = g.constant(np.arange(length, dtype=starts.dtype.numpy))
    places = g.add(g.reshape(starts, (batch, 1)), steps)
    if call.text("mode", "linear") == "circular":
        places = g.mod(places, g.constant(np.array(total, starts.dtype.numpy)))
    shape = ones_but(len(past.shape), {0: batch, axis: length})
    return g.scatter_elements(past, g.expand(g.reshape(places, shape), update.shape), update, axis)


@onnx_op("Tile", carried=True)
def tile(call: OnnxCall) -> Any:
    """Repeated along every axis."""
    repeats = call.sizes(1)
    call.need(len(repeats) == call.rank(), f"{len(repeats)} repeats of {call.rank()} axes")
    return call.g.tile(call.x(), repeats)


@onnx_op("Pad")
def pad(call: OnnxCall) -> Any:
    """Pads, or crops."""
    x, mode = call.x(), call.text("mode", "constant")
    if call.opset < 11:
        flat, value = call.int_list("pads"), call.real("value", 0.0)
    else:
        flat = tuple(call.numbers(1))
        value = call.number(2) if call.has(2) else 0
    axes = call.ints(3) if call.has(3) else tuple(range(len(x.shape)))
    if len(flat) != 2 * len(axes):
        raise ImportModelError(f"{len(flat)} pads for {len(axes)} axes")
    as_axes(axes, len(x.shape), where="axes")  # refuses an axis that is named twice
    pads = [(0, 0)] * len(x.shape)
    for i, axis in enumerate(axes):
        pads[axis] = (flat[i], flat[i + len(axes)])
    g = call.g
    x, pads = _computed_pads(call, x, pads)
    if mode != "constant":
        limited((largest(*x.shape, 0),))
    if mode != "constant" and any(before < 0 or after < 0 for before, after in pads):
        # Negative pads are cut off first; the rest is then mirrored or repeated.
        cuts = [(min(b, 0), min(a, 0)) for b, a in pads]
        x = g.pad(x, cuts)
        pads = [(max(b, 0), max(a, 0)) for b, a in pads]
    return g.pad(x, pads, mode=mode, value=value)


def _computed_pads(call: OnnxCall, x: Node, pads: list[Any]) -> tuple[Node, list[Any]]:
    """An operand and its pads, where the graph computes some: negative ones are cut off first."""
    g, site = call.g, call.site
    for axis, pair in enumerate(pads):
        if any(isinstance(number, Node) for number in pair):
            more = [g.maximum(as_number(g, number), np.int64(0)) for number in pair]
            less = [g.maximum(g.neg(as_number(g, number)), np.int64(0)) for number in pair]
            before, after = (as_size(site, number, hint=0) for number in less)
            x = g.narrow(x, axis, before, x.shape[axis] - before - after)
            pads[axis] = tuple(as_size(site, number) for number in more)
    return x, pads


@onnx_op("DepthToSpace", carried=True)
def depth_to_space(call: OnnxCall) -> Any:
    """Channels moved into blocks."""
    return call.g.depth_to_space(
        call.x(), call.integer("blocksize"), mode=call.text("mode", "DCR").lower()
    )


@onnx_op("SpaceToDepth", carried=True)
def space_to_depth(call: OnnxCall) -> Any:
    """Blocks moved into channels: behind the blocks' axes (DCR), or in front of them (CRD)."""
    g, x, b = call.g, call.x(), call.integer("blocksize")
    if call.text("mode", "DCR") == "DCR":
        return g.space_to_depth(x, b)
    n, c, h, w = x.shape
    split = g.transpose(g.reshape(x, (n, c, h // b, b, w // b, b)), (0, 1, 3, 5, 2, 4))
    return g.reshape(split, (n, c * b * b, h // b, w // b))


@onnx_op("Trilu")
def trilu(call: OnnxCall) -> Any:
    """A triangle of each matrix."""
    k = call.number(1) if call.has(1) else 0
    call.need(call.rank() >= 2, f"a triangle of a tensor of rank {call.rank()}")
    limited(call.shape()[-2:])
    return call.g.trilu(call.x(), k=int(k), upper=bool(call.integer("upper", 1)))


@onnx_op("OneHot")
def one_hot(call: OnnxCall) -> Any:
    """Indices as vectors."""
    g, indices, (depth,) = call.g, call.x(0), call.sizes(1)
    values = call.x(2)
    axis = call.integer("axis", -1)
    if indices.dtype.is_float:
        indices = g.cast(indices, "i64")
    axis += len(indices.shape) + 1 if axis < 0 else 0
    shape = ones_but(len(indices.shape) + 1, {axis: depth})
    limited((depth,))
    classes = g.reshape(positions(g, depth, indices.dtype), shape)
    spread = g.unsqueeze(indices, (axis,))
    wrapped = g.where(
        g.lt(spread, g.constant(np.zeros((), indices.dtype.numpy), indices.dtype)),
        g.add(spread, g.cast(as_number(g, depth), indices.dtype)),
        spread,
    )
    call.need(values.shape == (2,), f"values of shape {values.shape}")
    off, on = g.narrow(values, 0, 0, 1), g.narrow(values, 0, 1, 1)
    return g.where(g.eq(wrapped, classes), on, off)


@onnx_op("NonZero")
def non_zero(call: OnnxCall) -> Any:
    """Returns the positions of elements that are not 0: a column each."""
    x = call.x()
    return call.g.transpose(call.g.nonzero(x if x.shape else call.g.reshape(x, (1,))))


@onnx_op("Compress")
def compress(call: OnnxCall) -> Any:
    """The entries that a condition keeps; it decides how many there are."""
    axis = axis_of(call) if "axis" in call.attributes else None
    return call.g.compress(call.x(1), call.x(), axis)


@onnx_op("Unique")
def unique(call: OnnxCall) -> Any:
    """Different entries, their first places, which one each entry is, and how often each is there."""
    g, x, axis = call.g, call.x(), call.integer("axis")
    wide = x if x.dtype in UNIQUE_DTYPES else g.cast(x, "f32" if x.dtype.is_float else "i32")
    values, *others = g.unique(wide, axis, bool(call.integer("sorted", 1)))
    return values if wide is x else g.cast(values, x.dtype), *others


@onnx_op("ReverseSequence")
def reverse_sequence(call: OnnxCall) -> Any:
    """The first entries of each sequence in reverse order, as many as its length says."""
    g, x = call.g, call.x()
    time, batch = axis_of(call, 0, "time_axis"), axis_of(call, 1, "batch_axis")
    call.need(time != batch, f"time and batch are both axis {time}")
    lengths = g.cast(call.x(1), "i64")
    limited((x.shape[time], x.shape[batch]))
    steps = g.constant(np.arange(x.shape[time], dtype=np.int64)[:, None])
    rows = g.reshape(lengths, (1, x.shape[batch]))
    constant = g.constant(np.int64(1))
    pos = g.where(g.lt(steps, rows), g.sub(g.sub(rows, constant), steps), steps)
    if time > batch:
        pos = g.transpose(pos)
    shape = ones_but(len(x.shape), {time: x.shape[time], batch: x.shape[batch]})
    return g.gather_elements(x, g.expand(g.reshape(pos, shape), x.shape), time)


@onnx_op("CenterCropPad")
def center_crop_pad(call: OnnxCall) -> Any:
    """Cut or padded to a size around the middle."""
    g, x, target = call.g, call.x(), call.ints(1)
    axes = call.int_list("axes", tuple(range(len(x.shape))))
    as_axes(axes, len(x.shape), where="axes")  # refuses an axis that is named twice
    if len(axes) != len(target):
        raise ShapeError(
            "[CenterCropPad] sizes", got=target, expected=f"one for each of {len(axes)} axes"
        )
    pads = [(0, 0)] * len(x.shape)
    for axis, size in zip(axes, target, strict=True):
        axis = as_axis(axis, len(x.shape), where="axes")
        spare = x.shape[axis] - size
        if spare >= 0:
            before = spare // 2
            pads[axis] = (-before, -(spare - before))
        else:
            before = -spare // 2
            pads[axis] = (before, -spare - before)
    return g.pad(x, pads)


@onnx_op("Col2Im")
def col2im(call: OnnxCall) -> Any:
    """Columns of blocks added up where the blocks stand in the image."""
    g, x = call.g, call.x()
    image, block = call.ints(1), call.ints(2)
    rank = len(image)
    dilations = call.int_list("dilations", (1,) * rank)
    strides = call.int_list("strides", (1,) * rank)
    flat = call.int_list("pads", (0,) * (2 * rank))
    lengths = {len(block), len(dilations), len(strides), len(flat) // 2}
    call.need(lengths == {rank} and len(flat) % 2 == 0, f"an image and blocks of {lengths} axes")
    padded = [image[a] + flat[a] + flat[a + rank] for a in range(rank)]
    steps = [(padded[a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1 for a in range(rank)]
    batch, count = x.shape[0], math.prod(block)
    call.need(
        len(x.shape) == 3 and count > 0 and x.shape[1] % count == 0,
        f"columns of shape {x.shape} for blocks of {block}",
    )
    call.need(x.shape[2] == math.prod(steps), f"{x.shape[2]} blocks, not {math.prod(steps)}")
    channels = x.shape[1] // count
    places = np.zeros(limited((*block, *steps)), np.int64)
    for a in range(rank):
        tap = np.arange(block[a]).reshape(ones_but(2 * rank, {a: block[a]})) * dilations[a]
        step = np.arange(steps[a]).reshape(ones_but(2 * rank, {rank + a: steps[a]})) * strides[a]
        places = places * padded[a] + tap + step
    blocks = g.reshape(x, (batch * channels, count * math.prod(steps)))
    index = np.broadcast_to(places.reshape(1, -1), blocks.shape)
    start = g.expand(g.constant(0.0, x.dtype), (batch * channels, math.prod(padded)))
    summed = g.scatter_elements(start, g.constant(index), blocks, 1, "add")
    whole = g.reshape(summed, (batch, channels, *padded))
    return g.pad(whole, [(0, 0), (0, 0), *((-flat[a], -flat[a + rank]) for a in range(rank))])


@onnx_op("BlackmanWindow", "HannWindow", "HammingWindow", raw=True)
def window(call: OnnxCall) -> Any:
    """A window of cosines; a periodic one is one longer with its last entry cut off."""
    size = int(call.number(0))
    call.need(size >= 0, f"a window of {size} samples")
    limited((size,))
    element = element_of(call.integer("output_datatype", 1), "window")
    if element.dtype is None:
        raise RefusedError(f"a window of {element.name}")
    terms = {
        "HannWindow": (0.5, -0.5),
        "HammingWindow": (25 / 46, -21 / 46),
        "BlackmanWindow": (0.42, -0.5, 0.08),
    }[call.node.op]
    turns = np.arange(size) / max(size if call.integer("periodic", 1) else size - 1, 1)
    result = sum(term * np.cos(2 * np.pi * i * turns) for i, term in enumerate(terms))
    return np.asarray(result).astype(element.numpy)

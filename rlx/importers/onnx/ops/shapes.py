"""Shapes, constants and types: most are known at load and have no nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.data_sizes import as_number, as_size, expected, is_known, positions
from rlx.importers.onnx.elements import BFLOAT16, FLOAT, INT64, NARROW, UINT64, Element
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.narrow import FORMATS, decoded, encoded
from rlx.importers.onnx.size_arithmetic import cast as cast_sizes
from rlx.importers.onnx.tensors import element_of
from rlx.importers.onnx.values import CARRIERS, OnnxValue, RefusedError, as_dtype
from rlx.importers.onnx.wrap import cut
from rlx.ir.dtype import DType, store, widen
from rlx.ir.graph import Node
from rlx.ir.shape import broadcast, estimated, is_sized, same_size
from rlx.resource_limits import charge


@onnx_op("Shape", raw=True)
def shape(call: OnnxCall) -> Any:
    """The sizes from ``start`` to ``end``."""
    dims = call.shape()
    return OnnxValue.of_sizes(
        dims[call.integer("start", 0) : call.integer("end", len(dims))], INT64
    )


@onnx_op("Size", raw=True)
def size(call: OnnxCall) -> Any:
    """The number of elements."""
    return OnnxValue.of_sizes(math.prod(call.shape()), INT64)


@onnx_op("Identity", raw=True)
def identity(call: OnnxCall) -> Any:
    """The operand, whatever it is."""
    return [call.held(0)]


@onnx_op("Constant", raw=True)
def constant(call: OnnxCall) -> Any:
    """A value of the file; tensors may become params."""
    attributes = call.attributes
    args = sorted(name for name in attributes if name.startswith(("value", "sparse_value")))
    call.need(len(args) == 1, f"one value is needed, not {args}")
    if "value" in attributes:
        tensor = attributes["value"].t
        if tensor is None:
            raise ImportModelError("attribute 'value' is not a tensor")
        return call.lowering.weight(tensor, call.node.output[0])
    if "value_float" in attributes:
        return np.array(call.real("value_float"), np.float32)
    if "value_int" in attributes:
        return np.array(call.integer("value_int"), np.int64)
    if "value_floats" in attributes:
        return np.array(call.float_list("value_floats"), np.float32)
    if "value_ints" in attributes:
        return np.array(call.int_list("value_ints"), np.int64)
    raise RefusedError("a constant that is no tensor of numbers")


@onnx_op("ConstantOfShape", raw=True)
def constant_of_shape(call: OnnxCall) -> Any:
    """One value everywhere; large ones are expanded as the graph runs."""
    dims = checked_shape(call.sizes(0))
    value = call.tensor("value") or OnnxValue(FLOAT, np.zeros(1, np.float32))
    assert value.array is not None
    call.need(value.array.size == 1, f"a value of shape {value.array.shape}")
    if not is_sized(dims) and (math.prod(dims) <= 1 << 12 or value.element.dtype is None):
        return OnnxValue(value.element, np.full(limited(dims), value.array.ravel()[0]))
    return call.g.expand(call.g.constant(value.array.reshape(()), value.element.dtype), dims)


def checked_shape(dims: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that came from numbers of the file.

    Raises:
        ImportModelError: A size is negative.
    """
    if any(d < 0 for d in dims):
        raise ImportModelError(f"a negative size: {dims}")
    return dims


def ones_but(rank: int, sizes: Mapping[int, Any]) -> tuple[Any, ...]:
    """A shape of ones but for some axes, numbered from the front."""
    return tuple(sizes.get(axis, 1) for axis in range(rank))


def limited(dims: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of an array that is made at load.

    Raises:
        LimitError: It is too large for that.
    """
    charge(f"an array of shape {dims}, made at load,", elements=math.prod(map(estimated, dims)))
    return dims


@onnx_op("Range", raw=True)
def range_(call: OnnxCall) -> Any:
    """Numbers at equal distances."""
    if any(map(call.depends, range(3))):
        return _computed_range(call)
    if any(call.value(i).sizes is not None for i in range(3)):
        first, end, step = (call.number(i) for i in range(3))
        element = call.element()
        if element.dtype is None:
            raise RefusedError(f"a range of {element.name} whose length depends on sizes")
        return OnnxValue.of(call.g.arange(first, end, step, element.dtype), element)
    start, limit, delta = (call.known(i).reshape(()) for i in range(3))
    if delta == 0:
        raise ImportModelError("a step of 0")
    count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    limited((count,))
    result = start.astype(np.float64 if start.dtype.kind == "f" else start.dtype)
    values = result + np.arange(count).astype(result.dtype) * delta.astype(result.dtype)
    return _made_at_load(values, call.element())


def _made_at_load(values: Any, element: Element) -> OnnxValue:
    """Numbers as elements of a type."""
    if element is BFLOAT16:
        return OnnxValue(element, store(values, DType.BF16))
    return OnnxValue(element, values.astype(element.numpy))


def _computed_range(call: OnnxCall) -> Any:
    """A range of numbers that the graph computes."""
    g, element = call.g, call.element()
    if element.dtype is None:
        raise RefusedError(f"a range of {element.name} that is computed")
    start, limit, step = (g.reshape(call.x(i), ()) for i in range(3))
    span, zero = g.sub(limit, start), g.constant(0, step.dtype)
    if step.dtype.is_float:
        wide = DType.F64 if step.dtype is DType.F64 else DType.F32
        count = g.cast(g.ceil(g.div(g.cast(span, wide), g.cast(step, wide))), DType.I64)
    else:
        # Rounded up: the negative of the negative quotient, rounded down.
        below = g.neg(g.cast(span, DType.I64))
        divisor = g.where(g.eq(step, zero), g.constant(1, step.dtype), step)
        divisor = g.cast(divisor, DType.I64)
        count = g.neg(g.div(g.sub(below, g.mod(below, divisor)), divisor))
    # A step of 0 has no count: the run is refused.
    count = g.where(g.eq(step, zero), np.int64(-1), g.maximum(count, np.int64(0)))
    length = as_size(call.site, count)
    return OnnxValue.of(
        g.add(g.mul(g.cast(positions(g, length), step.dtype), step), start), element
    )


@onnx_op("EyeLike", raw=True)
def eye_like(call: OnnxCall) -> Any:
    """Ones on a diagonal."""
    rows, columns = limited(call.shape())
    element = element_of(call.integer("dtype", call.element().code), "EyeLike")
    return _made_at_load(np.eye(rows, columns, call.integer("k", 0)), element)


@onnx_op("Reshape", carried=True)
def reshape(call: OnnxCall) -> Any:
    """A 0 stands for the old size, unless ``allowzero``."""
    x, dims = call.x(), call.numbers(1)
    if any(isinstance(d, Node) for d in dims):
        return call.g.reshape(x, _computed_shape(call, x, dims))
    if call.integer("allowzero", 0):
        both = any(same_size(d, 0) for d in dims) and any(same_size(d, -1) for d in dims)
        call.need(not both, f"a shape with both 0 and -1: {dims}")
    else:
        dims = [x.shape[i] if same_size(d, 0) else d for i, d in enumerate(dims)]
    return call.g.reshape(x, tuple(resolved(dims, x.shape)))


def _computed_shape(call: OnnxCall, x: Node, dims: list[Any]) -> tuple[int, ...]:
    """A shape of which the graph computes some numbers. The last of these is known from the others, and checked."""
    g, site, total = call.g, call.site, math.prod(x.shape)
    if not call.integer("allowzero", 0):
        for i, d in enumerate(dims):
            if is_known(d, 0):
                dims[i] = x.shape[i]
            elif isinstance(d, Node) and i < len(x.shape):
                dims[i] = g.where(g.eq(d, np.int64(0)), as_number(g, x.shape[i]), d)
    if any(is_known(d, -1) for d in dims):
        return tuple(resolved([as_size(site, d) for d in dims], x.shape))
    computed = [i for i, d in enumerate(dims) if isinstance(d, Node)]
    rest = g.constant(np.int64(1))
    for d in dims:
        number = as_number(g, d)
        rest = g.mul(rest, g.where(g.eq(number, np.int64(-1)), np.int64(1), number))
    free = g.div(as_number(g, total), g.maximum(rest, np.int64(1)))
    if call.integer("allowzero", 0):
        # The standard refuses a 0 beside a -1: there is no such size.
        free = g.where(g.eq(rest, np.int64(0)), np.int64(-1), free)
    for i in computed:
        dims[i] = g.where(g.eq(dims[i], np.int64(-1)), free, dims[i])
    *others, last = computed
    # Usual sizes that make up the number of elements: all in the first one.
    for i in others:
        dims[i] = as_size(site, dims[i], hint=estimated(total) if i == others[0] else 1)
    if same_size(total, 0):  # any of them may be the 0
        dims[last] = as_size(site, dims[last], hint=0)
    else:
        known = math.prod(d for i, d in enumerate(dims) if i != last)
        dims[last] = expected(site, dims[last], total // known)
    return tuple(dims)


def resolved(dims: list[int], old: tuple[int, ...]) -> list[int]:
    """A shape with its one -1 filled in, also where there are no elements.

    Raises:
        ImportModelError: The -1 has no size that fits.
    """
    count = sum(same_size(d, -1) for d in dims)
    if not count:
        return dims
    rest = math.prod(d for d in dims if not same_size(d, -1))
    total = math.prod(old)
    if count > 1 or (rest == 0 and total) or (rest and total % rest):
        raise ImportModelError(f"no reshape of {old} to {tuple(dims)}")
    return [(total // rest if rest else 0) if same_size(d, -1) else d for d in dims]


@onnx_op("Flatten", carried=True)
def flatten(call: OnnxCall) -> Any:
    """Flattens to two axes: those before ``axis``, and the rest."""
    x, axis = call.x(), call.integer("axis", 1)
    rank = len(x.shape)
    if not -rank <= axis <= rank:  # the place behind the last axis is one, too
        raise ImportModelError(f"axis {axis} of a tensor of rank {rank}")
    axis += rank if axis < 0 else 0
    return call.g.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def axes_of(call: OnnxCall, since: int) -> tuple[int, ...] | None:
    """Axes as the second operand, or before a version as an attribute; None where there are none."""
    if call.opset < since:
        results: tuple[int, ...] | None = call.int_list("axes")
        return results
    return call.ints(1) if call.has(1) else None


@onnx_op("Squeeze", carried=True)
def squeeze(call: OnnxCall) -> Any:
    """Axes of size 1 taken away, all of them by default."""
    return call.g.squeeze(call.x(), axes_of(call, 13))


@onnx_op("Unsqueeze", carried=True)
def unsqueeze(call: OnnxCall) -> Any:
    """Inserts axes of size 1."""
    return call.g.unsqueeze(call.x(), axes_of(call, 13) or ())


@onnx_op("Expand", carried=True)
def expand(call: OnnxCall) -> Any:
    """Broadcast both ways with a shape."""
    x, numbers = call.x(), call.numbers(1)
    for i, number in enumerate(numbers):
        at = i + len(x.shape) - len(numbers)
        old = x.shape[at] if at >= 0 else 1
        if not isinstance(number, Node):
            continue
        if same_size(old, 1):
            numbers[i] = as_size(call.site, number)
        else:  # the number is that size, or 1
            g = call.g
            wanted = g.where(g.eq(number, np.int64(1)), as_number(g, old), number)
            numbers[i] = expected(call.site, wanted, old)
    target = broadcast(x.shape, checked_shape(tuple(numbers)), where="Expand")
    same = len(target) == len(x.shape) and all(map(same_size, target, x.shape))
    return x if same else call.g.expand(x, target)


@onnx_op("Transpose", carried=True)
def transpose(call: OnnxCall) -> Any:
    """Axes in another order, reversed by default."""
    return call.g.transpose(call.x(), call.int_list("perm"))


def cast_to(call: OnnxCall, element: Element, index: int = 0) -> OnnxValue:
    """Operand ``index`` as another element type."""
    value, source = call.value(index), call.element(index)
    if element is source:
        return value
    if element.dtype is None and element.name not in CARRIERS:
        raise RefusedError(f"a cast to {element.name}")
    if source.dtype is None and source.name not in CARRIERS:
        raise RefusedError(f"a cast from {source.name}")
    plain = source not in NARROW and element not in NARROW
    if value.sizes is not None:
        sizes = cast_sizes(value, element)
        if sizes is not None:
            return sizes
    if plain and value.array is not None and value.array.size <= 1 << 16:
        return OnnxValue(element, _cast_array(value.array, source, element))
    g, x = call.g, call.x(index)
    dtype = element.dtype or CARRIERS[element.name]
    saturate = bool(call.integer("saturate", 1))
    if source.name in FORMATS:
        x = decoded(g, x, source.name)
    if element.name in FORMATS:
        wide = as_dtype(g, x, DType.F32)
        return OnnxValue(element, node=encoded(g, wide, element.name, saturate))
    if source is UINT64 and dtype.is_float:
        wide = g.cast(x, DType.F64)
        wide = g.where(g.lt(x, g.constant(np.int64(0))), g.add(wide, 2.0**64), wide)
        return OnnxValue(element, node=g.cast(wide, dtype))
    if element.name in CARRIERS:
        through = DType.I64 if dtype is DType.I64 else DType.I32
        return OnnxValue(element, node=cut(as_dtype(g, x, through), element))
    return OnnxValue(element, node=as_dtype(g, x, dtype))


def _cast_array(array: Any, source: Element, element: Element) -> Any:
    if source is BFLOAT16:
        array = widen(array, DType.BF16)
    with np.errstate(all="ignore"):
        if element is BFLOAT16:
            return store(array.astype(np.float32), DType.BF16)
        if array.dtype.kind == "f" and element.numpy.kind in "iu":
            # Through i64, so that a negative number wraps the same everywhere.
            return array.astype(np.int64).astype(element.numpy)
        return array.astype(element.numpy)


@onnx_op("Cast", "CastLike", raw=True)
def cast(call: OnnxCall) -> Any:
    """To the type of an attribute, or of another operand."""
    like = call.node.op == "CastLike"
    return cast_to(call, call.element(1) if like else element_of(call.integer("to", 0), "Cast"))


@onnx_op("BitCast", raw=True)
def bit_cast(call: OnnxCall) -> Any:
    """The same bits as another type."""
    target, value = element_of(call.integer("to", 0), "BitCast"), call.value(0)
    array = call.known(0) if value.element is not BFLOAT16 else value.array
    assert array is not None
    call.need(
        array.dtype.itemsize == target.numpy.itemsize and array.dtype != object,
        f"the bits of {value.element.name} as {target.name}, which is of another size",
    )
    return OnnxValue(target, array.view(target.numpy))

"""Operators on sizes of dims that are computed while a model is read: each shape that depends on them becomes an expression.

An operator without a rule here computes with sizes when the graph runs.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from rlx.errors import UnknownSizeError
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import BOOL, Element
from rlx.importers.onnx.values import Array, Held, OnnxValue
from rlx.sizes import Ratio, SizeExpr, assuming_nothing, largest, smallest
from rlx.sizes.ratio import unknown

# Shapes are short. Longer operands are no sizes.
MAX_SIZES = 4096
# Floats whose products with sizes are exact in f32 have numerators and denominators up to it.
_EXACT = 1 << 12

Rule = Callable[[OnnxCall, Sequence[Array]], Any]


def computed(call: OnnxCall, operands: Sequence[Held | None]) -> list[Held | None] | None:
    """Returns the results of a node whose operands are sizes or known; None where it is computed when the graph runs."""
    rule = _RULES.get(call.node.op) if not call.node.domain else None
    arrays = [_objects(operand) for operand in operands]
    if rule is None or any(array is None for array in arrays):
        return None
    if call.node.op in _ARRANGING and any(map(_is_sized, operands[1:])):
        return None  # the shape of the result depends on sizes
    known = [array for array in arrays if array is not None]
    # Sizes that the model computes are compared when it runs, unless bounds tell.
    compared = call.node.op in _COMPARISONS and _are_computed(call, known)
    with np.errstate(all="ignore"), assuming_nothing() if compared else nullcontext():
        try:
            result = rule(call, known)
        except UnknownSizeError:  # such as a quotient of floats, which is rounded
            return None
    if result is None:
        return None
    listed = result if isinstance(result, list) else [result]
    element = BOOL if call.node.op in _COMPARISONS else _element(operands)
    return [OnnxValue.of_sizes(item, element) for item in listed]


def _are_computed(call: OnnxCall, arrays: Sequence[Array]) -> bool:
    """Returns whether the model computes some of the sizes in arrays."""
    sizes = (item for array in arrays for item in array.flat if isinstance(item, SizeExpr))
    return any(not call.g.computed_dims.isdisjoint(size.names()) for size in sizes)


def _is_sized(operand: Held | None) -> bool:
    return isinstance(operand, OnnxValue) and operand.sizes is not None


def _objects(operand: Held | None) -> Array | None:
    """A known operand as objects; None for others."""
    if not isinstance(operand, OnnxValue):
        return None
    if operand.sizes is not None:
        return operand.sizes
    if operand.array is None or operand.array.size > MAX_SIZES or operand.array.dtype == object:
        return None
    return operand.array.astype(object)


def _element(operands: Sequence[Held | None]) -> Element:
    """The element type of the sizes among some operands."""
    return next(o.element for o in operands if isinstance(o, OnnxValue) and _is_sized(o))


def cast(value: OnnxValue, element: Element) -> OnnxValue | None:
    """Sizes as another type of numbers; None where they are cast when the graph runs."""
    if element.numpy.kind not in "iuf":
        return None
    assert value.sizes is not None
    whole = element.numpy.kind != "f"
    sizes = np.frompyfunc(math.trunc, 1, 1)(value.sizes) if whole else value.sizes
    return OnnxValue.of_sizes(sizes, element)


# --- the arithmetic of elements --------------------------------------------------------------------


def _each(function: Callable[..., Any], count: int) -> Rule:
    """The rule of an operator that computes each element of its result by itself."""
    vectorised = np.frompyfunc(function, count, 1)
    return lambda call, args: vectorised(*args)


def _folded(function: Callable[[Any, Any], Any]) -> Rule:
    """The rule of an operator that takes any number of operands."""
    vectorised = np.frompyfunc(function, 2, 1)
    return lambda call, args: functools.reduce(vectorised, args)


def _exact(value: Any) -> Any:
    """A number whose product with a size has no rounding error in f32.

    Raises:
        UnknownSizeError: It may have one, so that a result depends on how it is rounded.
    """
    if isinstance(value, float):
        exact = value.as_integer_ratio() if math.isfinite(value) else (_EXACT + 1, 1)
        if max(map(abs, exact)) > _EXACT:
            raise UnknownSizeError(
                f"the product of a size and {value} is rounded, so that it needs the size as a number"
            )
    return value


def _product(a: Any, b: Any) -> Any:
    return _exact(a) * _exact(b)


def _quotient(a: Any, b: Any) -> Any:
    """A quotient; that of whole numbers is rounded toward zero."""
    if isinstance(a, float | Ratio) or isinstance(b, float | Ratio):
        if isinstance(b, SizeExpr | Ratio):
            raise unknown(b, "a quotient of floats that has to be rounded")
        return a / _exact(b)
    if not b:
        return 0
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def _divide(call: OnnxCall, args: Sequence[Array]) -> Array:
    if call.element().numpy.kind == "f":
        # One number comes without an array.
        args = [np.asarray(np.frompyfunc(_as_float, 1, 1)(item), object) for item in args]
    quotient: Array = np.frompyfunc(_quotient, 2, 1)(*args)
    return quotient


def _as_float(value: Any) -> Any:
    if isinstance(value, SizeExpr):
        return Ratio(value, 1)
    return float(value) if isinstance(value, int) else value


def _remainder(call: OnnxCall, args: Sequence[Array]) -> Array | None:
    result: Array = np.frompyfunc(operator.mod, 2, 1)(*args)
    return None if call.integer("fmod", 0) else result


# --- the arrangement of elements -------------------------------------------------------------------


def _axis(call: OnnxCall, args: Sequence[Array], default: int = 0) -> int:
    rank = max(args[0].ndim, 1)
    axis: int = call.integer("axis", default)
    call.need(-rank <= axis < rank, f"axis {axis} of a tensor of rank {args[0].ndim}")
    return axis % rank


def _axes(call: OnnxCall, args: Sequence[Array], since: int) -> tuple[int, ...] | None:
    """The axes of an operator that takes them as an attribute, and from a version on as its second operand."""
    if call.opset < since:
        listed: tuple[int, ...] | None = call.int_list("axes")
        return listed
    return tuple(map(int, args[1].flat)) if len(args) > 1 else None


def _slice(call: OnnxCall, args: Sequence[Array]) -> Array:
    if call.opset < 10:
        starts, stops = call.int_list("starts"), call.int_list("ends")
        axes, steps = call.int_list("axes"), None
    else:
        starts, stops, *rest = (tuple(map(operator.index, array.flat)) for array in args[1:])
        axes = rest[0] if rest else None
        steps = rest[1] if len(rest) > 1 else None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    where = [slice(None)] * args[0].ndim
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        where[axis] = slice(start, stop, step)
    return args[0][tuple(where)]


def _reshape(call: OnnxCall, args: Sequence[Array]) -> Array:
    dims = tuple(map(operator.index, args[1].flat))
    if not call.integer("allowzero", 0):
        dims = tuple(args[0].shape[i] if d == 0 else d for i, d in enumerate(dims))
    return args[0].reshape(dims)


def _split(call: OnnxCall, args: Sequence[Array]) -> list[Array] | None:
    axis = _axis(call, args)
    sizes = call.int_list("split") if call.opset < 13 else None
    sizes = tuple(map(int, args[1].flat)) if len(args) > 1 else sizes
    if sizes is None:
        parts = call.integer("num_outputs", call.results)
        each = -(-args[0].shape[axis] // max(parts, 1))
        sizes = (each,) * parts
    return np.split(args[0], np.cumsum(sizes)[:-1], axis)


def _expand(call: OnnxCall, args: Sequence[Array]) -> Array:
    dims = tuple(map(operator.index, args[1].flat))
    return np.broadcast_to(args[0], np.broadcast_shapes(args[0].shape, dims))


def _reduced(function: Callable[[Any, Any], Any], since: int) -> Rule:
    """The rule of a reduction by an operation on two elements."""

    def rule(call: OnnxCall, args: Sequence[Array]) -> Array | None:
        axes, keep = _axes(call, args, since), bool(call.integer("keepdims", 1))
        if not axes and call.integer("noop_with_empty_axes", 0):
            return args[0]
        if not args[0].size:
            return None
        result = args[0]
        listed = range(result.ndim) if not axes else [axis % result.ndim for axis in axes]
        for axis in sorted(listed, reverse=True):
            moved = np.moveaxis(result, axis, 0)
            first = np.empty(moved.shape[1:], object)
            for place in np.ndindex(first.shape):
                first[place] = functools.reduce(function, moved[(slice(None), *place)].tolist())
            result = np.expand_dims(first, axis) if keep else first
        return result

    return rule


_COMPARISONS = {
    "Equal": operator.eq, "Less": operator.lt, "LessOrEqual": operator.le,
    "Greater": operator.gt, "GreaterOrEqual": operator.ge,
}  # fmt: skip

# Operators whose other operands say how the first one is arranged.
_ARRANGING: dict[str, Rule] = {
    "Slice": _slice, "Reshape": _reshape, "Split": _split, "Expand": _expand,
    "Gather": lambda call, args: np.take(args[0], args[1].astype(np.int64), _axis(call, args)),
    "Squeeze": lambda call, args: np.squeeze(args[0], _axes(call, args, 13)),
    "Unsqueeze": lambda call, args: np.expand_dims(args[0], _axes(call, args, 13) or ()),
    "Tile": lambda call, args: np.tile(args[0], tuple(map(operator.index, args[1].flat))),
    "Transpose": lambda call, args: np.transpose(args[0], call.int_list("perm")),
    "ReduceProd": _reduced(_product, 18), "ReduceSum": _reduced(operator.add, 13),
    "ReduceMax": _reduced(largest, 18), "ReduceMin": _reduced(smallest, 18),
}  # fmt: skip
_RULES: dict[str, Rule] = {
    **_ARRANGING,
    **{name: _each(function, 2) for name, function in _COMPARISONS.items()},
    "Add": _each(operator.add, 2), "Sub": _each(operator.sub, 2), "Mul": _each(_product, 2),
    "Div": _divide, "Mod": _remainder, "Neg": _each(operator.neg, 1), "Abs": _each(abs, 1),
    "Floor": _each(math.floor, 1), "Ceil": _each(math.ceil, 1),
    "Min": _folded(smallest), "Max": _folded(largest), "Where": _each(lambda chosen, a, b: a if chosen else b, 3),
    "Concat": lambda call, args: np.concatenate(args, _axis(call, args)),
}  # fmt: skip

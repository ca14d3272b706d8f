"""Categories: as other numbers, as vectors, and as the columns of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.ml.outcomes import STRINGS, ml
from rlx.importers.onnx.ops.shapes import limited
from rlx.importers.onnx.values import Array, RefusedError
from rlx.ir.graph import Graph, Node

# The attributes that hold keys or values, and the type of their elements.
LISTS = {"int64s": np.int64, "floats": np.float32}


def _listed(call: OnnxCall, what: str) -> Array:
    """The keys or the values of a node."""
    if call.text_list(f"{what}_strings", ()):
        raise RefusedError(f"{what} are {STRINGS}")
    stored = call.tensor(f"{what}_tensor")
    if stored is not None:
        if stored.array is None or stored.array.dtype == object:
            raise RefusedError(f"{what} are {STRINGS}")
        return stored.array.ravel()
    for name, dtype in LISTS.items():
        read = call.int_list if name == "int64s" else call.float_list
        result = read(f"{what}_{name}")
        if result:
            return np.array(result, dtype)
    raise RefusedError(f"no {what} that are numbers")


def _default(call: OnnxCall, values: Array) -> Array:
    """Returns the value for a missing key."""
    stored = call.tensor("default_tensor")
    plain: Any = call.integer("default_int64", -1)
    if values.dtype.kind == "f":
        plain = call.real("default_float", -0.0)
    call.ignore("default_string", "default_int64", "default_float")
    result = plain if stored is None or stored.array is None else stored.array.ravel()[0]
    return np.array(result, values.dtype)


def _match(g: Graph, x: Node, keys: Array) -> Node:
    """Compares each element with each key, along one more axis; NaN equals NaN."""
    wide = g.unsqueeze(x, (len(x.shape),))
    same: Node = g.eq(wide, g.constant(keys.astype(x.dtype.numpy)))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        same = g.logical_or(same, g.logical_and(g.is_nan(wide), g.constant(np.isnan(keys))))
    return same


@ml("LabelEncoder", since=2)
def label_encoder(call: OnnxCall) -> Any:
    """Each key as its value; of equal keys the last one counts."""
    g, x = call.g, call.x()
    keys, values = _listed(call, "keys"), _listed(call, "values")
    call.need(len(keys) == len(values), f"{len(keys)} keys and {len(values)} values")
    limited((len(keys),))
    keys, values = keys[::-1], values[::-1]
    _, first = np.unique(keys, return_index=True)
    keys, values = keys[first], values[first]
    same = g.cast(_match(g, x, keys), "i32")
    axis = len(x.shape)
    result = g.gather(g.constant(values), g.argmax(same, axis), 0)
    known = g.gt(g.max(same, (axis,)), g.constant(np.int32(0)))
    return g.where(known, result, g.constant(_default(call, values)))


@ml("LabelEncoder")
def label_encoder_of_strings(call: OnnxCall) -> Any:
    """Version 1 has strings on one side."""
    raise RefusedError(f"keys or values are {STRINGS}")


@ml("OneHotEncoder")
def one_hot_encoder(call: OnnxCall) -> Any:
    """A vector with 1 at the category; without a category zeros, or NaN where that is an error."""
    g, x = call.g, call.x()
    if call.text_list("cats_strings", ()):
        raise RefusedError(f"categories are {STRINGS}")
    categories = np.array(call.int_list("cats_int64s", ()), np.int64)
    call.need(categories.size > 0, "no categories")
    limited((categories.size,))
    # Numbers are cut to integers before they are looked up.
    whole = x if not x.dtype.is_float else g.cast(x, "i64")
    same = _match(g, whole if whole.dtype.numpy == np.int64 else g.cast(whole, "i64"), categories)
    result = g.cast(same, "f32")
    if not call.integer("zeros", 1):
        known = g.gt(g.max(result, (len(x.shape),), True), 0.0)
        result = g.where(known, result, g.constant(np.float32(np.nan)))
    return result


@ml("ZipMap")
def zip_map(call: OnnxCall) -> Any:
    """The tensor itself: its columns are in the order of the labels."""
    x = call.x()
    count = len(call.int_list("classlabels_int64s", ())) + len(
        call.text_list("classlabels_strings", ())
    )
    call.need(x.shape[-1:] == (count,), f"{count} labels of the columns of {x.shape}")
    return x

"""Numbers of features changed one by one: scaled, normalised, replaced, chosen, joined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.ops.ml.outcomes import as_float, floats, ml
from rlx.ir.graph import Graph, Node


@ml("Binarizer")
def binarizer(call: OnnxCall) -> Any:
    """1 above a threshold, 0 elsewhere."""
    g, x = call.g, call.x()
    return g.cast(g.gt(x, call.real("threshold", 0.0)), x.dtype)


@ml("ArrayFeatureExtractor")
def array_feature_extractor(call: OnnxCall) -> Any:
    """Columns of the last axis."""
    x, indices = call.x(0), call.x(1)
    result = call.g.gather(
        x, call.g.reshape(indices, (math.prod(indices.shape),)), len(x.shape) - 1
    )
    if len(x.shape) == 1:
        return call.g.unsqueeze(result, (0,))
    return result


def _per_feature(call: OnnxCall, name: str, x: Node) -> Node | None:
    """An attribute of one number, or of one for each entry of the last axis."""
    args = call.float_list(name)
    if not args:
        return None
    call.need(len(args) in (1, x.shape[-1]), f"{name} of {len(args)} for {x.shape}")
    values = np.array(args, x.dtype.numpy)
    return call.g.constant(values if len(args) > 1 else values.reshape(()))


@ml("Scaler")
def scaler(call: OnnxCall) -> Any:
    """Less an offset, times a scale."""
    g, y = call.g, floats(call)
    offset, scale = _per_feature(call, "offset", y), _per_feature(call, "scale", y)
    y = y if offset is None else g.sub(y, offset)
    return as_float(g, y if scale is None else g.mul(y, scale))


# The norm of a row.
NORMS: Mapping[str, Callable[[Graph, Node, tuple[int]], Any]] = {
    "MAX": lambda g, x, axes: g.max(x, axes, True),
    "L1": lambda g, x, axes: g.l1(x, axes, True),
    "L2": lambda g, x, axes: g.l2(x, axes, True),
}


@ml("Normalizer")
def normalizer(call: OnnxCall) -> Any:
    """Rows divided by their norm, where that is not 0."""
    g, x = call.g, floats(call)
    norm = NORMS[call.text("norm", "MAX")](g, x, (len(x.shape) - 1,))
    constant = g.constant(1.0, x.dtype)
    return as_float(g, g.div(x, g.where(g.eq(norm, 0.0), constant, norm)))


@ml("Imputer")
def imputer(call: OnnxCall) -> Any:
    """One value replaced by another, or by one for each feature."""
    g, x = call.g, call.x()
    kind = "float" if x.dtype.is_float else "int64"
    other = "int64" if x.dtype.is_float else "float"
    call.ignore(f"imputed_value_{other}s", f"replaced_value_{other}")
    many = call.float_list if x.dtype.is_float else call.int_list
    first = call.real if x.dtype.is_float else call.integer
    values = many(f"imputed_value_{kind}s", ())
    call.need(len(values) in (1, x.shape[-1]), f"{len(values)} values for {x.shape}")
    replaced = first(f"replaced_value_{kind}", 0)
    if isinstance(replaced, float) and math.isnan(replaced):
        missing = g.is_nan(x)
    else:
        missing = g.eq(x, g.constant(np.array(replaced, x.dtype.numpy)))
    new = np.array(values, x.dtype.numpy)
    return g.where(missing, g.constant(new if len(values) > 1 else new.reshape(())), x)


@ml("FeatureVectorizer")
def feature_vectorizer(call: OnnxCall) -> Any:
    """Features side by side, as floats."""
    g = call.g
    sizes = call.int_list("inputdimensions") or (None,) * len(call.operands)
    call.need(
        len(sizes) == len(call.operands), f"{len(sizes)} sizes of {len(call.operands)} operands"
    )
    parts = []
    for i, size in enumerate(sizes):
        x = as_float(g, call.x(i))
        x = g.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else x
        columns = math.prod(x.shape[1:])
        call.need(size in (None, columns), f"{columns} features of operand {i}, not {size}")
        parts.append(g.reshape(x, (x.shape[0], columns)))
    return parts[0] if len(parts) == 1 else g.concat(parts, 1)

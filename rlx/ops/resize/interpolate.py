"""Resizing by interpolation: one axis at a time, by tables of taps and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.abi.constants import RESIZE_TAPS, VECTOR_ELEMENTS
from rlx.errors import ShapeError, UnknownNameError, did_you_mean
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, ShapeLike, TensorType
from rlx.ir.shape import as_axis, as_shape, estimated, is_sized, same_size, size
from rlx.ops.declare import FLOAT_KERNELS, composite, op
from rlx.ops.resize.tables_at_run import WORKGROUP, call_sized, call_sized_webgpu
from rlx.ops.resize.taps import COORDINATES, MODES, NEAREST, Coordinates, Mode, NearestMode, taps
from rlx.sizes import SizeExpr, pinned

# Most taps that an invocation of the WGSL kernel adds; lavapipe ends longer loops early.
_TAPS = 32768
# Results of a line below which the kernel of the CPU takes several lines as one.
_SHORT = 256


def check_names(attrs: dict[str, Any]) -> None:
    """Refuses unknown modes and coordinates.

    Raises:
        UnknownNameError: One of them is none.
    """
    for key, names in (("mode", MODES), ("coordinates", COORDINATES), ("nearest_mode", NEAREST)):
        if attrs[key] not in names:
            raise UnknownNameError(
                f"[resize] no such {key}: {attrs[key]!r}",
                expected=", ".join(names),
                hint=did_you_mean(str(attrs[key]), names),
            )


def interpolate_type(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    """The type of ``interpolate``; writes its attributes in their usual form.

    Raises:
        ShapeError: They do not fit the operand.
        UnknownNameError: A mode or a name of coordinates is none.
    """
    shape = types[0].shape
    axis = as_axis(attrs["axis"], len(shape), where="resize")
    count = as_shape(attrs["size"], where="resize")[0]
    check_names(attrs)
    scale = attrs["scale"]
    if scale is None and not is_sized((shape[axis], count)):
        attrs["scale"] = scale = count / shape[axis] if shape[axis] else 1.0
    if scale is not None and not (scale > 0 and math.isfinite(scale)) and shape[axis] * count:
        raise ShapeError("[resize] not a scale", got=attrs["scale"], expected="> 0")
    if shape[axis] == 0 and count > 0:
        raise ShapeError("[resize] nothing to interpolate", got=f"{shape}, axis {axis}")
    roi = attrs["roi"]
    if not isinstance(roi, tuple) or [type(item) for item in roi] != [float, float]:
        raise ShapeError("[resize] roi", got=repr(roi), expected="two floats")
    attrs.update(axis=axis, size=count)
    return TensorType((*shape[:axis], count, *shape[axis + 1 :]), types[0].dtype)


def table(n: int, attrs: Any) -> tuple[Array, Array]:
    """The taps of an axis of ``n`` entries, by the attributes of ``interpolate``."""
    a = attrs
    return taps(
        pinned(n),
        pinned(a["size"]),
        pinned(a["size"]) / pinned(n) if a["scale"] is None else float(a["scale"]),
        a["mode"],
        a["coordinates"],
        a["nearest_mode"],
        float(a["cubic_coeff_a"]),
        bool(a["exclude_outside"]),
        tuple(a["roi"]),
        bool(a["antialias"]),
    )


def _for_cpu(
    index: Array, weight: Array, params: dict[str, Any]
) -> tuple[Array, Array, dict[str, Any]]:
    """Tables and parameters as the kernel of the CPU takes them: short lines become one line."""
    outer, n, count, inner, taps = (params[key] for key in ("outer", "n", "count", "inner", "taps"))
    if inner < VECTOR_ELEMENTS:
        inner = pinned(inner)
        apart = np.arange(inner, dtype=index.dtype)[:, None]
        places = np.where(index[:, None] < 0, -1, index[:, None] * inner + apart)
        index = places.reshape(-1, taps).astype(index.dtype)
        weight = np.repeat(weight, inner, 0)
        n, count, inner = n * inner, count * inner, 1
    few = taps <= RESIZE_TAPS
    if inner == 1 and few and count < _SHORT:
        outer = pinned(outer)
        lines = max(k for k in range(1, _SHORT // count + 2) if outer % k == 0)
        places = np.where(index < 0, -1, index + (np.arange(lines) * n)[:, None, None])
        index = places.reshape(-1, taps).astype(index.dtype)
        weight = np.tile(weight, (lines, 1))
        outer, n, count = outer // lines, n * lines, count * lines
    rising = bool(np.all(index >= 0) and np.all(np.diff(index, axis=0) >= 0))
    if inner == 1 and few:
        index, weight = np.ascontiguousarray(index.T), np.ascontiguousarray(weight.T)
    sizes = {"outer": outer, "n": n, "count": count, "inner": inner}
    return index, weight, {**params, **sizes, "rising": int(rising)}


def call_interpolate(
    emitter: Emitter, x: Any, result: Any, type: TensorType, attrs: Any, webgpu: bool
) -> None:
    """Writes the calls that resize ``x`` along one axis, with the attributes of ``interpolate``."""
    shape, axis = type.shape, attrs["axis"]
    if (call_sized_webgpu if webgpu else call_sized)(emitter, x, result, type, attrs):
        return
    index, weight = table(shape[axis], attrs)
    outer, inner = size(shape[:axis]), size(shape[axis + 1 :])
    params: dict[str, Any] = {
        "outer": outer,
        "n": pinned(shape[axis]),
        "count": pinned(attrs["size"]),
        "inner": inner,
        "taps": index.shape[1],
        "outside": float(attrs["extrapolation_value"]),
    }
    if not webgpu:
        index, weight, params = _for_cpu(index, weight, params)
    inputs = [x, emitter.table(index), emitter.table(weight.astype(type.dtype.numpy))]
    if not webgpu:
        emitter.call("interpolate", inputs, [result], params)
        return
    work = math.ceil(outer * attrs["size"] * inner / WORKGROUP)
    for first in range(0, index.shape[1], _TAPS):
        part = {**params, "tap_from": first, "tap_to": min(first + _TAPS, index.shape[1])}
        emitter.call("interpolate", inputs, [result], part, work)


def _lower(node: Node, emitter: Emitter, *, webgpu: bool) -> None:
    x, y = emitter.operand(0), emitter.result()
    call_interpolate(emitter, x, y, node.inputs[0].type, node.attrs, webgpu)


# The defaults of the samples.
PLAIN: dict[str, Any] = {
    "mode": "linear",
    "coordinates": "half_pixel",
    "nearest_mode": "round_prefer_floor",
    "cubic_coeff_a": -0.75,
    "exclude_outside": False,
    "extrapolation_value": 0.0,
    "roi": (0.0, 1.0),
    "antialias": False,
}
_CROP = {"coordinates": "tf_crop_and_resize", "roi": (-0.2, 0.9), "extrapolation_value": 3.5}
_HOLES = np.array([[0, 1, np.nan, 3, 4, 5], [0, 1, 2, 3, np.nan, 5]], np.float32)


@op(
    internal=True,
    infer=interpolate_type,
    flops=lambda node: 2.0 * size(node.shape) * 4,
    cpu=Kernels(("interpolate", "resize_taps"), partial(_lower, webgpu=False)),
    webgpu=Kernels(("interpolate", "resize_taps"), partial(_lower, webgpu=True)),
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 5e-6},  # the weights are rounded too
    samples=lambda: (
        *(
            Sample(
                (shape,), {**PLAIN, "axis": axis, "size": n, "scale": n / (shape[axis] or 1), **a}
            )
            for shape, axis, n, a in (
                ((1,), 0, 1, {}),
                ((0, 5), 1, 7, {}),
                ((5, 0), 0, 7, {}),
                ((4, 5), 1, 0, {}),
                ((3, 7, 5), 1, 11, {}),
                ((3, 37), 1, 80, {"mode": "cubic"}),
                ((3, 37, 2), 1, 10, {"mode": "cubic", "antialias": True}),
                ((2, 50), 1, 7, {"antialias": True, "exclude_outside": True}),
                ((9, 3), 0, 12, _CROP),
                ((9, 3), 0, 5, {**_CROP, "mode": "nearest"}),
            )
        ),
        # More taps than one invocation of the WGSL kernel adds.
        Sample(((70000,),), {**PLAIN, "axis": 0, "size": 2, "scale": 2 / 70000, "antialias": True}),
        # A tap of weight 0 is not looked at.
        Sample(
            ((2, 6),),
            {**PLAIN, "axis": 1, "size": 11, "scale": 11 / 6, "coordinates": "align_corners"},
            values=(_HOLES,),
            dtypes=(DType.F32,),
        ),
    ),
)
def interpolate(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    axis: int,
    size: int,
    scale: float | None,
    mode: str,
    coordinates: str,
    nearest_mode: str,
    cubic_coeff_a: float,
    exclude_outside: bool,
    extrapolation_value: float,
    roi: Any,
    antialias: bool,
) -> Array:
    """``x`` resized along one axis; what ``resize`` is made of. A tap of weight 0 is not looked at.

    ``scale`` is the number of new entries per old one (None: that of both sizes), ``roi`` the first and last position of a crop, from 0 to 1; all
    else is as of ``resize``.
    """
    attrs = {"size": size, "scale": scale, "mode": mode, "coordinates": coordinates}
    attrs |= {"nearest_mode": nearest_mode, "cubic_coeff_a": cubic_coeff_a, "roi": roi}
    attrs |= {"exclude_outside": exclude_outside, "antialias": antialias}
    if size == 0 or x.size == 0:
        return np.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]))
    index, weight = table(x.shape[axis], attrs)
    y = np.sum(np.where(weight != 0, np.moveaxis(x, axis, -1)[..., index] * weight, 0.0), -1)
    return np.moveaxis(np.where(index[:, 0] < 0, extrapolation_value, y), -1, axis)


def _plan(
    shape: tuple[int, ...], inputs: dict[str, Any], computed: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """The axes that change, as attributes of ``interpolate``; those that shrink most come first.

    Sizes with dims of ``computed`` are estimated for that.
    """
    check_names(inputs)
    rank = len(shape)
    sizes = as_shape(inputs["size"], where="resize")
    scales = inputs["scales"]
    roi = inputs["roi"] if inputs["roi"] is not None else (0.0,) * rank + (1.0,) * rank
    for name, value, expected in (
        ("size", sizes, rank),
        ("scales", scales, rank),
        ("roi", roi, 2 * rank),
    ):
        if value is not None and len(value) != expected:
            raise ShapeError(
                f"[resize] {name} does not fit the shape",
                got=f"{name} {value} of {shape}",
                expected=f"{expected} entries",
            )
    crop = inputs["coordinates"] == "tf_crop_and_resize"
    rest = {k: v for k, v in inputs.items() if k not in ("size", "scales", "roi")}
    results = []
    for axis, (n, count) in enumerate(zip(shape, sizes, strict=True)):
        scale = float(scales[axis]) if scales is not None else None
        if scale is None and not is_sized((n, count)):
            scale = count / n if n else 1.0
        part = (float(roi[axis]), float(roi[rank + axis]))
        if scale in (None, 1.0) and same_size(n, count) and not (crop and part != (0.0, 1.0)):
            continue
        results.append({**rest, "axis": axis, "size": count, "scale": scale, "roi": part})

    if len(results) <= 2 and is_sized((shape, sizes)):
        return results  # interpolate_plane finds their order

    def number(size: Any) -> float:
        # No guard can be kept for a size that the graph computes.
        unknown = isinstance(size, SizeExpr) and not computed.isdisjoint(size.names())
        return estimated(size) if unknown else pinned(size)

    return sorted(
        results, key=lambda a: order(number(shape[a["axis"]]), number(a["size"]), a["axis"])
    )


def order(n: float, count: float, axis: int) -> tuple[float, int]:
    """The place of an axis of n entries among those that are resized.

    Axes that shrink come first, so that the other steps have less to do. Of two that change alike, the last one, whose
    entries are the hardest to reach, is resized where there is less of the other.
    """
    ratio = count / (n or 1)
    return ratio, axis if ratio < 1 else -axis


def _resize(g: Graph, x: Node, **args: Any) -> Node:
    crop = args["coordinates"] == "tf_crop_and_resize"
    plan = _plan(x.shape, args, g.computed_dims)
    if len(plan) == 2 and x.dtype in FLOAT_KERNELS:
        both = {key: tuple(attrs[key] for attrs in plan) for key in ("axis", "size", "scale")}
        return g.add_node(
            "interpolate_plane", [x], {**plan[0], **both, "roi": plan[0]["roi"] + plan[1]["roi"]}
        )
    for attrs in plan:
        axis = attrs["axis"]
        if attrs["mode"] == "nearest" and x.dtype not in FLOAT_KERNELS and not crop:
            # Picking entries moves any dtype.
            index, _ = table(x.shape[axis], attrs)
            x = g.gather(x, g.constant(index[:, 0]), axis)
        else:
            x = g.add_node("interpolate", [x], attrs)
    return x


def _samples() -> tuple[Sample, ...]:
    floats = ((DType.F32,), (DType.F64,))
    coordinates: tuple[dict[str, Any], ...] = (
        *({"coordinates": name} for name in COORDINATES),
        {"scales": (1.0, 1.0, 1.7, 2.6)},
        {"coordinates": "half_pixel_symmetric", "scales": (1.0, 1.0, 1.7, 2.6)},
        {"coordinates": "tf_crop_and_resize", "roi": (0, 0, 0.3, -0.1, 1, 1, 0.7, 1.2)},
    )
    filters: tuple[dict[str, Any], ...] = (
        *({"nearest_mode": name} for name in NEAREST),
        {"mode": "linear", "antialias": True},
        {"mode": "cubic", "antialias": True, "cubic_coeff_a": -0.5},
        {"mode": "cubic", "exclude_outside": True},
        {"mode": "linear", "coordinates": "pytorch_half_pixel"},
    )
    results = [
        Sample(((2, 3, 5, 4),), {"size": (2, 3, 8, 10), "mode": mode, **attrs}, dtypes=dtypes)
        for mode in MODES
        for attrs in coordinates
        for dtypes in floats
    ]
    results += [
        Sample(((1, 2, 9, 20),), {"size": (1, 2, 4, 3), **attrs}, dtypes=dtypes)
        for attrs in filters
        for dtypes in (*floats, *([(DType.I32,)] if "nearest_mode" in attrs else []))
    ]
    results += [
        Sample(((1,),), {"size": (1,)}),
        Sample(
            ((3,),), {"size": (1,), "mode": "linear", "coordinates": "align_corners"}, (DType.F32,)
        ),
        Sample(((0, 3),), {"size": (0, 6)}),
        Sample(((2, 3),), {"size": (0, 3)}),
        Sample(
            ((1, 16, 64, 64),),
            {"size": (1, 16, 128, 128), "mode": "linear"},
            dtypes=(DType.F32,),
            bench=True,
        ),
    ]
    return tuple(results)


@composite(
    _resize,
    tolerance={DType.F32: 1e-5},  # the weights are rounded too
    samples=lambda: _samples(),
)
def resize(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    size: ShapeLike,
    mode: Mode = "nearest",
    coordinates: Coordinates = "half_pixel",
    nearest_mode: NearestMode = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    roi: Sequence[float] | None = None,
    scales: Sequence[float] | None = None,
    antialias: bool = False,
) -> Array:
    """``x`` resized by interpolation along each axis whose size changes (ONNX's Resize).

    Args:
        x: Any shape; only "nearest" takes other than floats.
        size: The new size of every axis.
        mode: nearest, linear or cubic.
        coordinates: How results and entries correspond: half_pixel, half_pixel_symmetric,
            pytorch_half_pixel, align_corners, asymmetric or tf_crop_and_resize.
        nearest_mode: round_prefer_floor, round_prefer_ceil, floor or ceil.
        cubic_coeff_a: Parameter of the cubic kernel; -0.75 as in PyTorch, -0.5 as in TensorFlow.
        exclude_outside: Whether taps outside x weigh nothing; otherwise the edge is repeated.
        extrapolation_value: Stands where tf_crop_and_resize reaches outside x.
        roi: For tf_crop_and_resize: the first, then the last position on every axis, from 0 to 1.
        scales: New entries per old one of every axis, in place of size / size of x, where the new
            size is a rounded product.
        antialias: Whether shrinking (linear, cubic) widens the filter.
    """
    inputs: dict[str, Any] = {
        "size": size,
        "mode": mode,
        "coordinates": coordinates,
        "nearest_mode": nearest_mode,
    }
    inputs |= {"cubic_coeff_a": cubic_coeff_a, "exclude_outside": exclude_outside, "roi": roi}
    inputs |= {"extrapolation_value": extrapolation_value, "scales": scales, "antialias": antialias}
    for attrs in _plan(x.shape, inputs):
        x = interpolate.reference(x, **attrs)
    return x

"""Resizing along two axes in one kernel, so that the result of the first axis is not written to memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.abi.constants import VECTOR_ELEMENTS
from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import is_sized
from rlx.ir.shape import size as count_of
from rlx.ir.variants import Family, Variant
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.resize.interpolate import (
    PLAIN,
    call_interpolate,
    interpolate,
    interpolate_type,
    order,
    table,
)
from rlx.ops.resize.tables_at_run import lower_planes, may_be_made_on_gpu
from rlx.ops.resize.taps import TapPattern, pattern
from rlx.sizes import hinted, pinned

_THREADS = 128
# Most entries that a thread of the WGSL kernel reads: more do not fit into registers.
_MAX_ENTRIES = 64


class ResizeProblem(NamedTuple):
    """Planes to be resized.

    Attributes:
        planes: How many.
        dims: Their sizes.
        out: The sizes of the results.
        patterns: Whether taps come back every four results, on both axes, and are few.
    """

    planes: int
    dims: tuple[int, ...]
    out: tuple[int, ...]
    patterns: bool


# One pass per axis takes every problem. A pattern needs no tables and reads an entry once for 16 results.
RESIZE = Family(
    "resize",
    (Variant("pattern", _THREADS, 0), Variant("plain", 256, 0)),
    takes=lambda variant, problem: variant.name == "plain" or problem.patterns,
)


def _single(attrs: Any, which: int) -> dict[str, Any]:
    """The attributes of ``interpolate`` along one of the two axes."""
    single = {key: attrs[key][which] for key in ("axis", "size", "scale")}
    return {**attrs, **single, "roi": tuple(attrs["roi"][2 * which : 2 * which + 2])}


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    pairs = all(
        isinstance(attrs[key], tuple) and len(attrs[key]) == 2 for key in ("axis", "size", "scale")
    )
    if not pairs or not isinstance(attrs["roi"], tuple) or len(attrs["roi"]) != 4:
        raise ShapeError(
            "[resize] two axes",
            got=f"axis {attrs['axis']}, size {attrs['size']}, scale {attrs['scale']}, roi {attrs['roi']}",
            expected="two of each, and four numbers of roi",
        )
    result, output = types[0], []
    for which in range(2):
        single = _single(attrs, which)
        result = interpolate_type([result], single)
        output.append(single)  # as interpolate writes them
    if output[0]["axis"] == output[1]["axis"]:
        raise ShapeError("[resize] two axes", got=f"axis {attrs['axis']}")
    shape = types[0].shape
    if not is_sized((shape, attrs["size"])):
        output.sort(key=lambda single: order(shape[single["axis"]], single["size"], single["axis"]))
    for key in ("axis", "size", "scale"):
        attrs[key] = tuple(item[key] for item in output)
    attrs["roi"] = output[0]["roi"] + output[1]["roi"]
    return result


def passes_of(node: Node) -> list[dict[str, Any]]:
    """The attributes of both passes, the first one first."""
    x, both = node.inputs[0].shape, [_single(node.attrs, which) for which in range(2)]
    if is_sized((x, node.shape)):
        both.sort(key=lambda one: order(hinted(x[one["axis"]]), hinted(one["size"]), one["axis"]))
    return both


def _passes(node: Node, emitter: Emitter, webgpu: bool) -> None:
    first, second = passes_of(node)
    between = interpolate_type([node.inputs[0].type], dict(first))
    middle = emitter.temp(between)
    call_interpolate(emitter, emitter.operand(0), middle, node.inputs[0].type, first, webgpu)
    call_interpolate(emitter, middle, emitter.result(), between, second, webgpu)


def _patterns(node: Node) -> tuple[TapPattern, TapPattern] | None:
    """The patterns of rows and of columns, if the last two axes have one each and they are small."""
    x, result = node.inputs[0].shape, {}
    for which in range(2):
        single = _single(node.attrs, which)
        index, weight = table(x[single["axis"]], single)
        if not (index < 0).any():
            result[single["axis"] - len(x)] = pattern(index, weight, pinned(x[single["axis"]]))
    rows, columns = result.get(-2), result.get(-1)
    if rows is None or columns is None:
        return None
    few = len(rows.entries) * len(columns.entries) <= _MAX_ENTRIES
    return (rows, columns) if few else None


def _nearest(node: Node) -> tuple[Array, Array] | None:
    """Returns the rows and columns that are taken if each entry of the last two axes is one of the operand's."""
    shape = node.inputs[0].shape
    results: dict[int, Array] = {}
    for which in range(2):
        single = _single(node.attrs, which)
        index, _ = table(shape[single["axis"]], single)
        if index.shape[1] == 1 and (index >= 0).all():
            results[single["axis"] - len(shape)] = index[:, 0]
    return (results[-2], results[-1]) if results.keys() == {-2, -1} else None


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    sized = is_sized((node.inputs[0].shape, node.shape))
    if sized and lower_planes(node, emitter, (_single(node.attrs, 0), _single(node.attrs, 1))):
        return
    taken = _nearest(node)
    if taken is None:
        _passes(node, emitter, webgpu=False)
        return
    lines, places = taken
    padded = np.pad(places, (0, -len(places) % VECTOR_ELEMENTS), mode="edge")
    params = {
        "planes": count_of(node.shape[:-2]),
        "n": node.inputs[0].shape[-2],
        "width": node.inputs[0].shape[-1],
        "rows": len(lines),
        "columns": len(places),
        "rising": int((np.diff(places) >= 0).all()),
    }
    tables = [emitter.table(item.astype(np.int32)) for item in (lines, padded)]
    emitter.call("nearest_planes", [emitter.operand(0), *tables], [emitter.result()], params)


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    x, y = node.inputs[0].shape, node.shape
    singles = [_single(node.attrs, which) for which in range(2)]
    made = any(may_be_made_on_gpu(x[single["axis"]], single) for single in singles)
    both = None if made else _patterns(node)
    planes = count_of(y[:-2])
    variant = RESIZE.choose(ResizeProblem(planes, x[-2:], y[-2:], both is not None), emitter)
    if variant.name == "plain" or both is None:
        _passes(node, emitter, webgpu=True)
        return
    rows, columns = both
    params = {
        "planes": planes,
        "dims": x[-2:],
        "size": y[-2:],
        "step": (rows.step, columns.step),
        "lines": rows.entries,
        "columns": columns.entries,
        "ys": rows.taps,
        "xs": columns.taps,
    }
    work = math.ceil(planes * math.ceil(y[-2] / 4) * math.ceil(y[-1] / 4) / _THREADS)
    emitter.call("interpolate_plane", [emitter.operand(0)], [emitter.result()], params, work)


def _sample(shape: tuple[int, ...], size: tuple[int, int], **more: Any) -> Sample:
    axes = (len(shape) - 2, len(shape) - 1)
    scale = tuple(n / (shape[axis] or 1) for n, axis in zip(size, axes, strict=True))
    attrs = {**PLAIN, "axis": axes, "size": size, "scale": scale, "roi": (0.0, 1.0) * 2}
    return Sample((shape,), {**attrs, **more})


_HOLES = np.where(np.arange(1800) % 37 == 5, np.nan, np.arange(1800)).reshape(2, 30, 30)


@op(
    internal=True,
    infer=_infer,
    flops=lambda node: 2.0 * count_of(node.shape) * 4,
    cpu=Kernels(("nearest_planes", "interpolate", "resize_taps"), _lower_cpu),
    webgpu=Kernels(("interpolate_plane", "interpolate", "resize_taps"), _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},  # the weights of both axes are rounded too
    samples=lambda: (
        _sample((1, 1), (1, 1)),
        _sample((0, 3, 4), (6, 8)),
        _sample((2, 3, 4), (0, 8)),
        _sample((2, 5, 4), (8, 10)),
        _sample((3, 12, 9), (24, 18)),
        _sample((2, 9, 16), (36, 32), mode="nearest"),
        _sample((3, 5, 7), (10, 14), mode="nearest", nearest_mode="floor"),
        _sample((2, 3, 3), (5, 41), mode="nearest"),
        _sample((2, 30, 50), (7, 11), mode="nearest"),
        _sample((2, 16, 20), (32, 40), mode="cubic"),
        _sample((2, 48, 40), (24, 10)),
        _sample((2, 9, 20), (27, 60), coordinates="asymmetric"),
        _sample((2, 20, 18), (40, 36), coordinates="align_corners"),
        _sample((2, 20, 18), (40, 36), coordinates="tf_crop_and_resize", extrapolation_value=3.5,
                roi=(-0.2, 0.9, 0.1, 1.3)),
        _sample((2, 20, 16), (10, 8), antialias=True, exclude_outside=True),
        Sample(
            ((2, 30, 30),),
            _sample((2, 30, 30), (60, 60), coordinates="asymmetric").attrs,
            values=(_HOLES,),
            dtypes=(DType.F32,),
        ),
    ),
)  # fmt: skip
def interpolate_plane(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    axis: Any,
    size: Any,
    scale: Any,
    mode: str,
    coordinates: str,
    nearest_mode: str,
    cubic_coeff_a: float,
    exclude_outside: bool,
    extrapolation_value: float,
    roi: Any,
    antialias: bool,
) -> Array:
    """``x`` resized along two axes: ``interpolate`` along the first, then along the second; ``roi`` holds both."""
    attrs = {"axis": axis, "size": size, "scale": scale, "mode": mode, "coordinates": coordinates}
    attrs |= {"nearest_mode": nearest_mode, "cubic_coeff_a": cubic_coeff_a, "roi": roi}
    attrs |= {"exclude_outside": exclude_outside, "antialias": antialias}
    attrs |= {"extrapolation_value": extrapolation_value}
    for which in range(2):
        x = interpolate.reference(x, **_single(attrs, which))
    return x

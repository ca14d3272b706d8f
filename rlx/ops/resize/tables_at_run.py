"""Resizing by sizes that are known only when the graph runs: a kernel makes the tables of taps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from rlx.abi.constants import VECTOR_ELEMENTS
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Emitter, TensorType
from rlx.ir.shape import is_sized, size
from rlx.ops.resize.taps import COORDINATES, MODES, NEAREST
from rlx.sizes import ceil_divide, flag, largest, smallest

# Taps of a result, but for filters that shrinking widens.
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
# Its results may lie outside, which kernels for rising places do not look for.
_CROP = "tf_crop_and_resize"
# Threads of a workgroup of the WGSL kernels.
WORKGROUP = 256
# Positions are quotients of whole numbers below it on a GPU.
_WHOLE = 1 << 29


class _Pass(NamedTuple):
    """A pass along one axis.

    Attributes:
        outer: Pieces of which each has all entries of the axis.
        n: Entries of the axis.
        count: Results of the axis.
        inner: The distance between two entries.
        scale: Results per entry; ``count / n`` where that is None.
    """

    outer: Any
    n: Any
    count: Any
    inner: Any
    scale: Any


def is_made(n: int, attrs: Any) -> bool:
    """Returns whether the tables of an axis of n entries are made when the graph runs.

    Args:
        n: Its entries.
        attrs: The attributes of ``interpolate``.
    """
    stretched = attrs["antialias"] and attrs["mode"] != "nearest"
    return is_sized((n, attrs["size"])) and not stretched and attrs["coordinates"] != _CROP


def call_sized(emitter: Emitter, x: Any, result: Any, type: TensorType, attrs: Any) -> bool:
    """Writes the calls for one axis, by the attributes of ``interpolate``; returns whether it could."""
    shape, axis = type.shape, attrs["axis"]
    if not is_made(shape[axis], attrs):
        return False
    inner = size(shape[axis + 1 :])
    if is_sized((inner,)) and inner < 2:  # lines that are not in step have other tables
        return False
    single = _pass_of(size(shape[:axis]), shape[axis], inner, attrs)
    _call_pass(emitter, x, result, single, attrs, type.dtype)
    return True


def lower_planes(node: Node, emitter: Emitter, attrs: tuple[Any, Any]) -> bool:
    """Writes the calls of ``interpolate_plane``; returns whether it could.

    Args:
        node: The node.
        emitter: Takes the calls.
        attrs: The attributes of ``interpolate`` for both axes.
    """
    x, y = node.inputs[0].shape, node.shape
    ends = [len(x) - 2, len(x) - 1]
    rows, columns = sorted(attrs, key=lambda single: single["axis"])
    if [rows["axis"], columns["axis"]] != ends:
        return False
    if not is_made(x[-2], rows) and not is_made(x[-1], columns):
        return False
    planes, (h, w), (height, width) = size(y[:-2]), x[-2:], y[-2:]
    operand, result, dtype = emitter.operand(0), emitter.result(), node.dtype
    if rows["mode"] == "nearest":
        lanes = ceil_divide(width, VECTOR_ELEMENTS) * VECTOR_ELEMENTS
        by_rows, by_columns = _pass_of(1, h, 1, rows), _pass_of(1, w, 1, columns)
        lines = _tables(emitter, operand, by_rows, rows, dtype, 0, height)
        places = _tables(emitter, operand, by_columns, columns, dtype, 0, lanes)
        sizes = {"planes": planes, "n": h, "width": w, "rows": height, "columns": width}
        emitter.call(
            "nearest_planes", [operand, lines[0], places[0]], [result], {**sizes, "rising": 1}
        )
        return True
    if smallest(w, width) < 2:
        return False
    # Which axis comes first (``order``) depends on the sizes: one of both orders has all planes, the other none.
    ahead = width * h - height * w
    alike = 1 - flag(ahead) - flag(-ahead)
    rows_first = planes * (flag(ahead) + alike * flag(h - height))
    middle = emitter.temp(TensorType((planes * largest(height * w, h * width),), dtype))
    for some, first, second in (
        (rows_first, _pass_of(1, h, w, rows), _pass_of(height, w, 1, columns)),
        (planes - rows_first, _pass_of(h, w, 1, columns), _pass_of(1, h, width, rows)),
    ):
        for one, source, target in ((first, operand, middle), (second, middle, result)):
            _call_pass(emitter, source, target, one._replace(outer=some * one.outer), rows, dtype)
    return True


def _pass_of(outer: Any, n: Any, inner: Any, attrs: Any) -> _Pass:
    """The pass of an axis, by the attributes of ``interpolate``."""
    scale = None if attrs["scale"] is None else float(attrs["scale"])
    return _Pass(outer, n, attrs["size"], inner, scale)


def _tables(
    emitter: Emitter, x: Any, single: _Pass, attrs: Any, dtype: DType, turned: int, padded: Any
) -> list[Any]:
    """Writes the call that makes the tables of a pass; returns them.

    Args:
        emitter: Takes the call.
        x: What is resized: its type is that of the weights.
        single: The pass.
        attrs: The attributes of ``interpolate``.
        dtype: The type of the weights.
        turned: 1 where a table has a row for each tap.
        padded: Results of the tables. Those behind the last one are like it.
    """
    taps = _TAPS[attrs["mode"]]
    tables = [emitter.temp(TensorType((padded * taps,), kind)) for kind in (DType.I32, dtype)]
    params = {
        "n": single.n,
        "count": single.count,
        "padded": padded,
        "taps": taps,
        "turned": turned,
        "mode": MODES.index(attrs["mode"]),
        "coordinates": COORDINATES.index(attrs["coordinates"]),
        "rounding": NEAREST.index(attrs["nearest_mode"]),
        "exclude": int(attrs["exclude_outside"]),
        "scale": single.count / single.n if single.scale is None else single.scale,
        "cubic": float(attrs["cubic_coeff_a"]),
    }
    emitter.call("resize_taps", [x], tables, params)
    return tables


def _call_pass(
    emitter: Emitter, x: Any, result: Any, single: _Pass, attrs: Any, dtype: DType
) -> None:
    """Writes the calls of one pass."""
    turned = int(not is_sized((single.inner,)) and single.inner == 1)
    tables = _tables(emitter, x, single, attrs, dtype, turned, single.count)
    params = {
        "outer": single.outer,
        "n": single.n,
        "count": single.count,
        "inner": single.inner,
        "taps": _TAPS[attrs["mode"]],
        "rising": 1,
        "outside": float(attrs["extrapolation_value"]),
    }
    emitter.call("interpolate", [x, *tables], [result], params)


def may_be_made_on_gpu(n: Any, attrs: Any) -> bool:
    """``is_made`` on a GPU, which counts positions in whole numbers: the scale is a quotient of small ones."""
    return is_made(n, attrs) and _ratio(n, attrs) is not None


def _ratio(n: Any, attrs: Any) -> tuple[Any, Any] | None:
    """The entries that make so many results; None where these are too large for a GPU to count with."""
    count = attrs["size"]
    if attrs["coordinates"] == "align_corners":
        entries, results = largest(n - 1, 0), largest(count - 1, 1)
    elif attrs["scale"] is None:
        entries, results = n, count
    elif attrs["coordinates"] == "half_pixel_symmetric":
        return None
    else:
        scale = Fraction(attrs["scale"])
        entries, results = scale.denominator, scale.numerator
    highest = largest(2 * count * entries, 2 * results)
    return (entries, results) if highest < _WHOLE else None


def call_sized_webgpu(emitter: Emitter, x: Any, result: Any, type: TensorType, attrs: Any) -> bool:
    """Writes the calls for one axis on a GPU, as ``call_sized`` does on the CPU."""
    shape, axis = type.shape, attrs["axis"]
    n, count, taps = shape[axis], attrs["size"], _TAPS[attrs["mode"]]
    ratio = _ratio(n, attrs) if is_made(n, attrs) else None
    if ratio is None:
        return False
    tables = [emitter.temp(TensorType((count * taps,), kind)) for kind in (DType.I32, DType.F32)]
    params = {
        "n": n,
        "count": count,
        "entries": ratio[0],
        "results": ratio[1],
        "taps": taps,
        "mode": attrs["mode"],
        "coordinates": attrs["coordinates"],
        "rounding": attrs["nearest_mode"],
        "exclude": int(attrs["exclude_outside"]),
        "cubic": float(attrs["cubic_coeff_a"]),
    }
    emitter.call("resize_taps", [], tables, params, ceil_divide(count, WORKGROUP))
    outer, inner = size(shape[:axis]), size(shape[axis + 1 :])
    sizes = {"outer": outer, "n": n, "count": count, "inner": inner, "taps": taps}
    part = {**sizes, "outside": 0.0, "tap_from": 0, "tap_to": taps}
    work = ceil_divide(outer * count * inner, WORKGROUP)
    emitter.call("interpolate", [x, *tables], [result], part, work)
    return True

"""Resizing on the CPU by sizes that are known only when the graph runs: a kernel makes the tables of taps."""

from __future__ import annotations

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
    if not is_sized((inner,)) and inner == 1:
        lanes = True
    else:
        lanes = inner >= VECTOR_ELEMENTS
    if lanes:
        single = _pass_of(size(shape[:axis]), shape[axis], inner, attrs)
        _call_pass(emitter, x, result, single, attrs, type.dtype, attrs["size"])
    return lanes


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
        lines = _tables(
            emitter, operand, _pass_of(1, h, 1, rows), rows, dtype, turned=0, padded=height
        )[0]
        places = _tables(
            emitter, operand, _pass_of(1, w, 1, columns), columns, dtype, turned=0, padded=lanes
        )
        sizes = {
            "planes": planes,
            "n": h,
            "width": w,
            "rows": height,
            "columns": width,
            "rising": 1,
        }
        emitter.call("nearest_planes", [operand, lines, places[0]], [result], sizes)
        return True
    if smallest(w, width) < VECTOR_ELEMENTS:
        return False
    # Which axis comes first (``order``) depends on the sizes: a number that the parameters are computed from.
    ahead = width * h - height * w
    alike = 1 - flag(ahead) - flag(-ahead)
    rows_first = flag(ahead) + alike * flag(h - height)
    between = TensorType((planes * largest(height * w, h * width),), dtype)
    middle = emitter.temp(between)
    passes = (
        (_pass_of(planes, h, w, rows), _pass_of(planes * h, w, 1, columns), rows_first),
        (
            _pass_of(planes, h, width, rows),
            _pass_of(planes * height, w, 1, columns),
            1 - rows_first,
        ),
    )
    most = largest(height, width)
    for (by_rows, by_columns, first), (source, target) in zip(
        passes, ((operand, middle), (middle, result)), strict=True
    ):
        pairs = zip(by_rows, by_columns, strict=True)
        single = _Pass(*(a if _same(a, b) else first * a + (1 - first) * b for a, b in pairs))
        _call_pass(emitter, source, target, single, rows, dtype, most, turned=1 - first)
    return True


def _same(a: Any, b: Any) -> bool:
    """Returns whether a number is the same for both axes at all sizes."""
    return a is b or (isinstance(a, float) and isinstance(b, float) and a == b)


def _pass_of(outer: Any, n: Any, inner: Any, attrs: Any) -> _Pass:
    """The pass of an axis, by the attributes of ``interpolate``."""
    scale = None if attrs["scale"] is None else float(attrs["scale"])
    return _Pass(outer, n, attrs["size"], inner, scale)


def _tables(
    emitter: Emitter,
    x: Any,
    single: _Pass,
    attrs: Any,
    dtype: DType,
    *,
    turned: Any,
    padded: Any,
    most: Any = None,
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
        most: Results that there is room for; ``padded`` without it.
    """
    taps = _TAPS[attrs["mode"]]
    room = (padded if most is None else most) * taps
    tables = [emitter.temp(TensorType((room,), kind)) for kind in (DType.I32, dtype)]
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
    emitter: Emitter,
    x: Any,
    result: Any,
    single: _Pass,
    attrs: Any,
    dtype: DType,
    most: Any,
    turned: Any = None,
) -> None:
    """Writes the calls of one pass."""
    if turned is None:
        turned = int(not is_sized((single.inner,)) and single.inner == 1)
    tables = _tables(
        emitter, x, single, attrs, dtype, turned=turned, padded=single.count, most=most
    )
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

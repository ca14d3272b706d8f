"""From a kernel call to what a dispatch needs: source, bindings and grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.backends.webgpu.elementwise_wgsl import groups, region_source
from rlx.backends.webgpu.storage import STORAGE
from rlx.backends.webgpu.trips import excess
from rlx.backends.webgpu.wgsl import header, render
from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType
from rlx.ir.plan import ARENA, Call, Value
from rlx.lru import Lru
from rlx.passes.extent import Extent, scaled

# Cache of rendered WGSL with the excess trips of its loops, keyed by everything that rendering depends on.
# Bounds: number of texts, and characters of all of them.
_sources: Lru[Any, tuple[str, int]] = Lru(1024, 16 << 20)


@dataclass(frozen=True, eq=False)
class Dispatch:
    """One dispatch.

    Attributes:
        call: The call it comes from.
        label: Op and kernel, for the driver's messages.
        source: The whole WGSL text.
        values: What is bound, in binding order.
        access: "read" or "read_write" of each.
        grid: Workgroups in x and y.
        work: Workgroups that have something to do.
        excess: Trips of its loops where these are more than a driver may finish, else 0.
    """

    call: Call
    label: str
    source: str
    values: tuple[Value, ...]
    access: tuple[str, ...]
    grid: tuple[int, int]
    work: int
    excess: int = 0


def grid(work: int, limit: int) -> tuple[int, int]:
    """Workgroups in x and y. Counts above the limit of one dimension are folded into rows."""
    if work <= limit:
        return work, 1
    rows = math.ceil(work / limit)
    return math.ceil(work / rows), rows


def shrunk(dispatch: Dispatch, extent: Extent | None) -> tuple[int, int]:
    """The grid for the rows of an extent: the first workgroups of the full grid.

    The kernel and its row of workgroups stay as they are, so that nothing is compiled.
    """
    x, y = dispatch.grid
    call = dispatch.call
    if extent is None or not call.unit or call.node not in extent.rows:
        return x, y
    work = scaled(dispatch.work, extent, call.unit)
    return (work, 1) if y == 1 else (x, math.ceil(work / x))


def access_of(value: Value) -> str:
    """How a value may be bound.

    Everything in the arena is read_write: one buffer can't be read-only and writable in the same
    dispatch. Params and constants have buffers of their own.
    """
    return "read_write" if value.kind in ARENA else "read"


def lower(call: Call, per_dimension: int) -> Dispatch | None:
    """Renders a call into a dispatch; None for a call without work.

    Args:
        call: The call.
        per_dimension: The device's largest number of workgroups in one dimension.

    Raises:
        CompileError: The kernel's file does not fit the call.
    """
    work = groups(call.params) if call.kernel == "elementwise" else call.work
    if work == 0:
        return None
    values = (*(value for value in call.inputs if value is not None), *call.outputs)
    access = tuple(access_of(value) for value in values)
    size = grid(work, per_dimension)
    dtypes = tuple(value.type.dtype for value in values)
    # Cached: the layers of a model repeat their calls, and rendering is most of the cost of a load.
    key = call.kernel, _exact(call.params), dtypes, access, work, size[0]
    known = _sources.get(key)
    if known is None:
        source = _source(call, dtypes, access, work, size[0])
        # Kernels written by users declare no trip counts. Elementwise regions have no loops.
        counted = call.kernel not in ("custom", "elementwise")
        known = source, excess(source) if counted else 0
        _sources.put(key, known, len(source))
    label = f"{call.node.op}/{call.kernel}"
    return Dispatch(call, label, known[0], values, access, size, work, known[1])


def text_of(work: Sequence[Dispatch | Call]) -> str:
    """The WGSL of every dispatch in order, and what the host runs between them."""
    shown = []
    for one in work:
        if isinstance(one, Call):
            reasons: Any = one.params["reasons"]
            shown.append(f"// --- on the host, {one.node.where()}: {'; '.join(reasons)}")
        else:
            grid = f"grid {one.grid[0]} x {one.grid[1]}"
            shown.append(f"// --- {one.label}, {one.call.node.where()}, {grid}\n{one.source}")
    return "\n".join(shown)


def _source(
    call: Call, dtypes: tuple[DType, ...], access: tuple[str, ...], work: int, fold: int
) -> str:
    """The whole WGSL text of a call."""
    kernel, params = call.kernel, call.params
    if kernel == "elementwise":
        return header({}, work, fold) + region_source(params, dtypes[:-1], dtypes[-1], access)
    if kernel == "strided_copy" and STORAGE[dtypes[0]].per_word > 1:
        kernel = "strided_copy_narrow"  # elements share words, so they are written by atomics
    types = [STORAGE[dtype].word for dtype in dtypes]
    body = render(kernel, {**params, "access": list(access), "type": types})
    enable = "enable f16;\n" if params.get("half") else ""
    return enable + header(params, work, fold) + body


def _exact(value: Any) -> Any:
    """Parameters as a hashable key that also distinguishes types: 1, 1.0 and True differ."""
    if isinstance(value, Mapping):
        return tuple((name, _exact(item)) for name, item in value.items())
    if isinstance(value, tuple | list):
        return tuple(_exact(item) for item in value)
    return type(value), repr(value) if isinstance(value, float) else value

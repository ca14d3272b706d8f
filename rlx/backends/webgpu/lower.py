"""From a kernel call to what a dispatch needs: source, bindings and grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlx.backends.webgpu.region import groups, region_source
from rlx.backends.webgpu.storage import STORAGE
from rlx.backends.webgpu.trips import excess
from rlx.backends.webgpu.wgsl import header, render
from rlx.ir.plan import ARENA, Call, Value
from rlx.passes.extent import Extent, scaled


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
    """Workgroups in x and y: more than fit into one dimension are folded into rows."""
    if work <= limit:
        return work, 1
    rows = math.ceil(work / limit)
    return math.ceil(work / rows), rows


def shrunk(dispatch: Dispatch, extent: Extent | None) -> tuple[int, int]:
    """The grid that makes the rows of an extent: the first workgroups of the whole.

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
    """Renders a call; None when it has no work.

    Args:
        call: The call.
        per_dimension: The device's largest number of workgroups in one dimension.

    Raises:
        CompileError: The kernel's file does not fit the call.
    """
    values = (*(value for value in call.inputs if value is not None), *call.outputs)
    access = [access_of(value) for value in values]
    kernel, label = call.kernel, f"{call.node.op}/{call.kernel}"
    if kernel == "elementwise":
        work = groups(call.params)
        if work == 0:
            return None
        x, y = grid(work, per_dimension)
        dtypes = [value.type.dtype for value in values]
        body = region_source(call.params, dtypes[:-1], dtypes[-1], access)
        return Dispatch(
            call, label, header({}, work, x) + body, values, tuple(access), (x, y), work
        )
    if call.work == 0:
        return None
    if kernel == "strided_copy" and STORAGE[values[0].type.dtype].per_word > 1:
        kernel = "strided_copy_narrow"  # elements share words, so they are written by atomics
    x, y = grid(call.work, per_dimension)
    types = [STORAGE[value.type.dtype].word for value in values]
    body = render(kernel, {**call.params, "access": access, "type": types})
    enable = "enable f16;\n" if call.params.get("half") else ""
    source = enable + header(call.params, call.work, x) + body
    # What a user wrote declares no trips, and is not cut up either.
    trips = 0 if kernel == "custom" else excess(source)
    return Dispatch(call, label, source, values, tuple(access), (x, y), call.work, trips)

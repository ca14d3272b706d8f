"""The parts of a dispatch: source, grid and bindings, of which values in the same memory share one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType
from rlx.ir.opdef import TensorType
from rlx.ir.plan import ARENA, STATE, KernelCall, Slot, Value
from rlx.passes.dynamic_batch import DynamicRows, scaled

# The access to the buffer of sizes.
UNIFORM = "uniform"


@dataclass(frozen=True, eq=False)
class Dispatch:
    """One dispatch.

    Attributes:
        call: The call it comes from.
        label: Op and kernel, for the driver's messages.
        source: The whole WGSL text.
        values: The bound values, in binding order; values that share memory are bound once.
        access: "read" or "read_write" of each; behind them ``UNIFORM`` where it reads sizes that are known when the graph runs.
        grid: Workgroups in x and y, which may be such sizes.
        work: Workgroups with work to do.
        excess: Trips of its loops where these are more than a driver may finish, else 0.
    """

    call: KernelCall
    label: str
    source: str
    values: tuple[Value, ...]
    access: tuple[str, ...]
    grid: tuple[int, int]
    work: int
    excess: int = 0

    @property
    def reads_sizes(self) -> bool:
        """True where it binds the buffer of sizes, behind its values."""
        return self.access[-1:] == (UNIFORM,)


def grid(work: int, limit: int) -> tuple[int, int]:
    """Workgroups in x and y. Counts above the limit of one dimension are folded into rows."""
    if work <= limit:
        return work, 1
    rows = math.ceil(work / limit)
    return math.ceil(work / rows), rows


def shrunk(dispatch: Dispatch, extent: DynamicRows | None) -> tuple[int, int]:
    """The grid for the rows of an extent: the first workgroups of the full grid.

    The kernel and its row of workgroups stay as they are, so that nothing is compiled.
    """
    x, y = dispatch.grid
    call = dispatch.call
    if extent is None or not call.unit or call.node not in extent.rows:
        return x, y
    work = scaled(dispatch.work, extent, call.unit)
    return (work, 1) if y == 1 else (x, math.ceil(work / x))


def access_of(value: Value, call: KernelCall) -> str:
    """Returns the access mode with which a value may be bound for a call.

    Everything in the arena is read_write: one buffer can't be read-only and writable in the same dispatch. Params,
    constants and states have buffers of their own, and calls write states. Writable ranges may not overlap either;
    ``shared_ranges`` prevents that.
    """
    written = value.kind == STATE and any(output.id == value.id for output in call.outputs)
    return "read_write" if written or value.kind in ARENA else "read"


def text_of(work: Sequence[Dispatch | KernelCall]) -> str:
    """Returns the WGSL of every dispatch in order, and the host's calls between them."""
    shown = []
    for item in work:
        if isinstance(item, KernelCall):
            reasons: Any = item.params["reasons"]
            shown.append(f"// --- on the host, {item.node.where()}: {'; '.join(reasons)}")
        else:
            grid = f"grid {item.grid[0]} x {item.grid[1]}"
            shown.append(f"// --- {item.label}, {item.call.node.where()}, {grid}\n{item.source}")
    return "\n".join(shown)


def padded(type: TensorType) -> int:
    """Bytes bound for a value: rounded up to whole vectors (four i64, or 16 bytes), at least one."""
    unit = 32 if type.dtype is DType.I64 else 16
    return max(unit, -(-type.nbytes // unit) * unit)


def pattern_of(values: Sequence[Value], slots: Mapping[int, Slot]) -> tuple[int, ...]:
    """For each value the first one whose memory it shares, by position: itself, unless it is bound twice.

    Params and constants are only read, which may be bound as often as a kernel likes.
    """
    first: dict[int, int] = {}
    return tuple(
        first.setdefault(slots[value.id].offset, i) if value.kind in ARENA else i
        for i, value in enumerate(values)
    )


def bound(values: Sequence[Value], pattern: Sequence[int]) -> tuple[Value, ...]:
    """The values that are left to bind: of those in the same memory the one whose range is the largest."""
    groups: dict[int, list[Value]] = {}
    for value, first in zip(values, pattern, strict=True):
        groups.setdefault(first, []).append(value)
    return tuple(max(group, key=lambda item: padded(item.type)) for group in groups.values())

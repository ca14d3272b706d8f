"""Schedule -> MemoryPlan: lifetimes, in-place reuse, then offsets by first fit, largest first."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.errors import DeviceMemoryError, describe
from rlx.ir.plan import ARENA, MemoryPlan, Schedule, Slot, Value


@dataclass
class _Block:
    """One piece of arena shared by values that follow each other in place."""

    nbytes: int
    first: int
    last: int
    members: list[int]
    offset: int = 0


def plan_memory(
    schedule: Schedule,
    alignment: int = 256,
    limit: int | None = None,
    reuse: bool = True,
    guard: int = 0,
) -> MemoryPlan:
    """Lays out the arena.

    Args:
        schedule: The calls.
        alignment: Every offset is a multiple of it.
        limit: Refuse an arena above this many bytes.
        reuse: False gives every value memory of its own, which helps to tell a planner's fault
            from a kernel's.
        guard: Bytes left free behind every value, a multiple of the alignment; tests look there for
            writes out of bounds.

    Returns:
        The plan.

    Raises:
        DeviceMemoryError: The arena would be larger than ``limit``.
    """
    end = len(schedule.calls)
    blocks, reused = _blocks(schedule, alignment, end, reuse, guard)
    kind = {value.id: value.kind for value in schedule.values}

    def pinned(name: str) -> list[_Block]:
        return [b for b in blocks if any(kind[m] == name for m in b.members)]

    at = 0
    for block in (inputs := pinned("input")):
        block.offset, at = at, at + block.nbytes
    inputs_end = at
    for block in (outputs := pinned("output")):
        block.offset, at = at, at + block.nbytes
    outputs_end = at

    temps = [b for b in blocks if b not in inputs and b not in outputs]
    nbytes = _place(temps, outputs_end, overlap=not reuse)
    if limit is not None and nbytes > limit:
        largest = max(blocks, key=lambda b: b.nbytes)
        raise DeviceMemoryError(
            describe(
                "the graph needs more memory than it may have",
                got=f"an arena of {nbytes} bytes, its largest value "
                f"{schedule.values[largest.members[0]].name!r} of {largest.nbytes}",
                expected=f"at most {limit} bytes (memory_limit)",
                hint="make the batch smaller, or raise CompileOptions.memory_limit",
            )
        )
    pinned_bytes = outputs_end
    live = [0] * (end + 1)
    for block in temps:
        for step in range(block.first, block.last + 1):
            live[step] += block.nbytes
    slots = {
        member: Slot(block.offset, schedule.values[member].type.nbytes)
        for block in blocks
        for member in block.members
    }
    return MemoryPlan(
        slots, max(nbytes, alignment), inputs_end, outputs_end, pinned_bytes + max(live), reused
    )


def _blocks(
    schedule: Schedule, alignment: int, end: int, reuse: bool, guard: int
) -> tuple[list[_Block], list[tuple[int, int]]]:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, call in enumerate(schedule.calls):
        for value in (*call.inputs, *call.outputs):
            if value is not None and value.kind in ARENA:
                first.setdefault(value.id, step)
                last[value.id] = step
    for begin, finish in schedule.loops:
        for value_id, step in last.items():
            if first[value_id] < begin <= step <= finish:
                last[value_id] = finish
            elif begin <= first[value_id] <= finish < step:
                # Trips may fill it part by part: none of it is free before the loop ends.
                first[value_id] = begin
    for value in schedule.values:
        if value.kind == "input":
            first[value.id], last[value.id] = 0, end
        elif value.kind == "output":
            # An empty output is written by no call.
            first.setdefault(value.id, 0)
            last[value.id] = end

    block_of: dict[int, _Block] = {}
    reused: list[tuple[int, int]] = []
    for step, call in enumerate(schedule.calls):
        taken: set[int] = set()
        for value in call.outputs:
            if not reuse or value.kind != "temp" or first[value.id] != step:
                continue
            donor = _donor(call.in_place, call.inputs, value, last, step, taken)
            if donor is not None and donor.id in block_of:
                taken.add(donor.id)
                block = block_of[donor.id]
                block.members.append(value.id)
                block.last = last[value.id]
                block_of[value.id] = block
                reused.append((value.id, donor.id))
        for value in (*call.inputs, *call.outputs):
            if value is not None and value.kind in ARENA and value.id not in block_of:
                block_of[value.id] = _block(value, first, last, alignment, guard)
    for value in schedule.values:
        if value.kind in ("input", "output") and value.id not in block_of:
            block_of[value.id] = _block(value, first, last, alignment, guard)
    unique = {id(block): block for block in block_of.values()}
    return sorted(unique.values(), key=lambda b: b.members[0]), reused


def _block(
    value: Value, first: dict[int, int], last: dict[int, int], alignment: int, guard: int
) -> _Block:
    # Every value has at least one unit, so that an empty one can be bound too.
    nbytes = max(1, -(-value.type.nbytes // alignment)) * alignment + guard
    return _Block(nbytes, first[value.id], last[value.id], [value.id])


def _donor(
    in_place: tuple[int, ...],
    inputs: tuple[Value | None, ...],
    output: Value,
    last: dict[int, int],
    step: int,
    taken: set[int],
) -> Value | None:
    for at in in_place:
        value = inputs[at]
        if (
            value is not None
            and value.kind == "temp"
            and last[value.id] == step
            and value.id not in taken
            and value.type.nbytes == output.type.nbytes
            and all(
                other is not value for index, other in enumerate(inputs) if index not in in_place
            )
        ):
            return value
    return None


def _place(blocks: list[_Block], base: int, overlap: bool) -> int:
    """First fit among the blocks alive at the same time, the largest placed first."""
    placed: list[_Block] = []
    top = base
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.first)):
        at = base
        for other in sorted(placed, key=lambda b: b.offset):
            apart = other.last < block.first or block.last < other.first
            if apart and not overlap:
                continue
            if other.offset - at >= block.nbytes:
                break
            at = max(at, other.offset + other.nbytes)
        block.offset = at
        placed.append(block)
        top = max(top, at + block.nbytes)
    return top

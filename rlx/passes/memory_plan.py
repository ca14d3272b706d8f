"""Schedule -> MemoryPlan: lifetimes, in-place reuse, then offsets by first fit, largest first.

The offsets may also be given, by a file that holds what was found once: they are checked, not believed.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rlx.budget import spend
from rlx.errors import DeviceMemoryError, InputError, describe
from rlx.ir.plan import ARENA, MemoryPlan, Schedule, Slot, Value

# Blocks that are looked at in the time of a few numbers computed, of which a budget counts one.
_LOOKS = 64


@dataclass(eq=False)
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
    offsets: Sequence[int] | None = None,
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
        offsets: ``MemoryPlan.temps`` of such a plan, instead of looking for places again. Where they
            come from does not matter: values that are alive at the same time never overlap.

    Returns:
        The plan.

    Raises:
        DeviceMemoryError: The arena would be larger than ``limit``.
        InputError: ``offsets`` are not those of a plan for the schedule.
    """
    end = len(schedule.calls)
    blocks, reused = _blocks(schedule, alignment, end, reuse, guard)
    kind = {value.id: value.kind for value in schedule.values}
    homes: dict[str, list[_Block]] = {"input": [], "output": [], "temp": []}
    for block in blocks:
        kinds = {kind[member] for member in block.members}
        homes[next((name for name in ("input", "output") if name in kinds), "temp")].append(block)

    at = 0
    for block in homes["input"]:
        block.offset, at = at, at + block.nbytes
    inputs_end = at
    for block in homes["output"]:
        block.offset, at = at, at + block.nbytes
    outputs_end = at

    temps = homes["temp"]
    if offsets is None:
        nbytes = _place(temps, outputs_end, overlap=not reuse)
    else:
        nbytes = _placed(temps, outputs_end, alignment, offsets)
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
    changes = [0] * (end + 2)
    for block in temps:
        changes[block.first] += block.nbytes
        changes[block.last + 1] -= block.nbytes
    slots = {
        member: Slot(block.offset, schedule.values[member].type.nbytes)
        for block in blocks
        for member in block.members
    }
    return MemoryPlan(
        slots,
        max(nbytes, alignment),
        inputs_end,
        outputs_end,
        pinned_bytes + max(accumulate(changes)),
        reused,
        tuple(block.offset for block in temps),
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
        # A value that lives into the loop or out of it stands at one of its calls.
        calls = schedule.calls[begin : finish + 1]
        for value in (one for call in calls for one in (*call.inputs, *call.outputs)):
            if value is None or value.kind not in ARENA:
                continue
            if first[value.id] < begin <= last[value.id] <= finish:
                last[value.id] = finish
            elif begin <= first[value.id] <= finish < last[value.id]:
                # Trips may fill it part by part: none of it is free before the loop ends.
                first[value.id] = begin
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
    placed: list[_Block] = []  # by offset
    top = base
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.first)):
        spend("the memory plan", elements=len(placed) / _LOOKS)
        at = base
        for other in placed:
            apart = other.last < block.first or block.last < other.first
            if apart and not overlap:
                continue
            if other.offset - at >= block.nbytes:
                break
            at = max(at, other.offset + other.nbytes)
        block.offset = at
        bisect.insort(placed, block, key=lambda b: b.offset)
        top = max(top, at + block.nbytes)
    return top


def _placed(blocks: list[_Block], base: int, alignment: int, offsets: Sequence[int]) -> int:
    """Takes offsets as they are, once it is sure that no two blocks meet in memory and in time.

    One walk over the calls: a block that begins to live is compared with its neighbours among those that
    are alive, which are kept in the order of their offsets.

    Raises:
        InputError: They do meet, or one is not where blocks can be.
    """

    def refuse(what: str, got: object = None) -> InputError:
        return InputError(describe(f"a memory plan does not fit its graph: {what}", got=got))

    if len(offsets) != len(blocks):
        raise refuse("another number of blocks", f"{len(offsets)} offsets for {len(blocks)}")
    # First fit never leaves more free than there is in use.
    most = base + sum(block.nbytes for block in blocks)
    for block, offset in zip(blocks, offsets, strict=True):
        inside = type(offset) is int and base <= offset <= most - block.nbytes
        if not inside or offset % alignment:
            raise refuse("an offset outside of the arena, or not aligned", offset)
        block.offset = offset
    begins = sorted(blocks, key=lambda b: b.first)
    ends = sorted(blocks, key=lambda b: b.last)
    alive: list[tuple[int, int]] = []
    over = 0
    for block in begins:
        while ends[over].last < block.first:
            gone = ends[over]
            del alive[bisect.bisect_left(alive, (gone.offset, 0))]
            over += 1
        at = bisect.bisect_left(alive, (block.offset, 0))
        before = at > 0 and alive[at - 1][1] > block.offset
        behind = at < len(alive) and alive[at][0] < block.offset + block.nbytes
        if before or behind:
            raise refuse("values that are alive at the same time overlap", block.offset)
        alive.insert(at, (block.offset, block.offset + block.nbytes))
    return max((block.offset + block.nbytes for block in blocks), default=base)

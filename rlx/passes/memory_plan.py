"""Schedule -> MemoryPlan: which values share memory, and the offset of each piece of it.

A call may write its result over an operand that nobody reads later; such values share a block. Blocks that are alive
at the same time must not overlap: they are placed by first fit, the largest first. A file may hold the offsets that
were found once; they are checked before they are used.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from rlx.dataclasses import dataclass
from rlx.errors import DeviceMemoryError, InputError
from rlx.ir.plan import ARENA, KernelCall, MemoryPlan, Schedule, Slot, Value
from rlx.ir.shape import same_size
from rlx.resource_limits import charge


@dataclass
class Life:
    """The time in which a value needs its memory.

    Attributes:
        first: Position of the first call that uses it.
        last: Position of the last one; one past all calls for what is kept after the run.
    """

    first: int
    last: int


def lifetimes(schedule: Schedule) -> dict[int, Life]:
    """The life of every value of the arena, by the value's id."""
    lives: dict[int, Life] = {}
    for i, call in enumerate(schedule.calls):
        for value in in_arena(call):
            lives.setdefault(value.id, Life(i, i)).last = i
    for begin, finish in schedule.loops:
        for call in schedule.calls[begin : finish + 1]:
            for value in in_arena(call):
                _extend_over(begin, finish, lives[value.id])
    end = len(schedule.calls)
    for value in schedule.values:
        if value.kind == "input":
            lives[value.id] = Life(0, end)
        elif value.kind == "output":
            # No call writes an empty output.
            lives.setdefault(value.id, Life(0, end)).last = end
    return lives


def in_arena(call: KernelCall) -> Iterator[Value]:
    """Returns the values of a call in the arena: its operands, then its results."""
    for value in (*call.inputs, *call.outputs):
        if value is not None and value.kind in ARENA:
            yield value


def _extend_over(begin: int, finish: int, life: Life) -> None:
    """Keeps a value that enters or leaves a loop for the whole loop: every trip uses it."""
    if life.first < begin <= life.last <= finish:
        life.last = finish
    elif begin <= life.first <= finish < life.last:
        # Trips may fill it part by part, so none of it is free before the loop.
        life.first = begin


# A budget counts computed numbers. Looking at this many blocks costs as much as one of them.
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
    nbytes_of: Callable[[Value], int] = lambda value: value.type.nbytes,
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
        nbytes_of: Returns the bytes to plan for a value.

    Returns:
        The plan.

    Raises:
        DeviceMemoryError: The arena would be larger than ``limit``.
        InputError: ``offsets`` are not those of a plan for the schedule.
    """
    lives = lifetimes(schedule)
    # Every value has at least one unit, so that an empty one can be bound too.
    units = {v.id: max(1, -(-nbytes_of(v) // alignment)) for v in schedule.values}
    sizes = {id: count * alignment + guard for id, count in units.items()}
    handed_over = _handed_over(schedule, lives) if reuse else {}
    blocks = _blocks(schedule, lives, sizes, handed_over)

    inputs_end = _one_after_another(blocks["input"], 0)
    outputs_end = _one_after_another(blocks["output"], inputs_end)
    temps = blocks["temp"]
    if offsets is None:
        nbytes = _place(temps, outputs_end, overlap=not reuse)
    else:
        nbytes = _placed(temps, outputs_end, alignment, offsets)
    every = [*blocks["input"], *blocks["output"], *temps]
    if limit is not None and nbytes > limit:
        largest = max(every, key=lambda block: block.nbytes)
        raise _too_large(nbytes, limit, schedule.values[largest.members[0]], largest.nbytes)
    return MemoryPlan(
        {
            member: Slot(block.offset, nbytes_of(schedule.values[member]))
            for block in every
            for member in block.members
        },
        max(nbytes, alignment),
        inputs_end,
        outputs_end,
        outputs_end + _most_alive(temps, len(schedule.calls)),
        list(handed_over.items()),
        tuple(block.offset for block in temps),
    )


def _too_large(nbytes: int, limit: int, largest: Value, largest_bytes: int) -> DeviceMemoryError:
    return DeviceMemoryError(
        "the graph needs more memory than its limit",
        got=f"an arena of {nbytes} bytes, its largest value {largest.name!r} of {largest_bytes}",
        expected=f"at most {limit} bytes (memory_limit)",
        hint="make the batch smaller, or raise CompileOptions.memory_limit",
    )


def _most_alive(blocks: Sequence[_Block], end: int) -> int:
    """The largest sum of bytes that are alive at one call."""
    changes = [0] * (end + 2)
    for block in blocks:
        changes[block.first] += block.nbytes
        changes[block.last + 1] -= block.nbytes
    return max(accumulate(changes))


def _one_after_another(blocks: Sequence[_Block], index: int) -> int:
    """Places blocks from ``index`` on; gives the end of the last one."""
    for block in blocks:
        block.offset, index = index, index + block.nbytes
    return index


# --- which values share a block ----------------------------------------------------------------------------


def _blocks(
    schedule: Schedule,
    lives: Mapping[int, Life],
    sizes: Mapping[int, int],
    handed_over: Mapping[int, int],
) -> dict[str, list[_Block]]:
    """The blocks of inputs, of outputs and of temporaries, each in the order of their first values."""
    block_of: dict[int, _Block] = {}
    for id, life in sorted(lives.items(), key=lambda item: item[1].first):
        if id not in handed_over:
            block_of[id] = _Block(sizes[id], life.first, life.last, [id])
        else:
            block = block_of[id] = block_of[handed_over[id]]
            block.members.append(id)
            block.last = life.last
    results: dict[str, list[_Block]] = {"input": [], "output": [], "temp": []}
    for block in sorted(set(block_of.values()), key=lambda block: block.members[0]):
        results[schedule.values[block.members[0]].kind].append(block)
    return results


def _handed_over(schedule: Schedule, lives: Mapping[int, Life]) -> dict[int, int]:
    """Maps temporaries to an operand whose memory they take over: an operand of the call that first writes them."""
    results: dict[int, int] = {}
    for i, call in enumerate(schedule.calls):
        taken: set[int] = set()
        for value in call.outputs:
            if value.kind != "temp" or lives[value.id].first != i:
                continue
            donor = _donor(call, i, value, lives, taken)
            if donor is not None:
                taken.add(donor.id)
                results[value.id] = donor.id
    return results


def _donor(
    call: KernelCall, pos: int, output: Value, lives: Mapping[int, Life], taken: set[int]
) -> Value | None:
    """An operand whose memory the call may overwrite, and that nobody reads later."""
    apart = [value for i, value in enumerate(call.inputs) if i not in call.in_place]
    for index in call.in_place:
        value = call.inputs[index]
        if (
            value is not None
            and value.kind == "temp"
            and lives[value.id].last == pos
            and value.id not in taken
            and same_size(value.type.nbytes, output.type.nbytes)
            and all(other is not value for other in apart)
        ):
            return value
    return None


# --- where blocks go ---------------------------------------------------------------------------------------


def _place(blocks: list[_Block], base: int, overlap: bool) -> int:
    """First fit among the blocks alive at the same time, the largest placed first."""
    end = max((block.last for block in blocks), default=0)
    placed = _Placed(end + 1)
    top = base
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.first)):
        met = placed.alive(0, end) if overlap else placed.alive(block.first, block.last)
        charge("the memory plan", elements=len(met) / _LOOKS)
        pos = base
        for other in sorted(met, key=lambda b: b.offset):
            if other.offset - pos >= block.nbytes:
                break
            pos = max(pos, other.offset + other.nbytes)
        block.offset = pos
        placed.add(block)
        top = max(top, pos + block.nbytes)
    return top


class _Placed:
    """The blocks that have a place, found by when they are alive: a segment tree over the calls.

    Vertex 1 is all calls, and vertex v is cut into halves, the vertices 2v and 2v + 1. A block is kept at the few largest
    vertices that its life is made of. So a look costs about as much as the blocks that it finds.

    Args:
        calls: How many there are.
    """

    def __init__(self, calls: int) -> None:
        self._leaves = 1 << (calls - 1).bit_length()
        self._kept: dict[int, list[_Block]] = {}
        # Vertices with blocks at them or below.
        self._used: set[int] = set()

    def add(self, block: _Block) -> None:
        """Takes a block that has its place now."""
        for vertex in self._cover(block.first, block.last):
            self._kept.setdefault(vertex, []).append(block)
            while vertex and vertex not in self._used:
                self._used.add(vertex)
                vertex >>= 1

    def alive(self, first: int, last: int) -> list[_Block]:
        """The blocks that are alive at one of the calls from ``first`` to ``last``, each once."""
        results: dict[int, _Block] = {}
        for vertex in self._cover(first, last):
            above, below = vertex >> 1, [vertex]
            while above:
                results.update((id(item), item) for item in self._kept.get(above, ()))
                above >>= 1
            while below:
                here = below.pop()
                if here in self._used:
                    results.update((id(item), item) for item in self._kept.get(here, ()))
                    below += (2 * here, 2 * here + 1) if here < self._leaves else ()
        return list(results.values())

    def _cover(self, first: int, last: int) -> Iterator[int]:
        """The largest vertices that make up the calls from ``first`` to ``last``."""
        low, high = first + self._leaves, last + self._leaves + 1
        while low < high:
            if low & 1:
                yield low
                low += 1
            if high & 1:
                high -= 1
                yield high
            low, high = low >> 1, high >> 1


def _placed(blocks: list[_Block], base: int, alignment: int, offsets: Sequence[int]) -> int:
    """Takes offsets as they are, once it is sure that no two blocks meet in memory and in time.

    One walk over the calls: a block that begins to live is compared with its neighbours among those that
    are alive, which are kept in the order of their offsets.

    Raises:
        InputError: They do meet, or one is not where blocks can be.
    """

    def refuse(what: str, got: object = None) -> InputError:
        return InputError(f"a memory plan does not fit its graph: {what}", got=got)

    if len(offsets) != len(blocks):
        raise refuse("the number of blocks differs", f"{len(offsets)} offsets for {len(blocks)}")
    # First fit never leaves more free than there is in use.
    limit = base + sum(block.nbytes for block in blocks)
    for block, offset in zip(blocks, offsets, strict=True):
        inside = type(offset) is int and base <= offset <= limit - block.nbytes
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
        i = bisect.bisect_left(alive, (block.offset, 0))
        before = i > 0 and alive[i - 1][1] > block.offset
        behind = i < len(alive) and alive[i][0] < block.offset + block.nbytes
        if before or behind:
            raise refuse("values that are alive at the same time overlap", block.offset)
        alive.insert(i, (block.offset, block.offset + block.nbytes))
    return max((block.offset + block.nbytes for block in blocks), default=base)

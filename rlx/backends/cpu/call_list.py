"""The calls of an executable on the CPU: for all rows and for fewer, linked again when weights move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlx._ext import cpu as kernels
from rlx._ext import program as compiled
from rlx.backends.cpu.linker import Linker
from rlx.backends.cpu.sized_calls import SizedCalls, SizedPlace
from rlx.backends.cpu.split import WORDS
from rlx.backends.cpu.weights import Weight, WeightBlock, Weights
from rlx.backends.executable import aligned
from rlx.ir.opdef import Array
from rlx.ir.plan import KernelCall, MemoryPlan, Schedule, Value
from rlx.passes.dynamic_batch import MAX_SCHEDULES, DynamicRows, RowsSchedule
from rlx.sizes import deciding

# Of values in the arena, as kernels expect it.
_ALIGNMENT = 256


class Memory(NamedTuple):
    """The memory of an executable, weights apart.

    Attributes:
        plan: Where values are in the arena.
        arena: The arena.
        states: The memory of states, by the ids of their values.
    """

    plan: MemoryPlan
    arena: Array
    states: Mapping[int, Array]

    def place(self, value: Value) -> Array:
        """Returns the memory of a value, from its first byte on."""
        if value.id in self.states:
            return self.states[value.id]
        return self.arena[self.plan.slots[value.id].offset :]


class CallLists:
    """Links the calls of one executable.

    Args:
        schedule: The calls.
        memory: Where their values are.
        weights: Params and constants.
        slots: Addresses of the inputs' memory, then of the outputs', 0 for empty ones.
        isa: The instruction set.
        threads: Threads that may make a call together.
        flush: Whether arithmetic takes subnormal numbers for 0.

    Attributes:
        used: The calls of the runs to come, as the schedule has them.
        names: Names of all kernels.
        sized: The calls for many sizes; None for a graph without dims.
        spare: Bytes of scratch of the threads but the first.
    """

    def __init__(
        self,
        schedule: Schedule,
        memory: Memory,
        weights: Weights,
        slots: Sequence[int],
        isa: str,
        threads: int,
        flush: bool,
    ) -> None:
        self._schedule, self._memory, self._weights = schedule, memory, weights
        self._slots, self._isa, self._threads = slots, isa, threads
        self._flush = flush
        self._extent: DynamicRows | None = None
        self._whole: compiled.Calls | None = None
        # By the id of a rule, which is held so that no other one gets that id.
        self._fewer: dict[int, tuple[RowsSchedule, SizedCalls, compiled.Calls]] = {}
        self._pinned: set[WeightBlock] = set()
        self.used: Sequence[KernelCall] = schedule.calls
        self.names: list[str] = []
        self.sized: SizedCalls | None = None
        self.spare = 0

    def link(self) -> compiled.Calls:
        """Links the calls to the present memory of the weights."""
        with self._weights.lock:
            before, self._pinned = self._pinned, set()
            try:
                self._whole = self._all_rows()
                self._fewer.clear()
                return self._calls_for(self._extent)
            finally:
                for block in before - self._pinned:
                    block.pins.discard(self)

    def _calls_for(self, extent: DynamicRows | None) -> compiled.Calls:
        """Returns the calls of runs."""
        if extent is None or extent.schedule is None:
            assert self._whole is not None
            return self._whole
        rows = extent.schedule
        if id(rows) not in self._fewer:
            if len(self._fewer) >= MAX_SCHEDULES:
                self._fewer.pop(next(iter(self._fewer)))
            with self._weights.lock:
                self._fewer[id(rows)] = rows, *self._fewer_rows(rows, extent.actual, extent.upper)
        _, sized, calls = self._fewer[id(rows)]
        calls.resize(sized.table, *(extent.actual for _ in sized.names))
        return calls

    def set_extent(self, extent: DynamicRows | None) -> compiled.Calls:
        """Fewer rows are other calls on the same memory; those of a range are kept for the next time."""
        calls, rows = self._calls_for(extent), extent and extent.schedule
        self._extent = extent
        self.used = self._schedule.calls if rows is None else self._fewer[id(rows)][1].static.calls
        return calls

    def _all_rows(self) -> compiled.Calls:
        linker = Linker(
            self._isa,
            self._memory.place,
            lambda value: self._weights[value.id],
            self._threads,
            self._flush,
        )
        sized = self.sized
        rows = linker.link(self._schedule.calls, *(() if sized is None else (sized.shares,)))
        self.names = [row[4] for row in rows]
        self.spare = linker.spare.nbytes
        return self._calls(linker, rows, (), () if sized is None else sized.places)

    def _fewer_rows(
        self, rows: RowsSchedule, actual: int, upper: int
    ) -> tuple[SizedCalls, compiled.Calls]:
        """Calls on fewer rows: what the caller sees stays in place, and so do params and constants."""
        loops = kernels.loops(self._isa)
        dims = rows.schedule.sizes or {}
        sizes = dict.fromkeys(dims, actual), dict.fromkeys(dims, upper)
        with deciding(rows.assumptions):
            sized = SizedCalls(rows.schedule, *sizes, loops, self._threads, self._flush)
        schedule, plan = sized.static, sized.plan(_ALIGNMENT)
        whole, (stored, arena, _) = self._schedule, self._memory
        moved = {}
        for few, many in ((schedule.inputs, whole.inputs), (schedule.outputs, whole.outputs)):
            for value, like in zip(few, many, strict=True):
                moved[plan.slots[value.id].offset, value.kind] = stored.slots[like.id].offset
        room = plan.nbytes - plan.outputs_end
        fits = room <= stored.nbytes - stored.outputs_end
        temps = arena[stored.outputs_end :] if fits else aligned(room)
        weight = _FewerWeights(whole, self._weights)

        def place(value: Value) -> Array:
            offset = plan.slots[value.id].offset
            # A temporary may have the same offset as the output that reuses its memory.
            for kind in (value.kind, "output") if offset < plan.outputs_end else ():
                if (offset, kind) in moved:
                    return arena[moved[offset, kind] :]
            return temps[offset - plan.outputs_end :]

        linker = Linker(self._isa, place, weight.__getitem__, self._threads, self._flush)
        linked = linker.link(schedule.calls, sized.shares)
        return sized, self._calls(linker, linked, (temps, weight), sized.places)

    def _calls(
        self, linker: Linker, rows: list[Any], keep: Any, places: Sequence[SizedPlace] = ()
    ) -> compiled.Calls:
        self._pin(linker.blocks)
        # Custom Python operations hold views of inputs and outputs.
        slots = [0 if address in linker.viewed else address for address in self._slots]
        stored = self._memory, linker.functions, linker.spare, linker.blocks, keep
        numbers = [(n, bool(name), WORDS.get(name, 0) + i, *to) for n, name, i, *to in places]
        return compiled.Calls(rows, slots, stored, numbers)

    def _pin(self, blocks: Iterable[WeightBlock]) -> None:
        for block in blocks:
            block.pins.add(self)
            self._pinned.add(block)


class _FewerWeights:
    """The weights that a schedule for fewer rows reads: those of the whole one, and constants of its own."""

    def __init__(self, whole: Schedule, weights: Weights) -> None:
        self._whole, self._weights = whole, weights
        self._constants: Mapping[int, int] = {
            id(value.array): value.id for value in whole.values if value.array is not None
        }
        self._extra: dict[int, Weight] = {}

    def __getitem__(self, value: Value) -> Weight:
        if value.kind == "param":
            return self._weights[self._whole.params[value.name].id]
        if id(value.array) in self._constants:
            return self._weights[self._constants[id(value.array)]]
        if value.id not in self._extra:
            self._extra[value.id] = Weight(value)
        return self._extra[value.id]

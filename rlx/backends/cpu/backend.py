"""Loads a schedule for the CPU: memory, parameters and addresses become one compiled program."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Sequence
from typing import Any

from rlx import flags
from rlx._ext import cpu as compiled
from rlx.backends.base import Capabilities, CompileOptions, DeviceInfo, HostMemory
from rlx.backends.cpu.linker import Linker
from rlx.backends.cpu.memory import aligned, view_of
from rlx.backends.cpu.packed import weights_for
from rlx.backends.cpu.timed import timed
from rlx.backends.cpu.weights import Weight, Weights
from rlx.backends.record import Recorder, kernels_of
from rlx.errors import DeviceUnavailableError, describe
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import Call, MemoryPlan, Schedule, Value
from rlx.ir.spans import phase
from rlx.passes.extent import Extent
from rlx.threads import thread_count

# Programs for fewer rows that an executable keeps.
_MOST_EXTENTS = 64


def instruction_set() -> str:
    """The instruction set that kernels are taken from: the best one, or ``RLX_CPU_ISA``.

    Raises:
        DeviceUnavailableError: The processor lacks the one that was asked for.
    """
    usable = compiled.isas()
    wanted = flags.CPU_ISA.get()
    if wanted == "auto":
        return usable[0]
    if wanted not in usable:
        raise DeviceUnavailableError(
            describe(
                f"RLX_CPU_ISA: this processor has no {wanted}",
                got=wanted,
                expected=", ".join(usable),
            )
        )
    return wanted


@functools.cache
def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, name = line.partition(":")
                if key.strip() == "model name" and name.strip():
                    return " ".join(name.split())
    except OSError:
        pass  # Linux has it there, others elsewhere
    return platform.processor() or platform.machine()


class CpuExecutable(HostMemory):
    """A loaded program. Clones share the params and constants."""

    capabilities = Capabilities(zero_copy_inputs=True, device_timestamps=True)

    def __init__(
        self,
        schedule: Schedule,
        plan: MemoryPlan,
        weights: Weights,
        isa: str,
        threads: int,
    ) -> None:
        self._schedule, self._plan, self._weights, self._isa = schedule, plan, weights, isa
        self._threads = threads
        self._arena = aligned(plan.nbytes)
        self.arena_ptr: int = self._arena.ctypes.data
        self.input_views = tuple(
            view_of(self._arena, plan.slots[value.id].offset, value.type)
            for value in schedule.inputs
        )
        outputs = list(zip(schedule.outputs, schedule.output_types, strict=True))
        self.output_slots = tuple((plan.slots[v.id].offset, type.size) for v, type in outputs)
        views = [view_of(self._arena, plan.slots[v.id].offset, type) for v, type in outputs]
        for view in views:
            view.setflags(write=False)
        self.output_views = tuple(views)
        self._extent: Extent | None = None
        self._whole = self._now = self._linked_whole()
        self._fewer: dict[tuple[int, int], compiled.Calls] = {}
        self._program = compiled.Program(
            self._whole, self.input_views, self.output_views, self._arena
        )
        self._used: Sequence[Call] = schedule.calls
        self._recorder: Recorder | None = None
        self._hot = self._program.run_slots
        weights.readers.add(self)
        self.run_slots: Callable[..., tuple[Array, ...]] = self._hot

    def _linked_whole(self) -> compiled.Calls:
        """The calls on all rows."""
        linker = Linker(
            self._isa, self._place, lambda value: self._weights[value.id], self._threads
        )
        rows = linker.link(self._schedule.calls)
        self._names = [row[4] for row in rows]
        self._spare = linker.spare.nbytes
        return self._calls(linker, rows, self._weights)

    def idle(self) -> None:
        """Raises an error where a run is under way."""
        self._program.use(self._now)

    def relink(self) -> None:
        """Reads weights where they stand now."""
        self._whole = self._linked_whole()
        self._fewer.clear()
        self.set_extent(self._extent)

    def _place(self, value: Value) -> Array:
        """The memory of a value of the arena, from its first byte on."""
        return self._arena[self._plan.slots[value.id].offset :]

    def set_extent(self, extent: Extent | None) -> None:
        """Fewer rows are another program on the same memory; it is kept for the next time."""
        self._extent = extent
        calls, self._used = self._whole, self._schedule.calls
        if extent is not None and extent.lowered is not None:
            key = extent.actual, extent.upper
            if key not in self._fewer:
                if len(self._fewer) >= _MOST_EXTENTS:
                    self._fewer.pop(next(iter(self._fewer)))
                self._fewer[key] = self._linked(*extent.lowered)
            calls, self._used = self._fewer[key], extent.lowered[0].calls
        self._now = calls
        self._program.use(calls)
        self.record(self._recorder)

    def _linked(self, schedule: Schedule, plan: MemoryPlan) -> compiled.Calls:
        """Calls on fewer rows: what the caller sees stays in place, and so do params and constants."""
        whole, held = self._schedule, self._plan
        moved = {}
        for few, many in ((schedule.inputs, whole.inputs), (schedule.outputs, whole.outputs)):
            for value, like in zip(few, many, strict=True):
                moved[plan.slots[value.id].offset, value.kind] = held.slots[like.id].offset
        room = plan.nbytes - plan.outputs_end
        fits = room <= held.nbytes - held.outputs_end
        temps = self._arena[held.outputs_end :] if fits else aligned(room)
        constants = {id(v.array): v.id for v in whole.values if v.array is not None}
        extra: dict[int, Weight] = {}

        def weight(value: Value) -> Weight:
            if value.kind == "param":
                return self._weights[whole.params[value.name].id]
            if id(value.array) in constants:
                return self._weights[constants[id(value.array)]]
            if value.id not in extra:
                extra[value.id] = Weight(value)
            return extra[value.id]

        def place(value: Value) -> Array:
            offset = plan.slots[value.id].offset
            # A temporary may share the place of the output that takes over its memory.
            for kind in (value.kind, "output") if offset < plan.outputs_end else ():
                if (offset, kind) in moved:
                    return self._arena[moved[offset, kind] :]
            return temps[offset - plan.outputs_end :]

        linker = Linker(self._isa, place, weight, self._threads)
        rows = linker.link(schedule.calls)
        return self._calls(linker, rows, (temps, extra, self._weights))

    def _calls(self, linker: Linker, rows: list[Any], keep: Any) -> compiled.Calls:
        # A Python function has views of its own, of the inputs' slots.
        slots = [
            view.ctypes.data if view.size and view.ctypes.data not in linker.viewed else 0
            for view in self.input_views
        ]
        return compiled.Calls(rows, slots, (self._arena, linker.functions, linker.spare, keep))

    def record(self, recorder: Recorder | None) -> None:
        """Times every kernel of later runs; None ends it."""
        self._recorder = recorder
        if recorder is None:
            self.run_slots = self._hot
            return
        found = kernels_of(self._used)
        self.run_slots = timed(self._program, [found[id(call)] for call in self._used], recorder)

    def set_resident(self, indices: Sequence[int]) -> None:
        """Inputs that ``run_slots`` takes no argument for."""
        self._program.set_resident(indices)

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Inputs that take an output after each run, in the same compiled call."""
        self._program.set_feeds(pairs)

    def set_param(self, name: str, array: Array) -> None:
        """Copies a weight to where the kernels read it."""
        self._weights.set(name, array)

    def read_param(self, name: str) -> Array:
        """A copy of the weight."""
        return self._weights.read(name)

    def clone(self) -> CpuExecutable:
        """The same program on an arena of its own."""
        return CpuExecutable(self._schedule, self._plan, self._weights, self._isa, self._threads)

    def memory(self) -> dict[str, int]:
        """The arena is host memory, so nothing is staged. Other threads have scratch of their own."""
        params = self._weights.nbytes
        arena = self._plan.nbytes
        return {
            "arena": arena,
            "params": params,
            "staging": 0,
            "peak": arena + params + self._spare,
        }

    def kernels(self) -> str:
        """The compiled kernels in order, and their instruction set."""
        return "\n".join([f"instruction set {self._isa}", *self._names])

    def close(self) -> None:
        """The arena goes with the last view of it."""


class CpuBackend:
    """The processor this runs on."""

    name = "cpu"
    kernel_set = "cpu"

    def devices(self) -> list[DeviceInfo]:
        """There is always one."""
        usable = compiled.isas()
        return [
            DeviceInfo(
                "cpu",
                0,
                processor(),
                driver=f"kernels for {usable[0]}",
                features=frozenset(usable),
            )
        ]

    def absent(self) -> str:
        """It never is."""
        return ""

    def capabilities(self, info: DeviceInfo) -> Capabilities:
        """What its executables can do."""
        return CpuExecutable.capabilities

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> CpuExecutable:
        """Allocates the arena, the params and the constants, and links the program."""
        assert schedule is not None
        assert plan is not None
        isa = instruction_set()
        with phase("allocate"):
            weights = weights_for(schedule, isa)
        with phase("link"):
            threads = thread_count(options.threads)
            return CpuExecutable(schedule, plan, weights, isa, threads)


BACKEND = CpuBackend()

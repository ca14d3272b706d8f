"""Loads a schedule for the CPU: memory, parameters and addresses become one compiled program."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx import flags
from rlx._ext import cpu as compiled
from rlx._ext.owner import Owner
from rlx._ext.program import Program, free_idle
from rlx.backends.arguments import apart
from rlx.backends.base import Capabilities, CompileOptions, DeviceInfo, HostMemory, Lowering
from rlx.backends.cpu.memory import aligned, view_of
from rlx.backends.cpu.packed import weights_for
from rlx.backends.cpu.programs import Programs
from rlx.backends.cpu.timed import timed
from rlx.backends.cpu.weights import Weights
from rlx.backends.recorder import Recorder, kernels_of
from rlx.dataclasses import dataclass
from rlx.errors import DeviceUnavailableError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ir.spans import phase
from rlx.passes.extent import Extent
from rlx.threads import thread_count, usable_cores


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

    capabilities = Capabilities(
        zero_copy_inputs=True, device_timestamps=True, host_memory=True, extent_programs=True
    )

    def __init__(
        self,
        schedule: Schedule,
        plan: MemoryPlan,
        weights: Weights,
        isa: str,
        threads: int,
        most_trips: int | None,
        flush: bool,
    ) -> None:
        self._schedule, self._plan, self._weights, self._isa = schedule, plan, weights, isa
        self._threads, self._most_trips, self._flush = threads, most_trips, flush
        self._arena = aligned(plan.nbytes)
        self.arena_ptr: int = self._arena.ctypes.data
        inputs = [
            view_of(self._arena, plan.slots[value.id].offset, value.type)
            for value in schedule.inputs
        ]
        outputs = list(zip(schedule.outputs, schedule.output_types, strict=True))
        self.output_slots = tuple((plan.slots[v.id].offset, type.size) for v, type in outputs)
        views = [view_of(self._arena, plan.slots[v.id].offset, type) for v, type in outputs]
        for view in views:
            view.setflags(write=False)
        self.output_views = tuple(views)
        slots = [view.ctypes.data if view.size else 0 for view in (*inputs, *views)]
        self._programs = Programs(schedule, plan, weights, self._arena, slots, isa, threads, flush)
        # Locked: a weight must not move between linking and the entry into ``readers``.
        with weights.lock:
            calls = self._programs.link()
            self.input_views = tuple(
                view if pointed else np.zeros_like(view)
                for view, pointed in zip(inputs, calls.pointed(), strict=False)
            )
            self._program = Program(
                calls,
                self.input_views,
                slots[: len(inputs)],
                self.output_views,
                self._arena,
                plan.inputs_end,
                self._programs.link,
                most_trips,
                (compiled.parallel_copy(), min(threads, usable_cores()), True),
                aligned,
                flush,
            )
            weights.readers.add(self._program)
        self._recorder: Recorder | None = None
        self.run_slots: Callable[..., tuple[Array, ...]] = self._program.run_slots

    def show_inputs(self) -> None:
        """From now on ``run_fresh`` copies its arguments into the input views."""
        self._program.show_inputs()

    def show_outputs(self) -> None:
        """From now on ``run_fresh`` leaves the outputs in the arena as well."""
        self._program.show_outputs()

    def fill(self, given: Sequence[tuple[int, Array]]) -> None:
        """Puts arrays into the input views."""
        for at, array in [(at, apart(array, self.input_views)) for at, array in given]:
            self._program.fill(at, array)

    def run_named(self, names: tuple[str, ...], inputs: Any) -> list[Array] | None:
        """``run_fresh`` where all inputs are in order already; else None, and nothing has run."""
        return self._program.run_named(names, inputs)

    def run_fresh(self, given: Sequence[tuple[int, Array]]) -> list[Array]:
        """Reads large inputs where they are, and has large outputs written where they are returned."""
        if self._program.shown:
            given = [(at, apart(array, self.input_views)) for at, array in given]
        return self._program.run_fresh([array for _, array in given])

    def write_input(self, index: int, array: Array) -> None:
        """Copies into the input's view."""
        self._program.fill(index, array)

    def read_row(self, output: int, row: int) -> Array:
        """A copy of the row."""
        self._program.settle_outputs()
        return super().read_row(output, row)

    @property
    def owned_by(self) -> Callable[[Owner], Callable[..., tuple[Array, ...]]] | None:
        """See ``Executable``; runs that are timed have no compiled guard."""
        return self._program.owned_by if self._recorder is None else None

    def set_extent(self, extent: Extent | None) -> None:
        """Fewer rows are another program on the same memory; it is kept for the next time."""
        self._program.use(self._programs.set_extent(extent))
        self.record(self._recorder)

    def record(self, recorder: Recorder | None) -> None:
        """Times every kernel of later runs; None ends it."""
        self._recorder = recorder
        if recorder is None:
            self.run_slots = self._program.run_slots
            return
        used = self._programs.used
        found = kernels_of(used)
        self.run_slots = timed(self._program, [found[id(call)] for call in used], recorder)

    def set_resident(self, indices: Sequence[int]) -> None:
        """Inputs that ``run_slots`` takes no argument for."""
        self._program.set_resident(indices)

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Inputs that take an output after each run, in the same compiled call."""
        self._program.set_feeds(pairs)

    def set_param(self, name: str, array: Array) -> None:
        """Copies a weight to where the kernels read it."""
        self.set_params({name: array})

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Several weights, which every run sees all or none of."""
        self._weights.set(values, self._programs)
        self._program.refresh()

    def read_param(self, name: str) -> Array:
        """A copy of the weight."""
        return self._weights.read(name)

    def clone(self) -> CpuExecutable:
        """The same program on an arena of its own."""
        return CpuExecutable(
            self._schedule,
            self._plan,
            self._weights,
            self._isa,
            self._threads,
            self._most_trips,
            self._flush,
        )

    def memory(self) -> dict[str, int]:
        """The arena is host memory, so nothing is staged. Other threads have scratch of their own."""
        params = self._weights.nbytes
        arena = self._plan.nbytes
        return {
            "arena": arena,
            "params": params,
            "staging": 0,
            "peak": arena + params + self._programs.spare,
        }

    def kernels(self) -> str:
        """The compiled kernels in order, and their instruction set."""
        return "\n".join([f"instruction set {self._isa}", *self._programs.names])

    def close(self) -> None:
        """The arena goes with the last view of it; clones that run on need not mind this one."""
        self._weights.readers.discard(self._program)
        self._program.forget()
        free_idle()


@dataclass(frozen=True, eq=False)
class CpuProgram:
    """A schedule and where its values live; the calls are linked when it is loaded."""

    schedule: Schedule
    plan: MemoryPlan
    nbytes: int = 0

    def pack(self) -> None:
        """Nothing: calls are linked from the schedule."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> CpuExecutable:
        """Allocates the arena, the params and the constants, and links the program."""
        isa = instruction_set()
        with phase("allocate"):
            weights = weights_for(self.schedule, isa)
        with phase("link"):
            threads = thread_count(options.threads)
            most = options.max_iterations
            return CpuExecutable(
                self.schedule, self.plan, weights, isa, threads, most, self._flushes(options)
            )

    def _flushes(self, options: CompileOptions) -> bool:
        """Whether arithmetic gives 0 for subnormal numbers: only if none of it is in f64."""
        wide = any(value.type.dtype is DType.F64 for value in self.schedule.values)
        return options.denormals == "flush" and not wide


class CpuBackend(Lowering):
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
                kind="cpu",
            )
        ]

    def absent(self) -> str:
        """It never is."""
        return ""

    def capabilities(self, info: DeviceInfo) -> Capabilities:
        """What its executables can do."""
        return CpuExecutable.capabilities

    def path(self, info: DeviceInfo) -> str:
        """The instruction set that kernels are taken from."""
        return instruction_set()

    def lower(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> CpuProgram:
        """Keeps the schedule and the plan: calls are linked to addresses, which only a load knows."""
        assert schedule is not None
        assert plan is not None
        return CpuProgram(schedule, plan)


BACKEND = CpuBackend()

"""The CPU as a device: its instruction sets, and programs for it."""

from __future__ import annotations

import functools
import platform
from dataclasses import replace

from rlx import flags
from rlx._ext import cpu as compiled
from rlx.backends.base import Backend, CompileOptions, DeviceInfo
from rlx.backends.cpu.cpu_executable import CAPABILITIES, CpuExecutable
from rlx.backends.cpu.sized_calls import SizedCalls
from rlx.backends.cpu.sized_executable import SizedCpuExecutable
from rlx.backends.cpu.weight_packing import variant_of, weights_for
from rlx.backends.executable import Capabilities
from rlx.dataclasses import dataclass
from rlx.errors import DeviceMemoryError, DeviceUnavailableError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ir.spans import phase
from rlx.threads import thread_count


def instruction_set() -> str:
    """The instruction set that kernels are taken from: the best one, or ``RLX_CPU_ISA``.

    Raises:
        DeviceUnavailableError: The processor lacks the requested instruction set.
    """
    usable = compiled.isas()
    wanted = flags.CPU_ISA.get()
    if wanted == "auto":
        return usable[0]
    if wanted not in usable:
        raise DeviceUnavailableError(
            f"RLX_CPU_ISA: this processor has no {wanted}", got=wanted, expected=", ".join(usable)
        )
    return wanted


@functools.cache
def processor() -> str:
    """Returns the processor's name as the system reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, name = line.partition(":")
                if key.strip() == "model name" and name.strip():
                    return " ".join(name.split())
    except OSError:
        pass  # Linux has it there, others elsewhere
    return platform.processor() or platform.machine()


@dataclass(frozen=True, eq=False)
class CpuProgram:
    """A schedule and where its values live; the calls are linked when it is loaded."""

    schedule: Schedule
    plan: MemoryPlan | None
    nbytes: int = 0

    def pack(self) -> None:
        """Nothing: calls are linked from the schedule."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> CpuExecutable:
        """Allocates the arena, the params and the constants, and links the program."""
        isa = instruction_set()
        with phase("allocate"):
            weights = weights_for(self.schedule, isa)
        with phase("link"):
            more = thread_count(options.threads), options.max_iterations, self._flushes(options)
            if self.plan is not None:
                return CpuExecutable(self.schedule, self.plan, weights, isa, *more)
            sizes = self.schedule.sizes
            assert sizes is not None, "a schedule without dims has a plan"
            threads, flush = more[0], more[-1]
            most = SizedCalls.roomy(self.schedule, sizes)
            calls = SizedCalls(self.schedule, sizes, most, compiled.loops(isa), threads, flush)
            whole = options.arena_alignment, weights, isa, *more
            try:
                return SizedCpuExecutable(calls, *whole)
            except DeviceMemoryError:
                return SizedCpuExecutable(calls.again(sizes, sizes), *whole)

    def _flushes(self, options: CompileOptions) -> bool:
        """Returns whether arithmetic flushes subnormal numbers to 0: only if none of it is in f64."""
        wide = any(value.type.dtype is DType.F64 for value in self.schedule.values)
        return options.denormals == "flush" and not wide


class CpuBackend(Backend):
    """The processor this runs on."""

    name = "cpu"
    kernel_set = "cpu"

    def devices(self) -> list[DeviceInfo]:
        """Returns the one device."""
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
        """Returns the capabilities of this backend's executables."""
        tiles = variant_of("round_rows_f32", instruction_set()) == "tiles"
        return replace(CAPABILITIES, precisions=("int8", "bf16")) if tiles else CAPABILITIES

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
        return CpuProgram(schedule, plan)


BACKEND = CpuBackend()

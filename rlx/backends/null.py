"""The null backend: the whole compiler with no device. It compiles everything and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx.backends.base import Backend, CompileOptions, DeviceInfo
from rlx.backends.executable import Capabilities, HostExecutable
from rlx.errors import DeviceUnavailableError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import MemoryPlan, Schedule


class NullExecutable(HostExecutable):
    """A schedule and a memory plan, with nothing behind them.

    Args:
        schedule: The schedule.
        plan: The plan.
    """

    def __init__(self, schedule: Schedule, plan: MemoryPlan) -> None:
        inputs = [value.type for value in schedule.inputs]
        super().__init__(inputs, (), Capabilities(run_slots=False, arena_ptr=False))
        self._schedule, self._plan = schedule, plan
        self.output_slots = tuple(
            (plan.slots[value.id].offset, type.size)
            for value, type in zip(schedule.outputs, schedule.output_types, strict=True)
        )

    def compute(self, inputs: Sequence[Array], targets: Sequence[Array]) -> None:
        """Raises an error: there is nothing to run on."""
        raise DeviceUnavailableError(
            "the null device runs nothing",
            hint="compile for cpu or webgpu; null only shows the compiled graph",
        )

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Drops the values: there is nothing to upload to."""

    def read_param(self, name: str) -> Array:
        """Returns zeros: nothing was kept."""
        type = self._schedule.params[name].type
        return np.zeros(type.shape, type.dtype.numpy)

    def clone(self) -> NullExecutable:
        """Returns the same nothing."""
        return NullExecutable(self._schedule, self._plan)

    def memory(self) -> dict[str, int]:
        """Returns the bytes that a device would hold."""
        params = sum(value.type.nbytes for value in self._schedule.params.values())
        arena = self._plan.nbytes
        return {"arena": arena, "params": params, "staging": 0, "peak": arena + params}

    def kernels(self) -> str:
        """Lists the kernels in order."""
        return "\n".join(call.kernel for call in self._schedule.calls)


class NullBackend(Backend):
    """Compiles with the CPU's kernel records."""

    name = "null"
    kernel_set = "cpu"

    def devices(self) -> list[DeviceInfo]:
        """Returns the one device."""
        return [DeviceInfo("null", 0, "none")]

    def absent(self) -> str:
        """It never is."""
        return ""

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> NullExecutable:
        """Keeps the schedule and the plan."""
        assert schedule is not None
        assert plan is not None
        return NullExecutable(schedule, plan)


BACKEND = NullBackend()

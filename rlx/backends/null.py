"""The null backend: the whole compiler with no device. It compiles everything and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.backends.base import Capabilities, CompileOptions, DeviceInfo, HostMemory
from rlx.errors import DeviceUnavailableError, describe
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.passes.extent import Extent


class NullExecutable(HostMemory):
    """A schedule and a memory plan, with nothing behind them."""

    capabilities = Capabilities(run_slots=False, arena_ptr=False)
    arena_ptr = 0

    def __init__(self, schedule: Schedule, plan: MemoryPlan) -> None:
        self._schedule = schedule
        self._plan = plan
        self.input_views: tuple[Array, ...] = tuple(
            np.zeros(value.type.shape, value.type.dtype.numpy) for value in schedule.inputs
        )
        self.output_views: tuple[Array, ...] = ()
        self.output_slots = tuple(
            (plan.slots[value.id].offset, type.size)
            for value, type in zip(schedule.outputs, schedule.output_types, strict=True)
        )

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """There is nothing to run on."""
        raise DeviceUnavailableError(
            describe(
                "the null device runs nothing",
                hint="compile for cpu or webgpu; null is for looking at what was compiled",
            )
        )

    def set_resident(self, indices: Sequence[int]) -> None:
        """Nothing runs, so nothing is taken."""

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Nothing runs, so nothing is fed."""

    def set_extent(self, extent: Extent | None) -> None:
        """Nothing runs, on however few rows."""

    def set_param(self, name: str, array: Array) -> None:
        """Accepted and dropped: there is nothing to upload to."""

    def read_param(self, name: str) -> Array:
        """Zeros: nothing was kept."""
        type = self._schedule.params[name].type
        return np.zeros(type.shape, type.dtype.numpy)

    def clone(self) -> NullExecutable:
        """The same nothing."""
        return NullExecutable(self._schedule, self._plan)

    def memory(self) -> dict[str, int]:
        """What a device would hold."""
        params = sum(value.type.nbytes for value in self._schedule.params.values())
        arena = self._plan.nbytes
        return {"arena": arena, "params": params, "staging": 0, "peak": arena + params}

    def kernels(self) -> str:
        """Names of the kernels in order."""
        return "\n".join(call.kernel for call in self._schedule.calls)

    def close(self) -> None:
        """Nothing to free."""


class NullBackend:
    """Compiles with the CPU's kernel records."""

    name = "null"
    kernel_set = "cpu"

    def devices(self) -> list[DeviceInfo]:
        """There is always one."""
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

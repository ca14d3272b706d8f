"""The dispatches of an executable, bound to its memory, in batches: for all rows and for fewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.dispatch import Dispatch, shrunk
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.storage import padded
from rlx.backends.webgpu.submission import Batch
from rlx.backends.webgpu.weight_buffers import ConstantBuffers, check_limit
from rlx.ir.plan import KernelCall, MemoryPlan, Value
from rlx.ir.spans import phase
from rlx.passes.dynamic_batch import DynamicRows

# Dispatches of one submission.
_MAX_DISPATCHES = 4096
# Numbers of rows whose batches are kept.
_MAX_EXTENTS = 64


class Batches:
    """The batches of dispatches that a run submits, with a host step between each two.

    Args:
        gpu: The device.
        work: Dispatches, and calls on the host, in order.
        fixed: Params and constants, and the programs of the host.
        plan: Where other values live.
        arena: The buffer that they live in.

    Attributes:
        current: The batches of the rows that runs compute now.
        host_steps: The steps on the host after each batch but the last.
        bound: Pipeline and bind group of each dispatch, by its id.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        work: Sequence[Dispatch | KernelCall],
        fixed: ConstantBuffers,
        plan: MemoryPlan,
        arena: Any,
    ) -> None:
        self._gpu, self._fixed, self._plan, self._arena = gpu, fixed, plan, arena
        self._parts: list[list[Dispatch]] = [[]]
        self.host_steps: list[Any] = []
        for item in work:
            if isinstance(item, KernelCall):
                self.host_steps.append(HostStep(gpu, item, fixed.program(item), self._place))
                self._parts.append([])
                continue
            if len(self._parts[-1]) >= _MAX_DISPATCHES:
                self.host_steps.append(Pause())
                self._parts.append([])
            self._parts[-1].append(item)
        dispatches = {id(item): item for item in work if isinstance(item, Dispatch)}
        groups = {
            key: gpu.bind(dispatch, [self._resource(v, dispatch) for v in dispatch.values])
            for key, dispatch in dispatches.items()
        }
        with phase("pipelines"):
            pipelines = gpu.pipelines(dispatches.values())
        self.bound = {
            dispatch: (pipeline, groups[dispatch])
            for dispatch, pipeline in zip(dispatches, pipelines, strict=True)
        }
        self._fewer: dict[tuple[int, int], list[Batch]] = {}
        self._whole = self.current = self._build(None)

    def use(self, extent: DynamicRows | None) -> bool:
        """Selects the batches for an extent: the same dispatches with fewer workgroups.

        Returns:
            Whether the batches of other numbers of rows were forgotten, to make room.
        """
        if extent is None:
            self.current = self._whole
            return False
        key = extent.actual, extent.upper
        full = key not in self._fewer and len(self._fewer) >= _MAX_EXTENTS
        if full:
            self._fewer.clear()
        if key not in self._fewer:
            self._fewer[key] = self._build(extent)
        self.current = self._fewer[key]
        return full

    @property
    def workgroups(self) -> int:
        """Workgroups dispatched by one run."""
        return sum(x * y for batch in self.current for _, _, x, y in batch)

    def close(self) -> None:
        """Drops bind groups and pipelines."""
        self._whole = self.current = [[]]
        self._fewer.clear()
        self.bound.clear()

    def _place(self, value: Value) -> tuple[Any, int]:
        """The buffer that holds a value, and where in it."""
        if value.id in self._fixed.buffers:
            return self._fixed.buffers[value.id], 0
        return self._arena, self._plan.slots[value.id].offset

    def _resource(self, value: Value, dispatch: Dispatch) -> tuple[Any, int, int]:
        size = padded(value.type)
        where = dispatch.call.node.where()
        check_limit(self._gpu, "max-storage-buffer-binding-size", size, where)
        return (*self._place(value), size)

    def _build(self, extent: DynamicRows | None) -> list[Batch]:
        batches: list[Batch] = []
        for part in self._parts:
            sizes = [(item, *shrunk(item, extent)) for item in part]
            batches.append([(*self.bound[id(item)], x, y) for item, x, y in sizes if x and y])
        return batches

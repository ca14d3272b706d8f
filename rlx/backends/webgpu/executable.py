"""A loaded graph on a GPU: buffers, dispatches, and the host mirror that callers see."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.backends.base import Capabilities, as_input, check_slots
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.lower import Dispatch
from rlx.errors import DeviceLostError, DeviceMemoryError, RlxError, describe
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import ARENA, MemoryPlan, Schedule, Value

_MIRROR_ALIGNMENT = 256


def padded(nbytes: int) -> int:
    """Bytes bound for a value: whole vectors, and never none."""
    return max(16, -(-nbytes // 16) * 16)


def _view(memory: Array, offset: int, type: TensorType) -> Array:
    part: Array = memory[offset : offset + type.nbytes].view(type.dtype.numpy)
    return part.reshape(type.shape)


def _words(array: Array, nbytes: int) -> Array:
    block = np.zeros(nbytes, np.uint8)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    block[: flat.size] = flat
    return block


class Fixed:
    """The buffers of params and constants, shared between an executable and its clones.

    Raises:
        DeviceMemoryError: One is above the device's limits.
    """

    def __init__(self, gpu: GpuDevice, schedule: Schedule) -> None:
        import wgpu

        self.buffers: dict[int, Any] = {}
        self.nbytes = 0
        self._gpu = gpu
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST
        for value in schedule.values:
            if value.kind in ARENA:
                continue
            size = padded(value.type.nbytes)
            check_limit(gpu, "max-storage-buffer-binding-size", size, value.name)
            check_limit(gpu, "max-buffer-size", size, value.name)
            label = f"{value.kind} {value.name}"
            self.buffers[value.id] = gpu.device.create_buffer(label=label, size=size, usage=usage)
            self.nbytes += size
            if value.array is not None:
                self.write(value, value.array)

    def write(self, value: Value, array: Array) -> None:
        """Uploads a value."""
        data = _words(array, padded(value.type.nbytes))
        self._gpu.queue.write_buffer(self.buffers[value.id], 0, data)


def check_limit(gpu: GpuDevice, limit: str, nbytes: int, where: str) -> None:
    """Refuses a buffer that the device can't hold.

    Raises:
        DeviceMemoryError: Names the limit, its value, and whose memory it is.
    """
    if nbytes > gpu.limits[limit]:
        raise DeviceMemoryError(
            describe(
                f"a buffer is above the device's {limit}",
                where=where,
                got=f"{nbytes} bytes",
                expected=f"at most {gpu.limits[limit]} bytes",
                hint="use smaller batches, or the CPU",
            )
        )


class WebGpuExecutable:
    """Dispatches on one arena. Clones share params, constants and pipelines."""

    capabilities = Capabilities()

    def __init__(
        self,
        gpu: GpuDevice,
        schedule: Schedule,
        plan: MemoryPlan,
        dispatches: list[Dispatch],
        fixed: Fixed,
    ) -> None:
        import wgpu

        self._gpu, self._schedule, self._plan = gpu, schedule, plan
        self._dispatches, self._fixed = dispatches, fixed
        # The padding lets the last slot be bound in whole vectors, and an empty one at the end.
        size = plan.nbytes + 256
        if size > gpu.limits["max-buffer-size"]:
            largest = max(
                (value for value in schedule.values if value.id in plan.slots),
                key=lambda value: value.type.nbytes,
            )
            check_limit(gpu, "max-buffer-size", size, f"the arena; largest value {largest.name}")
        usage = wgpu.BufferUsage
        self._arena: Any = gpu.device.create_buffer(
            label="arena", size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        )
        start, end = plan.inputs_end, plan.outputs_end
        self._staged = end - start
        self._staging: Any = gpu.device.create_buffer(
            label="staging", size=max(256, self._staged), usage=usage.MAP_READ | usage.COPY_DST
        )
        self._bound: list[tuple[Any, Any, int, int]] = [
            (
                gpu.pipeline(one),
                gpu.bind(one, [self._resource(v, one) for v in one.values]),
                *one.grid,
            )
            for one in dispatches
        ]
        self._make_mirror(end)
        self._inputs: Array = self._mirror[:start]
        self._outputs: Array = self._mirror[start:end]
        self._read = int(wgpu.MapMode.READ)
        self._gpu_error: Any = wgpu.GPUError
        self._busy = threading.Lock()
        self.run_slots: Callable[..., tuple[Array, ...]] = self._run_slots

    def _make_mirror(self, nbytes: int) -> None:
        schedule, slots = self._schedule, self._plan.slots
        block = np.zeros(nbytes + _MIRROR_ALIGNMENT, np.uint8)
        start = -block.ctypes.data % _MIRROR_ALIGNMENT
        self._mirror: Array = block[start : start + nbytes]
        self.arena_ptr: int = block.ctypes.data + start
        self.input_views = tuple(
            _view(self._mirror, slots[value.id].offset, value.type) for value in schedule.inputs
        )
        outputs = list(zip(schedule.outputs, schedule.output_types, strict=True))
        views = [_view(self._mirror, slots[value.id].offset, type) for value, type in outputs]
        for view in views:
            view.setflags(write=False)
        self.output_views = tuple(views)
        self.output_slots = tuple((slots[value.id].offset, type.size) for value, type in outputs)

    def _resource(self, value: Value, dispatch: Dispatch) -> tuple[Any, int, int]:
        size = padded(value.type.nbytes)
        where = dispatch.call.node.where()
        check_limit(self._gpu, "max-storage-buffer-binding-size", size, where)
        if value.id in self._fixed.buffers:
            return self._fixed.buffers[value.id], 0, size
        return self._arena, self._plan.slots[value.id].offset, size

    def _run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        if not self._busy.acquire(blocking=False):
            raise RlxError(
                describe(
                    "this CompiledGraph is running in another thread",
                    hint="give each thread its own: compiled.clone()",
                )
            )
        try:
            if arrays:
                check_slots(arrays, len(self.input_views))
                # All are checked before one is copied, so that a refused call changes nothing.
                checked = [
                    as_input(array, view, at)
                    for at, (array, view) in enumerate(zip(arrays, self.input_views, strict=True))
                ]
                for array, view in zip(checked, self.input_views, strict=True):
                    np.copyto(view, array, casting="same_kind")
            self._execute()
        except self._gpu_error as error:
            raise DeviceLostError(
                describe("the device failed during a run", got=error, hint="compile again")
            ) from error
        finally:
            self._busy.release()
        return self.output_views

    def _execute(self) -> None:
        queue = self._gpu.queue
        if self._inputs.size:
            queue.write_buffer(self._arena, 0, self._inputs)
        encoder = self._gpu.device.create_command_encoder(label="rlx")
        if self._bound:
            work = encoder.begin_compute_pass(label="rlx")
            for pipeline, group, x, y in self._bound:
                work.set_pipeline(pipeline)
                work.set_bind_group(0, group)
                work.dispatch_workgroups(x, y, 1)
            work.end()
        if self._staged:
            encoder.copy_buffer_to_buffer(
                self._arena, self._plan.inputs_end, self._staging, 0, self._staged
            )
        queue.submit([encoder.finish()])
        if self._staged:
            self._staging.map_sync(self._read, 0, self._staged)
            try:
                mapped = self._staging.read_mapped(0, self._staged, copy=False)
                self._outputs[:] = np.frombuffer(mapped, np.uint8)
            finally:
                self._staging.unmap()

    def set_param(self, name: str, array: Array) -> None:
        """Uploads a weight."""
        self._fixed.write(self._schedule.params[name], array)

    def clone(self) -> WebGpuExecutable:
        """The same dispatches on an arena of their own."""
        return WebGpuExecutable(
            self._gpu, self._schedule, self._plan, self._dispatches, self._fixed
        )

    def memory(self) -> dict[str, int]:
        """The arena, the params and constants, and the buffer that results come back through."""
        arena, params = self._plan.nbytes, self._fixed.nbytes
        staging = max(256, self._staged)
        total = arena + params + staging
        return {"arena": arena, "params": params, "staging": staging, "peak": total}

    def kernels(self) -> str:
        """The WGSL of every dispatch in order."""
        return "\n".join(
            f"// --- {one.label}, {one.call.node.where()}, grid {one.grid[0]} x {one.grid[1]}\n"
            f"{one.source}"
            for one in self._dispatches
        )

    def close(self) -> None:
        """Frees the arena; params go with the last clone."""
        self._bound.clear()
        self._arena.destroy()
        self._staging.destroy()

"""A loaded graph on a GPU: buffers, dispatches, and the host mirror that callers see."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.backends.base import Capabilities, as_input, check_slots
from rlx.backends.host import compile_host
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.lower import Dispatch
from rlx.backends.webgpu.mirror import Mirror, device_bytes, from_device, to_device
from rlx.errors import DeviceLostError, DeviceMemoryError, RlxError, describe
from rlx.ir.opdef import Array
from rlx.ir.plan import ARENA, Call, MemoryPlan, Schedule, Value


def padded(nbytes: int) -> int:
    """Bytes bound for a value: whole vectors, and never none."""
    return max(16, -(-nbytes // 16) * 16)


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
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        for value in schedule.values:
            if value.kind in ARENA:
                continue
            size = padded(device_bytes(value.type))
            check_limit(gpu, "max-storage-buffer-binding-size", size, value.name)
            check_limit(gpu, "max-buffer-size", size, value.name)
            label = f"{value.kind} {value.name}"
            self.buffers[value.id] = gpu.device.create_buffer(label=label, size=size, usage=usage)
            self.nbytes += size
            if value.array is not None:
                self.write(value, value.array)

    def write(self, value: Value, array: Array) -> None:
        """Uploads a value."""
        data = np.zeros(padded(device_bytes(value.type)), np.uint8)
        raw = to_device(array, value.type, f"{value.kind} {value.name!r}")
        data[: raw.size] = raw
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


class HostStep:
    """A part of the graph that runs on the CPU between two batches of dispatches."""

    def __init__(
        self, gpu: GpuDevice, call: Call, place: Callable[[Value], tuple[Any, int]]
    ) -> None:
        import wgpu

        graph: Any = call.params["graph"]
        self.executable = compile_host(graph)
        self._gpu = gpu
        self._reads = [(*place(v), v.type) for v in call.inputs if v is not None]
        self._writes = [(*place(v), v.type, v.name) for v in call.outputs]
        self._nbytes = sum(padded(device_bytes(type)) for _, _, type in self._reads)
        check_limit(gpu, "max-buffer-size", self._nbytes, call.node.where())
        usage = wgpu.BufferUsage
        self._staging: Any = gpu.device.create_buffer(
            label=f"read-back for {call.node.op}",
            size=max(16, self._nbytes),
            usage=usage.MAP_READ | usage.COPY_DST,
        )
        self._mode = int(wgpu.MapMode.READ)

    def read_back(self, encoder: Any) -> None:
        """Adds the copies of what the host needs to the batch that computes it."""
        at = 0
        for buffer, offset, type in self._reads:
            size = padded(device_bytes(type))
            encoder.copy_buffer_to_buffer(buffer, offset, self._staging, at, size)
            at += size

    def run(self) -> None:
        """Computes on the CPU and uploads the results; the batch before has been submitted."""
        at = 0
        if self._reads:
            self._staging.map_sync(self._mode, 0, self._nbytes)
            try:
                mapped = self._staging.read_mapped(0, self._nbytes, copy=False)
                raw = np.frombuffer(mapped, np.uint8)
                for view, (_, _, type) in zip(
                    self.executable.input_views, self._reads, strict=True
                ):
                    # A value may be read as a view, under another shape.
                    view[...] = from_device(raw[at:], type).reshape(view.shape)
                    at += padded(device_bytes(type))
                del raw
            finally:
                self._staging.unmap()
        results = self.executable.run_slots()
        for result, (buffer, offset, type, name) in zip(results, self._writes, strict=True):
            raw = to_device(result, type, name)
            data = np.zeros(padded(raw.size), np.uint8)
            data[: raw.size] = raw
            self._gpu.queue.write_buffer(buffer, offset, data)

    def close(self) -> None:
        """Frees the staging buffer."""
        self._staging.destroy()


Batch = list[tuple[Any, Any, int, int]]


class WebGpuExecutable:
    """Dispatches on one arena. Clones share params, constants and pipelines."""

    def __init__(
        self,
        gpu: GpuDevice,
        schedule: Schedule,
        plan: MemoryPlan,
        work: list[Dispatch | Call],
        fixed: Fixed,
    ) -> None:
        import wgpu

        self.capabilities = Capabilities(f16="shader-f16" in gpu.device.features)
        self._gpu, self._schedule, self._plan = gpu, schedule, plan
        self._work, self._fixed = work, fixed
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
        self._staged = plan.outputs_end - plan.inputs_end
        self._staging: Any = gpu.device.create_buffer(
            label="staging", size=max(256, self._staged), usage=usage.MAP_READ | usage.COPY_DST
        )
        # Batches of dispatches, and the host's parts between them.
        self._batches: list[Batch] = [[]]
        self._host_steps: list[HostStep] = []
        bound: dict[int, tuple[Any, Any, int, int]] = {}
        for one in work:
            if isinstance(one, Call):
                self._host_steps.append(HostStep(gpu, one, self._place))
                self._batches.append([])
                continue
            if id(one) not in bound:
                group = gpu.bind(one, [self._resource(v, one) for v in one.values])
                bound[id(one)] = (gpu.pipeline(one), group, *one.grid)
            self._batches[-1].append(bound[id(one)])
        self._mirror = Mirror(schedule, plan)
        self.arena_ptr = self._mirror.address
        self.input_views = self._mirror.input_views
        self.output_views = self._mirror.output_views
        self.output_slots = self._mirror.output_slots
        self._read = int(wgpu.MapMode.READ)
        self._gpu_error: Any = wgpu.GPUError
        self._busy = threading.Lock()
        self.run_slots: Callable[..., tuple[Array, ...]] = self._run_slots

    def _place(self, value: Value) -> tuple[Any, int]:
        """The buffer that holds a value, and where in it."""
        if value.id in self._fixed.buffers:
            return self._fixed.buffers[value.id], 0
        return self._arena, self._plan.slots[value.id].offset

    def _resource(self, value: Value, dispatch: Dispatch) -> tuple[Any, int, int]:
        size = padded(device_bytes(value.type))
        where = dispatch.call.node.where()
        check_limit(self._gpu, "max-storage-buffer-binding-size", size, where)
        return (*self._place(value), size)

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
        self._mirror.pack()
        if self._mirror.inputs.size:
            self._gpu.queue.write_buffer(self._arena, 0, self._mirror.inputs)
        for batch, step in zip(self._batches, self._host_steps, strict=False):
            self._submit(batch, step.read_back)
            step.run()
        self._submit(self._batches[-1], self._copy_outputs)
        if self._staged:
            self._staging.map_sync(self._read, 0, self._staged)
            try:
                mapped = self._staging.read_mapped(0, self._staged, copy=False)
                self._mirror.outputs[:] = np.frombuffer(mapped, np.uint8)
            finally:
                self._staging.unmap()
        self._mirror.unpack()

    def _submit(self, batch: Batch, read_back: Callable[[Any], None]) -> None:
        encoder = self._gpu.device.create_command_encoder(label="rlx")
        if batch:
            work = encoder.begin_compute_pass(label="rlx")
            for pipeline, group, x, y in batch:
                work.set_pipeline(pipeline)
                work.set_bind_group(0, group)
                work.dispatch_workgroups(x, y, 1)
            work.end()
        read_back(encoder)
        self._gpu.queue.submit([encoder.finish()])

    def _copy_outputs(self, encoder: Any) -> None:
        if self._staged:
            encoder.copy_buffer_to_buffer(
                self._arena, self._plan.inputs_end, self._staging, 0, self._staged
            )

    def set_param(self, name: str, array: Array) -> None:
        """Uploads a weight."""
        self._fixed.write(self._schedule.params[name], array)

    def clone(self) -> WebGpuExecutable:
        """The same dispatches on an arena of their own."""
        return WebGpuExecutable(self._gpu, self._schedule, self._plan, self._work, self._fixed)

    def memory(self) -> dict[str, int]:
        """The arena, the params and constants, and the buffer that results come back through."""
        arena, params = self._plan.nbytes, self._fixed.nbytes
        staging = max(256, self._staged)
        total = arena + params + staging
        return {"arena": arena, "params": params, "staging": staging, "peak": total}

    def kernels(self) -> str:
        """The WGSL of every dispatch in order, and what the host runs between them."""
        shown = []
        for one in self._work:
            if isinstance(one, Call):
                reasons: Any = one.params["reasons"]
                shown.append(f"// --- on the host, {one.node.where()}: {'; '.join(reasons)}")
            else:
                grid = f"grid {one.grid[0]} x {one.grid[1]}"
                shown.append(f"// --- {one.label}, {one.call.node.where()}, {grid}\n{one.source}")
        return "\n".join(shown)

    def close(self) -> None:
        """Frees the arena; params go with the last clone."""
        self._batches = [[]]
        for step in self._host_steps:
            step.close()
        self._arena.destroy()
        self._staging.destroy()

"""Loads a schedule for WebGPU: buffers, pipelines and bind groups are all made now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.backends.base import Capabilities, CompileOptions, DeviceInfo, as_input, check_slots
from rlx.errors import DeviceMemoryError, RlxError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import Call, MemoryPlan, Schedule, Value

_INSTALL = "apt-get install -y --no-install-recommends mesa-vulkan-drivers libvulkan1"
_WGSL_TYPES = {DType.F32: "f32", DType.I32: "i32", DType.U32: "u32", DType.BOOL: "u32"}


def _padded(nbytes: int) -> int:
    """Bytes of a binding: kernels take four elements at a time, and an empty one can't be bound."""
    return max(16, -(-nbytes // 16) * 16)


class WebGpuExecutable:
    """Prepared dispatches on one arena. Clones share params, constants and pipelines."""

    capabilities = Capabilities()

    def __init__(
        self,
        index: int,
        schedule: Schedule,
        plan: MemoryPlan,
        fixed: dict[int, Any] | None = None,
    ) -> None:
        import wgpu

        from rlx.backends.webgpu.device import open_device

        self._usage = wgpu.BufferUsage
        self._map_read = wgpu.MapMode.READ
        self._open = open_device(index)
        self._index, self._schedule, self._plan = index, schedule, plan
        self._lock = threading.Lock()
        self._check_limits()
        usage = self._usage
        storage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self._arena = self._open.buffer(plan.nbytes, storage, "rlx arena")
        self._fixed = self._upload_fixed() if fixed is None else fixed
        self._output_bytes = plan.outputs_end - plan.inputs_end
        self._staging = self._open.buffer(
            self._output_bytes, usage.MAP_READ | usage.COPY_DST, "rlx read-back"
        )
        # The host's copy of the inputs and outputs, laid out as the arena is.
        self._mirror = np.zeros(plan.outputs_end, np.uint8)
        self.arena_ptr: int = self._mirror.ctypes.data
        self.input_views = tuple(
            self._view(plan.slots[value.id].offset, value.type) for value in schedule.inputs
        )
        outputs = list(zip(schedule.outputs, schedule.output_types, strict=True))
        self.output_slots = tuple((plan.slots[v.id].offset, type.size) for v, type in outputs)
        views = [self._view(plan.slots[v.id].offset, type) for v, type in outputs]
        for view in views:
            view.setflags(write=False)
        self.output_views = tuple(views)
        self._text: list[str] = []
        self._dispatches = [self._prepare(call) for call in schedule.calls]
        self.run_slots: Callable[..., tuple[Array, ...]] = self._run_slots

    # --- running -----------------------------------------------------------------------------------

    def _run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        if not self._lock.acquire(blocking=False):
            raise RlxError(
                describe(
                    "this CompiledGraph is already running in another thread",
                    hint="give each thread its own: cg.clone() shares the params",
                )
            )
        try:
            if arrays:
                check_slots(arrays, len(self.input_views))
                for at, (view, given) in enumerate(zip(self.input_views, arrays, strict=True)):
                    view[...] = as_input(given, view, at)
            self._submit()
        finally:
            self._lock.release()
        return self.output_views

    def _submit(self) -> None:
        plan, queue = self._plan, self._open.queue
        if plan.inputs_end:
            queue.write_buffer(self._arena, 0, self._mirror, 0, plan.inputs_end)
        encoder = self._open.device.create_command_encoder()
        if self._dispatches:
            compute = encoder.begin_compute_pass()
            for pipeline, group, x, y in self._dispatches:
                compute.set_pipeline(pipeline)
                compute.set_bind_group(0, group)
                compute.dispatch_workgroups(x, y, 1)
            compute.end()
        encoder.copy_buffer_to_buffer(
            self._arena, plan.inputs_end, self._staging, 0, self._output_bytes
        )
        queue.submit([encoder.finish()])
        self._staging.map_sync(self._map_read)
        try:
            data = self._staging.read_mapped(copy=False)
            self._mirror[plan.inputs_end :] = np.frombuffer(data, np.uint8)
        finally:
            self._staging.unmap()

    # --- preparing ---------------------------------------------------------------------------------

    def _view(self, offset: int, type: Any) -> Array:
        part: Array = self._mirror[offset : offset + type.nbytes].view(type.dtype.numpy)
        return part.reshape(type.shape)

    def _check_limits(self) -> None:
        limits = self._open.limits
        binding = limits["max-storage-buffer-binding-size"]
        if self._plan.nbytes > limits["max-buffer-size"]:
            self._refuse("the arena", self._plan.nbytes, "max-buffer-size")
        for value in self._schedule.values:
            if _padded(value.type.nbytes) > binding:
                self._refuse(
                    f"value {value.name!r} {value.type}",
                    value.type.nbytes,
                    "max-storage-buffer-binding-size",
                )

    def _refuse(self, what: str, nbytes: int, limit: str) -> None:
        raise DeviceMemoryError(
            describe(
                f"{what} is larger than the adapter allows",
                got=f"{nbytes} bytes",
                expected=f"at most {self._open.limits[limit]} ({limit})",
                hint="make the batch smaller, or use the CPU",
            )
        )

    def _upload_fixed(self) -> dict[int, Any]:
        """Params and constants, each in a read-only buffer of its own."""
        usage = self._usage.STORAGE | self._usage.COPY_DST
        found = {}
        for value in self._schedule.values:
            if value.kind in ("param", "constant"):
                label = f"rlx {value.kind} {value.name}"
                found[value.id] = self._open.buffer(_padded(value.type.nbytes), usage, label)
                if value.array is not None:
                    self._write(found[value.id], np.asarray(value.array, value.type.dtype.numpy))
        return found

    def _write(self, buffer: Any, array: Array) -> None:
        data = np.zeros(_padded(array.nbytes), np.uint8)
        data[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        self._open.queue.write_buffer(buffer, 0, data)

    def _prepare(self, call: Call) -> tuple[Any, Any, int, int]:
        from rlx.backends.webgpu.region import region_source
        from rlx.backends.webgpu.wgsl import FOLD, render

        bound = [value for value in (*call.inputs, *call.outputs) if value is not None]
        access = tuple("read" if value.id in self._fixed else "read_write" for value in bound)
        kernel, work = call.kernel, call.work
        if kernel == "elementwise":
            source, work = region_source(call, access)
        else:
            if kernel == "strided_copy" and call.params["itemsize"] == 1:
                kernel = "strided_copy_bytes"
            types = [_WGSL_TYPES[value.type.dtype] for value in bound]
            source = render(kernel, call.params, access, types, work)
        label = f"rlx {kernel} of {call.node.name}"
        pipeline, layout = self._open.pipeline(source, access, label)
        group = self._open.device.create_bind_group(
            label=label,
            layout=layout,
            entries=[
                {"binding": at, "resource": self._binding(value)} for at, value in enumerate(bound)
            ],
        )
        self._text.append(f"// {label}\n{source}")
        return pipeline, group, min(work, FOLD), -(-work // FOLD)

    def _binding(self, value: Value) -> dict[str, Any]:
        size = _padded(value.type.nbytes)
        if value.id in self._fixed:
            return {"buffer": self._fixed[value.id], "offset": 0, "size": size}
        return {"buffer": self._arena, "offset": self._plan.slots[value.id].offset, "size": size}

    # --- the rest ----------------------------------------------------------------------------------

    def set_param(self, name: str, array: Array) -> None:
        """Uploads a weight; runs submitted before it are not affected."""
        self._write(self._fixed[self._schedule.params[name].id], array)

    def clone(self) -> WebGpuExecutable:
        """The same dispatches on an arena of its own."""
        return WebGpuExecutable(self._index, self._schedule, self._plan, self._fixed)

    def memory(self) -> dict[str, int]:
        """Bytes of the arena, the params and constants, and the host and read-back copies."""
        params = sum(int(buffer.size) for buffer in self._fixed.values())
        arena, staging = self._plan.nbytes, self._output_bytes + self._mirror.nbytes
        return {
            "arena": arena,
            "params": params,
            "staging": staging,
            "peak": arena + params + staging,
        }

    def kernels(self) -> str:
        """The WGSL of every dispatch in order."""
        return "\n".join(self._text)

    def close(self) -> None:
        """Destroys the arena and the read-back buffer; params go with their last clone."""
        self._arena.destroy()
        self._staging.destroy()


class WebGpuBackend:
    """Every adapter that wgpu finds."""

    name = "webgpu"
    kernel_set = "webgpu"

    def devices(self) -> list[DeviceInfo]:
        """One per adapter; none where wgpu or a driver is missing."""
        try:
            from rlx.backends.webgpu.device import infos
        except (ImportError, OSError):
            return []
        return infos()

    def absent(self) -> str:
        """Why there is no adapter."""
        return (
            "no WebGPU adapter was found: install a Vulkan, Metal or DX12 driver; "
            f"a software one comes with `{_INSTALL}`"
        )

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> WebGpuExecutable:
        """Makes buffers, pipelines and bind groups."""
        assert schedule is not None and plan is not None
        return WebGpuExecutable(info.index, schedule, plan)


BACKEND = WebGpuBackend()

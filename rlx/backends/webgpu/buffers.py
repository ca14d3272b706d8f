"""Device memory: the buffers of params and constants, and what a buffer may not exceed."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from rlx.backends.base import Executable
from rlx.backends.host import compile_host
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.mirror import from_device, to_device
from rlx.errors import DeviceMemoryError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import ARENA, HOST, Call, Schedule, Value


def padded(type: TensorType) -> int:
    """Bytes bound for a value: whole vectors, of four i64 or of 16 bytes, and never none."""
    unit = 32 if type.dtype is DType.I64 else 16
    return max(unit, -(-type.nbytes // unit) * unit)


class Fixed:
    """Params and constants, on the device and in the host's parts; clones share them.

    Raises:
        DeviceMemoryError: One is above the device's limits.
    """

    def __init__(self, gpu: GpuDevice, schedule: Schedule) -> None:
        self.buffers: dict[int, Any] = {}
        self.nbytes = 0
        self._gpu, self._schedule = gpu, schedule
        self._programs: dict[int, Executable] = {}
        for value in schedule.values:
            if value.kind in ARENA:
                continue
            size = padded(value.type)
            check_limit(gpu, "max-storage-buffer-binding-size", size, value.name)
            check_limit(gpu, "max-buffer-size", size, value.name)
            label = f"{value.kind} {value.name}"
            self.buffers[value.id] = gpu.buffer(label, size, "STORAGE", "COPY_DST", "COPY_SRC")
            self.nbytes += size
            if value.array is not None:
                self._write(value, value.array)
        for call in schedule.calls:
            if call.kernel == HOST and id(call) not in self._programs:
                self._programs[id(call)] = compile_host(_graph(call))

    def program(self, call: Call) -> Executable:
        """A host part as a program with an arena of its own."""
        return self._programs[id(call)].clone()

    def set_param(self, name: str, array: Array) -> None:
        """Brings a weight to everything that reads it."""
        if name in self._schedule.params:
            self._write(self._schedule.params[name], array)
        for program in self._readers(name):
            program.set_param(name, array)

    def read_param(self, name: str) -> Array:
        """A weight as it is now."""
        for program in self._readers(name):
            return program.read_param(name)
        value = self._schedule.params[name]
        raw = self._gpu.queue.read_buffer(self.buffers[value.id])
        return from_device(np.frombuffer(raw, np.uint8), value.type)

    def _readers(self, name: str) -> list[Executable]:
        """The host parts that have a param."""
        calls = {id(call): call for call in self._schedule.calls if call.kernel == HOST}
        return [
            program
            for at, program in self._programs.items()
            if name in _graph(calls[at]).param_names
        ]

    def _write(self, value: Value, array: Array) -> None:
        data = np.zeros(padded(value.type), np.uint8)
        raw = to_device(array)
        data[: raw.size] = raw
        self._gpu.queue.write_buffer(self.buffers[value.id], 0, data)


def _graph(call: Call) -> Graph:
    graph: Any = call.params["graph"]
    return cast(Graph, graph)


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

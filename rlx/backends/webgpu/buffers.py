"""Device memory: the buffers of params and constants, and what a buffer may not exceed."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.mirror import device_bytes, to_device
from rlx.errors import DeviceMemoryError, describe
from rlx.ir.opdef import Array
from rlx.ir.plan import ARENA, Schedule, Value


def padded(nbytes: int) -> int:
    """Bytes bound for a value: whole vectors, and never none."""
    return max(16, -(-nbytes // 16) * 16)


class Fixed:
    """The buffers of params and constants, shared between an executable and its clones.

    Raises:
        DeviceMemoryError: One is above the device's limits.
    """

    def __init__(self, gpu: GpuDevice, schedule: Schedule) -> None:
        self.buffers: dict[int, Any] = {}
        self.nbytes = 0
        self._gpu = gpu
        for value in schedule.values:
            if value.kind in ARENA:
                continue
            size = padded(device_bytes(value.type))
            check_limit(gpu, "max-storage-buffer-binding-size", size, value.name)
            check_limit(gpu, "max-buffer-size", size, value.name)
            label = f"{value.kind} {value.name}"
            self.buffers[value.id] = gpu.buffer(label, size, "STORAGE", "COPY_DST", "COPY_SRC")
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

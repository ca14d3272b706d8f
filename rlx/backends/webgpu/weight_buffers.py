"""Device memory: the buffers of params and constants, and what a buffer may not exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from weakref import ref

import numpy as np

from rlx._ext.locks import ReadWriteLock
from rlx.backends.base import CompileOptions
from rlx.backends.executable import Executable, sharing_now
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.dispatch import padded
from rlx.backends.webgpu.storage import to_device
from rlx.backends.webgpu.submission import OK, PythonRunner, Submission
from rlx.errors import DeviceLostError, DeviceMemoryError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import ARENA, HOST, STATE, KernelCall, Schedule, Value


class SharedBuffer:
    """The buffer of a param that programs of one graph share, each for other sizes.

    Args:
        key: The param: of a graph, its value, its type.
        buffer: The buffer.
        owner: The program whose bytes it is one of; another one when that is gone.

    Attributes:
        key: See above.
        buffer: See above.
        array: The value that was uploaded last.
    """

    def __init__(self, key: Any, buffer: Any, owner: ConstantBuffers) -> None:
        self.key, self.buffer, self._owner = key, buffer, ref(owner)
        self.array: Array | None = None

    def nbytes_for(self, program: ConstantBuffers) -> int:
        """Returns its bytes, which count for one program alone."""
        if self._owner() is None:
            self._owner = ref(program)
        return padded(self.key[-1]) if self._owner() is program else 0


class ConstantBuffers:
    """Params and constants, on the device and in the host's parts; clones share them.

    Attributes:
        buffers: The buffer of each, by the id of its value.
        gate: Held by runs that make several submissions.

    Raises:
        DeviceMemoryError: One is above the device's limits.
    """

    def __init__(self, gpu: GpuDevice, schedule: Schedule, options: CompileOptions) -> None:
        self.buffers: dict[int, Any] = {}
        self._gpu, self._schedule, self._own = gpu, schedule, 0
        self._programs: dict[int, Executable] = {}
        shared = sharing_now()
        self.gate = ReadWriteLock() if shared is None else shared.gate
        # By name, the params that programs of other sizes may have, too.
        self._shared: dict[str, SharedBuffer] = {}
        names = {v.id: name for name, v in schedule.params.items()}
        # A program shares all params or none: a run must not see new values of some beside old values of others.
        texts = {} if shared is None else shared.keys
        shares = schedule.params.keys() <= texts.keys()
        every = frozenset(texts[name] for name in schedule.params if shares)
        for value in schedule.values:
            if value.kind in (*ARENA, STATE):
                continue
            size = padded(value.type)
            check_limit(gpu, "max-storage-buffer-binding-size", size, value.name)
            check_limit(gpu, "max-buffer-size", size, value.name)
            name = names.get(value.id, "")
            if shares and name:
                key = self.gate, every, texts[name], value.type
                found = gpu.shared_params.get(key) or SharedBuffer(key, self._made(value), self)
                self._shared[name], self.buffers[value.id] = found, found.buffer
                continue
            self.buffers[value.id] = self._made(value)
            self._own += size
            if value.array is not None:
                self._write([(value, value.array)])
        for call in schedule.calls:
            if call.kernel == HOST and id(call) not in self._programs:
                from rlx.backends.host import compile_host

                self._programs[id(call)] = compile_host(_graph(call), options)

    def _made(self, value: Value) -> Any:
        """A new buffer for a value."""
        label, size = f"{value.kind} {value.name}", padded(value.type)
        return self._gpu.buffer(label, size, "STORAGE", "COPY_DST", "COPY_SRC")

    @property
    def nbytes(self) -> int:
        """Bytes of all, without those that count for a program of other sizes."""
        return self._own + sum(item.nbytes_for(self) for item in self._shared.values())

    def program(self, call: KernelCall) -> Executable:
        """A host part as a program with an arena of its own."""
        return self._programs[id(call)].clone()

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Uploads weights for kernels and host parts. Every run sees all new values or none.

        Runs with parts on the host, and long ones, make several submissions: they are waited for.

        Raises:
            BusyError: One of those is under way further up in this thread.
        """
        self.gate.write(self._set_params, values)

    def _set_params(self, values: Mapping[str, Array]) -> None:
        self._write(
            [
                (self._schedule.params[name], array)
                for name, array in values.items()
                if name in self._schedule.params
                and (name not in self._shared or self._shared[name].array is not array)
            ]
        )
        for name in self._shared.keys() & values.keys():
            self._shared[name].array = values[name]
            # From now on, since a program that fails to load destroys its buffers.
            self._gpu.shared_params[self._shared[name].key] = self._shared[name]
        for name, array in values.items():
            for program in self.readers(name):
                program.set_params({name: array})

    def readers(self, name: str) -> list[Executable]:
        """The host parts that read a param."""
        calls = {id(call): call for call in self._schedule.calls if call.kernel == HOST}
        return [
            program
            for key, program in self._programs.items()
            if name in _graph(calls[key]).param_names
        ]

    def _write(self, pairs: Sequence[tuple[Value, Array]]) -> None:
        """Uploads values in one submission, so that no submission of another thread comes in between."""
        copies = []
        pos = 0
        for value, array in pairs:
            size = padded(value.type)
            data = np.zeros(size, np.uint8)
            raw = to_device(array)
            data[: raw.size] = raw
            copies.append((data, pos, self.buffers[value.id]))
            pos += size
        if len(copies) == 1:
            self._gpu.queue.write_buffer(copies[0][2], 0, copies[0][0])
        elif copies:
            staging = self._gpu.buffer("weights", pos, "COPY_SRC", "COPY_DST")
            for data, start, _ in copies:
                self._gpu.queue.write_buffer(staging, start, data)
            moves = [(staging, start, to, 0, data.size) for data, start, to in copies]
            runner = PythonRunner(self._gpu, Submission([], moves=moves), np.zeros(3, np.int64))
            # Waiting frees what they were copied through, before the next weights come.
            if runner.submit() != OK or runner.wait() != OK:
                raise DeviceLostError(
                    "weights were not uploaded", got=runner.error()[1], hint="cg.recover()"
                )


def _graph(call: KernelCall) -> Graph:
    graph: Any = call.params["graph"]
    return cast(Graph, graph)


def check_limit(gpu: GpuDevice, limit: str, nbytes: int, where: str) -> None:
    """Refuses a buffer that the device can't hold.

    Raises:
        DeviceMemoryError: Names the limit, its value, and whose memory it is.
    """
    if nbytes > gpu.limits[limit]:
        raise DeviceMemoryError(
            f"a buffer exceeds the device's {limit}",
            where=where,
            got=f"{nbytes} bytes",
            expected=f"at most {gpu.limits[limit]} bytes",
            hint="use smaller batches, or the CPU",
        )

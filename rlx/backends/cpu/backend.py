"""Loads a schedule for the CPU: memory, parameters and addresses become one compiled program."""

from __future__ import annotations

import copy
import platform
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx import flags
from rlx._ext import cpu as compiled
from rlx.backends.base import Capabilities, CompileOptions, DeviceInfo, HostMemory
from rlx.backends.cpu.region import region_params
from rlx.backends.cpu.timed import timed
from rlx.backends.record import Recorder, kernels_of
from rlx.errors import DeviceUnavailableError, UnsupportedOpError, describe
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import Call, MemoryPlan, Schedule, Value
from rlx.ir.spans import phase

_ALIGNMENT = 256


def instruction_set() -> str:
    """The instruction set that kernels are taken from: the best one, or ``RLX_CPU_ISA``.

    Raises:
        DeviceUnavailableError: The processor lacks the one that was asked for.
    """
    usable = compiled.isas()
    wanted = flags.CPU_ISA.get()
    if wanted == "auto":
        return usable[0]
    if wanted not in usable:
        raise DeviceUnavailableError(
            describe(
                f"RLX_CPU_ISA: this processor has no {wanted}",
                got=wanted,
                expected=", ".join(usable),
            )
        )
    return wanted


def kernel_for(name: str, call: Call, kernels: dict[str, int]) -> str:
    """The exported kernel that a name stands for, by the dtype of the first input.

    Raises:
        UnsupportedOpError: There is none for that dtype.
    """
    if name in kernels:
        return name
    first = next(value for value in call.inputs if value is not None)
    dtype = first.type.dtype
    for full in (f"{name}_{dtype}", f"{name}_b{dtype.itemsize}"):
        if full in kernels:
            return full
    raise UnsupportedOpError(
        describe(f"the CPU has no kernel {name!r} for {dtype}", where=call.node.where())
    )


def aligned(nbytes: int) -> Array:
    """Zeroed bytes whose address is a multiple of 256."""
    block = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


def _view(memory: Array, offset: int, type: TensorType) -> Array:
    part: Array = memory[offset : offset + type.nbytes].view(type.dtype.numpy)
    return part.reshape(type.shape)


class CpuExecutable(HostMemory):
    """A loaded program. Clones share the params and constants."""

    capabilities = Capabilities(zero_copy_inputs=True, device_timestamps=True)

    def __init__(
        self,
        schedule: Schedule,
        plan: MemoryPlan,
        fixed: dict[int, Array],
        isa: str,
    ) -> None:
        self._schedule, self._plan, self._fixed, self._isa = schedule, plan, fixed, isa
        self._arena = aligned(plan.nbytes)
        self.arena_ptr: int = self._arena.ctypes.data
        self.input_views = tuple(
            _view(self._arena, plan.slots[value.id].offset, value.type) for value in schedule.inputs
        )
        outputs = list(zip(schedule.outputs, schedule.output_types, strict=True))
        self.output_slots = tuple((plan.slots[v.id].offset, type.size) for v, type in outputs)
        views = [_view(self._arena, plan.slots[v.id].offset, type) for v, type in outputs]
        for view in views:
            view.setflags(write=False)
        self.output_views = tuple(views)
        kernels, loops = compiled.kernels(isa), compiled.loops(isa)
        self._functions: list[Any] = []
        calls = [self._call(call, kernels, loops) for call in schedule.calls]
        keep = (self._arena, fixed, self._functions)
        self._names = [name for *_, name in calls]
        self._program = compiled.Program(calls, self.input_views, self.output_views, keep)
        self._hot = self._program.run_slots
        self.run_slots: Callable[..., tuple[Array, ...]] = self._hot

    def _call(
        self, call: Call, kernels: dict[str, int], loops: dict[str, int]
    ) -> tuple[int, list[int], list[int], Array, str]:
        if call.kernel == "python":
            return self._python(call)
        if call.kernel == "elementwise":
            name, words = "region", region_params(call, loops)
        else:
            name, words = kernel_for(call.kernel, call, kernels), _words(call.params)
        inputs = [0 if value is None else self._address(value) for value in call.inputs]
        outputs = [self._address(value) for value in call.outputs]
        params = np.array(words, np.int64)
        return kernels[name], inputs, outputs, params, f"{name}, {call.node.where()}"

    def _python(self, call: Call) -> tuple[int, list[int], list[int], Array, str]:
        """A Python function amid the kernels, on views of the memory that it reads and writes."""
        # Every executable has its own: the schedule is shared between clones.
        function: Any = copy.copy(call.params["function"])
        function.inputs = [self._memory(value) for value in call.inputs if value is not None]
        function.outputs = [self._memory(value) for value in call.outputs]
        self._functions.append(function)
        params = np.array([id(function)], np.int64)
        return compiled.python_kernel(), [], [], params, f"python, {call.node.where()}"

    def _memory(self, value: Value) -> Array:
        if value.id in self._fixed:
            return _view(self._fixed[value.id], 0, value.type)
        return _view(self._arena, self._plan.slots[value.id].offset, value.type)

    def _address(self, value: Value) -> int:
        if value.id in self._fixed:
            address: int = self._fixed[value.id].ctypes.data
            return address
        return self.arena_ptr + self._plan.slots[value.id].offset

    def record(self, recorder: Recorder | None) -> None:
        """Times every kernel of later runs; None ends it."""
        found = kernels_of(self._schedule.calls) if recorder else {}
        kernels = [found[id(call)] for call in self._schedule.calls] if recorder else []
        self.run_slots = timed(self._program, kernels, recorder) if recorder else self._hot

    def set_resident(self, indices: Sequence[int]) -> None:
        """Inputs that ``run_slots`` takes no argument for."""
        self._program.set_resident(indices)

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Inputs that take an output after each run, in the same compiled call."""
        self._program.set_feeds(pairs)

    def set_param(self, name: str, array: Array) -> None:
        """Copies a weight to where the kernels read it."""
        value = self._schedule.params[name]
        _view(self._fixed[value.id], 0, value.type)[...] = array

    def clone(self) -> CpuExecutable:
        """The same program on an arena of its own."""
        return CpuExecutable(self._schedule, self._plan, self._fixed, self._isa)

    def memory(self) -> dict[str, int]:
        """The arena is host memory, so nothing is staged."""
        params = sum(memory.nbytes for memory in self._fixed.values())
        arena = self._plan.nbytes
        return {"arena": arena, "params": params, "staging": 0, "peak": arena + params}

    def kernels(self) -> str:
        """The compiled kernels in order, and their instruction set."""
        return "\n".join([f"instruction set {self._isa}", *self._names])

    def close(self) -> None:
        """The arena goes with the last view of it."""


def _words(params: Any) -> list[int]:
    """Parameters as 64-bit words, tuples laid out flat, floats by their bits."""
    words: list[int] = []
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, float):
                words.append(int.from_bytes(struct.pack("<d", item), "little", signed=True))
            else:
                words.append(int(item))
    return words


class CpuBackend:
    """The processor this runs on."""

    name = "cpu"
    kernel_set = "cpu"

    def devices(self) -> list[DeviceInfo]:
        """There is always one."""
        usable = compiled.isas()
        return [
            DeviceInfo(
                "cpu",
                0,
                platform.processor() or platform.machine(),
                driver=f"kernels for {usable[0]}",
                features=frozenset(usable),
            )
        ]

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
    ) -> CpuExecutable:
        """Allocates the arena, the params and the constants, and links the program."""
        assert schedule is not None
        assert plan is not None
        fixed: dict[int, Array] = {}
        with phase("allocate"):
            for value in schedule.values:
                if value.kind in ("param", "constant"):
                    fixed[value.id] = aligned(max(1, value.type.nbytes))
                    if value.array is not None:
                        _view(fixed[value.id], 0, value.type)[...] = value.array
        with phase("link"):
            return CpuExecutable(schedule, plan, fixed, instruction_set())


BACKEND = CpuBackend()

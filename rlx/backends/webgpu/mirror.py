"""Host memory that mirrors the arena's inputs and outputs, and i64 carried as i32 on the device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlx.backends.webgpu.storage import device_itemsize
from rlx.errors import InputError, describe
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import MemoryPlan, Schedule

_ALIGNMENT = 256
_I32 = np.iinfo(np.int32)


def device_bytes(type: TensorType) -> int:
    """Bytes of a value in device memory."""
    return type.size * device_itemsize(type.dtype)


def to_device(array: Array, type: TensorType, where: str) -> Array:
    """An array as the bytes that the device holds.

    Raises:
        InputError: An i64 value does not fit the 32 bits that carry it.
    """
    if type.dtype is DType.I64:
        array = narrowed(np.asarray(array), where)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def from_device(raw: Array, type: TensorType) -> Array:
    """The device's bytes as an array of the declared dtype."""
    held = np.dtype(np.int32) if type.dtype is DType.I64 else type.dtype.numpy
    return raw[: device_bytes(type)].view(held).reshape(type.shape).astype(type.dtype.numpy)


def narrowed(array: Array, where: str) -> Array:
    """i64 as i32.

    Raises:
        InputError: A value is out of range.
    """
    if array.size and (array.min() < _I32.min or array.max() > _I32.max):
        raise InputError(
            describe(
                "an i64 value is out of the range that WebGPU carries",
                where=where,
                got=f"{array.min()} to {array.max()}",
                expected=f"{_I32.min} to {_I32.max}",
                hint="run it on the CPU",
            )
        )
    return array.astype(np.int32)


class Wide(NamedTuple):
    """The 64-bit array that a caller sees, and the 32-bit one that travels.

    Attributes:
        name: What errors call it.
        wide: i64.
        held: i32, the same elements.
    """

    name: str
    wide: Array
    held: Array

    def narrow(self) -> None:
        """Brings what the caller wrote into the bytes that are uploaded.

        Raises:
            InputError: A value does not fit.
        """
        self.held[...] = narrowed(self.wide, self.name)

    def widen(self) -> None:
        """Brings what was read back into the array that the caller sees."""
        self.wide[...] = self.held


class Mirror:
    """What callers see of a GPU's arena: views of inputs and outputs in one piece of host memory.

    Attributes:
        memory: Bytes that stand for the arena's inputs and outputs, at the same offsets.
        inputs: Its part that is uploaded before a run.
        outputs: Its part that is read back after it.
        input_views: Writable arrays, one per input.
        output_views: Read-only arrays, one per output.
        output_slots: Byte offset and element count of each output at ``address``.
        address: Where the memory is.
        wide_inputs: By position, those inputs whose 64 bits travel as 32.
        wide_outputs: The same for outputs.
    """

    def __init__(self, schedule: Schedule, plan: MemoryPlan) -> None:
        block = np.zeros(plan.outputs_end + _ALIGNMENT, np.uint8)
        start = -block.ctypes.data % _ALIGNMENT
        self.memory: Array = block[start : start + plan.outputs_end]
        self.address: int = block.ctypes.data + start
        self.inputs: Array = self.memory[: plan.inputs_end]
        self.outputs: Array = self.memory[plan.inputs_end :]
        self.wide_inputs: dict[int, Wide] = {}
        self.wide_outputs: dict[int, Wide] = {}
        views = []
        for at, value in enumerate(schedule.inputs):
            held = self._view(plan.slots[value.id].offset, value.type)
            if value.type.dtype is DType.I64:
                wide = np.zeros(value.type.shape, np.int64)
                self.wide_inputs[at] = Wide(f"input {value.name!r}", wide, held)
                held = wide
            views.append(held)
        self.input_views = tuple(views)
        views = []
        slots = []
        for at, (value, type) in enumerate(
            zip(schedule.outputs, schedule.output_types, strict=True)
        ):
            offset = plan.slots[value.id].offset
            held = self._view(offset, type)
            if type.dtype is DType.I64:
                wide = np.zeros(type.shape, np.int64)
                self.wide_outputs[at] = Wide(f"output {at}", wide, held)
                held = wide.view()
            held.setflags(write=False)
            views.append(held)
            slots.append((offset, type.size))
        self.output_views = tuple(views)
        self.output_slots = tuple(slots)

    def _view(self, offset: int, type: TensorType) -> Array:
        part: Array = self.memory[offset : offset + device_bytes(type)]
        held = np.dtype(np.int32) if type.dtype is DType.I64 else type.dtype.numpy
        return part.view(held).reshape(type.shape)

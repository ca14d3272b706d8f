"""Host memory with the layout of the arena's inputs and outputs."""

from __future__ import annotations

import numpy as np

from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import MemoryPlan, Schedule

_ALIGNMENT = 256


def to_device(array: Array) -> Array:
    """An array as the bytes that the device holds."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def from_device(raw: Array, type: TensorType) -> Array:
    """The device's bytes as a fresh array of the declared dtype."""
    return raw[: type.nbytes].view(type.dtype.numpy).reshape(type.shape).copy()


class HostStaging:
    """Host memory of the arena's inputs and outputs, which callers see as views.

    Attributes:
        memory: Bytes that stand for the arena's inputs and outputs, at the same offsets.
        argument_slots: Its part that is uploaded before a run on arguments, as views: one per input.
        outputs: Its part that is read back after a run.
        inputs: Other bytes with the offsets of the inputs, which a run on the input views uploads.
        input_views: Writable arrays in ``inputs``, one per input.
        output_views: Read-only arrays, one per output.
        output_slots: Byte offset and element count of each output at ``address``.
        address: Address of the memory.
    """

    def __init__(self, schedule: Schedule, plan: MemoryPlan) -> None:
        self.memory = _aligned(plan.outputs_end)
        self.address: int = self.memory.ctypes.data
        self.inputs = _aligned(plan.inputs_end)
        self.outputs: Array = self.memory[plan.inputs_end :]
        inputs = [(plan.slots[value.id].offset, value.type) for value in schedule.inputs]
        self.argument_slots = tuple(_view(self.memory, *item) for item in inputs)
        self.input_views = tuple(_view(self.inputs, *item) for item in inputs)
        views = []
        slots = []
        for value, type in zip(schedule.outputs, schedule.output_types, strict=True):
            offset = plan.slots[value.id].offset
            view = _view(self.memory, offset, type)
            view.setflags(write=False)
            views.append(view)
            slots.append((offset, type.size))
        self.output_views = tuple(views)
        self.output_slots = tuple(slots)


def _aligned(nbytes: int) -> Array:
    block = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


def _view(memory: Array, offset: int, type: TensorType) -> Array:
    part: Array = memory[offset : offset + type.nbytes]
    return part.view(type.dtype.numpy).reshape(type.shape)

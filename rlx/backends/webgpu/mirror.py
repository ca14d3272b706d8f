"""Host memory that mirrors the arena's inputs and outputs."""

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


class Mirror:
    """Host copies of the arena's inputs and outputs, which callers see as views.

    Attributes:
        memory: Bytes that stand for the arena's inputs and outputs, at the same offsets.
        inputs: Its part that is uploaded before a run.
        outputs: Its part that is read back after it.
        input_views: Writable arrays, one per input.
        output_views: Read-only arrays, one per output.
        output_slots: Byte offset and element count of each output at ``address``.
        address: Where the memory is.
    """

    def __init__(self, schedule: Schedule, plan: MemoryPlan) -> None:
        block = np.zeros(plan.outputs_end + _ALIGNMENT, np.uint8)
        start = -block.ctypes.data % _ALIGNMENT
        self.memory: Array = block[start : start + plan.outputs_end]
        self.address: int = block.ctypes.data + start
        self.inputs: Array = self.memory[: plan.inputs_end]
        self.outputs: Array = self.memory[plan.inputs_end :]
        self.input_views = tuple(
            self._view(plan.slots[value.id].offset, value.type) for value in schedule.inputs
        )
        views = []
        slots = []
        for value, type in zip(schedule.outputs, schedule.output_types, strict=True):
            offset = plan.slots[value.id].offset
            view = self._view(offset, type)
            view.setflags(write=False)
            views.append(view)
            slots.append((offset, type.size))
        self.output_views = tuple(views)
        self.output_slots = tuple(slots)

    def _view(self, offset: int, type: TensorType) -> Array:
        part: Array = self.memory[offset : offset + type.nbytes]
        return part.view(type.dtype.numpy).reshape(type.shape)

"""Single values of device memory, written and read back outside of runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import check
from rlx.backends.webgpu.storage import from_device
from rlx.backends.webgpu.submission import NO_DISPATCHES, Submission
from rlx.backends.webgpu.submission_builder import RunnerFactory, SubmissionBuilder, words
from rlx.ir.opdef import Array, TensorType


class Readback:
    """Reads and writes slots of inputs and outputs, and ranges of other buffers.

    Args:
        gpu: The device.
        factory: Makes the submissions.
        builder: Knows the slots of inputs and outputs.
    """

    def __init__(self, gpu: GpuDevice, factory: RunnerFactory, builder: SubmissionBuilder) -> None:
        self._gpu, self._factory, self._builder = gpu, factory, builder
        # As large as the largest value that was read.
        self._staging: Any = None

    def read(self, source: Any, offset: int, type: TensorType) -> Array:
        """Reads a value from a buffer into a fresh array. The copy is rounded to whole 4-byte words."""
        nbytes = type.nbytes
        start, end = offset // 4 * 4, words(offset + nbytes)
        data = np.zeros(end - start, np.uint8)
        if nbytes:
            if self._staging is None or self._staging.size < data.size:
                size = max(256, 1 << (data.size - 1).bit_length())
                self._staging = self._gpu.buffer("rows", size, "MAP_READ", "COPY_DST")
            copies, reads = [(source, start, 0, data.size)], [(0, data)]
            buffer = self._staging
            work = Submission(
                NO_DISPATCHES, copies=copies, staging=buffer, staged=data.size, reads=reads
            )
            runner = self._factory.runner(work)
            check(runner, runner.run())
        return from_device(data[offset - start :], type)

    def read_input(self, index: int) -> Array:
        """Returns the value in an input's slot."""
        builder = self._builder
        buffer, offset, _ = builder.inputs[index]
        return self.read(buffer, offset, builder.input_type(index))

    def write_input(self, index: int, array: Array) -> None:
        """Uploads an input to its slot."""
        builder = self._builder
        buffer, offset, nbytes = builder.inputs[index]
        builder.host.views.input_views[index][...] = array
        if nbytes:
            data = builder.input_bytes(index)
            runner = self._factory.runner(
                Submission(NO_DISPATCHES, uploads=[(data, buffer, offset)])
            )
            check(runner, runner.submit())

    def read_row(self, output: int, row: int) -> Array:
        """Returns one row of an output of the last run."""
        builder = self._builder
        start, type = builder.output_slots()[output]
        row_type = TensorType(type.shape[1:], type.dtype)
        return self.read(builder.arena, start + row * row_type.nbytes, row_type)

    def close(self) -> None:
        """Frees the staging buffer."""
        if self._staging is not None:
            self._staging.destroy()

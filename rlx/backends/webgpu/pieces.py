"""Single pieces of device memory, written and read back outside of runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.backends.arguments import as_input
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import check
from rlx.backends.webgpu.hot import Maker
from rlx.backends.webgpu.mirror import from_device
from rlx.backends.webgpu.submissions import Traffic
from rlx.backends.webgpu.transfers import words
from rlx.backends.webgpu.work import Submission
from rlx.errors import InputError, describe
from rlx.ir.opdef import Array, TensorType


class Pieces:
    """Reads and writes slots of inputs and outputs, and ranges of other buffers.

    Args:
        gpu: The device.
        maker: Makes the submissions.
        traffic: Where inputs and outputs stand.
    """

    def __init__(self, gpu: GpuDevice, maker: Maker, traffic: Traffic) -> None:
        self._gpu, self._maker, self._traffic = gpu, maker, traffic
        # Staging buffer, as large as the largest piece that was read.
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
            work = Submission([], copies=copies, staging=buffer, staged=data.size, reads=reads)
            runner = self._maker.runner(work)
            check(runner, runner.run())
        return from_device(data[offset - start :], type)

    def read_input(self, index: int) -> Array:
        """What an input's slot holds now, as a fresh array.

        Raises:
            InputError: There is no such input.
        """
        traffic = self._traffic
        offset, _ = traffic.inputs[traffic.input(index)]
        return self.read(traffic.arena, offset, traffic.schedule.inputs[index].type)

    def write_input(self, index: int, array: Any) -> None:
        """Uploads one input into its slot now.

        Raises:
            InputError: There is no such input, or the array does not fit it.
        """
        traffic, mirror = self._traffic, self._traffic.mirror
        offset, nbytes = traffic.inputs[traffic.input(index)]
        view = mirror.input_views[index]
        view[...] = as_input(array, view, index)
        if nbytes:
            data = mirror.inputs[offset : offset + words(nbytes)]
            runner = self._maker.runner(Submission([], uploads=[(data, traffic.arena, offset)]))
            check(runner, runner.submit())

    def read_row(self, output: int, row: int) -> Array:
        """One row of an output of the last run.

        Raises:
            InputError: There is no such output or row.
        """
        traffic = self._traffic
        start, _ = traffic.outputs[traffic.output(output)]
        type = traffic.schedule.output_types[output]
        if not type.shape or not 0 <= row < type.shape[0]:
            raise InputError(
                describe(f"output {output} has no row {row}", got=f"shape {type.shape}")
            )
        one = TensorType(type.shape[1:], type.dtype)
        return self.read(traffic.arena, start + row * one.nbytes, one)

    def close(self) -> None:
        """Frees the staging buffer."""
        if self._staging is not None:
            self._staging.destroy()

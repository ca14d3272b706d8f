"""A part of the graph that runs on the CPU between two batches of dispatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from rlx.backends.executable import Executable, view_of
from rlx.backends.recorder import Recorder, kernels_of
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.dispatch import padded
from rlx.backends.webgpu.weight_buffers import check_limit
from rlx.ir.opdef import Array
from rlx.ir.plan import KernelCall, Value
from rlx.ir.spans import PART


class Pause:
    """A pause between two submissions of a long run: signals are handled, and the driver's queue stays short."""

    copies: Sequence[tuple[Any, int, int, int]] = ()
    reads: Sequence[tuple[int, Array]] = ()
    uploads: Sequence[tuple[Array, Any, int]] = ()
    staging: Any = None
    staged = 0
    recorder: Any = None

    def run(self) -> None:
        """Does nothing: returning to Python is the purpose."""

    def close(self) -> None:
        """Nothing is held."""


class HostStep:
    """A host part with the staging memory of its operands and results.

    Attributes:
        executable: The part, compiled for the CPU.
        copies: The copies of the submission before it to ``staging``.
        staging: The buffer that its operands come back through.
        staged: Bytes of it.
        reads: Where they go.
        uploads: The uploads of the submission after it.
        recorder: Receives the time of each run; None records nothing.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        call: KernelCall,
        program: Executable,
        place: Callable[[Value], tuple[Any, int]],
    ) -> None:
        self.executable, self._call = program, call
        self.recorder: Recorder | None = None
        self.copies: list[tuple[Any, int, int, int]] = []
        self.reads: list[tuple[int, Array]] = []
        self.uploads: list[tuple[Array, Any, int]] = []
        self.staged = 0
        self._operands = []
        self._results = []
        values = [value for value in call.inputs if value is not None]
        for value, view in zip(values, program.input_views, strict=True):
            data = np.zeros(padded(value.type), np.uint8)
            self.copies.append((*place(value), self.staged, data.size))
            self.reads.append((self.staged, data))
            # The operand may be a view of the value, with another shape.
            self._operands.append(view_of(data, 0, value.type).reshape(view.shape))
            self.staged += data.size
        for value in call.outputs:
            data = np.zeros(padded(value.type), np.uint8)
            self.uploads.append((data, *place(value)))
            self._results.append(view_of(data, 0, value.type).reshape(-1))
        check_limit(gpu, "max-buffer-size", self.staged, call.node.where())
        label, size = f"read-back for {call.node.op}", max(16, self.staged)
        self.staging: Any = gpu.buffer(label, size, "MAP_READ", "COPY_DST")

    def run(self) -> None:
        """Computes on the CPU; the operands have been read back."""
        start = perf_counter_ns()
        try:
            pending = self.executable.submit(self._operands, range(len(self._results)), False)
            for output, result in zip(pending.wait(), self._results, strict=True):
                result[...] = output.reshape(-1)
        finally:
            if self.recorder is not None:
                reasons = list(self._call.params["reasons"])
                kernel = kernels_of([self._call])[id(self._call)]
                self.recorder.kernel(kernel, start, perf_counter_ns(), PART, reasons=reasons)

    def close(self) -> None:
        """Frees the staging buffer."""
        self.staging.destroy()

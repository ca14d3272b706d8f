"""Staging memory of runs that are under way at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakSet

import numpy as np

from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import check
from rlx.backends.webgpu.submission import Submission, SubmissionRunner
from rlx.backends.webgpu.submission_builder import RunnerFactory
from rlx.ir.opdef import Array

# Staging memory of runs that are under way at the same time, in bytes.
_MAX_STAGED = 1 << 28
# Runs whose results come back in one transfer, and bytes of it where the results are large.
_RUNS_PER_BLOCK = 8
_BLOCK_BYTES = 1 << 20


class StagingBlock:
    """Staging memory of several runs, which comes back at once.

    Args:
        gpu: The device.
        factory: Makes the runner.
        work: The submission of one run, or its last one.
        count: Runs that there is memory for.

    Attributes:
        used: Runs that have memory in it.
        submitted: Whether any of them may be under way.
        wanted: Those whose results are still to be taken; without any, the memory is free again.
    """

    def __init__(
        self, gpu: GpuDevice, factory: RunnerFactory, work: Submission, count: int
    ) -> None:
        self._stride, self.used = _stride(work), 0
        size = count * self._stride
        self.staging: Any = gpu.buffer("staging block", size, "MAP_READ", "COPY_DST")
        memory: Array = np.zeros(size, np.uint8)
        self._rows = memory.reshape(count, self._stride)
        staged, reads = (size, [(0, memory)]) if work.staged else (0, [])
        self._runner: SubmissionRunner = factory.runner(
            replace(work, staging=self.staging, staged=staged, reads=reads, often=False, lengths=())
        )
        self.wanted: WeakSet[Any] = WeakSet()
        self.submitted = False

    @property
    def free(self) -> int:
        """Runs that there is memory for still."""
        return len(self._rows) - self.used

    def submit(self) -> int:
        """Submits a run; returns its number in the block."""
        index = self.used
        self.used += 1
        self.submitted = True
        check(self._runner, self._runner.submit(index * self._stride))
        return index

    def row(self, index: int) -> Array:
        """Waits for a run and returns the bytes that it staged."""
        if self.submitted:
            check(self._runner, self._runner.wait())
            self.submitted = False
        row: Array = self._rows[index]
        return row

    def reset(self) -> None:
        """Makes room for new runs; the results of the old ones were taken or are not wanted."""
        self.used, self.submitted = 0, False


class StagingRing:
    """Staging memory of runs that are under way at the same time.

    Args:
        gpu: The device.
        factory: Makes runners.
        work: The submission of one run, or its last one.
    """

    def __init__(self, gpu: GpuDevice, factory: RunnerFactory, work: Submission) -> None:
        self._gpu, self._factory, self._work = gpu, factory, work
        self._blocks: list[StagingBlock] = []
        self._apart = False
        stride = _stride(work)
        bound = min(_MAX_STAGED, gpu.limits["max-buffer-size"])
        self._count = max(1, min(_RUNS_PER_BLOCK, _BLOCK_BYTES // stride, bound // stride))
        self._max_blocks = max(1, bound // (self._count * stride))

    def block(self) -> StagingBlock | None:
        """Returns a block with memory for a run; None where all memory is in use.

        All results of a block are read at once. A host that takes results between two submissions would wait for the later
        runs of a block, too. Each run has a block of its own then.
        """
        for block in self._blocks:
            if not block.wanted:
                block.reset()
        self._apart |= any(
            block.free and block.used and not block.submitted for block in self._blocks
        )
        free = [block for block in self._blocks if block.free]
        free.sort(key=lambda block: bool(block.used) is self._apart)
        if free and not (self._apart and free[0].used and len(self._blocks) < _RUNS_PER_BLOCK):
            return free[0]
        if len(self._blocks) >= self._max_blocks:
            return None
        self._blocks.append(StagingBlock(self._gpu, self._factory, self._work, self._count))
        return self._blocks[-1]

    def reset(self) -> None:
        """Makes all memory free; no run is under way."""
        for block in self._blocks:
            block.reset()

    def place(self, offset: int) -> int:
        """Returns the offset among staged bytes of an offset of the arena."""
        for _, start, i, size in self._work.copies:
            if start <= offset < start + size:
                return i + offset - start
        return 0  # an empty value

    def close(self) -> None:
        """Frees the memory."""
        for block in self._blocks:
            block.staging.destroy()
        self._blocks = []


def _stride(work: Submission) -> int:
    return -(-max(16, work.staged) // 16) * 16

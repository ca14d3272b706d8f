"""Transfers of a run between host and device: merged ranges, and staging memory for several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.hot import Maker
from rlx.backends.webgpu.work import Runner, Submission
from rlx.ir.opdef import Array

# In bytes: ranges closer than the first are merged into one transfer; the second bounds the staging memory
# of runs that wait at the same time.
_NEAR = 4096
_MOST_STAGED = 1 << 28


def words(nbytes: int) -> int:
    """Bytes in whole 32-bit words, the unit of every copy."""
    return -(-nbytes // 4) * 4


def spans(slots: Sequence[tuple[int, int]], chosen: Sequence[int]) -> list[tuple[int, int]]:
    """The chosen slots as few ranges.

    Args:
        slots: Offset and size of every slot.
        chosen: Positions in ``slots``.

    Returns:
        Offsets and sizes in bytes, whole words. Neighbours are joined over the padding between
        them, but never over a slot that was not chosen.
    """
    wanted = {slots[at] for at in chosen}
    joined: list[tuple[int, int]] = []
    whole = False
    for offset, size in sorted(set(slots)):
        if (offset, size) not in wanted:
            whole = False
        elif size and whole and offset - sum(joined[-1]) <= _NEAR:
            joined[-1] = (joined[-1][0], offset + words(size) - joined[-1][0])
        elif size:
            joined.append((offset, words(size)))
            whole = True
    return joined


class Several:
    """A submission whose results are kept apart for several runs, and come back together.

    Args:
        gpu: The device.
        maker: Makes the runner.
        work: The submission of one run.
        count: How many runs there is room for.

    Attributes:
        runner: ``submit(at * stride)`` for run ``at``; one ``wait`` brings all back.
        stride: Bytes between the results of two runs.
        staging: The buffer that they come back through.
        blocks: Host memory of each run's results.
    """

    def __init__(self, gpu: GpuDevice, maker: Maker, work: Submission, count: int) -> None:
        self.stride = _stride(work)
        self._copies = work.copies
        size = count * self.stride
        self.staging: Any = gpu.buffer("several", size, "MAP_READ", "COPY_DST")
        memory: Array = np.zeros(size, np.uint8)
        self.blocks = memory.reshape(count, self.stride)
        staged, reads = (size, [(0, memory)]) if work.staged else (0, [])
        self.runner: Runner = maker.runner(
            replace(work, staging=self.staging, staged=staged, reads=reads, often=False)
        )

    @staticmethod
    def most(gpu: GpuDevice, work: Submission) -> int:
        """How many runs may wait at the same time."""
        return max(1, min(_MOST_STAGED, gpu.limits["max-buffer-size"]) // _stride(work))

    def place(self, offset: int) -> int:
        """Where in a block the bytes are that stand at an offset of the arena."""
        for _, start, at, size in self._copies:
            if start <= offset < start + size:
                return at + offset - start
        return 0  # an empty value


def _stride(work: Submission) -> int:
    return -(-max(16, work.staged) // 16) * 16

"""Prepared runs of an executable, and runs that were submitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from weakref import WeakSet

from rlx._ext.locks import ReadWriteLock
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import check
from rlx.backends.webgpu.host_staging import from_device
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.runner_factory import RunnerFactory
from rlx.backends.webgpu.staging import StagingBlock, StagingRing
from rlx.backends.webgpu.submission import Submission, SubmissionRunner
from rlx.ir.opdef import Array, TensorType

R = TypeVar("R")


class PreparedRun:
    """The submissions of a run.

    Args:
        gpu: The device.
        factory: Makes runners.
        works: The submissions.
        steps: The computations of the host between two of them.
        apart: The last submission with all rows of the outputs, for runs whose results are kept apart.
        outputs: Offset in the arena and type of every output.
        gate: Keeps changes of weights out of runs of several submissions.

    """

    def __init__(
        self,
        gpu: GpuDevice,
        factory: RunnerFactory,
        works: Sequence[Submission],
        steps: Sequence[HostStep | Pause],
        apart: Submission,
        outputs: Sequence[tuple[int, TensorType]],
        gate: ReadWriteLock,
    ) -> None:
        self._steps, self._outputs, self._gate = steps, outputs, gate
        self._runners = [factory.runner(work) for work in works]
        self._apart = gpu, factory, apart
        self._ring: StagingRing | None = None

    @property
    def ring(self) -> StagingRing:
        """Memory for the results of more runs at the same time, which the first of them makes."""
        if self._ring is None:
            self._ring = StagingRing(*self._apart)
        return self._ring

    def reset(self) -> None:
        """Makes the memory of the ring free; no run is under way."""
        if self._ring is not None:
            self._ring.reset()

    def single(self) -> SubmissionRunner | None:
        """Returns the runner of a run that is one submission; None for others."""
        return self._runners[0] if len(self._runners) == 1 else None

    def submit(self, last: Callable[[], R]) -> R:
        """Makes a run, up to its last submission, which is not waited for.

        Args:
            last: Makes the last submission.
        """
        if len(self._runners) == 1:
            return last()
        return self._gate.read(self._submit, last)

    def _submit(self, last: Callable[[], R]) -> R:
        for runner, step in zip(self._runners, self._steps, strict=False):
            check(runner, runner.run())
            step.run()
        return last()

    def submit_last(self) -> None:
        """Makes the last submission, whose results come back through the executable's own staging memory."""
        runner = self._runners[-1]
        check(runner, runner.submit())

    def wait(self) -> None:
        """Waits for the last submission, and refreshes the output views."""
        runner = self._runners[-1]
        check(runner, runner.wait())

    def read(self, staged: Array, output: int) -> Array:
        """Copies an output from the staged bytes of a run."""
        offset, type = self._outputs[output]
        return from_device(staged[self.ring.place(offset) :], type)

    def close(self) -> None:
        """Frees the memory of the ring."""
        if self._ring is not None:
            self._ring.close()


class SubmittedRun:
    """A run that was submitted; see ``rlx.backends.executable.Pending``.

    Args:
        run: The run.
        outputs: Positions of the outputs that are wanted.
        views: The output views of the executable.
        fresh: Whether the outputs are copied.
        staged: The block of staging memory with the results, and their number there; None where the views get them.
        unfinished: Holds the run until its outputs were taken.
    """

    def __init__(
        self,
        run: PreparedRun,
        outputs: Sequence[int],
        views: Sequence[Array],
        fresh: bool,
        staged: tuple[StagingBlock, int] | None,
        unfinished: WeakSet[SubmittedRun],
    ) -> None:
        self._run, self._outputs, self._views = run, tuple(outputs), views
        self._fresh, self._staged, self._unfinished = fresh, staged, unfinished
        self._arrays: list[Array] | None = None
        if self._outputs:
            unfinished.add(self)

    def wait(self) -> list[Array]:
        """Waits for the run and returns its outputs."""
        if self._arrays is None:
            try:
                self._arrays = self._take()
            finally:  # a run on a lost device is over, too
                self._unfinished.discard(self)
        return self._arrays

    def _take(self) -> list[Array]:
        if self._staged is not None:
            block, index = self._staged
            row = block.row(index)
            return [self._run.read(row, output) for output in self._outputs]
        self._run.wait()
        views = [self._views[output] for output in self._outputs]
        return [view.copy() for view in views] if self._fresh else views

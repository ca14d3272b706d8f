"""Runs of a CPU program with the time of every kernel call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter_ns

from rlx._ext import program as compiled
from rlx.backends.recorder import RecordedKernel, Recorder, kernels_of
from rlx.ir.opdef import Array
from rlx.ir.plan import KernelCall


class TimedRuns:
    """A program's ``run_slots`` that records its kernels.

    Args:
        program: The program.
        calls: Its calls, as the schedule has them.
        recorder: Receives their times, also those before a call that fails.
        estimating: Has estimates of work take the sizes of the last run.
    """

    def __init__(
        self,
        program: compiled.Program,
        calls: Sequence[KernelCall],
        recorder: Recorder,
        estimating: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._program, self._recorder, self._calls = program, recorder, calls
        self._estimating = estimating
        self._kernels: list[RecordedKernel] = []
        self._shapes: list[tuple[int, ...]] = []
        self._times, self._shift = compiled.Times(), _clock_shift()

    def _described(self) -> list[RecordedKernel]:
        """The kernels of the calls, with the work that they are for the sizes of the last run."""
        views = *self._program.input_views, *self._program.output_views
        shapes = [view.shape for view in views]
        if not self._kernels or shapes != self._shapes:
            with self._estimating():
                kernels = kernels_of(self._calls)
            self._kernels, self._shapes = [kernels[id(call)] for call in self._calls], shapes
        return self._kernels

    def run_slots(self, *arrays: Array) -> tuple[Array, ...]:
        """Runs, and returns the output views."""
        try:
            return self._program.run_timed(self._times, *arrays)
        finally:
            kernels = self._described()
            for call, start, end in self._times.take().tolist():
                self._recorder.kernel(kernels[call], start + self._shift, end + self._shift)


def _clock_shift() -> int:
    """Returns the nanoseconds that Python's clock is ahead of the program's; 0 where they are one clock."""
    before, there, after = perf_counter_ns(), compiled.clock_ns(), perf_counter_ns()
    return 0 if before <= there <= after else (before + after) // 2 - there

"""Runs of a CPU program with the time of every kernel call."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

from rlx._ext import program as compiled
from rlx.backends.recorder import Recorder, kernels_of
from rlx.ir.opdef import Array
from rlx.ir.plan import KernelCall


class TimedRuns:
    """A program's ``run_slots`` that records its kernels.

    Args:
        program: The program.
        calls: Its calls, as the schedule has them.
        recorder: Receives their times, also those before a call that fails.
    """

    def __init__(
        self, program: compiled.Program, calls: Sequence[KernelCall], recorder: Recorder
    ) -> None:
        kernels = kernels_of(calls)
        self._program, self._recorder = program, recorder
        self._kernels = [kernels[id(call)] for call in calls]
        self._times, self._shift = compiled.Times(), _clock_shift()

    def run_slots(self, *arrays: Array) -> tuple[Array, ...]:
        """Runs, and returns the output views."""
        try:
            return self._program.run_timed(self._times, *arrays)
        finally:
            for call, start, end in self._times.take().tolist():
                self._recorder.kernel(self._kernels[call], start + self._shift, end + self._shift)


def _clock_shift() -> int:
    """Returns the nanoseconds that Python's clock is ahead of the program's; 0 where they are one clock."""
    before, there, after = perf_counter_ns(), compiled.clock_ns(), perf_counter_ns()
    return 0 if before <= there <= after else (before + after) // 2 - there

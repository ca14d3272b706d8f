"""``run_slots`` of a CPU program with the time of every kernel call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from rlx._ext import program as compiled
from rlx.backends.recorder import Kernel, Recorder
from rlx.ir.opdef import Array


def timed(
    program: compiled.Program, kernels: Sequence[Kernel], recorder: Recorder
) -> Callable[..., tuple[Array, ...]]:
    """A function like ``program.run_slots`` that records its kernels.

    Args:
        program: What runs.
        kernels: What each of its calls is.
        recorder: Where their times go, also those before a call that fails.
    """
    times = compiled.Times()
    shift = _shift()

    def run_slots(*arrays: Any) -> tuple[Array, ...]:
        try:
            return program.run_timed(times, *arrays)
        finally:
            for call, start, end in times.take().tolist():
                recorder.kernel(kernels[call], start + shift, end + shift)

    return run_slots


def _shift() -> int:
    """What Python's clock is ahead of the program's, in ns; 0 where they are the same clock."""
    before, there, after = perf_counter_ns(), compiled.clock_ns(), perf_counter_ns()
    return 0 if before <= there <= after else (before + after) // 2 - there

"""A schedule with dims loaded on the CPU: the same calls for all sizes, whose parameters are written when sizes change."""

from __future__ import annotations

import numpy as np

from rlx.backends.cpu.cpu_executable import CpuExecutable
from rlx.backends.cpu.sized_calls import SizedCalls
from rlx.backends.cpu.weights import Weights
from rlx.backends.executable import read_only, view_of
from rlx.backends.sized_schedule import Sizes


class SizedCpuExecutable(CpuExecutable):
    """See ``CpuExecutable``. There is memory for sizes up to some; larger ones take another executable.

    Args:
        calls: The calls, for some sizes and with memory for larger ones.
        alignment: Every offset in the arena is a multiple of it.
        weights: Params and constants.
        isa: The instruction set.
        threads: Threads that may make a call together.
        max_iterations: Trips that the loops of a run make at most, all together; None for no bound.
        flush: Whether arithmetic gives 0 in place of subnormal numbers.

    Raises:
        UnknownSizeError: The bytes of a value have no bound.
    """

    def __init__(
        self,
        calls: SizedCalls,
        alignment: int,
        weights: Weights,
        isa: str,
        threads: int,
        max_iterations: int | None,
        flush: bool,
    ) -> None:
        self._sized, self._alignment = calls, alignment
        plan = calls.plan(alignment)
        with calls.estimating():
            super().__init__(calls.static, plan, weights, isa, threads, max_iterations, flush)
        self._calls.sized = calls
        # Inputs that no kernel reads have memory of their own.
        self._in_arena = [view.base is not None for view in self.input_views]
        ends = (*calls.static.inputs, *calls.static.outputs)
        self._places = [plan.slots[value.id].offset for value in ends]

    def fits(self, sizes: Sizes) -> bool:
        """Returns whether there is memory for some sizes."""
        return self._sized.fits(sizes)

    def resize(self, sizes: Sizes) -> None:
        """Has later runs compute for other sizes, for which there is memory. The values of inputs and outputs are lost."""
        self._program.refresh()
        self._calls.resize(sizes)
        types = self._sized.types(sizes)
        views = [view_of(self._arena, *item) for item in zip(self._places, types, strict=True)]
        count = len(self.input_views)
        self.input_views = tuple(
            new if in_arena else old if old.shape == new.shape else np.zeros_like(new)
            for new, old, in_arena in zip(
                views[:count], self.input_views, self._in_arena, strict=True
            )
        )
        self.output_views = tuple(map(read_only, views[count:]))
        offsets = self._places[count:]
        self.output_slots = tuple((o, v.size) for o, v in zip(offsets, views[count:], strict=True))
        binding = self._binding
        self._program.resize(self.input_views, self.output_views, binding.residents, binding.feeds)

    def grown(self, sizes: Sizes) -> SizedCpuExecutable:
        """Returns an executable with memory for some sizes and half as much again, and the same weights."""
        return self._again(self._sized.more(sizes))

    def clone(self) -> SizedCpuExecutable:
        """Loads the same program on an arena of its own."""
        return self._again(self._sized.again(self._sized.sizes, self._sized.sizes))

    def _again(self, calls: SizedCalls) -> SizedCpuExecutable:
        more = self._weights, self._isa, self._threads, self._max_iterations, self._flush
        return SizedCpuExecutable(calls, self._alignment, *more)

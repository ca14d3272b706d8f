"""A schedule with dims loaded on the CPU: the same calls for all sizes, whose parameters are written when sizes change."""

from __future__ import annotations

from contextlib import AbstractContextManager

from rlx._ext.program import Program, SizeSteps
from rlx.backends.cpu.cpu_executable import CpuExecutable
from rlx.backends.cpu.sized_calls import SizedCalls
from rlx.backends.cpu.weights import Weights
from rlx.backends.sized_schedule import Sizes
from rlx.errors import DeviceMemoryError


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
        super().__init__(calls.static, plan, weights, isa, threads, max_iterations, flush, calls)
        self._program.set_sizes(calls.run_sizes)

    @property
    def sizes(self) -> Sizes:
        """The sizes that runs without arguments compute for."""
        return dict(zip(self._sized.names, self._sized.run_sizes.now, strict=True))

    def _estimating(self) -> AbstractContextManager[None]:
        self._sized.sizes = dict(self.sizes)
        return self._sized.estimating()

    def program(self, guards: SizeSteps | None) -> Program:
        """Returns the compiled program of its runs, which takes the sizes of its arrays by itself where guards hold."""
        if guards is not None:
            self._sized.run_sizes.set_guards(guards)
        return self._program

    def fits(self, sizes: Sizes) -> bool:
        """Returns whether there is memory for some sizes."""
        return self._sized.fits(sizes)

    def resize(self, sizes: Sizes) -> None:
        """Has later runs compute for other sizes, for which there is memory. The values of inputs and outputs are lost.

        Raises:
            SizesError: A number that depends on sizes does not fit 64 bits.
        """
        self._program.resize(*(sizes[name] for name in self._sized.names))

    def grown(self, sizes: Sizes) -> SizedCpuExecutable:
        """Returns an executable with memory for some sizes, and for larger ones if there is, and the same weights.

        Raises:
            DeviceMemoryError: There is no room for these sizes.
        """
        calls = self._sized.more(sizes)
        try:
            return self._again(calls)
        except DeviceMemoryError:
            most = {name: max(self._sized.most[name], size) for name, size in sizes.items()}
            return self._again(calls.again(sizes, most))

    def clone(self) -> SizedCpuExecutable:
        """Loads the same program on an arena of its own."""
        return self._again(self._sized.again(self.sizes, self._sized.most))

    def _again(self, calls: SizedCalls) -> SizedCpuExecutable:
        more = self._weights, self._isa, self._threads, self._max_iterations, self._flush
        return SizedCpuExecutable(calls, self._alignment, *more)

"""A schedule loaded on the CPU: memory, parameters and addresses become one compiled program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate

import numpy as np

from rlx._ext import cpu as compiled
from rlx._ext.locks import TryLock
from rlx._ext.program import Program, SizeSteps, free_idle
from rlx.backends.cpu.call_list import CallLists, Memory
from rlx.backends.cpu.sized_calls import SizedCalls
from rlx.backends.cpu.timed import TimedRuns
from rlx.backends.cpu.weights import Weights
from rlx.backends.executable import (
    Binding,
    Capabilities,
    Done,
    GpuBuffer,
    Moved,
    Pending,
    RunDict,
    RunSlots,
    aligned,
    read_only,
    view_of,
)
from rlx.backends.state_memory import state_memory, write_state
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import STATE, MemoryPlan, Schedule, Value
from rlx.sizes import Assumptions, SizeExpr, deciding
from rlx.threads import usable_cores

CAPABILITIES = Capabilities(
    precisions=("int8",),
    zero_copy_inputs=True,
    device_timestamps=True,
    host_memory=True,
    extent_programs=True,
    sized_programs=True,
)


class CpuExecutable:
    """A loaded program. Clones share the params and constants.

    Args:
        schedule: The kernel calls.
        plan: The places of values in the arena.
        weights: Params and constants.
        isa: The instruction set.
        threads: Threads that may make a call together.
        max_iterations: Trips that the loops of a run make at most, all together; None for no bound.
        flush: Whether arithmetic gives 0 in place of subnormal numbers.
        sized: The calls for many sizes, of a graph with dims.
    """

    capabilities = CAPABILITIES

    def __init__(
        self,
        schedule: Schedule,
        plan: MemoryPlan,
        weights: Weights,
        isa: str,
        threads: int,
        max_iterations: int | None,
        flush: bool,
        sized: SizedCalls | None = None,
    ) -> None:
        self._schedule, self._plan, self._weights, self._isa = schedule, plan, weights, isa
        self._threads, self._max_iterations, self._flush = threads, max_iterations, flush
        self._arena = aligned(plan.nbytes)
        self._state_bytes = 0  # of those that this executable made
        states = {
            value.id: state_memory(value, self._new_state)
            for value in schedule.inputs
            if value.kind == STATE
        }
        self._memory = Memory(plan, self._arena, states)
        inputs = [view_of(self._memory.place(v), 0, v.type) for v in schedule.inputs]
        outputs = zip(schedule.outputs, schedule.output_types, strict=True)
        self._offsets = [plan.slots[value.id].offset for value in schedule.outputs]
        output_views = tuple(
            read_only(view_of(self._memory.place(value), 0, type)) for value, type in outputs
        )
        values = *schedule.inputs, *schedule.outputs
        # A value that is empty now has room where sizes change.
        slots = [
            view.ctypes.data if view.size or (sized is not None and self._room(value)) else 0
            for view, value in zip((*inputs, *output_views), values, strict=True)
        ]
        # Calls write states, so no array of a caller stands in for one.
        bindable = [0 if v.kind == STATE else slot for v, slot in zip(values, slots, strict=True)]
        self._calls = CallLists(schedule, self._memory, weights, bindable, isa, threads, flush)
        self._calls.sized = sized
        # Locked: a weight must not move between linking and the entry into ``readers``.
        with weights.lock:
            self._program = self._linked(inputs, slots[: len(inputs)], output_views)
            weights.readers.add(self._program)
        self._every = tuple(range(len(output_views)))
        self._binding = Binding()
        self._timed: TimedRuns | None = None

    def _linked(
        self, inputs: Sequence[Array], slots: Sequence[int], output_views: tuple[Array, ...]
    ) -> Program:
        """The calls, linked, with the views of inputs and outputs."""
        calls, states = self._calls.link(), self._state_views(inputs)
        input_views = tuple(
            view if rebindable else states[i] if i in states else np.zeros(view.shape, view.dtype)
            for i, (view, rebindable) in enumerate(zip(inputs, calls.rebindable(), strict=False))
        )
        held = (i for i, v in enumerate(self._schedule.inputs) if v.kind == STATE)
        return Program(
            calls,
            input_views,
            slots,
            output_views,
            self._arena,
            self._plan.inputs_end,
            tuple(held),
            self._calls.link,
            self._max_iterations,
            (*compiled.pool(), min(self._threads, usable_cores())),
            aligned,
            self._flush,
        )

    def _state_views(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """The views of states whose sizes stay. Their pages take no memory unless somebody writes to them."""
        sized = self._calls.sized
        declared = (self._schedule if sized is None else sized.schedule).inputs
        fixed = [
            i
            for i, value in enumerate(declared)
            if value.kind == STATE and not isinstance(value.type.nbytes, SizeExpr)
        ]
        ends = list(accumulate((-(-inputs[i].nbytes // 64) * 64 for i in fixed), initial=0))
        block = aligned(ends[-1], tight=True)
        return {
            i: view_of(block, begin, TensorType(inputs[i].shape, declared[i].type.dtype))
            for i, begin in zip(fixed, ends, strict=False)
        }

    def _new_state(self, value: Value) -> Array:
        """Memory for a state, of zeros."""
        self._state_bytes += value.type.nbytes
        return aligned(value.type.nbytes, tight=True)

    def _room(self, value: Value) -> int:
        """The bytes of the arena that a value has."""
        return self._plan.slots[value.id].nbytes if value.id in self._plan.slots else 0

    @property
    def input_views(self) -> tuple[Array, ...]:
        """See ``Executable``."""
        return self._program.input_views

    @property
    def output_views(self) -> tuple[Array, ...]:
        """See ``Executable``."""
        return self._program.output_views

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """See ``Executable``."""
        views = self._program.output_views
        return tuple((offset, view.size) for offset, view in zip(self._offsets, views, strict=True))

    def bind(self, binding: Binding) -> None:
        """See ``Executable``. Fewer rows are other calls on the same memory, which are kept for the next time."""
        program = self._program
        if binding.extent is not self._binding.extent:
            program.use(self._calls.set_extent(binding.extent))
        if binding.residents != self._binding.residents:
            program.set_residents(binding.residents)
        if binding.feeds != self._binding.feeds:
            program.set_feeds(binding.feeds)
        recorder = binding.recorder
        self._timed = None
        if recorder is not None:
            self._timed = TimedRuns(program, self._calls.used, recorder, self._estimating)
        self._binding = binding

    def _estimating(self) -> AbstractContextManager[None]:
        """Has estimates of work take the sizes of the last run, which for fewer rows are their number."""
        extent = self._binding.extent
        if extent is None or extent.schedule is None:
            return nullcontext()
        dims = extent.schedule.schedule.sizes or {}
        return deciding(Assumptions(dict.fromkeys(dims, extent.actual)))

    def submit(
        self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
    ) -> Pending:
        """Runs to the end."""
        args = self._filled(arrays)
        if self._timed is not None or (fresh and tuple(outputs) != self._every):
            run = self._program.run_slots if self._timed is None else self._timed.run_slots
            views = run(*args)
            return Done([views[i].copy() if fresh else views[i] for i in outputs])
        if fresh:
            return Done(self._program.run_fresh(args))
        views = self._program.run_slots(*args)
        return Done([views[i] for i in outputs])

    def _filled(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        """Returns the arguments of a run, with the views of inputs in place of None."""
        values = tuple(array for array in arrays if array is not None)
        if len(values) == len(arrays):
            return values
        args = self._binding.arguments(len(self.input_views))
        return tuple(
            self.input_views[i] if array is None else array
            for i, array in zip(args, arrays, strict=True)
        )

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict]:
        """See ``Executable``."""
        return self._program.compiled(lock, names)

    def program(self, guards: SizeSteps | None) -> Program:
        """Returns the compiled program of its runs."""
        return self._program

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Copies weights to the memory that kernels read."""
        self._weights.set(values, self._calls)
        self._program.refresh()

    def read_param(self, name: str) -> Array:
        """Returns a copy of the weight."""
        return self._weights.read(name)

    def write_input(self, index: int, array: Array) -> None:
        """Writes the input's view, or the state."""
        write_state(self._held(index), array)

    def read_input(self, index: int) -> Array:
        """Returns a copy of the input's view, or of the state."""
        return self._held(index).copy()

    def _held(self, index: int) -> Array:
        """The memory that runs read where an input is a resident."""
        value = self._schedule.inputs[index]
        if value.kind != STATE:
            return self.input_views[index]
        return view_of(self._memory.place(value), 0, value.type)

    def read_row(self, output: int, row: int) -> Array:
        """Returns a copy of the row."""
        self._program.settle_outputs()
        values: Array = self.output_views[output][row].copy()
        return values

    def arena(self) -> int:
        """Keeps outputs in the arena after every later run, and returns its address."""
        self._program.pin_outputs()
        return self._arena.ctypes.data

    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Returns none."""
        return (), ()

    def moved(self) -> Moved:
        """Returns zeros: nothing moves."""
        return Moved(0, 0, 0)

    def clone(self) -> CpuExecutable:
        """Loads the same program on an arena of its own."""
        how = self._threads, self._max_iterations, self._flush
        return CpuExecutable(self._schedule, self._plan, self._weights, self._isa, *how)

    def memory(self) -> dict[str, int]:
        """See ``Executable``. Nothing is staged. Other threads have scratch of their own."""
        params, arena = self._weights.nbytes, self._plan.nbytes + self._state_bytes
        peak = arena + params + self._calls.spare
        return {"arena": arena, "params": params, "staging": 0, "peak": peak}

    def kernels(self) -> str:
        """Returns the compiled kernels in order, and their instruction set."""
        return "\n".join([f"instruction set {self._isa}", *self._calls.names])

    def discard_device(self) -> None:
        """Does nothing: the processor is not lost."""

    def close(self) -> None:
        """Lets go of weights. The arena goes with the last view of it; clones run on."""
        self._weights.readers.discard(self._program)
        self._program.forget_outputs()
        free_idle()

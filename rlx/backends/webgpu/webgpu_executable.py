"""A graph loaded on a GPU: its arena, its dispatches, and the submissions of its runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from rlx._ext.locks import TryLock
from rlx._ext.program import SizeSteps
from rlx.backends.arguments import check_args
from rlx.backends.executable import Binding, GpuBuffer, Moved, Pending, RunDict, RunSlots, aligned
from rlx.backends.recorder import Recorder
from rlx.backends.state_memory import state_memory
from rlx.backends.webgpu.device import GpuDevice, forget
from rlx.backends.webgpu.dispatch import Dispatch, padded, text_of
from rlx.backends.webgpu.faults import check
from rlx.backends.webgpu.readback import Readback
from rlx.backends.webgpu.recorded import SubmissionRecorder
from rlx.backends.webgpu.runs import Batches, PreparedRun, SubmittedRun
from rlx.backends.webgpu.submission import NO_DISPATCHES, BoundSizes, Submission
from rlx.backends.webgpu.submission_builder import (
    GpuState,
    HostStaging,
    RunnerFactory,
    SubmissionBuilder,
    words,
)
from rlx.backends.webgpu.weight_buffers import ConstantBuffers, check_limit
from rlx.errors import ClosedError
from rlx.ir.opdef import Array
from rlx.ir.plan import STATE, KernelCall, MemoryPlan, Schedule, Value

# Other uses of values on a device that a program shares: it may draw them.
_USES_OF_PROGRAMS = ("VERTEX", "INDEX", "UNIFORM", "INDIRECT")
# Prepared runs that an executable keeps.
_MAX_PREPARED = 64


class WebGpuExecutable:
    """Dispatches on one arena. Clones share params, constants and pipelines.

    The slots of inputs and outputs stay where they are between runs, so a resident is an input that is not uploaded,
    and a feed is a copy on the device.

    Args:
        gpu: The device.
        schedule: The kernel calls.
        plan: The places of values in the arena.
        work: Dispatches and calls on the host, in order.
        constants: Params and constants, and the programs of the host.
        sizes: What depends on sizes; None without dims.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        schedule: Schedule,
        plan: MemoryPlan,
        work: Sequence[Dispatch | KernelCall],
        constants: ConstantBuffers,
        sizes: BoundSizes | None = None,
    ) -> None:
        self.capabilities = gpu.capabilities
        self._gpu, self._schedule, self._plan = gpu, schedule, plan
        self._work, self._constants = work, constants
        self._state_bytes = 0  # of those that this executable made
        # Padding: the last slot can be bound in whole vectors, and an empty slot can start at the end.
        size = plan.nbytes + 256
        if size > gpu.limits["max-buffer-size"]:
            largest = max(
                (value for value in schedule.values if value.id in plan.slots),
                key=lambda value: value.type.nbytes,
            )
            check_limit(gpu, "max-buffer-size", size, f"the arena; largest value {largest.name}")
        uses = ("STORAGE", "COPY_SRC", "COPY_DST", *(_USES_OF_PROGRAMS if gpu.shared else ()))
        self._arena: Any = gpu.buffer("arena", size, *uses)
        states = {
            i: state_memory(value, self._new_state)
            for i, value in enumerate(schedule.inputs)
            if value.kind == STATE
        }
        arena, host = self._arena, HostStaging(schedule, plan, states, sizes)
        self._host = host
        self._builder = SubmissionBuilder(gpu, schedule, plan, arena, states, host, sizes)
        buffers = {schedule.inputs[i].id: state.buffer for i, state in states.items()}
        self._batches = Batches(gpu, work, constants, plan, arena, buffers, host.views, sizes)
        self._moved: Array = np.zeros(3, np.int64)
        self._factory = RunnerFactory(gpu, self._moved)
        self._readback: Readback | None = None
        # By rows, outputs, uploaded inputs, and whether these come from the input views.
        self._prepared: dict[tuple[Any, ...], PreparedRun] = {}
        # Runs whose results have not been taken. Those that nobody holds any more drop out.
        self._unfinished: weakref.WeakSet[SubmittedRun] = weakref.WeakSet()
        self._closed = False
        # Weak: the entry refers to the executable, and a cycle would delay freeing until a garbage collection.
        self._entry: Callable[[], Any] = lambda: None
        self._views_prepared = False  # whether the entry has a runner for runs on the input views

    def _new_state(self, value: Value) -> GpuState:
        """Memory for a state, of zeros."""
        size = padded(value.type)
        for limit in ("max-storage-buffer-binding-size", "max-buffer-size"):
            check_limit(self._gpu, limit, size, value.name)
        self._state_bytes += size
        buffer = self._gpu.buffer(f"state {value.name}", size, "STORAGE", "COPY_SRC", "COPY_DST")
        return GpuState(buffer, *(aligned(words(value.type.nbytes), True) for _ in range(2)))

    @property
    def input_views(self) -> tuple[Array, ...]:
        """See ``Executable``."""
        return self._host.views.input_views

    @property
    def output_views(self) -> tuple[Array, ...]:
        """See ``Executable``."""
        return self._host.views.output_views

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """See ``Executable``."""
        return self._host.output_slots

    # --- bindings ----------------------------------------------------------------------------------

    def bind(self, binding: Binding) -> None:
        """See ``Executable``. Fewer rows are fewer workgroups and bytes of the same kernels."""
        old = self._builder.binding
        try:
            self._drain()
        finally:  # a lost device ends its recording too
            if binding.recorder is not old.recorder:
                self._record(binding)
        self._builder.bind(binding)
        if binding.extent is not old.extent:
            if self._batches.use(binding.extent):
                self._forget_runs()
                self._factory.forget()
            if self._factory.recording is not None:
                self._factory.recording.describe(binding.extent)
        if (binding.residents, binding.feeds) != (old.residents, old.feeds):
            self._forget_runs()
        self._views_prepared = False
        self._update_entry()

    def _record(self, binding: Binding) -> None:
        """Ends the recording under way, and begins one if the binding has a recorder."""
        self._forget_runs()
        recording, self._factory.recording = self._factory.recording, None
        if recording is not None:
            recording.end()
        recorder: Recorder | None = binding.recorder
        if recorder is not None:
            self._factory.recording = SubmissionRecorder(
                self._gpu,
                recorder,
                self._work,
                self._batches.bound,
                self._batches.host_steps,
                binding.extent,
            )

    def _forget_runs(self) -> None:
        for run in self._prepared.values():
            run.close()
        self._prepared.clear()

    def _drain(self) -> None:
        """Takes the results of all runs that were submitted."""
        for run in list(self._unfinished):
            run.wait()

    # --- runs --------------------------------------------------------------------------------------

    def submit(
        self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
    ) -> Pending:
        """Uploads and enqueues a run. Parts on the host are waited for, up to the last submission."""
        if self._closed:
            raise ClosedError("this executable is closed", hint="compile the graph again")
        uploaded = []
        sources = [source.input for source in self._builder.binding.sources]
        for i, array in zip(self._builder.arguments(), arrays, strict=True):
            if array is not None and i not in sources:
                self._host.views.argument_slots[i][...] = array
                uploaded.append(i)
        if sources:
            runner = self._factory.runner(Submission(NO_DISPATCHES, moves=self._moves()))
            check(runner, runner.submit())
        return self._submit(self._run(tuple(outputs), tuple(uploaded)), outputs, fresh)

    def start(self, outputs: Sequence[int]) -> Pending:
        """See ``GpuExecutable``."""
        run = self._run(tuple(outputs), tuple(self._builder.arguments()))
        return self._submit(run, outputs, True)

    def _moves(self) -> list[tuple[Any, int, Any, int, int]]:
        """The copies of inputs that are outputs of other executables."""
        results, inputs = [], self._builder.inputs
        for source in self._builder.binding.sources:
            place = source.executable.gpu_buffers()[1][source.output]
            buffer, offset, nbytes = inputs[source.input]
            results.append((place.buffer, place.offset, buffer, offset, words(nbytes)))
        return results

    def _submit(self, run: PreparedRun, outputs: Sequence[int], fresh: bool) -> SubmittedRun:
        block = run.ring.block() if fresh and self._unfinished else None
        if block is None and fresh:
            self._drain()  # no memory is free, or no run is under way
            run.reset()
        staged = None
        if block is None:
            self._host.views.settle()
            run.submit(run.submit_last)
        else:
            staged = block, run.submit(block.submit)
        result = SubmittedRun(run, outputs, self.output_views, fresh, staged, self._unfinished)
        if block is None and fresh:
            self._host.views.staged = weakref.ref(result)
        return result

    def _run(
        self,
        outputs: tuple[int, ...],
        uploaded: tuple[int, ...],
        from_views: bool = False,
        sources: bool = False,
    ) -> PreparedRun:
        """Returns the submissions of a run, which are prepared once; with ``sources`` those whose first one copies them."""
        extent = self._builder.binding.extent
        rows = None if extent is None else (extent.actual, extent.upper)
        outputs = tuple(sorted(set(outputs)))
        key, version = (rows, outputs, uploaded, from_views, sources), self._host.views.version
        prepared = self._prepared.get(key)
        if prepared is not None and not prepared.follows(
            self._builder.output_slots(), outputs, version
        ):
            self._drain()
            works = self._works(outputs, uploaded, from_views)
            self._prepared[key].resize(works, self._builder.output_slots(), version)
        if key not in self._prepared:
            if len(self._prepared) > _MAX_PREPARED:
                self._drain()
                self._forget_runs()
            works = self._works(outputs, uploaded, from_views)
            apart = works[-1]
            if extent is not None:
                apart = self._works(outputs, uploaded, from_views, whole=True)[-1]
            self._prepared[key] = PreparedRun(
                self._gpu,
                self._factory,
                works,
                self._batches.host_steps,
                apart,
                self._builder.output_slots(),
                self._constants.gate,
                version,
            )
        return self._prepared[key]

    def _works(
        self,
        outputs: tuple[int, ...],
        uploaded: tuple[int, ...],
        from_views: bool,
        whole: bool = False,
    ) -> list[Submission]:
        """Returns the submissions of a run, as data."""
        made, how = self._batches, (outputs, uploaded, from_views, whole)
        return self._builder.submissions(made.current, made.grids, made.host_steps, *how)

    # --- compiled calls ----------------------------------------------------------------------------

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict] | None:
        """See ``Executable``. Only the latest pair of functions is kept up to date with changes."""
        entry = self.program(None)
        return None if entry is None else entry.compiled(lock, names)

    def program(self, guards: SizeSteps | None) -> Any:
        """Returns the compiled calls of its runs; None where these are not in C."""
        entry = self._entry()
        if entry is None:
            entry = self._factory.entry(self._host.views, self._run_uncompiled)
            if entry is not None:
                self._entry = weakref.ref(entry)
                self._update_entry()
        return entry

    def _update_entry(self) -> None:
        """Gives the compiled calls the submissions of runs."""
        entry = self._entry()
        if entry is None:
            return
        args, rows = self._builder.arguments(), self._sources()
        on_arguments = on_views = None
        if not self._closed and self._factory.recording is None:
            every, sources = self._brought(), [row[0] for row in rows]
            uploaded = tuple(i for index, i in enumerate(args) if index not in sources)
            on_arguments = self._run(every, uploaded, sources=bool(rows)).single()
            if self._views_prepared:
                on_views = self._run(every, args, from_views=True).single()
        entry.set_runners(on_arguments, on_views, args, rows)

    def _brought(self) -> tuple[int, ...]:
        """The positions of the outputs that compiled calls bring to the host."""
        left = self._builder.binding.left
        return tuple(i for i in self._builder.every if i not in left)

    def _sources(self) -> tuple[tuple[int, Callable[[], tuple[int, int]], int, int], ...]:
        """The sources of compiled calls, in the order of arguments; see ``rlx._ext.webgpu_hot.Entry.set_runners``."""
        args, inputs, rows = self._builder.arguments(), self._builder.inputs, []
        for source in self._builder.binding.sources:
            place = partial(source.executable.output_place, source.output)
            buffer, offset, _ = inputs[source.input]
            rows.append((args.index(source.input), place, self._factory.handle(buffer), offset))
        return tuple(sorted(rows, key=lambda row: row[0]))

    def _run_uncompiled(self, arrays: tuple[Any, ...]) -> None:
        """Makes the runs of ``run_slots`` that its compiled function can't make, and refreshes the output views."""
        if self._closed:  # through a ``run_slots`` that was taken before ``recover``
            hint = "cg.run_slots is another function since cg.recover()"
            raise ClosedError("this run_slots belongs to a closed executable", hint=hint)
        every, args = self._brought(), self._builder.arguments()
        if arrays:
            views = [self._host.views.argument_slots[i] for i in args]
            self.submit(check_args(arrays, views), every, False).wait()
            return
        self._submit(self._run(every, args, from_views=True), every, False).wait()
        if not self._views_prepared:
            self._views_prepared = True
            self._update_entry()

    # --- values ------------------------------------------------------------------------------------

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Uploads weights, which every run sees all or none of."""
        self._constants.set_params(values)

    def read_param(self, name: str) -> Array:
        """Reads a weight back."""
        self._drain()
        for program in self._constants.readers(name):
            return program.read_param(name)
        value = self._schedule.params[name]
        return self._values().read(self._constants.buffers[value.id], 0, value.type)

    def _values(self) -> Readback:
        """Returns the reader and writer of single values, which is made by its first use."""
        if self._readback is None:
            self._readback = Readback(self._gpu, self._factory, self._builder)
        return self._readback

    def write_input(self, index: int, array: Array) -> None:
        """Uploads an input to its slot."""
        self._values().write_input(index, array)

    def read_input(self, index: int) -> Array:
        """Returns the value in an input's slot."""
        return self._values().read_input(index)

    def read_row(self, output: int, row: int) -> Array:
        """Reads one row back; the rest stays on the device."""
        return self._values().read_row(output, row)

    def arena(self) -> int:
        """Returns the address of the host memory of the outputs."""
        return self._host.address

    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Returns the places of inputs and outputs."""
        inputs, outputs = (
            tuple(starmap(GpuBuffer, slots))
            for slots in (self._builder.inputs, self._builder.outputs)
        )
        return inputs, outputs

    def output_place(self, output: int) -> tuple[int, int]:
        """See ``GpuExecutable``."""
        return self._factory.handle(self._arena), self._host.output_offsets[output]

    # --- life --------------------------------------------------------------------------------------

    def moved(self) -> Moved:
        """Returns the bytes that runs of this executable have moved so far."""
        return Moved(*(int(count) for count in self._moved))

    @property
    def workgroups(self) -> int:
        """Workgroups that one run dispatches."""
        return self._batches.workgroups

    def memory(self) -> dict[str, int]:
        """Returns the bytes of the arena, of params and constants, and of the buffers that results come back through."""
        arena, params = self._plan.nbytes + self._state_bytes, self._constants.nbytes
        staging = self._builder.staging_bytes
        total = arena + params + staging
        return {"arena": arena, "params": params, "staging": staging, "peak": total}

    def kernels(self) -> str:
        """Returns the WGSL of every dispatch in order, and the operations of the host between them."""
        return text_of(self._work)

    def clone(self) -> WebGpuExecutable:
        """Returns the same dispatches on a new arena."""
        with self._gpu.all_or_nothing():
            return WebGpuExecutable(
                self._gpu, self._schedule, self._plan, self._work, self._constants
            )

    def discard_device(self) -> None:
        """Forgets the device: the next load opens a new one."""
        forget(self._gpu)

    def close(self) -> None:
        """Frees the arena; params go with the last clone."""
        if self._closed:
            return
        self._closed = True
        self._update_entry()
        self._forget_runs()
        if self._factory.recording is not None:
            self._factory.recording.end()
            self._factory.recording = None
        self._batches.close()
        for step in self._batches.host_steps:
            step.close()
        self._builder.close()
        self._arena.destroy()
        if self._readback is not None:
            self._readback.close()

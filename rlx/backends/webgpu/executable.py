"""A loaded graph on a GPU: its arena, its dispatches, and every way of running them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx._ext.owner import Owner
from rlx.backends.arguments import apart, taken
from rlx.backends.base import GpuBuffer, Moved
from rlx.backends.recorder import Recorder
from rlx.backends.webgpu.adapters import capabilities_with, features_of
from rlx.backends.webgpu.batches import Batches
from rlx.backends.webgpu.buffers import Fixed, check_limit
from rlx.backends.webgpu.device import GpuDevice, forget
from rlx.backends.webgpu.dispatch import Dispatch, text_of
from rlx.backends.webgpu.faults import check, fail
from rlx.backends.webgpu.hot import Maker
from rlx.backends.webgpu.many_runs import ManyRuns
from rlx.backends.webgpu.mirror import Mirror
from rlx.backends.webgpu.pieces import Pieces
from rlx.backends.webgpu.recorded import Recording
from rlx.backends.webgpu.submissions import Traffic
from rlx.backends.webgpu.work import Runner
from rlx.errors import ClosedError, describe
from rlx.ir.opdef import Array
from rlx.ir.plan import Call, MemoryPlan, Schedule
from rlx.passes.extent import Extent

# What else a program may do with the values on a device that it shares: draw them.
_OF_PROGRAM = ("VERTEX", "INDEX", "UNIFORM", "INDIRECT")
# Prepared runs that an executable keeps.
_MOST_PREPARED = 64


class WebGpuExecutable:
    """Dispatches on one arena. Clones share params, constants and pipelines.

    The slots of inputs and outputs stay where they are between runs, so an input that stays on the
    device is one that is not uploaded (``set_resident``), and a result becomes the next run's input
    by a copy on the device (``set_feeds``).
    """

    def __init__(
        self,
        gpu: GpuDevice,
        schedule: Schedule,
        plan: MemoryPlan,
        work: Sequence[Dispatch | Call],
        fixed: Fixed,
    ) -> None:
        self.capabilities = capabilities_with(gpu.provider, features_of(gpu.provider, gpu.device))
        self._gpu, self._schedule, self._plan = gpu, schedule, plan
        self._work, self._fixed = work, fixed
        # Padding: the last slot can be bound in whole vectors, and an empty slot can start at the end.
        size = plan.nbytes + 256
        if size > gpu.limits["max-buffer-size"]:
            largest = max(
                (value for value in schedule.values if value.id in plan.slots),
                key=lambda value: value.type.nbytes,
            )
            check_limit(gpu, "max-buffer-size", size, f"the arena; largest value {largest.name}")
        usages = ("STORAGE", "COPY_SRC", "COPY_DST", *(_OF_PROGRAM if gpu.shared else ()))
        self._arena: Any = gpu.buffer("arena", size, *usages)
        self._mirror = Mirror(schedule, plan)
        self._traffic = Traffic(gpu, schedule, plan, self._arena, self._mirror)
        self._staging = self._traffic.staging
        self._batches = Batches(gpu, work, fixed, plan, self._arena)
        self._host_steps = self._batches.host_steps
        self.arena_ptr = self._mirror.address
        self.input_views = self._mirror.input_views
        self.output_views = self._mirror.output_views
        self.output_slots = self._mirror.output_slots
        self._moved: Array = np.zeros(3, np.int64)
        self._maker = Maker(gpu, self._moved)
        self._pieces = Pieces(gpu, self._maker, self._traffic)
        self._many = ManyRuns(gpu, self._maker, self._traffic, schedule.output_types)
        self._prepared: dict[Hashable, list[Runner]] = {}
        # What ``wait`` waits for: the last run that brings results back, and the last that leaves them.
        self._pending: Runner | None = None
        self._left: Runner | None = None
        self._closed = False
        # Weak: the entry refers to the executable, and a cycle would delay freeing until a garbage collection.
        self._entry: Callable[[], Any] = lambda: None
        # The submission of a run with arguments, and of one without, where that is all of the run.
        self._alone: dict[bool, Runner | None] = {}
        self._prepare()

    # --- preparing submissions ---------------------------------------------------------------------

    def _prepare(self) -> None:
        """Rebuilds the submissions of a run, after a change of inputs, outputs or feeds."""
        self._prepared.clear()
        self._select()

    def _select(self) -> None:
        self._many.forget()
        self._alone = {}
        self._use(bool(self._given()))

    def _use(self, given: bool) -> None:
        """Prepares the fast path of runs with arguments, or of runs without."""
        runners = self._runners(self._traffic.every, given)
        # The compiled fast path takes exactly one submission, and no recording.
        alone = runners[0] if len(runners) == 1 and self._maker.recording is None else None
        self._alone[given] = alone
        entry = self._entry()
        if entry is not None:
            self._tell(entry)

    def _tell(self, entry: Any) -> None:
        entry.prepare(self._alone.get(True), self._alone.get(False), self._given())

    def owned_by(self, owner: Owner) -> Callable[..., tuple[Array, ...]]:
        """See ``Executable``. Only the latest such function is kept up to date with changes."""
        entry = self._maker.entry(
            owner, self.input_views, self.output_views, fail, self._take, self._run_all
        )
        self._tell(entry)
        self._entry = weakref.ref(entry)
        run_slots: Callable[..., tuple[Array, ...]] = entry.run_slots
        return run_slots

    def _given(self) -> tuple[Array, ...]:
        """What arguments are copied into: the memory of all inputs but resident and fed ones."""
        skipped = self._traffic.skipped
        return tuple(view for at, view in enumerate(self._mirror.given) if at not in skipped)

    def _runners(self, outputs: tuple[int, ...], given: bool) -> list[Runner]:
        """The submissions of a run, with arguments or without, that brings back these outputs."""
        key = self._key(), outputs, given
        if key not in self._prepared:
            self._keep(key, outputs, given)
        return self._prepared[key]

    def _keep(self, key: Hashable, outputs: tuple[int, ...], given: bool | tuple[int, ...]) -> None:
        """Prepares the submissions of a run."""
        if len(self._prepared) > _MOST_PREPARED:
            self._prepared.clear()
        batches, steps = self._batches.current, self._host_steps
        works = self._traffic.submissions(batches, steps, outputs, given)
        self._prepared[key] = [self._maker.runner(work) for work in works]

    def _key(self) -> tuple[int, int] | None:
        extent = self._traffic.extent
        return None if extent is None else (extent.actual, extent.upper)

    # --- running -----------------------------------------------------------------------------------

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs on the arguments, or on ``input_views`` without any, and returns the output views."""
        if arrays:
            self._take(arrays)
        self._run_all(bool(arrays))
        return self.output_views

    def _take(self, arrays: Sequence[Any]) -> None:
        # All are checked before one is copied, so that a refused call changes nothing.
        views = self._given()
        for view, array in zip(views, taken(arrays, views, ()), strict=True):
            view[...] = array

    def _run_all(self, given: bool, outputs: tuple[int, ...] | None = None) -> None:
        if self._closed:  # through a ``run_slots`` that was taken before ``recover``
            hint = "cg.run_slots is another function since cg.recover()"
            raise ClosedError(describe("what this run_slots belongs to is closed", hint=hint))
        if given not in self._alone:
            self._use(given)
        runners = self._runners(self._traffic.every if outputs is None else outputs, given)
        self._run_whole(runners, lambda: check(runners[-1], runners[-1].run()))

    def _run_whole(self, runners: list[Runner], last: Callable[[], None]) -> None:
        """A run of one or several submissions; no weight changes between two of them.

        Args:
            runners: Of the submissions.
            last: Makes the last of them.
        """

        def run() -> None:
            for runner, step in zip(runners, self._host_steps, strict=False):
                check(runner, runner.run())
                step.run()
            last()

        if len(runners) > 1:
            self._fixed.gate.run(run)
        else:
            run()

    def run_outputs(self, indices: Sequence[int], *arrays: Any) -> list[Array]:
        """A run that brings back only some outputs.

        Args:
            indices: Which ones; the others never leave the device.
            arrays: As for ``run_slots``.

        Returns:
            Their views, in the order of ``indices``.

        Raises:
            InputError: There is no such output, or the arrays do not fit.
        """
        chosen = tuple(self._traffic.output(at) for at in indices)
        if arrays:
            self._take(arrays)
        self._pending = None  # this run's results replace those staged before
        self._run_all(bool(arrays), tuple(sorted(set(chosen))))
        return [self.output_views[at] for at in chosen]

    def submit(self, *arrays: Any) -> None:
        """Enqueues a run without waiting for it; the inputs may change once this returns.

        Host steps inside the graph are waited for; what stands behind the last of them is not.
        """
        if arrays:
            self._take(arrays)
        runners = self._runners(self._traffic.every, bool(arrays))
        self._run_whole(runners, lambda: check(runners[-1], runners[-1].submit()))
        self._pending = runners[-1]

    def wait(self) -> None:
        """Waits for everything submitted; the views show the outputs of the last run that brings them back."""
        self._drain()
        runner, self._left = self._left, None
        if runner is not None:
            check(runner, runner.wait())

    def _drain(self) -> None:
        runner, self._pending = self._pending, None
        if runner is not None:
            check(runner, runner.wait())

    def run_many(self, sets: Sequence[Sequence[Any]]) -> list[list[Array]]:
        """Runs on several sets of inputs, one submission each and one wait for all.

        Args:
            sets: One sequence of arrays each, as for ``run_slots``.

        Returns:
            Fresh arrays: the outputs of every set.

        Raises:
            InputError: A set does not fit; none has run then.
        """
        views = self._given()
        found = [taken(arrays, views, ()) for arrays in sets]
        return self._many.run(found, self._batches.current, self._host_steps, self._run_with)

    def _run_with(self, arrays: Sequence[Any], last: Callable[[], None]) -> None:
        """A run on these arguments with another last submission."""
        self._take(arrays)
        runners = self._runners(self._traffic.every, True)
        self._run_whole(runners, last)

    # --- sharing values with other work on the device --------------------------------------------------

    @property
    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Where the inputs stand on the device, and where the outputs stand."""
        traffic = self._traffic
        inputs, outputs = (
            tuple(GpuBuffer(self._arena, offset, size) for offset, size in slots)
            for slots in (traffic.inputs, traffic.outputs)
        )
        return inputs, outputs

    def run_on_device(
        self, given: Sequence[tuple[int, Array]], outputs: Sequence[int] = ()
    ) -> list[Array]:
        """A run on what the inputs' slots hold, which leaves its results on the device.

        It is enqueued and not waited for, but for host steps inside the graph, and where somebody watches.

        Args:
            given: Inputs that are uploaded first, with their positions.
            outputs: Positions of outputs that are brought back all the same; the run is waited for then.

        Returns:
            Views of those outputs.
        """
        views = self._mirror.given
        for at, array in [(at, apart(array, views)) for at, array in given]:
            views[at][...] = array
        uploaded, outputs = tuple(sorted(at for at, _ in given)), tuple(outputs)
        key = self._key(), outputs, uploaded
        if key not in self._prepared:
            self._keep(key, outputs, uploaded)
        runners = self._prepared[key]
        self._run_whole(runners, lambda: check(runners[-1], runners[-1].submit()))
        self._left = runners[-1]
        if outputs or self._maker.recording is not None:
            self.wait()
        return [self.output_views[at] for at in outputs]

    # --- fewer rows ---------------------------------------------------------------------------------

    def set_extent(self, extent: Extent | None) -> None:
        """Later runs dispatch fewer workgroups and transfer fewer bytes; nothing is compiled."""
        self._drain()
        self._traffic.extent = extent
        if self._batches.use(extent):
            self._prepared.clear()
            self._maker.forget()
        if self._maker.recording is not None:
            self._maker.recording.describe(extent)
        self._select()

    @property
    def workgroups(self) -> int:
        """How many one run dispatches."""
        return self._batches.workgroups

    # --- what stays on the device ------------------------------------------------------------------

    def set_resident(self, indices: Sequence[int]) -> None:
        """Sets the inputs that later runs do not upload, since their slots hold them already.

        Args:
            indices: Which ones; an empty sequence uploads all again.
                ``run_slots`` takes no argument for them.
        """
        chosen = frozenset(self._traffic.input(at) for at in indices)
        self._drain()
        self._traffic.resident = chosen
        self._prepare()

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Sets the copies from outputs to inputs that the device makes after each run.

        Args:
            pairs: ``(input, output)`` positions. Such an input counts as resident; ``write_input``
                gives its first value.

        Raises:
            InputError: The two differ in shape or dtype, or an input is fed twice.
        """
        feeds = self._traffic.checked_feeds(pairs)
        self._drain()
        self._traffic.set_feeds(feeds)
        self._prepare()

    def write_input(self, index: int, array: Any) -> None:
        """Uploads one input into its slot now.

        Raises:
            InputError: There is no such input, or the array does not fit it.
        """
        self._pieces.write_input(index, array)

    def read_input(self, index: int) -> Array:
        """What an input's slot on the device holds now, as a fresh array."""
        return self._pieces.read_input(index)

    def read_row(self, output: int, row: int) -> Array:
        """One row of an output of the last run, read from the device alone.

        Args:
            output: Which output.
            row: Position on its first axis.

        Raises:
            InputError: There is no such output or row.
        """
        return self._pieces.read_row(output, row)

    # --- the rest of the protocol ------------------------------------------------------------------

    def record(self, recorder: Recorder | None) -> None:
        """Times every kernel and transfer of later runs; None ends it."""
        try:
            self._drain()
        finally:
            self._record(recorder)
        self._prepare()

    def _record(self, recorder: Recorder | None) -> None:
        self._prepared.clear()
        if self._maker.recording is not None:
            self._host_steps = self._maker.recording.end()
            self._maker.recording = None
        if recorder is not None:
            extent, steps = self._traffic.extent, self._host_steps
            recording = Recording(
                self._gpu, recorder, self._work, self._batches.bound, steps, extent
            )
            self._maker.recording, self._host_steps = recording, list(recording.steps)

    @property
    def bytes_moved(self) -> Moved:
        """Bytes that runs of this executable have moved so far."""
        return Moved(*(int(count) for count in self._moved))

    def set_param(self, name: str, array: Array) -> None:
        """Uploads a weight."""
        self._fixed.set_params({name: array})

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Uploads several weights, which every run sees all or none of."""
        self._fixed.set_params(values)

    def read_param(self, name: str) -> Array:
        """Reads a weight back."""
        self._drain()
        for program in self._fixed.readers(name):
            return program.read_param(name)
        if name in self._fixed.unread:
            return self._fixed.unread[name].copy()
        value = self._schedule.params[name]
        return self._pieces.read(self._fixed.buffers[value.id], 0, value.type)

    def clone(self) -> WebGpuExecutable:
        """The same dispatches on a new arena, without residents and feeds."""
        with self._gpu.all_or_nothing():
            return WebGpuExecutable(self._gpu, self._schedule, self._plan, self._work, self._fixed)

    def memory(self) -> dict[str, int]:
        """The arena, the params and constants, and the buffers that results come back through."""
        arena, params = self._plan.nbytes, self._fixed.nbytes
        staging = self._traffic.staging_bytes
        total = arena + params + staging
        return {"arena": arena, "params": params, "staging": staging, "peak": total}

    def kernels(self) -> str:
        """The WGSL of every dispatch in order, and what the host runs between them."""
        return text_of(self._work)

    def abandon(self) -> None:
        """Forgets the device: the next load opens a new one."""
        forget(self._gpu)

    def close(self) -> None:
        """Frees the arena; params go with the last clone."""
        if self._closed:
            return
        self._closed = True
        entry = self._entry()
        if entry is not None:
            entry.prepare(None, None, self._given())
        self._prepared.clear()
        self._batches.close()
        for step in self._host_steps:
            step.close()
        self._many.forget()
        self._traffic.close()
        self._arena.destroy()
        self._pieces.close()

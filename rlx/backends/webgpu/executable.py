"""A loaded graph on a GPU: its arena, its dispatches, and every way of running them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import numpy as np

from rlx._ext.owner import Owner
from rlx.backends.arguments import as_input, taken
from rlx.backends.base import Capabilities, Moved
from rlx.backends.recorder import Recorder
from rlx.backends.webgpu import forked
from rlx.backends.webgpu.adapters import FEATURES
from rlx.backends.webgpu.buffers import Fixed, check_limit, padded
from rlx.backends.webgpu.device import GpuDevice, forget
from rlx.backends.webgpu.dispatch import Dispatch, shrunk
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.hot import Maker
from rlx.backends.webgpu.mirror import Mirror, from_device
from rlx.backends.webgpu.recorded import Recording
from rlx.backends.webgpu.submissions import Traffic
from rlx.backends.webgpu.transfers import Several, words
from rlx.backends.webgpu.work import MEMORY, OK, STOPPED, Batch, Runner, Submission
from rlx.errors import DeviceLostError, DeviceMemoryError, InputError, describe
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import Call, MemoryPlan, Schedule, Value
from rlx.ir.spans import phase
from rlx.passes.extent import Extent

__all__ = ["WebGpuExecutable", "padded"]

# Prepared runs, and extents, that an executable keeps.
_MOST_PREPARED = 64
# Dispatches of one submission.
_MOST_DISPATCHES = 4096


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
        self.capabilities = capabilities_with(gpu.device.features)
        self._gpu, self._schedule, self._plan = gpu, schedule, plan
        self._work, self._fixed = work, fixed
        # The padding lets the last slot be bound in whole vectors, and an empty one at the end.
        size = plan.nbytes + 256
        if size > gpu.limits["max-buffer-size"]:
            largest = max(
                (value for value in schedule.values if value.id in plan.slots),
                key=lambda value: value.type.nbytes,
            )
            check_limit(gpu, "max-buffer-size", size, f"the arena; largest value {largest.name}")
        self._arena: Any = gpu.buffer("arena", size, "STORAGE", "COPY_SRC", "COPY_DST")
        self._mirror = Mirror(schedule, plan)
        self._traffic = Traffic(gpu, schedule, plan, self._arena, self._mirror)
        self._staging = self._traffic.staging
        self._parts: list[list[Dispatch]] = [[]]
        self._host_steps: list[Any] = []
        for one in work:
            if isinstance(one, Call):
                self._host_steps.append(HostStep(gpu, one, fixed.program(one), self._place))
                self._parts.append([])
                continue
            if len(self._parts[-1]) >= _MOST_DISPATCHES:
                self._host_steps.append(Pause())
                self._parts.append([])
            self._parts[-1].append(one)
        dispatches = {id(one): one for one in work if isinstance(one, Dispatch)}
        groups = {
            at: gpu.bind(one, [self._resource(v, one) for v in one.values])
            for at, one in dispatches.items()
        }
        with phase("pipelines"):
            pipelines = gpu.pipelines(dispatches.values())
        self._bound = {
            at: (made, groups[at]) for at, made in zip(dispatches, pipelines, strict=True)
        }
        self._fewer: dict[tuple[int, int] | None, list[Batch]] = {}
        self._whole = self._batches = self._batched(None)
        self.arena_ptr = self._mirror.address
        self.input_views = self._mirror.input_views
        self.output_views = self._mirror.output_views
        self.output_slots = self._mirror.output_slots
        self._moved: Array = np.zeros(3, np.int64)
        self._maker = Maker(gpu, self._moved)
        self._row_buffer: Any = None
        self._many: Several | None = None
        self._prepared: dict[tuple[tuple[int, int] | None, tuple[int, ...]], list[Runner]] = {}
        self._pending = False
        self._closed = False
        # Weak, since an entry refers to the executable: what is dropped is freed at once.
        self._entry: Callable[[], Any] = lambda: None
        self._prepare()

    # --- where things are --------------------------------------------------------------------------

    def _place(self, value: Value) -> tuple[Any, int]:
        """The buffer that holds a value, and where in it."""
        if value.id in self._fixed.buffers:
            return self._fixed.buffers[value.id], 0
        return self._arena, self._plan.slots[value.id].offset

    def _resource(self, value: Value, dispatch: Dispatch) -> tuple[Any, int, int]:
        size = padded(value.type)
        where = dispatch.call.node.where()
        check_limit(self._gpu, "max-storage-buffer-binding-size", size, where)
        return (*self._place(value), size)

    def _batched(self, extent: Extent | None) -> list[Batch]:
        """Batches of dispatches; the host's parts, and pauses, stand between them."""
        batches: list[Batch] = []
        for part in self._parts:
            sizes = [(one, *shrunk(one, extent)) for one in part]
            batches.append([(*self._bound[id(one)], x, y) for one, x, y in sizes if x and y])
        return batches

    # --- preparing submissions ---------------------------------------------------------------------

    def _prepare(self) -> None:
        """Makes the submissions of a run anew, after a change of what travels."""
        self._prepared.clear()
        self._select()

    def _select(self) -> None:
        self._forget_many()
        runners = self._runners(self._traffic.every)
        # The compiled entry runs compiled runners only.
        alone = runners[0] if len(runners) == 1 and self._maker.recording is None else None
        self._alone = alone
        entry = self._entry()
        if entry is not None:
            entry.prepare(alone, self._given())

    def owned_by(self, owner: Owner) -> Callable[..., tuple[Array, ...]]:
        """See ``Executable``. There is one such function at a time, which every change prepares anew."""
        entry = self._maker.entry(
            owner,
            self.input_views,
            self.output_views,
            self._mirror.inputs,
            self._fail,
            self._take,
            self._run_all,
        )
        entry.prepare(self._alone, self._given())
        self._entry = weakref.ref(entry)
        run_slots: Callable[..., tuple[Array, ...]] = entry.run_slots
        return run_slots

    def _given(self) -> tuple[Array, ...]:
        """The views that a run takes an argument for: not those of residents."""
        skipped = self._traffic.skipped
        return tuple(view for at, view in enumerate(self.input_views) if at not in skipped)

    def _forget_many(self) -> None:
        if self._many is not None:
            self._many.staging.destroy()
            self._many = None

    def _runners(self, outputs: tuple[int, ...]) -> list[Runner]:
        """The submissions of a run that brings back these outputs."""
        key = self._key(), outputs
        if key not in self._prepared:
            if len(self._prepared) > _MOST_PREPARED:
                self._prepared.clear()
            works = self._traffic.submissions(self._batches, self._host_steps, outputs)
            self._prepared[key] = [self._maker.runner(work) for work in works]
        return self._prepared[key]

    def _key(self) -> tuple[int, int] | None:
        extent = self._traffic.extent
        return None if extent is None else (extent.actual, extent.upper)

    # --- running -----------------------------------------------------------------------------------

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs on the arguments, or on ``input_views`` without any, and returns the output views."""
        if arrays:
            self._take(arrays)
        self._run_all()
        return self.output_views

    def _take(self, arrays: Sequence[Any]) -> None:
        # All are checked before one is copied, so that a refused call changes nothing.
        views = self._given()
        found = taken(arrays, views, [self._mirror.inputs])
        for view, array in zip(views, found, strict=True):
            np.copyto(view, array, casting="same_kind")

    def _run_all(self, outputs: tuple[int, ...] | None = None) -> None:
        if self._closed:  # through a ``run_slots`` that was taken before ``recover``
            hint = "cg.run_slots is another function since cg.recover()"
            raise InputError(describe("what this run_slots belongs to is closed", hint=hint))
        runners = self._runners(self._traffic.every if outputs is None else outputs)
        with self._whole_run(runners):
            self._lead(runners)
            if runners[-1].run() != OK:
                self._fail(runners[-1])

    def _whole_run(self, runners: list[Runner]) -> AbstractContextManager[None]:
        """Around the submissions of a run: no weight changes between two of them."""
        return self._fixed.gate.running() if len(runners) > 1 else nullcontext()

    def _lead(self, runners: list[Runner]) -> None:
        """Everything up to the last submission: batches, and the host's parts behind them."""
        for runner, step in zip(runners, self._host_steps, strict=False):
            if runner.run() != OK:
                self._fail(runner)
            step.run()

    def _fail(self, runner: Runner) -> NoReturn:
        fault, said = runner.error()
        if fault == STOPPED:
            forked.check()
        if fault == MEMORY:
            hint = "use smaller batches, or the CPU"
            raise DeviceMemoryError(describe("the device is out of memory", got=said, hint=hint))
        text = said or "no answer"
        raise DeviceLostError(
            describe("the device failed during a run", got=text, hint="cg.recover()")
        )

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
        chosen = tuple(self._known(at, self._traffic.outputs, "output") for at in indices)
        if arrays:
            self._take(arrays)
        self._pending = False  # this run's results replace those staged before
        self._run_all(tuple(sorted(set(chosen))))
        return [self.output_views[at] for at in chosen]

    def submit(self, *arrays: Any) -> None:
        """Enqueues a run without waiting for it; the inputs may change once this returns.

        Host steps inside the graph are waited for; what stands behind the last of them is not.
        """
        if arrays:
            self._take(arrays)
        runners = self._runners(self._traffic.every)
        with self._whole_run(runners):
            self._lead(runners)
            if runners[-1].submit() != OK:
                self._fail(runners[-1])
        self._pending = True

    def wait(self) -> None:
        """Waits for everything submitted; the views show the outputs of the last run."""
        self._drain()

    def _drain(self) -> None:
        if self._pending:
            self._pending = False
            runner = self._runners(self._traffic.every)[-1]
            if runner.wait() != OK:
                self._fail(runner)

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
        found = [taken(arrays, views, [self._mirror.inputs]) for arrays in sets]
        results: list[list[Array]] = []
        while len(results) < len(found):
            results += self._run_some(found[len(results) :])
        return results

    def _run_some(self, sets: Sequence[Sequence[Any]]) -> list[list[Array]]:
        """As many sets as may be staged at the same time."""
        every = self._traffic.every
        last = self._traffic.submissions(self._batches, self._host_steps, every, whole=True)[-1]
        sets = sets[: Several.most(self._gpu, last)]
        if self._many is None or len(self._many.blocks) != len(sets):
            self._forget_many()
            self._many = Several(self._gpu, self._maker, last, len(sets))
        many = self._many
        for at, arrays in enumerate(sets):
            self._take(arrays)
            runners = self._runners(every)
            with self._whole_run(runners):
                self._lead(runners)
                if many.runner.submit(at * many.stride) != OK:
                    self._fail(many.runner)
        if many.runner.wait() != OK:
            self._fail(many.runner)
        types = self._schedule.output_types
        places = [many.place(offset) for offset, _ in self._traffic.outputs]
        return [
            [from_device(block[at:], type) for at, type in zip(places, types, strict=True)]
            for block in many.blocks
        ]

    # --- fewer rows ---------------------------------------------------------------------------------

    def set_extent(self, extent: Extent | None) -> None:
        """Fewer rows are fewer workgroups of the same dispatches, and fewer bytes that travel."""
        self._drain()
        self._traffic.extent = extent
        key = self._key()
        if extent is None:
            self._batches = self._whole
        elif key not in self._fewer:
            if len(self._fewer) >= _MOST_PREPARED:
                self._fewer.clear()
                self._prepared.clear()
                self._maker.forget()
            self._batches = self._fewer[key] = self._batched(extent)
        else:
            self._batches = self._fewer[key]
        if self._maker.recording is not None:
            self._maker.recording.describe(extent)
        self._select()

    @property
    def workgroups(self) -> int:
        """How many one run dispatches."""
        return sum(x * y for batch in self._batches for _, _, x, y in batch)

    # --- what stays on the device ------------------------------------------------------------------

    def set_resident(self, indices: Sequence[int]) -> None:
        """Chooses the inputs that later runs do not upload: their slots hold them already.

        Args:
            indices: Which ones; an empty sequence uploads all again.
                ``run_slots`` takes no argument for them.
        """
        chosen = frozenset(self._known(at, self._traffic.inputs, "input") for at in indices)
        self._drain()
        self._traffic.resident = chosen
        self._prepare()

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Chooses what each run copies, after it, on the device, from its outputs to its inputs.

        Args:
            pairs: ``(input, output)`` positions. Such an input counts as resident; ``write_input``
                gives its first value.

        Raises:
            InputError: The two differ in shape or dtype, or an input is fed twice.
        """
        feeds: list[tuple[int, int]] = []
        for to, source in pairs:
            self._known(to, self._traffic.inputs, "input")
            self._known(source, self._traffic.outputs, "output")
            given, taken = self._schedule.output_types[source], self._schedule.inputs[to].type
            if given != taken or to in dict(feeds):
                raise InputError(
                    describe(
                        f"output {source} can't feed input {to}",
                        got=given if given != taken else "a second feed of this input",
                        expected=taken,
                    )
                )
            feeds.append((to, source))
        self._drain()
        self._traffic.set_feeds(feeds)
        self._prepare()

    def write_input(self, index: int, array: Any) -> None:
        """Uploads one input into its slot now.

        Raises:
            InputError: There is no such input, or the array does not fit it.
        """
        offset, nbytes = self._traffic.inputs[self._known(index, self._traffic.inputs, "input")]
        view = self.input_views[index]
        np.copyto(view, as_input(array, view, index), casting="same_kind")
        if nbytes:
            data = self._mirror.memory[offset : offset + words(nbytes)]
            self._run_once(Submission([], uploads=[(data, self._arena, offset)]))

    def read_input(self, index: int) -> Array:
        """What an input's slot on the device holds now, as a fresh array."""
        self._known(index, self._traffic.inputs, "input")
        offset = self._traffic.inputs[index][0]
        return self._fetch(self._arena, offset, self._schedule.inputs[index].type)

    def read_row(self, output: int, row: int) -> Array:
        """One row of an output of the last run, read from the device alone.

        Args:
            output: Which output.
            row: Position on its first axis.

        Raises:
            InputError: There is no such output or row.
        """
        self._known(output, self._traffic.outputs, "output")
        type = self._schedule.output_types[output]
        if not type.shape or not 0 <= row < type.shape[0]:
            raise InputError(
                describe(f"output {output} has no row {row}", got=f"shape {type.shape}")
            )
        one = TensorType(type.shape[1:], type.dtype)
        offset = self._traffic.outputs[output][0] + row * one.nbytes
        return self._fetch(self._arena, offset, one)

    def _fetch(self, source: Any, offset: int, type: TensorType) -> Array:
        """The bytes of a value in a buffer, and at most three beside them."""
        nbytes = type.nbytes
        start, end = offset // 4 * 4, words(offset + nbytes)
        data = np.zeros(end - start, np.uint8)
        if nbytes:
            if self._row_buffer is None or self._row_buffer.size < data.size:
                size = max(256, 1 << (data.size - 1).bit_length())
                self._row_buffer = self._gpu.buffer("rows", size, "MAP_READ", "COPY_DST")
            copies, reads = [(source, start, 0, data.size)], [(0, data)]
            buffer = self._row_buffer
            work = Submission([], copies=copies, staging=buffer, staged=data.size, reads=reads)
            self._run_once(work)
        return from_device(data[offset - start :], type)

    def _run_once(self, work: Submission) -> None:
        runner = self._maker.runner(work)
        fault = runner.run() if work.staged else runner.submit()
        if fault != OK:
            self._fail(runner)

    @staticmethod
    def _known(index: int, slots: Sequence[Any], what: str) -> int:
        if not 0 <= index < len(slots):
            raise InputError(
                describe(f"there is no {what} {index}", expected=f"0 to {len(slots) - 1}")
            )
        return index

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
            recording = Recording(self._gpu, recorder, self._work, self._bound, steps, extent)
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
        return self._fetch(self._fixed.buffers[value.id], 0, value.type)

    def clone(self) -> WebGpuExecutable:
        """The same dispatches on an arena of their own, where nothing is resident or fed."""
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
        shown = []
        for one in self._work:
            if isinstance(one, Call):
                reasons: Any = one.params["reasons"]
                shown.append(f"// --- on the host, {one.node.where()}: {'; '.join(reasons)}")
            else:
                grid = f"grid {one.grid[0]} x {one.grid[1]}"
                shown.append(f"// --- {one.label}, {one.call.node.where()}, {grid}\n{one.source}")
        return "\n".join(shown)

    def abandon(self) -> None:
        """Whatever is loaded next gets a new device."""
        forget(self._gpu)

    def close(self) -> None:
        """Frees the arena; params go with the last clone."""
        if self._closed:
            return
        self._closed = True
        entry = self._entry()
        if entry is not None:
            entry.prepare(None, self._given())
        self._prepared.clear()
        self._batches = self._whole = [[]]
        self._fewer.clear()
        self._bound.clear()
        for step in self._host_steps:
            step.close()
        self._forget_many()
        self._traffic.close()
        self._arena.destroy()
        if self._row_buffer is not None:
            self._row_buffer.destroy()


def capabilities_with(features: Collection[str]) -> Capabilities:
    """What executables can do on a device with these features."""
    return Capabilities(
        f16="shader-f16" in features,
        device_timestamps="timestamp-query" in features,
        can_be_lost=True,
        kernel_variants=True,
        optional_features=FEATURES,
    )

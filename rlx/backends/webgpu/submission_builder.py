"""From batches of dispatches to submissions, with the transfers before, between and after them.

``HostStaging`` is the host memory that transfers read and write, ``SubmissionBuilder`` plans submissions, and
``RunnerFactory`` makes each of them callable.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from rlx import flags
from rlx._ext.locks import TryLock
from rlx.backends.executable import Binding, aligned, view_of
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import fail
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.recorded import SubmissionRecorder
from rlx.backends.webgpu.submission import Batch, PythonRunner, Submission, SubmissionRunner
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.passes.dynamic_batch import scaled


class HostStaging:
    """Host memory of the arena's inputs and outputs, which callers see as views.

    Attributes:
        memory: Bytes that stand for the arena's inputs and outputs, at the same offsets.
        argument_slots: Its part that is uploaded before a run on arguments, as views: one per input.
        outputs: Its part that is read back after a run.
        inputs: Other bytes with the offsets of the inputs, which a run on the input views uploads.
        input_views: Writable arrays in ``inputs``, one per input.
        output_views: Read-only arrays, one per output.
        output_slots: Byte offset and element count of each output at ``address``.
        address: Address of the memory.
    """

    def __init__(self, schedule: Schedule, plan: MemoryPlan) -> None:
        self.memory = aligned(plan.outputs_end)
        self.address: int = self.memory.ctypes.data
        self.inputs = aligned(plan.inputs_end)
        self.outputs: Array = self.memory[plan.inputs_end :]
        self._plan = plan
        self.resize(schedule)

    def resize(self, schedule: Schedule) -> None:
        """Makes the views of a schedule's inputs and outputs."""
        plan = self._plan
        inputs = [(plan.slots[value.id].offset, value.type) for value in schedule.inputs]
        self.argument_slots = tuple(view_of(self.memory, *item) for item in inputs)
        self.input_views = tuple(view_of(self.inputs, *item) for item in inputs)
        views = []
        slots = []
        for value, type in zip(schedule.outputs, schedule.output_types, strict=True):
            offset = plan.slots[value.id].offset
            view = view_of(self.memory, offset, type)
            view.setflags(write=False)
            views.append(view)
            slots.append((offset, type.size))
        self.output_views = tuple(views)
        self.output_slots = tuple(slots)


# Ranges that are closer are merged into one transfer, in bytes.
_NEAR = 4096


def words(nbytes: int) -> int:
    """Returns bytes in whole 32-bit words, the unit of every copy."""
    return -(-nbytes // 4) * 4


def spans(slots: Sequence[tuple[int, int]], chosen: Sequence[int]) -> list[tuple[int, int]]:
    """Joins the chosen slots to few ranges.

    Args:
        slots: Offset and size of every slot.
        chosen: Positions in ``slots``.

    Returns:
        Offsets and sizes in bytes, whole words. Neighbours are joined over the padding between
        them, but never over a slot that was not chosen.
    """
    wanted = {slots[i] for i in chosen}
    joined: list[tuple[int, int]] = []
    whole = False
    for offset, size in sorted(set(slots)):
        if (offset, size) not in wanted:
            whole = False
        elif size and whole and offset - sum(joined[-1]) <= _NEAR:
            joined[-1] = (joined[-1][0], offset + words(size) - joined[-1][0])
        elif size:
            joined.append((offset, words(size)))
            whole = True
    return joined


class SubmissionBuilder:
    """Builds the submissions of an executable's runs, with their transfers between host and device.

    Args:
        gpu: The device.
        schedule: Its inputs and outputs.
        plan: Where they stand in the arena.
        arena: The buffer.
        host: The host memory of inputs and outputs.

    Attributes:
        schedule: See above.
        arena: See above.
        host: See above.
        inputs: Offset and size in bytes of each input in the arena.
        outputs: The same of each output.
        every: Positions of all outputs.
        staging: The buffer that outputs come back through.
        staging_bytes: Its size.
        binding: The residents, feeds and rows of submissions.
    """

    def __init__(
        self, gpu: GpuDevice, schedule: Schedule, plan: MemoryPlan, arena: Any, host: HostStaging
    ) -> None:
        self._gpu, self.arena, self.host, self._plan = gpu, arena, host, plan
        self.binding = Binding()
        self.every = tuple(range(len(schedule.outputs)))
        self.staging_bytes = 0
        self.staging: Any = None
        self._between: Any = None
        self.resize(schedule)

    def resize(self, schedule: Schedule) -> bool:
        """Takes the types of a schedule's inputs and outputs; no run is under way.

        Returns:
            Whether outputs come back through another buffer now.
        """
        slots, self.schedule = self._plan.slots, schedule
        self.inputs = [(slots[v.id].offset, v.type.nbytes) for v in schedule.inputs]
        pairs = zip(schedule.outputs, schedule.output_types, strict=True)
        self.outputs = [(slots[v.id].offset, type.nbytes) for v, type in pairs]
        size = max(256, self._staged(self.every, True)[1])
        self.bind(self.binding)
        if size <= self.staging_bytes:
            return False
        if self.staging is not None:
            self.staging.destroy()
            size += size // 2  # sizes that vary go on growing
        self.staging = self._gpu.buffer("staging", size, "MAP_READ", "COPY_DST")
        self.staging_bytes = size
        return True

    def bind(self, binding: Binding) -> None:
        """Sets the residents, feeds and rows of later submissions; allocates the buffer that feeds go through."""
        size = sum(words(self.outputs[source][1]) for _, source in binding.feeds)
        if size and (self._between is None or self._between.size < size):
            self._between = self._gpu.buffer("feeds", size, "COPY_SRC", "COPY_DST")
        self.binding = binding

    def output_slots(self) -> list[tuple[int, TensorType]]:
        """Returns the offset in the arena and the type of every output."""
        offsets = (offset for offset, _ in self.outputs)
        return list(zip(offsets, self.schedule.output_types, strict=True))

    def arguments(self) -> tuple[int, ...]:
        """Returns the positions of the inputs that take an argument."""
        return self.binding.arguments(len(self.inputs))

    def submissions(
        self,
        batches: Sequence[Batch],
        steps: Sequence[HostStep | Pause],
        outputs: Sequence[int],
        uploaded: Sequence[int],
        from_views: bool = False,
        whole: bool = False,
    ) -> list[Submission]:
        """Returns the submissions of a run.

        Args:
            batches: Dispatches; one more than there are steps.
            steps: The computations of the host between two of them.
            outputs: Positions of the outputs that are brought back; none for a run that nobody waits for.
            uploaded: Positions of the inputs that are uploaded.
            from_views: Whether those come from the input views instead of arguments.
            whole: Whether the rows of outputs past the active extent come back, too.
        """
        memory = self.host.memory
        source = self.host.inputs if from_views else memory
        # Memory that is prepared for uploads serves again only once the GPU has read it.
        often = bool(outputs)
        uploads: Sequence[tuple[Any, Any, int]] = [
            (source[offset : offset + size], self.arena, offset)
            for offset, size in spans(self._sizes(self.inputs, True), uploaded)
        ]
        submissions = []
        for batch, step in zip(batches, steps, strict=False):
            submissions.append(
                Submission(
                    batch,
                    uploads,
                    copies=step.copies,
                    staging=step.staging,
                    staged=step.staged,
                    reads=step.reads,
                    often=often,
                    room=self._plan.inputs_end,
                )
            )
            uploads = step.uploads
        copies, staged = self._staged(outputs, whole)
        submissions.append(
            Submission(
                batches[-1],
                uploads,
                moves=self._moves(),
                copies=copies,
                staging=self.staging,
                staged=staged,
                reads=[(to, memory[offset : offset + size]) for _, offset, to, size in copies],
                often=often,
                room=self._plan.inputs_end,
            )
        )
        return submissions

    def _sizes(self, slots: list[tuple[int, int]], inputs: bool) -> list[tuple[int, int]]:
        """Returns slots, cut to the active extent."""
        extent = self.binding.extent
        if extent is None:
            return slots
        cut = extent.inputs if inputs else extent.outputs
        return [
            (offset, scaled(size, extent) if i in cut else size)
            for i, (offset, size) in enumerate(slots)
        ]

    def _staged(
        self, outputs: Sequence[int], whole: bool
    ) -> tuple[list[tuple[Any, int, int, int]], int]:
        """Returns the copies that stage these outputs, and their size."""
        end, copies = 0, []
        slots = self.outputs if whole else self._sizes(self.outputs, False)
        for offset, size in spans(slots, outputs):
            copies.append((self.arena, offset, end, size))
            end += size
        return copies, end

    def _moves(self) -> list[tuple[Any, int, Any, int, int]]:
        """The copies of feeds. All are taken before one is put in place, as if at the same time."""
        pos, out, back = 0, [], []
        for to, source in self.binding.feeds:
            offset, nbytes = self.outputs[source]
            size = words(nbytes)
            if size:
                out.append((self.arena, offset, self._between, pos, size))
                back.append((self._between, pos, self.arena, self.inputs[to][0], size))
            pos += size
        return out + back

    def close(self) -> None:
        """Frees the buffers."""
        self.staging.destroy()
        if self._between is not None:
            self._between.destroy()


_log = logging.getLogger("rlx.webgpu")

# Uploads up to this many bytes go through a buffer that stays mapped between runs. wgpu-native's own upload
# creates and frees a buffer each time.
MAX_MAPPED_UPLOAD = 1 << 16


@functools.cache
def _say_switched_off() -> None:
    _log.warning("RLX_WEBGPU_HOT=0: runs on the GPU go through Python calls")


class RunnerFactory:
    """Makes the runners of one executable: C calls into the library where its release is known, else calls of its package.

    Attributes:
        hot: Whether they run in C.
        moved: Bytes uploaded, read back, and copied on the device by all of them so far.
        recording: Makes them while runs are recorded, else None.
    """

    def __init__(self, gpu: GpuDevice, moved: Array) -> None:
        self._gpu, self.moved = gpu, moved
        self._binding = None
        if flags.WEBGPU_HOT.get():
            self._binding = gpu.provider.binding()
        else:
            _say_switched_off()
        self.hot = self._binding is not None
        self._batches: dict[int, Any] = {}
        self.recording: SubmissionRecorder | None = None

    def forget(self) -> None:
        """Drops the C forms of dispatch lists that no prepared submission uses."""
        self._batches.clear()

    def runner(self, work: Submission) -> SubmissionRunner:
        """Prepares a submission. Those with the same list of dispatches share its C form."""
        if self.recording is not None:
            return self.recording.runner(work, self.moved)
        if self._binding is None:
            return PythonRunner(self._gpu, work, self.moved)
        _, module, api = self._binding
        handle = self._handle
        size = sum(data.nbytes for data, _, _ in work.uploads)
        if size:
            size = max(size, work.room)
        upload_buffer = None
        if work.often and 0 < size <= MAX_MAPPED_UPLOAD:
            upload_buffer = self._gpu.buffer(
                "upload_buffer", size, "MAP_WRITE", "COPY_SRC", mapped=True
            )
        keep = (self._gpu, work, upload_buffer)
        uploads, moves, copies, staged, reads = self._transfers(work)
        runner: SubmissionRunner = module.Runner(
            api,
            handle(self._gpu.device),
            handle(self._gpu.queue),
            self._dispatches(work.batch),
            uploads,
            moves,
            copies,
            handle(work.staging) if work.staging is not None else 0,
            staged,
            reads,
            handle(upload_buffer) if upload_buffer is not None else 0,
            size,
            self._gpu.spin_ns,
            self.moved,
            keep,
        )
        return runner

    def resize(self, runner: Any, work: Submission) -> None:
        """Gives a runner the transfers of another submission through the same buffers; it is not under way."""
        if isinstance(runner, PythonRunner):
            runner.resize(work)
        else:
            runner.resize(*self._transfers(work))

    def resize_batch(self, batch: Batch) -> None:
        """Takes over the workgroups of a list of dispatches that were changed."""
        if id(batch) in self._batches:
            self._batches[id(batch)][0].resize([(x, y) for _, _, x, y in batch])

    def _transfers(self, work: Submission) -> tuple[Any, ...]:
        """The uploads, moves, copies, staged bytes and reads of a submission, for C."""
        handle = self._handle
        return (
            [(data.ctypes.data, handle(to), i, data.nbytes) for data, to, i in work.uploads],
            [(handle(a), i, handle(b), to, size) for a, i, b, to, size in work.moves],
            [(handle(buffer), i, to, size) for buffer, i, to, size in work.copies],
            work.staged,
            [(i, data.ctypes.data, data.nbytes) for i, data in work.reads],
        )

    def _dispatches(self, batch: Batch) -> Any:
        assert self._binding is not None
        if id(batch) not in self._batches:
            rows = [(self._handle(p), self._handle(g), x, y) for p, g, x, y in batch]
            # The list is kept as well, so that no other list can get its id.
            self._batches[id(batch)] = (self._binding[1].Dispatches(rows), batch)
        return self._batches[id(batch)][0]

    def _handle(self, thing: Any) -> int:
        assert self._binding is not None
        return int(self._binding[0].cast("uintptr_t", thing._internal))

    def entry(
        self,
        lock: TryLock,
        output_views: tuple[Array, ...],
        slow: Callable[[tuple[Any, ...]], None],
    ) -> Any:
        """Makes the compiled calls of an executable; see ``rlx._ext.webgpu_hot.Entry``. None where runs aren't in C."""
        if self._binding is None:
            return None
        return self._binding[1].Entry(lock, output_views, fail, slow)

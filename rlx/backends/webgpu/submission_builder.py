"""From batches of dispatches to submissions, with the transfers before, between and after them.

``HostStaging`` is the host memory that transfers read and write, ``SubmissionBuilder`` plans submissions, and
``RunnerFactory`` makes each of them callable.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from rlx import flags
from rlx._ext.webgpu_hot import HostViews
from rlx.backends.executable import Binding, aligned, read_only, view_of
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import fail
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.recorded import SubmissionRecorder
from rlx.backends.webgpu.submission import (
    COPIES,
    MOVES,
    READS,
    UPLOADS,
    Batch,
    BoundSizes,
    Grids,
    PythonRunner,
    SizeWords,
    Submission,
    SubmissionRunner,
)
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import STATE, MemoryPlan, Schedule, Slot, Value
from rlx.passes.dynamic_batch import scaled


class GpuState(NamedTuple):
    """The memory of an input that runs update in place; the programs of one graph share it.

    Attributes:
        buffer: Its buffer.
        of_arguments: Bytes of the host that a run on an argument uploads.
        of_views: The same of a run on the input views.
    """

    buffer: Any
    of_arguments: Array
    of_views: Array


class HostStaging:
    """Host memory of the arena's inputs and outputs, which callers see as views.

    Args:
        schedule: The inputs and outputs, with the types that they have first.
        plan: Where they stand in the arena.
        states: The states, by the positions of inputs; these are not in the arena.
        sizes: What depends on sizes; None without dims.

    Attributes:
        memory: Bytes that stand for the arena's inputs and outputs, at the same offsets.
        outputs: Its part that is read back after a run.
        inputs: Other bytes with the offsets of the inputs, which a run on the input views uploads.
        views: The views of both.
        address: Address of the memory.
        output_offsets: The first byte of each output.
    """

    def __init__(
        self,
        schedule: Schedule,
        plan: MemoryPlan,
        states: Mapping[int, GpuState],
        sizes: BoundSizes | None = None,
    ) -> None:
        self.memory = aligned(plan.outputs_end)
        self.address: int = self.memory.ctypes.data
        self.inputs = aligned(plan.inputs_end)
        self.outputs: Array = self.memory[plan.inputs_end :]

        def input_in(memory: Array, bytes_in: Callable[[GpuState], Array], i: int) -> Array:
            value = schedule.inputs[i]
            if i in states:
                return view_of(bytes_in(states[i]), 0, value.type)
            return view_of(memory, plan.slots[value.id].offset, value.type)

        every = range(len(schedule.inputs))
        self.output_offsets = [plan.slots[value.id].offset for value in schedule.outputs]
        outputs = zip(self.output_offsets, schedule.output_types, strict=True)
        self.views = HostViews(
            tuple(input_in(self.memory, lambda state: state.of_arguments, i) for i in every),
            tuple(input_in(self.inputs, lambda state: state.of_views, i) for i in every),
            tuple(read_only(view_of(self.memory, *item)) for item in outputs),
            *(() if sizes is None else (sizes.sizes, sizes.words)),
        )

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """Byte offset and element count of each output at ``address``."""
        counts = (view.size for view in self.views.output_views)
        return tuple(zip(self.output_offsets, counts, strict=True))


# The slot of a state, which is not in the arena.
_OUTSIDE = Slot(0, 0)


# Ranges that are closer are merged into one transfer, in bytes.
_NEAR = 4096


def words(nbytes: int) -> int:
    """Returns bytes in whole 32-bit words, the unit of every copy."""
    return -(-nbytes // 4) * 4


class ArenaSpan(NamedTuple):
    """Range of the arena in one transfer.

    Attributes:
        offset: Its first byte.
        size: Its bytes, whole words.
        most: The same for the largest sizes.
        fixed: Bytes in front, which do not depend on sizes.
        register: The register of the other bytes; -1 where there are none.
    """

    offset: int
    size: int
    most: int
    fixed: int = 0
    register: int = -1


def spans(slots: Sequence[ArenaSpan], chosen: Sequence[int]) -> list[ArenaSpan]:
    """Joins the chosen slots to few ranges.

    Args:
        slots: Place of every slot.
        chosen: Positions in ``slots``.

    Returns:
        Ranges of whole words. Neighbours are joined over the padding between them, but never over a slot that was not
        chosen, nor behind one whose end depends on sizes.
    """
    wanted = {slots[i] for i in chosen}
    joined: list[ArenaSpan] = []
    whole = False
    for slot in sorted(set(slots)):
        offset, size, most, _, register = slot
        if slot not in wanted:
            whole = False
        elif most:
            start, before = joined[-1][:2] if whole else (offset, 0)
            if whole and offset - start - before <= _NEAR:
                joined.pop()
            else:
                start = offset
            fixed = offset - start
            joined.append(
                ArenaSpan(start, fixed + words(size), fixed + words(most), fixed, register)
            )
            whole = register < 0
    return joined


def lengths_of(table: int, found: Sequence[ArenaSpan]) -> list[tuple[int, int, int, int]]:
    """The lengths of transfers that depend on sizes."""
    return [
        (table, row, span.fixed, span.register)
        for row, span in enumerate(found)
        if span.register >= 0
    ]


class SubmissionBuilder:
    """Builds the submissions of an executable's runs, with their transfers between host and device.

    Args:
        gpu: The device.
        schedule: Its inputs and outputs.
        plan: Where they stand in the arena.
        arena: The buffer.
        states: The states, by the positions of inputs.
        host: The host memory of inputs and outputs.
        sizes: What depends on sizes; None without dims.

    Attributes:
        arena: See above.
        host: See above.
        every: Positions of all outputs.
        staging: The buffer that outputs come back through.
        staging_bytes: Its size.
        binding: The residents, feeds and rows of submissions.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        schedule: Schedule,
        plan: MemoryPlan,
        arena: Any,
        states: Mapping[int, GpuState],
        host: HostStaging,
        sizes: BoundSizes | None = None,
    ) -> None:
        self._states = states
        self._gpu, self.arena, self.host, self._plan = gpu, arena, host, plan
        self._schedule, self._sizes = schedule, sizes
        self._words = None if sizes is None else SizeWords(sizes.buffer, host.views)
        self.binding = Binding()
        self.every = tuple(range(len(schedule.outputs)))
        self.staging_bytes = max(256, self._staged(self.every, True)[1])
        self.staging: Any = gpu.buffer("staging", self.staging_bytes, "MAP_READ", "COPY_DST")
        self._between: Any = None

    def bind(self, binding: Binding) -> None:
        """Sets the residents, feeds and rows of later submissions; allocates the buffer that feeds go through."""
        outputs = self._outputs()
        size = sum(words(outputs[source].most) for _, source in binding.feeds)
        if size and (self._between is None or self._between.size < size):
            self._between = self._gpu.buffer("feeds", size, "COPY_SRC", "COPY_DST")
        self.binding = binding

    @property
    def inputs(self) -> list[tuple[Any, int, int]]:
        """Buffer, offset and size in bytes of each input."""
        return [
            (self._states[i].buffer if i in self._states else self.arena, span.offset, span.size)
            for i, span in enumerate(self._inputs())
        ]

    @property
    def outputs(self) -> list[tuple[Any, int, int]]:
        """The same of each output."""
        return [(self.arena, span.offset, span.size) for span in self._outputs()]

    def input_bytes(self, index: int) -> Array:
        """Returns the bytes of an input's view on the host, in whole words."""
        if index in self._states:
            return self._states[index].of_views
        _, offset, nbytes = self.inputs[index]
        return self.host.inputs[offset : offset + words(nbytes)]

    def _inputs(self) -> list[ArenaSpan]:
        registers = None if self._sizes is None else self._sizes.inputs
        return self._slots(self._schedule.inputs, self.host.views.argument_slots, registers)

    def _outputs(self) -> list[ArenaSpan]:
        registers = None if self._sizes is None else self._sizes.outputs
        return self._slots(self._schedule.outputs, self.host.views.output_views, registers)

    def _slots(
        self, values: Sequence[Value], views: Sequence[Array], registers: Sequence[int] | None
    ) -> list[ArenaSpan]:
        """The places of values."""
        results = []
        for i, (value, view) in enumerate(zip(values, views, strict=True)):
            register = -1 if registers is None else registers[i]
            slot = _OUTSIDE if value.kind == STATE else self._plan.slots[value.id]
            most = view.nbytes if register < 0 else slot.nbytes
            results.append(ArenaSpan(slot.offset, view.nbytes, most, 0, register))
        return results

    def input_type(self, index: int) -> TensorType:
        """Returns the type of an input, for the sizes of now."""
        view = self.host.views.input_views[index]
        return TensorType(view.shape, self._schedule.inputs[index].type.dtype)

    def output_slots(self) -> list[tuple[int, TensorType]]:
        """Returns the offset in the arena and the type of every output, for the sizes of now."""
        pairs = zip(self._schedule.output_types, self.host.views.output_views, strict=True)
        types = [TensorType(view.shape, type.dtype) for type, view in pairs]
        return [(span.offset, type) for span, type in zip(self._outputs(), types, strict=True)]

    def arguments(self) -> tuple[int, ...]:
        """Returns the positions of the inputs that take an argument."""
        return self.binding.arguments(len(self._schedule.inputs))

    def submissions(
        self,
        batches: Sequence[Batch],
        grids: Sequence[Grids],
        steps: Sequence[HostStep | Pause],
        outputs: Sequence[int],
        uploaded: Sequence[int],
        from_views: bool = False,
        whole: bool = False,
    ) -> list[Submission]:
        """Returns the submissions of a run.

        Args:
            batches: Dispatches; one more than there are steps.
            grids: The registers of their workgroups.
            steps: The computations of the host between two of them.
            outputs: Positions of the outputs that are brought back; none for a run that nobody waits for.
            uploaded: Positions of the inputs that are uploaded.
            from_views: Whether those come from the input views instead of arguments.
            whole: Whether the rows of outputs past the active extent come back, too.
        """
        memory = self.host.memory
        uploads, lengths = self._uploads(uploaded, from_views)
        states = sum(data.nbytes for data, buffer, _ in uploads if buffer is not self.arena)
        # Memory that is prepared for uploads serves again only once the GPU has read it.
        common = functools.partial(
            Submission, often=bool(outputs), room=self._plan.inputs_end + states, words=self._words
        )
        submissions = []
        for batch, places, step in zip(batches, grids, steps, strict=False):
            submissions.append(
                common(
                    batch,
                    uploads,
                    copies=step.copies,
                    staging=step.staging,
                    staged=step.staged,
                    reads=step.reads,
                    lengths=lengths,
                    grids=places,
                )
            )
            uploads, lengths = step.uploads, []
        back, staged = self._staged(outputs, whole)
        moves, moved_spans = self._moves()
        for table, found in ((MOVES, moved_spans), (COPIES, back), (READS, back)):
            lengths += lengths_of(table, found)
        places_back = list(
            zip(back, accumulate((span.most for span in back), initial=0), strict=False)
        )
        submissions.append(
            common(
                batches[-1],
                uploads,
                moves=moves,
                copies=[(self.arena, span.offset, to, span.size) for span, to in places_back],
                staging=self.staging,
                staged=staged,
                reads=[(to, memory[s.offset :][: s.size]) for s, to in places_back],
                lengths=lengths,
                grids=grids[-1],
            )
        )
        return submissions

    def _uploads(
        self, uploaded: Sequence[int], from_views: bool
    ) -> tuple[Sequence[tuple[Array, Any, int]], list[tuple[int, int, int, int]]]:
        """Returns the uploads of inputs, and their lengths that depend on sizes."""
        source = self.host.inputs if from_views else self.host.memory
        slots = self._cut(self._inputs(), True)
        in_arena = [i for i in range(len(slots)) if i not in self._states]
        wanted = [place for place, i in enumerate(in_arena) if i in uploaded]
        sent = spans([slots[i] for i in in_arena], wanted)
        states = [state for i, state in self._states.items() if i in uploaded]
        return [
            *((source[s.offset :][: s.size], self.arena, s.offset) for s in sent),
            *(
                (state.of_views if from_views else state.of_arguments, state.buffer, 0)
                for state in states
            ),
        ], lengths_of(UPLOADS, sent)

    def _staged(self, outputs: Sequence[int], whole: bool) -> tuple[list[ArenaSpan], int]:
        """Returns the ranges of these outputs, and the bytes that stage them one after the other."""
        found = spans(self._outputs() if whole else self._cut(self._outputs(), False), outputs)
        return found, sum(span.most for span in found)

    def _cut(self, slots: list[ArenaSpan], inputs: bool) -> list[ArenaSpan]:
        """Returns slots, cut to the active extent."""
        extent = self.binding.extent
        if extent is None:
            return slots
        cut = extent.inputs if inputs else extent.outputs
        return [
            ArenaSpan(slot.offset, *[scaled(slot.size, extent)] * 2) if i in cut else slot
            for i, slot in enumerate(slots)
        ]

    def _moves(self) -> tuple[list[tuple[Any, int, Any, int, int]], list[ArenaSpan]]:
        """The copies of feeds, and their ranges. All are taken before one is put in place, as if at the same time."""
        pos, out, back, moved = 0, [], [], []
        inputs, outputs = self._inputs(), self._outputs()
        for to, source in self.binding.feeds:
            span = outputs[source]
            size = words(span.size)
            if span.most:
                out.append((self.arena, span.offset, self._between, pos, size))
                back.append((self._between, pos, self.arena, inputs[to].offset, size))
                moved.append(span)
            pos += words(span.most)
        return out + back, moved * 2

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
        handle = self.handle
        size = sum(data.nbytes for data, _, _ in work.uploads)
        if size:
            size = max(size, work.room)
            size += 0 if work.words is None else work.words.views.words.nbytes
        upload_buffer = None
        if work.often and 0 < size <= MAX_MAPPED_UPLOAD:
            upload_buffer = self._gpu.buffer(
                "upload_buffer", size, "MAP_WRITE", "COPY_SRC", mapped=True
            )
        uploads = [(data.ctypes.data, handle(to), i, data.nbytes) for data, to, i in work.uploads]
        if work.words is not None:
            data = work.words.views.words
            uploads.append((data.ctypes.data, handle(work.words.buffer), 0, data.nbytes))
        runner: SubmissionRunner = module.Runner(
            api,
            handle(self._gpu.device),
            handle(self._gpu.queue),
            self._dispatches(work),
            uploads,
            [(handle(a), i, handle(b), to, size) for a, i, b, to, size in work.moves],
            [(handle(buffer), i, to, size) for buffer, i, to, size in work.copies],
            handle(work.staging) if work.staging is not None else 0,
            work.staged,
            [(i, data.ctypes.data, data.nbytes) for i, data in work.reads],
            handle(upload_buffer) if upload_buffer is not None else 0,
            size,
            self._gpu.spin_ns,
            self.moved,
            (self._gpu, work, upload_buffer),
            None if work.words is None else work.words.views,
            work.lengths,
        )
        return runner

    def _dispatches(self, work: Submission) -> Any:
        assert self._binding is not None
        batch = work.batch
        if id(batch) not in self._batches:
            rows = [(self.handle(p), self.handle(g), x, y) for p, g, x, y in batch]
            # The list is kept as well, so that no other list can get its id.
            self._batches[id(batch)] = (self._binding[1].Dispatches(rows, work.grids), batch)
        return self._batches[id(batch)][0]

    def handle(self, thing: Any) -> int:
        """Returns the address of an object of the library. Only where runs are in C."""
        assert self._binding is not None
        return int(self._binding[0].cast("uintptr_t", thing._internal))

    def entry(self, views: HostViews, slow: Callable[[tuple[Any, ...]], None]) -> Any:
        """Makes the compiled calls of an executable; see ``rlx._ext.webgpu_hot.Entry``. None where runs aren't in C."""
        return None if self._binding is None else self._binding[1].Entry(views, fail, slow)

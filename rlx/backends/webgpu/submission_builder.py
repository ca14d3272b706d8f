"""From batches of dispatches to submissions, with the transfers before, between and after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.backends.executable import Binding
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.host_staging import HostStaging
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.submission import Batch, Submission
from rlx.ir.opdef import TensorType
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.passes.dynamic_batch import scaled

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
        self._gpu, self.arena, self.host, self.schedule = gpu, arena, host, schedule
        self.inputs = [(plan.slots[v.id].offset, v.type.nbytes) for v in schedule.inputs]
        self.binding = Binding()
        pairs = zip(schedule.outputs, schedule.output_types, strict=True)
        self.outputs = [(plan.slots[v.id].offset, type.nbytes) for v, type in pairs]
        self.every = tuple(range(len(self.outputs)))
        self.staging_bytes = max(256, self._staged(self.every, True)[1])
        self.staging = gpu.buffer("staging", self.staging_bytes, "MAP_READ", "COPY_DST")
        self._between: Any = None

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

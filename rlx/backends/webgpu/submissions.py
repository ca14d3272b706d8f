"""From batches of dispatches to submissions: what travels before, between and after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.mirror import Mirror
from rlx.backends.webgpu.transfers import spans, words
from rlx.backends.webgpu.work import Batch, Submission
from rlx.errors import InputError, describe
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.passes.extent import Extent, scaled


class Traffic:
    """The transfers of an executable's runs between host and device.

    Args:
        gpu: The device.
        schedule: Its inputs and outputs.
        plan: Where they stand in the arena.
        arena: The buffer.
        mirror: The host memory that stands for it.

    Attributes:
        schedule: See above.
        arena: See above.
        mirror: See above.
        inputs: Offset and size in bytes of each input in the arena.
        outputs: The same of each output.
        every: Positions of all outputs.
        staging: The buffer that outputs come back through.
        staging_bytes: Its size.
        resident: Inputs that are not uploaded.
        feeds: ``(input, output)`` pairs copied on the device after each run.
        extent: The rows that travel; None for all.
    """

    def __init__(
        self, gpu: GpuDevice, schedule: Schedule, plan: MemoryPlan, arena: Any, mirror: Mirror
    ) -> None:
        self._gpu, self.arena, self.mirror, self.schedule = gpu, arena, mirror, schedule
        self.inputs = [(plan.slots[v.id].offset, v.type.nbytes) for v in schedule.inputs]
        self.extent: Extent | None = None
        pairs = zip(schedule.outputs, schedule.output_types, strict=True)
        self.outputs = [(plan.slots[v.id].offset, type.nbytes) for v, type in pairs]
        self.every = tuple(range(len(self.outputs)))
        self.staging_bytes = max(256, self._staged(self.every, True)[1])
        self.staging = gpu.buffer("staging", self.staging_bytes, "MAP_READ", "COPY_DST")
        self.resident: frozenset[int] = frozenset()
        self.feeds: tuple[tuple[int, int], ...] = ()
        self._between: Any = None

    @property
    def skipped(self) -> frozenset[int]:
        """Inputs that runs do not upload: resident and fed ones."""
        return self.resident | {to for to, _ in self.feeds}

    def input(self, index: int) -> int:
        """The position of an input.

        Raises:
            InputError: There is none.
        """
        return _known(index, len(self.inputs), "input")

    def output(self, index: int) -> int:
        """The position of an output.

        Raises:
            InputError: There is none.
        """
        return _known(index, len(self.outputs), "output")

    def checked_feeds(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Feeds whose outputs fit their inputs.

        Raises:
            InputError: There is no such input or output, the two differ in shape or dtype, or an input is
                fed twice.
        """
        feeds: dict[int, int] = {}
        for to, source in pairs:
            wanted = self.schedule.inputs[self.input(to)].type
            given = self.schedule.output_types[self.output(source)]
            if given != wanted or to in feeds:
                raise InputError(
                    describe(
                        f"output {source} can't feed input {to}",
                        got=given if given != wanted else "a second feed of this input",
                        expected=wanted,
                    )
                )
            feeds[to] = source
        return list(feeds.items())

    def set_feeds(self, feeds: Sequence[tuple[int, int]]) -> None:
        """Sets the feeds, and allocates the buffer that they are copied through."""
        size = sum(words(self.outputs[source][1]) for _, source in feeds)
        if size and (self._between is None or self._between.size < size):
            self._between = self._gpu.buffer("feeds", size, "COPY_SRC", "COPY_DST")
        self.feeds = tuple(feeds)

    def submissions(
        self,
        batches: Sequence[Batch],
        steps: Sequence[HostStep | Pause],
        outputs: Sequence[int],
        given: bool | Sequence[int],
        whole: bool = False,
    ) -> list[Submission]:
        """The submissions of a run.

        Args:
            batches: Dispatches; one more than there are steps.
            steps: What the host computes between two of them.
            outputs: Positions of the outputs that are brought back.
            given: Whether the run has arguments; otherwise it computes from the input views. Or the positions of
                those inputs alone that have arguments, where the others are on the device already, and nobody
                waits for the run.
            whole: Whether their rows past the extent come too.
        """
        memory = self.mirror.memory
        source = self.mirror.inputs if given is False else memory
        every = range(len(self.inputs)) if isinstance(given, bool) else given
        chosen = [at for at in every if at not in self.skipped]
        # Memory that is prepared for uploads serves again only once the GPU has read it.
        often = isinstance(given, bool)
        uploads: Sequence[tuple[Any, Any, int]] = [
            (source[offset : offset + size], self.arena, offset)
            for offset, size in spans(self._now(self.inputs, "inputs"), chosen)
        ]
        found = []
        for batch, step in zip(batches, steps, strict=False):
            found.append(
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
        found.append(
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
        return found

    def _now(self, slots: list[tuple[int, int]], which: str) -> list[tuple[int, int]]:
        """Slots as far as the extent goes."""
        if self.extent is None:
            return slots
        rows: frozenset[int] = getattr(self.extent, which)
        return [
            (offset, scaled(size, self.extent) if at in rows else size)
            for at, (offset, size) in enumerate(slots)
        ]

    def _staged(
        self, outputs: Sequence[int], whole: bool
    ) -> tuple[list[tuple[Any, int, int, int]], int]:
        """Copies that stage these outputs, and their size."""
        at, copies = 0, []
        for offset, size in spans(
            self.outputs if whole else self._now(self.outputs, "outputs"), outputs
        ):
            copies.append((self.arena, offset, at, size))
            at += size
        return copies, at

    def _moves(self) -> list[tuple[Any, int, Any, int, int]]:
        """The copies of feeds. All are taken before one is put in place, as if at the same time."""
        at, out, back = 0, [], []
        for to, source in self.feeds:
            offset, nbytes = self.outputs[source]
            size = words(nbytes)
            if size:
                out.append((self.arena, offset, self._between, at, size))
                back.append((self._between, at, self.arena, self.inputs[to][0], size))
            at += size
        return out + back

    def close(self) -> None:
        """Frees the buffers."""
        self.staging.destroy()
        if self._between is not None:
            self._between.destroy()


def _known(index: int, count: int, what: str) -> int:
    if not 0 <= index < count:
        raise InputError(describe(f"there is no {what} {index}", expected=f"0 to {count - 1}"))
    return index

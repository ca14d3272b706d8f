"""Submissions and host steps that record their time, for traces and profiles. They are slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from rlx.backends.recorder import RecordedKernel, Recorder, kernels_of
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.dispatch import Dispatch
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.submission import OK, Batch, PythonRunner, Submission, encode
from rlx.backends.webgpu.timestamps import Timestamps
from rlx.ir.opdef import Array
from rlx.ir.plan import KernelCall
from rlx.ir.spans import KERNEL
from rlx.passes.dynamic_batch import DynamicRows


class Clock(Protocol):
    """Takes the times of work on the GPU."""

    def compute(self, encoder: Any, batch: Batch) -> None:
        """Encodes dispatches."""

    def sent(self, index: int) -> None:
        """Notes the time at which encoded work was submitted."""

    def collect(self, over: int) -> None:
        """Notes the time at which submitted work was done."""

    def close(self) -> None:
        """Frees its objects on the device."""


class SubmissionTimes:
    """Times of whole submissions, for GPUs without timestamp queries.

    Args:
        recorder: Where the times go.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._encoded, self._open = 0, list[tuple[int, int]]()
        self._shown = 0
        recorder.notes["GPU clock"] = (
            "the adapter has no timestamp-query: one span per submission, from when it was handed "
            "over to when the host knew that it was done"
        )

    def compute(self, encoder: Any, batch: Batch) -> None:
        """Encodes the dispatches in one pass, as unrecorded runs do."""
        encode(encoder, batch)
        self._encoded = len(batch)

    def sent(self, index: int) -> None:
        """Begins a span."""
        if self._encoded:
            self._open.append((index, self._encoded))
        self._encoded = 0

    def collect(self, over: int) -> None:
        """Ends the spans. Overlapping submissions are shown one after the other."""
        for i, (sent, count) in enumerate(self._open):
            following = self._open[i + 1][0] if i + 1 < len(self._open) else over
            start = max(self._shown, sent)
            self._shown = max(start, following)
            self._recorder.add("submission", KERNEL, start, self._shown, dispatches=count)
        self._open.clear()

    def close(self) -> None:
        """Nothing is held."""


class RecordedRunner(PythonRunner):
    """A submission through wgpu-py, in spans.

    Args:
        recording: The recording that it belongs to.
        gpu: The device.
        work: The steps of the submission.
        moved: Counters of bytes.
    """

    def __init__(
        self, recording: SubmissionRecorder, gpu: GpuDevice, work: Submission, moved: Array
    ) -> None:
        super().__init__(gpu, work, moved)
        self._clock, self._recorder = recording.clock, recording.recorder
        self._compute = self._clock.compute

    def _upload(self, work: Submission) -> None:
        nbytes = sum(data.nbytes for data, _, _ in work.uploads)
        with self._recorder.span("upload", bytes=nbytes):
            super()._upload(work)

    def _encode(self, work: Submission, shift: int) -> Any:
        copied = sum(size for *_, size in work.moves)
        with self._recorder.span("encode", dispatches=len(work.batch), copied_bytes=copied):
            return super()._encode(work, shift)

    def _send(self, commands: Any) -> None:
        with self._recorder.span("submit"):
            start = perf_counter_ns()
            super()._send(commands)
            self._clock.sent(start)

    def wait(self) -> int:
        """See ``Runner``."""
        with self._recorder.span("wait"):
            fault = self._guarded(self._gpu.device._poll_wait)
            over = perf_counter_ns()
        if fault == OK and self._work.staged:
            nbytes = sum(data.nbytes for _, data in self._work.reads)
            with self._recorder.span("read-back", bytes=nbytes):
                fault = super().wait()
        return fault or self._guarded(lambda: self._clock.collect(over))


class SubmissionRecorder:
    """Makes the recorded submissions of an executable.

    Args:
        gpu: The device.
        recorder: Where everything goes.
        work: Dispatches and host parts in order.
        bound: Pipeline and bind group of each dispatch, by its ``id``.
        steps: The host parts, which record themselves until the end.
        extent: The rows that are computed; None for all.

    Attributes:
        recorder: The same.
        clock: Takes the GPU's times.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        recorder: Recorder,
        work: Sequence[Dispatch | KernelCall],
        bound: Mapping[int, tuple[Any, Any]],
        steps: Sequence[HostStep | Pause],
        extent: DynamicRows | None,
    ) -> None:
        self._gpu, self.recorder = gpu, recorder
        self._dispatches = {id(item): item for item in work if isinstance(item, Dispatch)}
        self._bound = bound
        self._groups: dict[int, RecordedKernel] = {}
        self.describe(extent)
        timed = "timestamp-query" in gpu.device.features
        self.clock: Clock = (
            Timestamps(gpu, recorder, self._groups) if timed else SubmissionTimes(recorder)
        )
        self._steps = steps
        for step in steps:
            step.recorder = recorder

    def describe(self, extent: DynamicRows | None) -> None:
        """Updates the kernel descriptions after a change of the extent."""
        kernels = kernels_of((dispatch.call for dispatch in self._dispatches.values()), extent)
        for key, dispatch in self._dispatches.items():
            self._groups[id(self._bound[key][1])] = kernels[id(dispatch.call)]

    def runner(self, work: Submission, moved: Array) -> RecordedRunner:
        """A submission that records itself."""
        return RecordedRunner(self, self._gpu, work, moved)

    def end(self) -> None:
        """Ends the recording."""
        for step in self._steps:
            step.recorder = None
        self.clock.close()

"""One submission to the GPU as data, and the way of running it through the Python package's calls."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlx._ext.program import RunSizes
from rlx._ext.webgpu_hot import HostViews
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.provider import FORKED, forked
from rlx.dataclasses import dataclass
from rlx.errors import DeviceUnavailableError
from rlx.ir.opdef import Array

Batch = list[tuple[Any, Any, int, int]]
# The batch of submissions that only transfer: the C form of each list is kept.
NO_DISPATCHES: Batch = []
# For each dispatch the registers of its workgroups in x and y.
Grids = Sequence[tuple[int, int]]

# Status of a run; the numbers are those of cython_src/webgpu_run.h.
OK, ERROR, MEMORY, LOST, STOPPED = range(5)
# The tables of transfers, as ``rlx._ext.webgpu_hot.Runner`` numbers them.
UPLOADS, MOVES, COPIES, READS = range(4)


class BoundSizes(NamedTuple):
    """The sizes of a graph with dims and all that follows them. Registers are those of a table of sizes.

    Attributes:
        buffer: The buffer that dispatches read sizes from.
        nbytes: Its bytes.
        sizes: The sizes of now, and how others are taken.
        words: The registers of the words of the buffer: a number, or a numerator and a denominator; -1 for none.
        grids: The registers of the workgroups in x and y by the id of each dispatch.
        inputs: The register of the bytes of each input; -1 where these stay.
        outputs: The same of each output.
    """

    buffer: Any
    nbytes: int
    sizes: RunSizes
    words: Sequence[tuple[int, int]]
    grids: Mapping[int, tuple[int, int]]
    inputs: Sequence[int]
    outputs: Sequence[int]


class SizeWords(NamedTuple):
    """The words that dispatches read, which the next submission uploads if they changed.

    Attributes:
        buffer: The buffer that they are read from.
        views: Holds them.
    """

    buffer: Any
    views: HostViews

    def upload(self, queue: Any) -> None:
        """Uploads them if they changed."""
        if self.views.stale:
            queue.write_buffer(self.buffer, 0, self.views.words)
            self.views.stale = False


@dataclass(frozen=True, eq=False)
class Submission:
    """The steps of one submission, in their order.

    Attributes:
        uploads: ``(bytes, buffer, offset)``, whole words.
        batch: Dispatches as ``(pipeline, bind group, x, y)``.
        moves: ``(buffer, offset, buffer, offset, size)`` copied on the device.
        copies: ``(buffer, offset, offset in staging, size)``.
        staging: The buffer that results come back through, None when there are none.
        staged: Bytes of it that are mapped.
        reads: ``(offset in staging, bytes)``.
        often: Whether it is worth preparing memory for the uploads.
        room: Bytes of the uploads of larger sizes, where these may change.
        words: The sizes that dispatches read; None without dims.
        lengths: Transfers whose bytes depend on sizes: table, row, bytes that stay, and the register of the others.
        grids: The registers of the workgroups; empty where these stay.
    """

    batch: Batch
    uploads: Sequence[tuple[Array, Any, int]] = ()
    moves: Sequence[tuple[Any, int, Any, int, int]] = ()
    copies: Sequence[tuple[Any, int, int, int]] = ()
    staging: Any = None
    staged: int = 0
    reads: Sequence[tuple[int, Array]] = ()
    often: bool = False
    room: int = 0
    words: SizeWords | None = None
    lengths: Sequence[tuple[int, int, int, int]] = ()
    grids: Grids = ()


class SubmissionRunner(Protocol):
    """A prepared submission."""

    def submit(self, shift: int = 0) -> int:
        """Uploads and enqueues; results go to ``shift`` in the staging buffer. ``OK`` or a fault."""

    def wait(self) -> int:
        """Waits for the last submission and reads back what it staged. ``OK`` or a fault."""

    def run(self) -> int:
        """``submit``, then ``wait``."""

    def error(self) -> tuple[int, str]:
        """Returns the fault of the last call, and the driver's message."""


def encode(encoder: Any, batch: Batch, writes: Mapping[str, Any] | None = None) -> None:
    """Encodes dispatches in one pass, whose times go to a query set where ``writes`` says so."""
    compute = encoder.begin_compute_pass(label="rlx", timestamp_writes=writes)
    for pipeline, group, x, y in batch:
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(x, y, 1)
    compute.end()


class PythonRunner:
    """Runs a submission through wgpu-py.

    Args:
        gpu: The device.
        work: The steps of the submission.
        moved: Counters of bytes uploaded, read back and copied on the device.
    """

    def __init__(self, gpu: GpuDevice, work: Submission, moved: Array) -> None:
        self._gpu, self._work, self._moved = gpu, work, moved
        self._wgpu = gpu.provider.module()
        self._read = int(self._wgpu.MapMode.READ)
        self._error: tuple[int, str] = (OK, "")
        self._compute: Callable[[Any, Batch], None] = encode

    def resize(self, work: Submission) -> None:
        """Has later runs make another submission."""
        self._work = work

    def submit(self, shift: int = 0) -> int:
        """See ``SubmissionRunner``."""
        work = self._work
        return self._guarded(lambda: self._submit(work, shift))

    def _submit(self, work: Submission, shift: int) -> None:
        self._upload(work)
        self._send(self._encode(work, shift))

    def _upload(self, work: Submission) -> None:
        if work.words is not None:
            work.words.upload(self._gpu.queue)
        for data, buffer, offset in work.uploads:
            if not data.nbytes:  # wgpu-py refuses no bytes
                continue
            self._gpu.queue.write_buffer(buffer, offset, data)
            self._moved[0] += data.nbytes

    def _encode(self, work: Submission, shift: int) -> Any:
        encoder = self._gpu.device.create_command_encoder(label="rlx")
        if work.batch:
            self._compute(encoder, work.batch)
        for source, offset, buffer, to, size in work.moves:
            encoder.copy_buffer_to_buffer(source, offset, buffer, to, size)
            self._moved[2] += size
        for source, offset, to, size in work.copies:
            encoder.copy_buffer_to_buffer(source, offset, work.staging, to + shift, size)
        return encoder.finish(label="rlx")

    def _send(self, commands: Any) -> None:
        known = self._gpu.provider.binding()
        if known is None:
            self._gpu.queue.submit([commands])
            return
        # wgpu-native aborts the process when it gets commands for a lost device.
        ffi, _, api = known
        queue, encoded = (
            ffi.cast("uintptr_t", item._internal) for item in (self._gpu.queue, commands)
        )
        if not api.send(int(queue), int(encoded)):
            raise RuntimeError("the device is lost")

    def wait(self) -> int:
        """See ``SubmissionRunner``."""
        if not self._work.staged:
            return self._guarded(self._gpu.device._poll_wait)
        return self._guarded(self._bring)

    def _bring(self) -> None:
        staging, staged = self._work.staging, self._work.staged
        staging.map_sync(self._read, 0, staged)
        try:
            mapped = self._mapped(staging, staged)
            for i, data in self._work.reads:
                data[:] = mapped[i : i + data.size]
                self._moved[1] += data.size
        finally:
            staging.unmap()

    def _mapped(self, staging: Any, staged: int) -> Array:
        """Copies the contents of a mapped buffer."""
        known = self._gpu.provider.binding()
        if known is None:
            return np.frombuffer(staging.read_mapped(0, staged), np.uint8)
        ffi, _, api = known
        result = np.empty(staged, np.uint8)
        if not api.read(int(ffi.cast("uintptr_t", staging._internal)), result):
            raise RuntimeError("the device is lost")
        return result

    def run(self) -> int:
        """See ``SubmissionRunner``."""
        return self.submit() or self.wait()

    def error(self) -> tuple[int, str]:
        """See ``SubmissionRunner``."""
        return self._error

    def _guarded(self, call: Callable[[], None]) -> int:
        wgpu, library, device = self._wgpu, self._gpu.provider, self._gpu.device
        if forked():
            return self._failed(STOPPED, DeviceUnavailableError(FORKED))
        try:
            if library.lost(device):
                raise RuntimeError("its calls would do nothing")
            call()
        except wgpu.GPUOutOfMemoryError as error:
            return self._failed(MEMORY, error)
        except wgpu.GPUError as error:
            return self._failed(ERROR, error)
        except RuntimeError as error:  # wgpu-py's way of saying that a buffer can't be mapped
            return self._failed(LOST, error)
        return OK

    def _failed(self, fault: int, error: Exception) -> int:
        # The objects of the failed calls are freed now, in order: left to the garbage collector, memory that C looks at
        # (cffi's from_buffer) may go before what looks at it, which ends the process.
        traceback.clear_frames(error.__traceback__)
        gone = fault in (ERROR, LOST) and self._gpu.provider.lost(self._gpu.device)
        self._error = (fault, f"the device is lost: {error}" if gone else str(error))
        return fault

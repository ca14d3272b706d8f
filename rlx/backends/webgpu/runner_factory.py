"""Makes submissions: by C calls into the library where its release is known, else through its Python package."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from rlx import flags
from rlx._ext.locks import TryLock
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import fail
from rlx.backends.webgpu.recorded import SubmissionRecorder
from rlx.backends.webgpu.submission import Batch, PythonRunner, Submission, SubmissionRunner
from rlx.ir.opdef import Array

_log = logging.getLogger("rlx.webgpu")

# Uploads up to this many bytes go through a buffer that stays mapped between runs. wgpu-native's own upload
# creates and frees a buffer each time.
MAX_MAPPED_UPLOAD = 1 << 16


@functools.cache
def _say_switched_off() -> None:
    _log.warning("RLX_WEBGPU_HOT=0: runs on the GPU go through Python calls")


class RunnerFactory:
    """Makes the runners of one executable.

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
        upload_buffer = None
        if work.often and 0 < size <= MAX_MAPPED_UPLOAD:
            upload_buffer = self._gpu.buffer(
                "upload_buffer", size, "MAP_WRITE", "COPY_SRC", mapped=True
            )
        keep = (self._gpu, work, upload_buffer)
        runner: SubmissionRunner = module.Runner(
            api,
            handle(self._gpu.device),
            handle(self._gpu.queue),
            self._dispatches(work.batch),
            [(data.ctypes.data, handle(to), i, data.nbytes) for data, to, i in work.uploads],
            [(handle(a), i, handle(b), to, size) for a, i, b, to, size in work.moves],
            [(handle(buffer), i, to, size) for buffer, i, to, size in work.copies],
            handle(work.staging) if work.staging is not None else 0,
            work.staged,
            [(i, data.ctypes.data, data.nbytes) for i, data in work.reads],
            handle(upload_buffer) if upload_buffer is not None else 0,
            size,
            self._gpu.spin_ns,
            self.moved,
            keep,
        )
        return runner

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

"""Start and end of each kernel by the GPU's clock, converted to the host's."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from time import perf_counter_ns
from typing import Any

import numpy as np

from rlx.backends.recorder import RecordedKernel, Recorder
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.submission import Batch, encode
from rlx.dataclasses import dataclass

# WebGPU's limit on queries per query set; a kernel uses two.
MAX_QUERIES = 4096
# Submissions before timestamps are read back: drivers allow few query sets at a time.
_MAX_OPEN = 16


@dataclass(frozen=True, eq=False)
class _Queries:
    """Room for the times of some kernels, on the device and on the way back."""

    set: Any
    resolved: Any
    staging: Any
    nbytes: int


class Timestamps:
    """Takes the time of every dispatch, in a compute pass of its own.

    The GPU's clock has a start of its own. Each time that the host has waited, the end of the last kernel is put at the moment
    when the wait was over. So kernels stand late by what lies between the two: the copies of results on the device and the
    host's waking up. Durations are the GPU's, unless kernels overlap: then the later one is shown from the end of the one
    before, and "device_ns" is its whole time.

    Args:
        gpu: The device; it has the feature "timestamp-query".
        recorder: Where the times go.
        kernels: The kernel of each bind group, by its ``id``.
    """

    def __init__(
        self, gpu: GpuDevice, recorder: Recorder, kernels: dict[int, RecordedKernel]
    ) -> None:
        self._gpu, self._recorder, self._kernels = gpu, recorder, kernels
        self._period = gpu.provider.timestamp_period(gpu.queue)
        self._free: dict[int, list[_Queries]] = defaultdict(list)
        # Query sets that were encoded, and those of them that were submitted.
        self._encoded: list[tuple[_Queries, Batch]] = []
        self._open: list[tuple[_Queries, Batch]] = []
        self._shown = 0
        note = "the end of the last kernel is put at the end of the wait: kernels stand late by the"
        recorder.notes["GPU clock"] = f"{note} copy of the results and the host's waking up"

    def compute(self, encoder: Any, batch: Batch) -> None:
        """Encodes the dispatches, and the copies that bring their times back."""
        self._encoded = []
        # The sizes of this run leave the others nothing to do.
        batch = [row for row in batch if row[2] and row[3]]
        if len(self._open) >= _MAX_OPEN:
            self._gpu.device._poll_wait()
            self.collect(perf_counter_ns())
        for first in range(0, len(batch), MAX_QUERIES // 2):
            part = batch[first : first + MAX_QUERIES // 2]
            queries = self._take(2 * len(part))
            for i, dispatch in enumerate(part):
                writes = {
                    "query_set": queries.set,
                    "beginning_of_pass_write_index": 2 * i,
                    "end_of_pass_write_index": 2 * i + 1,
                }
                encode(encoder, [dispatch], writes)
            encoder.resolve_query_set(queries.set, 0, 2 * len(part), queries.resolved, 0)
            encoder.copy_buffer_to_buffer(queries.resolved, 0, queries.staging, 0, queries.nbytes)
            self._encoded.append((queries, part))

    def sent(self, index: int) -> None:
        """Notes that the encoded passes were submitted and will have times."""
        self._open += self._encoded
        self._encoded = []

    def collect(self, over: int) -> None:
        """Hands the times of all submissions to the recorder; they have to be done.

        Args:
            over: When the host knew, on the clock of ``time.perf_counter_ns``.
        """
        if not self._open:
            return
        results = [(self._fetch(queries), part) for queries, part in self._open]
        self._open.clear()
        last = max(int(ticks.max()) for ticks, _ in results)
        for ticks, part in results:
            for i, (_, group, x, y) in enumerate(part):
                begin, end = int(ticks[2 * i]), int(ticks[2 * i + 1])
                duration = round(max(0, end - begin) * self._period)
                stop = max(self._shown, over - round((last - end) * self._period))
                start = max(self._shown, stop - duration)
                self._shown = stop
                kernel, grid = self._kernels[id(group)], [x, y, 1]
                self._recorder.kernel(kernel, start, stop, grid=grid, device_ns=duration)

    def _fetch(self, queries: _Queries) -> Any:
        queries.staging.map_sync("READ", 0, queries.nbytes)
        try:
            ticks = np.frombuffer(queries.staging.read_mapped(0, queries.nbytes), np.uint64)
        finally:
            queries.staging.unmap()
        self._free[queries.nbytes].append(queries)
        return ticks

    def _take(self, count: int) -> _Queries:
        nbytes = 8 * count
        if self._free[nbytes]:
            return self._free[nbytes].pop()
        return _Queries(
            self._gpu.device.create_query_set(type="timestamp", count=count),
            self._gpu.buffer("timestamps", nbytes, "QUERY_RESOLVE", "COPY_SRC"),
            self._gpu.buffer("timestamps", nbytes, "MAP_READ", "COPY_DST"),
            nbytes,
        )

    def close(self) -> None:
        """Frees the query sets."""
        free = chain.from_iterable(self._free.values())
        for queries in (*free, *(item for item, _ in self._open)):
            for item in (queries.set, queries.resolved, queries.staging):
                item.destroy()
        self._free.clear()
        self._open.clear()

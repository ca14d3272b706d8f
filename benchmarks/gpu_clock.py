"""A workload on a GPU: loaded with its data resident, its outputs poisoned, its kernels timed.

Times are the GPU's own: each kernel stands in a pass between two timestamps, many runs in one submission,
so that the clock stays up. Where the data fits into caches several copies take turns.
"""

import math
import time
from dataclasses import dataclass
from statistics import median

import numpy as np
from work import graph_of

import rlx
from rlx.backends.recorder import Recorder, kernels_of
from rlx.backends.webgpu.dispatch import Dispatch
from rlx.backends.webgpu.timestamps import Timestamps

# Copies in rotation hold so many bytes together: more than the caches of any GPU (60 MB on the H200).
ROTATED_BYTES, MAX_COPIES = 256e6, 12
# A figure takes about so long on the GPU, in at least and at most so many runs.
FIGURE_NS, FEWEST, MOST = 60e6, 7, 400
# Seconds of work before a figure counts, more while times still fall.
LEAST_WARMING_S, MAX_WARMING_S = 0.4, 2.0
# No float, and a number out of range for everything that counts.
POISON = np.uint32(0x7FC00000)
_CHUNK = 1 << 24


@dataclass(frozen=True)
class WorkloadTimes:
    """The measurements of one workload.

    Attributes:
        gpu_us: Microseconds of a run's kernels together, the median.
        p99_us: The 99th percentile of the same.
        span_us: From handing runs over to their end, by the number of runs: gaps included.
        wall_us: Of a run as a caller sees it, transfers apart, the median.
        kernel_us: Microseconds by kernel, the medians.
        copies: Copies of the data in rotation.
        runs: Runs timed.
    """

    gpu_us: float
    p99_us: float
    span_us: float
    wall_us: float
    kernel_us: dict[str, float]
    copies: int
    runs: int


class LoadedWorkload:
    """A workload compiled for a device, its operands there.

    Args:
        work: What to run.
        device: Where.
        copies: How many times it is loaded, each with memory of its own.
    """

    def __init__(self, work, device, copies=1):
        self.work = work
        self.graph = graph_of(work)
        weights = {name: work.values[name] for name in work.weights}
        self.compiled = [
            rlx.compile(self.graph, device, weights, work.options) for _ in range(copies)
        ]
        for item in self.compiled:
            poison(item)
            for name in self.graph.input_names:
                item.bind_gpu_handle(name, work.values[name])

    @property
    def on_the_host(self):
        """The nodes that the device leaves to the CPU."""
        return [str(part) for part in self.compiled[0].host_fallbacks]

    def kernels(self):
        """The kernels of a run in order."""
        work = self.compiled[0]._state.executable._work
        return [item.call.kernel if isinstance(item, Dispatch) else "host" for item in work]

    def outputs(self):
        """The outputs of a run that began with poisoned memory."""
        return [slot.copy() for slot in self.compiled[0].run_slots()]

    def close(self):
        for item in self.compiled:
            item.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def poison(compiled):
    """Fills the memory that holds inputs, results and all between with NaN."""
    executable = compiled._state.executable
    queue, arena = executable._gpu.queue, executable._arena
    words = np.full(min(arena.size, _CHUNK) // 4, POISON, np.uint32)
    for start in range(0, arena.size, _CHUNK):
        queue.write_buffer(arena, start, words[: (arena.size - start) // 4])


def copies_for(nbytes):
    """Copies in rotation for a run that touches so many bytes."""
    return int(min(MAX_COPIES, max(1, math.ceil(ROTATED_BYTES / max(1.0, nbytes)))))


class _Durations(Recorder):
    """The time of each kernel in order, in ns."""

    def __init__(self):
        super().__init__()
        self.found = []

    def kernel(self, kernel, start, end, kind="kernel", **args):
        self.found.append(args["device_ns"])


class _KernelClock:
    """Runs the kernels of copies in turns, each between timestamps."""

    def __init__(self, loaded):
        self._executables = [item._state.executable for item in loaded.compiled]
        self._gpu = self._executables[0]._gpu
        self.batches, named = [], {}
        for executable in self._executables:
            (batch,) = (
                executable._batches.current
            )  # several where the host has a part, which callers refuse
            self.batches.append(batch)
            dispatches = [item for item in executable._work if isinstance(item, Dispatch)]
            kernels = kernels_of(item.call for item in dispatches)
            named |= {
                id(executable._batches.bound[id(item)][1]): kernels[id(item.call)]
                for item in dispatches
            }
        self._recorder = _Durations()
        self._stamps = Timestamps(self._gpu, self._recorder, named)

    def durations(self, runs):
        """ns of each kernel, ``[runs, kernels]``, and of all from first to last.

        The runs stand in as few submissions as the sets of queries allow.
        """
        order = [self.batches[index % len(self.batches)] for index in range(runs)]
        self._recorder.found = []
        encoder = self._gpu.device.create_command_encoder(label="benchmark")
        began = time.perf_counter_ns()
        self._stamps.compute(encoder, [item for batch in order for item in batch])
        commands = encoder.finish()
        began = time.perf_counter_ns()
        self._gpu.queue.submit([commands])
        self._stamps.sent(began)
        self._gpu.device._poll_wait()
        over = time.perf_counter_ns()
        self._stamps.collect(over)
        result = np.array(self._recorder.found, np.float64).reshape(runs, -1)
        return result, over - began

    def close(self):
        self._stamps.close()


def _warmed(clock, runs):
    """``durations`` once the clock is up: a GPU that waited for the host takes a while to get there."""
    began, best = time.perf_counter(), math.inf
    while True:
        ns, whole = clock.durations(runs)
        last, best = best, min(best, float(np.median(ns.sum(1))))
        spent = time.perf_counter() - began
        if spent > MAX_WARMING_S or (spent > LEAST_WARMING_S and best > 0.98 * last):
            return ns, whole


def timed(loaded, figure_ns=FIGURE_NS, most=MOST):
    """The times of a workload.

    Args:
        loaded: What to run.
        figure_ns: About how long the GPU is to work for the figure.
        most: The most runs.
    """
    clock = _KernelClock(loaded)
    try:
        turns = len(clock.batches)
        per_run = len(clock.batches[0])
        _, spent = clock.durations(turns)  # the first run of each, in which drivers compile
        _, spent = clock.durations(turns)
        # As many as fit into the query sets that may be open at a time.
        most = max(1, min(most, 16 * 2048 // max(1, per_run)))
        runs = int(np.clip(figure_ns / max(1.0, spent / turns), min(FEWEST, most), most))
        ns, whole = _warmed(clock, runs)
    finally:
        clock.close()
    total = ns.sum(1)
    kernels = {}
    for name, each in zip(loaded.kernels(), np.median(ns, 0), strict=False):
        kernels[name] = kernels.get(name, 0.0) + float(each) / 1e3
    return WorkloadTimes(
        float(np.median(total)) / 1e3,
        float(np.percentile(total, 99)) / 1e3,
        whole / runs / 1e3,
        wall_us(loaded),
        kernels,
        turns,
        runs,
    )


def wall_us(loaded, seconds=0.1):
    """Microseconds of a run that reads nothing back, from call to return: the median."""
    compiled = loaded.compiled[0]
    spent, until = [], time.perf_counter() + seconds
    while len(spent) < 5 or time.perf_counter() < until:
        began = time.perf_counter_ns()
        compiled.run_read_outputs({}, [])
        spent.append(time.perf_counter_ns() - began)
    return median(spent) / 1e3

"""Times small graphs on one device within a budget of seconds, on a machine that may be busy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np

from rlx._ext.locks import TryLock
from rlx.backends.base import CompileOptions
from rlx.calibrate import probes
from rlx.compiler.loading import load
from rlx.compiler.lowered_module import LoweredModule
from rlx.compiler.lowering import lower
from rlx.compiler.target import Target
from rlx.cost.calibration import Progress
from rlx.cost.op_classes import FREE
from rlx.device.names import Device
from rlx.errors import CompileError, DeviceMemoryError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array

# Budget for one device in seconds. A measurement that has begun is finished.
BUDGET_S = 1.7
# The additional time of a GPU, most of it for its driver, which compiles the kernels. A driver that has compiled them
# needs little; one that has not takes up to a tenth of a second for each.
_ASIDE_S = 8.0
# Part of that for what is compiled side by side at the beginning.
_AHEAD = 0.6
# Seconds of work until a GPU runs at full clock, at the beginning and before each figure: it lowers the clock meanwhile.
_WAKING_S, _WAKING_AGAIN_S = 0.25, 0.01
# Per figure: seconds of all runs, and the least and largest number of runs.
_FIGURE_S, _FEWEST, _MOST = 0.01, 3, 60
# Runs that are expected to take longer are skipped.
_LONGEST_RUN_S = 0.05
# Overhead of a figure, in runs: loading, and warm-up runs.
_RUNS_WORTH = 25
# A run this many times longer than a round trip is timed by itself; its fixed cost is negligible.
_CLEAR = 40


class LoadedProbe:
    """A graph on a device, ready to be timed; nothing of it is cached.

    Attributes:
        lowered: The graph made ready.
        warm_ns: One run; not the first, in which drivers compile and memory is touched.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.lowered: LoweredModule
        loaded = load(lower(graph, target), target)
        self.lowered, self._executable = loaded.lowered, loaded.executable
        self._executable.set_params(loaded.precomputed.apply(probes.values_of(graph)))
        self._inputs = [np.ones(v.shape, v.dtype) for v in self._executable.input_views]
        lock, names = TryLock("a measurement", "wait"), graph.input_names
        compiled = self._executable.compiled(lock, names)
        self._run = self._uncompiled if compiled is None else compiled[0]
        self.once()
        self.warm_ns = self.once()

    def once(self) -> int:
        """Nanoseconds of one run."""
        began = time.perf_counter_ns()
        self._run(*self._inputs)
        return time.perf_counter_ns() - began

    def _uncompiled(self, *arrays: Array) -> None:
        """Runs on a backend without a compiled ``run_slots``."""
        outputs = range(len(self._executable.output_views))
        self._executable.submit(arrays, outputs, False).wait()

    def calls(self) -> int:
        """Kernel calls of a run."""
        schedule, nodes = self.lowered.schedule, self.lowered.graph.nodes
        return len(schedule.calls) if schedule else sum(node.op not in FREE for node in nodes)

    def close(self) -> None:
        """Frees its memory."""
        self._executable.close()


class Stopwatch:
    """The time of one device, and the rest of its budget.

    Args:
        device: The device.
        progress: Called with the part of the budget that is used, and with what comes next.

    Attributes:
        target: The device with the usual options.
        dispatch_ns: One kernel more, once it is known.
        roundtrip_ns: A run with next to nothing to do, once it is known.
    """

    def __init__(self, device: Device, progress: Progress) -> None:
        self.device, self._progress = device, progress
        self.target = Target.of(device, CompileOptions(hoist=False))
        self.dispatch_ns = self.roundtrip_ns = 0.0
        # The CPU's kernels are there, and a software adapter is not worth the wait.
        real = not self.target.capabilities.host_memory and not self.target.info.software
        self._allowed = _ASIDE_S if real else 0.0
        self._busy: LoadedProbe | None = None
        self.begin()

    def begin(self) -> None:
        """The budget begins now."""
        self._began = time.monotonic()
        self._aside = 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Excludes time from the budget, up to a limit: a driver compiles, or a clock rises."""
        began = time.monotonic()
        yield
        self._aside += time.monotonic() - began

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def spent(self) -> float:
        """Seconds of the budget that are used."""
        return self.elapsed() - min(self._aside, self._allowed)

    @contextmanager
    def loading(self) -> Iterator[Callable[[Graph, Target], LoadedProbe]]:
        """Gives a function to load graphs, and closes them all at the end of the ``with``."""
        results: list[LoadedProbe] = []

        def loaded(graph: Graph, target: Target) -> LoadedProbe:
            with self.aside():
                results.append(LoadedProbe(graph, target))
            return results[-1]

        try:
            yield loaded
        finally:
            for item in results:
                item.close()

    def prepare(self, graphs: Iterable[tuple[Graph, Target]]) -> None:
        """Compiles the kernels of graphs in parallel, until the time is used up."""
        until = self._began + _AHEAD * self._allowed

        def make(item: tuple[Graph, Target]) -> None:
            # Where the process ends meanwhile, this raises.
            self._progress(0.0, "kernels that the driver compiles")
            if time.monotonic() < until:
                with suppress(CompileError, DeviceMemoryError):
                    load(lower(*item), item[1]).executable.close()

        # A program that starts just now needs processors, too.
        workers = min(8, max(1, (os.cpu_count() or 1) // 2))
        with self.aside(), ThreadPoolExecutor(workers) as pool:
            list(pool.map(make, graphs))

    def stay_awake(self, busy: LoadedProbe) -> None:
        """Has the device at its full clock from now on: GPUs with little to do lower it.

        Args:
            busy: Work for all of the device, which is run before each figure.
        """
        self._busy = busy
        self._wake(_WAKING_S)

    def _wake(self, seconds: float) -> None:
        if self._busy is not None:
            with self.aside():
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    self._busy.once()

    def left(self) -> float:
        """Seconds left."""
        return BUDGET_S - self.spent()

    def say(self, what: str) -> None:
        """Reports the next step."""
        self._progress(min(0.99, max(0.0, self.spent() / BUDGET_S)), what)

    def worth(self, run_ns: float) -> bool:
        """Returns whether there is time for a figure whose longest run takes so long."""
        return run_ns < min(_LONGEST_RUN_S, self.left() / _RUNS_WORTH) * 1e9

    def times(self, loaded: Sequence[LoadedProbe], seconds: float = _FIGURE_S) -> list[float]:
        """The time of a run of each, in ns: the median of the faster half.

        They take turns, so that all see the same machine.

        Args:
            loaded: The loaded graph.
            seconds: How long, if there are enough runs by then.
        """
        self._wake(_WAKING_AGAIN_S)
        samples: list[list[int]] = [[] for _ in loaded]
        began = time.monotonic()
        for i in range(_MOST):
            if i >= _FEWEST and time.monotonic() - began > seconds:
                break
            for item, times in zip(loaded, samples, strict=True):
                times.append(item.once())
        # Other programs only make runs slower, so the slower half of the times is dropped.
        return [float(np.median(sorted(times)[: (len(times) + 1) // 2])) for times in samples]

    def is_clear(self, loaded: LoadedProbe) -> bool:
        """Returns whether a run is so long that its round trip is negligible."""
        return loaded.warm_ns > _CLEAR * self.roundtrip_ns

    def slope(
        self, graph: Callable[[int], Graph], steps: int, target: Target | None = None
    ) -> float:
        """Nanoseconds of one step more, without its dispatch.

        Never less than a tenth of the whole: the difference of two noisy times may be anything.

        Args:
            graph: Makes the graph of so many steps.
            steps: How many more there are.
            target: Other options than usual.
        """
        target = target or self.target
        with self.loading() as loaded:
            single = loaded(graph(1), target)
            if self.is_clear(single):
                (ns,) = self.times([single])
                return max(ns - self.roundtrip_ns - self.dispatch_ns * single.calls(), 0.5 * ns)
            few, lots = self.times([single, loaded(graph(1 + steps), target)])
        ns = (lots - few) / steps
        return max(ns - self.dispatch_ns, 0.1 * ns, 1.0)

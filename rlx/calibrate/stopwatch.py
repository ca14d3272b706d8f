"""Times small graphs on one device within a budget of seconds, on a machine that may be busy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.calibrate import probes
from rlx.compiler.loading import loaded
from rlx.compiler.lowered import Lowered
from rlx.compiler.lowering import lower
from rlx.compiler.target import Target
from rlx.cost.calibration import Progress
from rlx.cost.kinds import FREE
from rlx.device.names import Device
from rlx.errors import CompileError, DeviceMemoryError
from rlx.ir.graph import Graph

# Budget for one device in seconds. A measurement that has begun is finished.
BUDGET_S = 1.7
# Seconds of work until a GPU runs at full clock.
_WAKING_S = 0.05
# Per figure: seconds of all runs, and the least and largest number of runs.
_FIGURE_S, _FEWEST, _MOST = 0.01, 3, 60
# Runs that are expected to take longer are skipped.
_LONGEST_RUN_S = 0.05
# Overhead of a figure, in runs: loading, and warm-up runs.
_RUNS_WORTH = 25
# A run this many times longer than a round trip is timed by itself; its fixed cost is negligible.
_CLEAR = 40


class Loaded:
    """A graph on a device, ready to be timed; nothing of it is cached.

    Attributes:
        lowered: The graph made ready.
        warm_ns: One run; not the first, in which drivers compile and memory is touched.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.lowered: Lowered
        self.lowered, self._executable = loaded(lower(graph, target), target)
        for name, value in probes.values_of(graph).items():
            self._executable.set_param(name, value)
        self._inputs = [np.ones(v.shape, v.dtype) for v in self._executable.input_views]
        self._run = self._executable.run_slots
        self.once()
        self.warm_ns = self.once()

    def once(self) -> int:
        """Nanoseconds of one run."""
        began = time.perf_counter_ns()
        self._run(*self._inputs)
        return time.perf_counter_ns() - began

    def calls(self) -> int:
        """Kernel calls of a run."""
        schedule, nodes = self.lowered.schedule, self.lowered.graph.nodes
        return len(schedule.calls) if schedule else sum(node.op not in FREE for node in nodes)

    def close(self) -> None:
        """Frees its memory."""
        self._executable.close()


class AllClosed:
    """A ``with`` that gives a function to load graphs, and closes them all at its end."""

    def __init__(self) -> None:
        self._made: list[Loaded] = []

    def __enter__(self) -> Callable[[Graph, Target], Loaded]:
        return self._load

    def _load(self, graph: Graph, target: Target) -> Loaded:
        self._made.append(Loaded(graph, target))
        return self._made[-1]

    def __exit__(self, *exc: object) -> None:
        for one in self._made:
            one.close()


class Stopwatch:
    """The time of one device, and what of the budget is left.

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
        self.begin()

    def begin(self) -> None:
        """The budget begins now."""
        self._began = time.monotonic()

    def spent(self) -> float:
        """Seconds used."""
        return time.monotonic() - self._began

    def prepare(self, graphs: Iterable[tuple[Graph, Target]]) -> None:
        """Has the kernels of graphs made, side by side, for as long as a third of the budget."""
        until = self._began + BUDGET_S / 3

        def make(one: tuple[Graph, Target]) -> None:
            if time.monotonic() < until:
                with suppress(CompileError, DeviceMemoryError):
                    loaded(lower(*one), one[1])[1].close()

        with ThreadPoolExecutor(min(8, max(1, (os.cpu_count() or 1) - 1))) as pool:
            list(pool.map(make, graphs))

    def wake(self, graph: Graph) -> None:
        """Keeps the device busy until its clock has risen: GPUs with little to do lower it."""
        with AllClosed() as loaded:
            busy = loaded(graph, self.target)
            until = time.monotonic() + _WAKING_S
            while time.monotonic() < until:
                busy.once()

    def left(self) -> float:
        """Seconds left."""
        return BUDGET_S - self.spent()

    def say(self, what: str) -> None:
        """Tells what comes next."""
        self._progress(min(0.99, self.spent() / BUDGET_S), what)

    def worth(self, run_ns: float) -> bool:
        """Whether there is time for a figure whose longest run takes so long."""
        return run_ns < min(_LONGEST_RUN_S, self.left() / _RUNS_WORTH) * 1e9

    def times(self, loaded: Sequence[Loaded], seconds: float = _FIGURE_S) -> list[float]:
        """The time of a run of each, in ns: the median of the faster half.

        They take turns, so that all see the same machine.

        Args:
            loaded: What is run.
            seconds: How long, if there are enough runs by then.
        """
        samples: list[list[int]] = [[] for _ in loaded]
        began = time.monotonic()
        for at in range(_MOST):
            if at >= _FEWEST and time.monotonic() - began > seconds:
                break
            for one, times in zip(loaded, samples, strict=True):
                times.append(one.once())
        # Other programs only make runs slower, so the slower half of the times is dropped.
        return [float(np.median(sorted(times)[: (len(times) + 1) // 2])) for times in samples]

    def is_clear(self, loaded: Loaded) -> bool:
        """Whether a run is so long that the round trip in it does not count."""
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
        with AllClosed() as loaded:
            one = loaded(graph(1), target)
            if self.is_clear(one):
                (ns,) = self.times([one])
                return max(ns - self.roundtrip_ns - self.dispatch_ns * one.calls(), 0.5 * ns)
            few, lots = self.times([one, loaded(graph(1 + steps), target)])
        ns = (lots - few) / steps
        return max(ns - self.dispatch_ns, 0.1 * ns, 1.0)

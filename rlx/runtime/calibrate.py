"""Measures a device through the calls that users' runs go through: slopes and medians, in two seconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module, metadata
from statistics import median
from typing import Any

import numpy as np

from rlx import flags
from rlx.backends.base import CompileOptions, DeviceInfo
from rlx.cost.calibration import Calibration, Identity, Progress
from rlx.cost.curve import Curve
from rlx.cost.estimate import FREE
from rlx.cost.kinds import ROWED, more_rows, work_of
from rlx.cost.model import NARROW, CalibratedModel
from rlx.device.names import Device, info_of
from rlx.errors import CompileError, DeviceMemoryError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.runtime import probes
from rlx.runtime.build import Lowered, Target, load, lower

# Seconds that a device may take; what was begun is finished.
BUDGET_S = float(__import__("os").environ.get("B", 1.7))
# Seconds that the repetitions of one figure may take, and the fewest there are of them.
_FIGURE_S, _FEWEST, _MOST = 0.012, 3, 60
# A single run that is expected to take longer is not made.
_LONGEST_RUN_S = 0.05
# What a figure costs besides: loading, and first runs that touch memory for the first time.
_RUNS_WORTH = 25
_TRANSFERS = (64, 1 << 14, 1 << 18, 1 << 22)
_COPIES = (1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 23)
# A run that takes so many round trips needs no slope: what else is in it does not count.
_CLEAR = 40
# Where the surplus rows stand among the kinds of work.
_ROWS = ""
_UNFUSED = CompileOptions(fuse=False)
# Every value in memory of its own, as a run's input and output are.
_APART = CompileOptions(fuse=False, reuse_memory=False)


class Measurer:
    """Measures devices; ``rlx.cost`` knows it as its meter."""

    def identity(self, device: Any) -> Identity:
        """What figures of a device belong to: two names of one device have the same."""
        info = info_of(Device.parse(device))
        return _identity(info)

    def measure(self, device: Any, progress: Progress | None = None) -> Calibration:
        """Measures a device now.

        Args:
            device: A device or its name.
            progress: Called with the part that is done (0 to 1) and what comes next.

        Raises:
            DeviceUnavailableError: It is not on this machine.
        """
        return _Measurement(Device.parse(device), progress or _nobody).run()


def _nobody(part: float, what: str) -> None:
    """Nobody watches."""


def _identity(info: DeviceInfo) -> Identity:
    on_cpu = info.backend == "cpu"
    if on_cpu:
        from rlx.backends.cpu.backend import instruction_set

        path = instruction_set()
    else:
        switched = (flags.WEBGPU_HOT, flags.SHADER_CHECKS, flags.WEBGPU_DEFAULT_LIMITS)
        path = " ".join(f"{flag.name}={int(flag.get())}" for flag in switched)
    return Identity(
        str(Device(info.backend, info.index)),
        info.adapter,
        info.api,
        info.driver,
        path,
        import_module("rlx").__version__,
        "" if on_cpu else metadata.version("wgpu"),
    )


class _Loaded:
    """A graph on the device, ready to be timed."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.lowered: Lowered = lower(graph, target)
        self._executable = load(self.lowered, target)
        for name, value in probes.values_of(graph).items():
            self._executable.set_param(name, value)
        self._inputs = [np.ones(v.shape, v.dtype) for v in self._executable.input_views]
        self._run = self._executable.run_slots
        began = time.perf_counter_ns()
        self.once()
        # The first run also makes what is made late; it only tells what is too long.
        self.first_ns = time.perf_counter_ns() - began

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
        self._executable.close()


class _Measurement:
    """One device being measured."""

    def __init__(self, device: Device, progress: Progress) -> None:
        self._device, self._progress = device, progress
        self._target = Target.of(device, CompileOptions())
        self._began = time.monotonic()
        self._dispatch_ns = self._roundtrip_ns = 0.0

    def run(self) -> Calibration:
        """All figures."""
        info = self._target.info
        self._say("kernel calls and round trips")
        with _all_closed() as loaded:
            one, many = (loaded(probes.dispatches(n), self._with(_UNFUSED)) for n in (1, 101))
            few, lots = self._times([one, many], seconds=0.03)
        self._dispatch_ns = max(1.0, (lots - few) / (many.calls() - one.calls()))
        self._roundtrip_ns = max(10.0, few - self._dispatch_ns * one.calls())
        unified = self._target.backend.kernel_set == "cpu"
        self._say("copies")
        copy = Curve.through(self._copies())
        self._say("products")
        square, thin, narrow = self._products()
        upload = readback = copy
        thunk = 0.0
        if not unified:
            self._say("transfers")
            upload, readback = Curve.through(self._uploads()), Curve.through(self._readbacks())
            thunk = self._thunk()
        found = Calibration(
            identity=_identity(info),
            threads=1,
            unified_memory=unified,
            roundtrip_ns=self._roundtrip_ns,
            dispatch_ns=self._dispatch_ns,
            host_thunk_ns=thunk,
            upload_ns_by_bytes=upload,
            readback_ns_by_bytes=readback,
            copy_ns_by_bytes=copy,
            matmul_ns_by_flops=square,
            thin_matmul_ns_by_flops=thin,
            narrow_matmul_ns_by_flops=narrow,
            kernel_ns_by_work={},
            row_ns_by_kind={},
            measured_at_unix_s=time.time(),
            measuring_s=0.0,
        )
        found = self._kernels(found)
        self._progress(1.0, "done")
        return replace(found, measuring_s=time.monotonic() - self._began)

    # --- figures -----------------------------------------------------------------------------------

    def _copies(self) -> Iterator[tuple[float, float]]:
        ns = 0.0
        for before, size in zip((0, *_COPIES), _COPIES):
            if before and not self._worth(ns * size / before * 2):
                return
            ns = self._slope(lambda n, s=size: probes.copies(s, n), 4, _APART)
            yield 8.0 * size, ns

    def _products(self) -> tuple[dict[str, Curve], dict[str, Curve], dict[str, Curve]]:
        square: dict[str, Curve] = {}
        thin: dict[str, Curve] = {}
        narrow: dict[str, Curve] = {}
        dtypes = [(DType.F32, self._target.options)]
        if self._target.kernel_set == "cpu":
            dtypes.append((DType.F64, self._target.options))
        elif "shader-f16" in self._target.info.features:
            dtypes.append((DType.F16, CompileOptions(precision="f16")))
        for dtype, options in dtypes:
            points: list[tuple[float, float]] = []
            for size, steps in ((16, 32), (64, 16), (256, 4), (1024, 1)):
                flops = 2.0 * size**3
                if points and not self._worth(points[-1][1] * flops / points[-1][0] * 2):
                    break
                ns = self._slope(
                    lambda n, s=size, d=dtype: probes.product(d, s, s, n), steps, options
                )
                points.append((flops, ns))
            square[str(dtype)] = Curve.through(points)
            if dtype is DType.F32:
                thins = []
                for size in (128, 1024):
                    ns = self._slope(lambda n, s=size: probes.product(DType.F32, s, 1, n), 8)
                    thins.append((2.0 * size**2, ns))
                thin[str(dtype)] = Curve.through(thins)
                narrows = []
                for size in (64, 512):
                    ns = self._slope(lambda n, s=size: probes.narrow(s, s, n), 3)
                    narrows.append((2.0 * size**2 * NARROW, ns))
                narrow[str(dtype)] = Curve.through(narrows)
        return square, thin, narrow

    def _uploads(self) -> Iterator[tuple[float, float]]:
        for size, ns in self._transfers(lambda n: [probes.upload(n)]):
            yield size, ns - self._roundtrip_ns - self._dispatch_ns

    def _readbacks(self) -> Iterator[tuple[float, float]]:
        yield from self._transfers(lambda n: [probes.readback(n, True), probes.readback(n, False)])

    def _transfers(self, graphs: Callable[[int], Sequence[Graph]]) -> Iterator[tuple[float, float]]:
        """Bytes, and the time of the first graph less that of the second."""
        spent = 0.0
        for before, size in zip((0, *_TRANSFERS), _TRANSFERS):
            if before and not self._worth(spent * size / before):
                return
            with _all_closed() as loaded:
                times = self._times([loaded(graph, self._target) for graph in graphs(size)])
            spent = times[0]
            # The narrower graph has a kernel more.
            less = times[1] - self._dispatch_ns if len(times) > 1 else 0.0
            yield 4.0 * size, times[0] - less

    def _thunk(self) -> float:
        with _all_closed() as loaded:
            whole, cut = (loaded(probes.host_part(c), self._target) for c in (False, True))
            a, b = self._times([whole, cut])
        return max(0.0, b - a)

    def _kernels(self, figures: Calibration) -> Calibration:
        """The figures with those of every kind that there is time for."""
        points: dict[str, list[tuple[float, float]]] = {}
        # Every kind at a small size first, then the larger ones.
        rounds = max(len(probe.sizes) for probe in probes.PROBES)
        todo = [(p, at) for at in range(rounds) for p in probes.PROBES if at < len(p.sizes)]
        for probe, at in todo:
            self._say(probe.kind)
            if self._left() <= 0:
                break
            own = points.setdefault(probe.kind, [])
            grown = probe.sizes[at] / probe.sizes[at - 1] if at else 1.0
            if at and not (len(own) == at and self._worth(own[-1][1] * grown * 3)):
                continue
            model = CalibratedModel(self._device, figures)
            found = self._kernel(probe, probe.shape(probe.sizes[at]), model)
            if found is None:
                continue
            work, ns, _ = found
            own.append((work, ns))
            curves = {kind: Curve.through(some) for kind, some in points.items() if some}
            figures = replace(figures, kernel_ns_by_work=curves)
            if probe.short is not None and not at:
                rows = self._rows(probe, CalibratedModel(self._device, figures))
                figures = replace(figures, row_ns_by_kind={**figures.row_ns_by_kind, **rows})
        return figures

    def _rows(self, probe: probes.Probe, model: CalibratedModel) -> dict[str, float]:
        """What a row more costs: the same elements in short rows."""
        assert probe.short is not None
        found = self._kernel(probe, probe.short(probe.sizes[0]), model)
        if found is None:
            return {}
        work, ns, rows = found
        return {probe.kind: max(0.0, ns - model.kernel_ns(probe.kind, work)) / rows}

    def _kernel(
        self, probe: probes.Probe, shape: tuple[int, ...], model: CalibratedModel
    ) -> tuple[float, float, float] | None:
        """Work, time and surplus rows of one step of a chain, the known parts of it taken away."""
        steps = 3
        try:
            with _all_closed() as loaded:
                short = loaded(probes.chain(probe, shape, 1), self._target)
                if short.first_ns > _CLEAR * self._roundtrip_ns:
                    steps, calls, added = 1, short.calls(), _work(short.lowered.graph, probe.kind)
                    spent = self._times([short])[0] - self._roundtrip_ns
                else:
                    long = loaded(probes.chain(probe, shape, 1 + steps), self._target)
                    calls = long.calls() - short.calls()
                    added = _work(long.lowered.graph, probe.kind)
                    added.subtract(_work(short.lowered.graph, probe.kind))
                    few, lots = self._times([short, long])
                    spent = lots - few
        except (CompileError, DeviceMemoryError):
            return None  # its stand-in serves
        work = added.pop(probe.kind, 0.0)
        rows = added.pop(_ROWS, 0.0)
        known = sum(
            model.kernel_ns(kind, amount / steps) * steps
            for kind, amount in added.items()
            if amount > 0
        )
        # At least a fifth is its own, whatever the noise of the others.
        own = max(spent - self._dispatch_ns * calls - known, 0.2 * spent, 1.0)
        return (work / steps, own / steps, rows / steps) if work else None

    # --- timing ------------------------------------------------------------------------------------

    def _slope(
        self, graph: Callable[[int], Graph], steps: int, options: CompileOptions | None = None
    ) -> float:
        """Nanoseconds of one step more, without its dispatch; its noise is kept above nothing."""
        target = self._with(options) if options else self._target
        with _all_closed() as loaded:
            one = loaded(graph(1), target)
            if one.first_ns > _CLEAR * self._roundtrip_ns:
                (ns,) = self._times([one])
                return max(ns - self._roundtrip_ns - self._dispatch_ns * one.calls(), 0.5 * ns)
            few, lots = self._times([one, loaded(graph(1 + steps), target)])
        ns = (lots - few) / steps
        return max(ns - self._dispatch_ns, 0.1 * ns, 1.0)

    def _times(self, loaded: Sequence[_Loaded], seconds: float = _FIGURE_S) -> list[float]:
        """The median time of a run of each; they take turns, so that all see the same machine."""
        samples: list[list[int]] = [[] for _ in loaded]
        began = time.monotonic()
        for at in range(_MOST):
            if at >= _FEWEST and time.monotonic() - began > seconds:
                break
            for one, times in zip(loaded, samples, strict=True):
                times.append(one.once())
        return [median(times) for times in samples]

    def _with(self, options: CompileOptions) -> Target:
        return Target.of(self._device, options)

    def _worth(self, run_ns: float) -> bool:
        """Whether there is time for a figure whose longest run takes so long."""
        return run_ns < min(_LONGEST_RUN_S, self._left() / _RUNS_WORTH) * 1e9

    def _left(self) -> float:
        return BUDGET_S - (time.monotonic() - self._began)

    def _say(self, what: str) -> None:
        self._progress(min(0.99, (time.monotonic() - self._began) / BUDGET_S), what)


class _all_closed:  # noqa: N801 - used as a function
    """Loads graphs, and closes them at the end."""

    def __init__(self) -> None:
        self._made: list[_Loaded] = []

    def __enter__(self) -> Callable[[Graph, Target], _Loaded]:
        return self._load

    def _load(self, graph: Graph, target: Target) -> _Loaded:
        self._made.append(_Loaded(graph, target))
        return self._made[-1]

    def __exit__(self, *exc: object) -> None:
        for one in self._made:
            one.close()


def _work(graph: Graph, kind: str) -> Counter[str]:
    """The work of a graph by kind, and the surplus rows of one kind."""
    total: Counter[str] = Counter()
    for node in graph.nodes:
        if node.op not in FREE:
            work = work_of(node)
            for name, amount in work.items():
                total[name] += amount  # type: ignore[assignment]  # amounts are floats
            if kind in work and kind in ROWED:
                total[_ROWS] += more_rows(node)  # type: ignore[assignment]
    return total

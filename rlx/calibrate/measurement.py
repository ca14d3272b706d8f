"""One measurement of a device, through the calls that users' runs go through."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rlx.backends.base import CompileOptions
from rlx.calibrate import probes
from rlx.calibrate.calibration_key import identity_of
from rlx.calibrate.stopwatch import BUDGET_S, LoadedProbe, Stopwatch
from rlx.compiler.target import Target
from rlx.cost.calibration import FASTEST_TRANSFER, Calibration, Progress
from rlx.cost.curve import Curve
from rlx.cost.dependency_chain import SERIAL, serial_steps
from rlx.cost.model import NARROW, CalibratedModel
from rlx.cost.op_classes import FREE, ROWED, more_rows, work_of
from rlx.device.names import Device
from rlx.errors import CompileError, DeviceMemoryError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.threads import thread_count

# Floats that are transferred or copied; the last copies are larger than caches.
_TRANSFERS = (64, 1 << 14, 1 << 18, 1 << 22)
_COPIES = (1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 23)
# Matrix products: size and number in a chain. Then those with a single row, and with few columns.
_PRODUCTS = ((16, 32), (64, 16), (256, 4), (1024, 1), (2048, 1))
_PRODUCTS_F16 = _PRODUCTS[1:4]
_THIN, _NARROW = (128, 1024), (64, 512)
# Rows and size of a product that is bound by the latency of its sums.
_WAITING_PRODUCT = (64, 1024)
# Additional steps of a chain. A GPU needs more: one step is short against the noise of a round trip.
_STEPS, _STEPS_GPU = 3, 9
# Repetitions of each figure of a kind of kernels, as time allows.
_ROUNDS = 3
# Least part of a chain's time that is credited to the measured kind, whatever the noise.
_OWN = 0.2
# Operands are params on the device. Nothing may be hoisted or folded, or there would be nothing to measure.
_UNFUSED = CompileOptions(fuse=False, hoist=False)
# No memory reuse: every value has memory of its own.
_APART = CompileOptions(fuse=False, hoist=False, reuse_memory=False)
_HALF = CompileOptions(precision="f16", hoist=False)
# Size and rows of products that keep a GPU busy, how many a fast one gets, and from how few nanoseconds on it is fast.
_WAKING, _WAKING_MORE, _FAST_NS = (1024, 1024), 8, 1_000_000
# Key of the surplus rows among the kinds of work.
_ROWS = ""


class Measurement:
    """One device being measured.

    A software adapter compiles each shader for tens of milliseconds when it first runs, so it gets
    the figures that tell most, at sizes that it can run.
    """

    def __init__(self, device: Device, progress: Progress) -> None:
        self._watch = Stopwatch(device, progress)
        self._progress, self._device = progress, device
        self._target = self._watch.target
        self._software = self._target.info.software
        self._on_host = self._target.capabilities.host_memory
        self._steps = _STEPS if self._on_host or self._software else _STEPS_GPU

    def run(self) -> Calibration:
        """All figures."""
        watch = self._watch
        self._progress(0.0, "starting the device")
        with watch.loading() as loaded:
            loaded(probes.dispatches(1), self._with(_UNFUSED))
            # The clock starts here: starting the driver is not part of the measurement.
            watch.begin()
            if not self._on_host and not self._software:
                watch.prepare(self._first_graphs())
                watch.stay_awake(self._busy(loaded))
            result = self._figures()
        self._progress(1.0, "done")
        return result

    def _busy(self, loaded: Callable[[Graph, Target], LoadedProbe]) -> LoadedProbe:
        """Work for all of a GPU, some hundred microseconds of it on a fast one."""
        single = loaded(probes.product(DType.F32, *_WAKING, 1), self._target)
        if single.warm_ns > _FAST_NS:
            return single
        return loaded(probes.product(DType.F32, *_WAKING, _WAKING_MORE), self._target)

    def _figures(self) -> Calibration:
        watch = self._watch
        with watch.loading() as loaded:
            watch.say("kernel calls and round trips")
            first, many = (loaded(probes.dispatches(n), self._with(_UNFUSED)) for n in (1, 101))
            few, lots = watch.times([first, many], seconds=0.03)
            watch.dispatch_ns = max(1.0, (lots - few) / (many.calls() - first.calls()))
            watch.roundtrip_ns = max(10.0, few - watch.dispatch_ns * first.calls())
        watch.say("copies")
        copy = Curve.through(self._copies())
        upload = readback = copy
        thunk = 0.0
        products: dict[str, dict[str, Curve]] = {}
        if self._software:
            # On a software adapter transfers are copies; arithmetic says more about its speed.
            watch.say("products")
            products = self._products()
        if not self._on_host:
            watch.say("transfers")
            nothing = watch.roundtrip_ns + watch.dispatch_ns
            upload = Curve.through(self._transfers(lambda n: [probes.upload(n)], nothing))
            # The second graph has a kernel more.
            graphs = _both(probes.readback)
            readback = Curve.through(self._transfers(graphs, -watch.dispatch_ns))
            thunk = self._thunk()
        if not products:
            watch.say("products")
            products = self._products()
        result = Calibration(
            identity=identity_of(self._target.info),
            threads=thread_count() if self._on_host else 1,
            unified_memory=self._on_host,
            roundtrip_ns=watch.roundtrip_ns,
            dispatch_ns=watch.dispatch_ns,
            host_thunk_ns=thunk,
            upload_ns_by_bytes=upload,
            readback_ns_by_bytes=readback,
            copy_ns_by_bytes=copy,
            **products,
            kernel_ns_by_work={},
            row_ns_by_kind={},
            serial_ns_by_kind={},
            measured_at_unix_s=time.time(),
            measuring_s=0.0,
        )
        if not self._on_host and not self._software:
            result = self._waiting(result)
        return replace(self._kernels(result), measuring_s=watch.elapsed())

    def _first_graphs(self) -> Iterator[tuple[Graph, Target]]:
        """Graphs with the kernels of the figures that tell most.

        A driver takes long to compile a kernel, but it compiles several at once.
        """
        for size, _ in _PRODUCTS:
            yield probes.product(DType.F32, size, size, 1), self._target
        for size in _THIN:
            yield probes.product(DType.F32, size, 1, 1), self._target
        for size in _NARROW:
            yield probes.narrow(size, size, 1), self._target
        for value in (0, 1):
            for probe in probes.PROBES:
                sizes = probe.large, probe.waiting or min(probe.sizes)
                if value == 0 or probe.kind in SERIAL:
                    yield probes.chain(probe, probe.shape(sizes[value]), 1), self._target
        for size in _COPIES:
            yield probes.copies(size, 1), self._with(_APART)
        if "shader-f16" in self._target.info.features:
            for size, _ in _PRODUCTS_F16:
                yield probes.product(DType.F16, size, size, 1), self._with(_HALF)

    # --- copies, products, transfers ---------------------------------------------------------------

    def _copies(self) -> Iterator[tuple[float, float]]:
        """Bytes and time."""
        ns, target = 0.0, self._with(_APART)
        sizes = _COPIES[:-1] if self._software else _COPIES
        for before, size in zip((0, *sizes), sizes):
            if before and not self._watch.worth(ns * size / before * 2):
                return
            ns = self._watch.slope(_of(probes.copies, size), 4, target)
            # Read and written, four bytes each.
            yield 8.0 * size, ns

    def _products(self) -> dict[str, dict[str, Curve]]:
        slope = self._watch.slope
        square = {"f32": self._square(DType.F32, self._target)}
        wide = _THIN[-1:] if self._software else _THIN
        thin = narrow = square["f32"]  # where there is no time for their own
        if self._watch.left() > 0:
            thin = Curve.through(
                (2.0 * k * k, slope(_of(probes.product, DType.F32, k, 1), 8)) for k in wide
            )
        few = _NARROW[-1:] if self._software else _NARROW
        if self._watch.left() > 0:
            narrow = Curve.through(
                (2.0 * k * k * NARROW, slope(_of(probes.narrow, k, k), 3)) for k in few
            )
        if self._on_host:
            square["f64"] = self._square(DType.F64, self._target)
        elif "shader-f16" in self._target.info.features and not self._software:
            square["f16"] = self._square(DType.F16, self._with(_HALF), _PRODUCTS_F16)
        return {
            "matmul_ns_by_flops": square,
            "thin_matmul_ns_by_flops": {"f32": thin},
            "narrow_matmul_ns_by_flops": {"f32": narrow},
        }

    def _square(
        self, dtype: DType, target: Target, sizes: Sequence[tuple[int, int]] = _PRODUCTS
    ) -> Curve:
        points: list[tuple[float, float]] = []
        for size, steps in sizes[:2] if self._software else sizes:
            flops = 2.0 * size**3
            # A curve needs two points. The second is small, so it is measured even on a busy machine.
            if len(points) > 1 and not self._watch.worth(points[-1][1] * flops / points[-1][0] * 2):
                break
            points.append(
                (flops, self._watch.slope(_of(probes.product, dtype, size, size), steps, target))
            )
        return Curve.through(points)

    def _transfers(
        self, graphs: Callable[[int], Sequence[Graph]], less: float
    ) -> Iterator[tuple[float, float]]:
        """Bytes, and the time of the first graph without that of a second and without ``less``."""
        spent = 0.0
        for before, size in zip((0, *_TRANSFERS), _TRANSFERS):
            if before and not self._watch.worth(spent * size / before):
                return
            with self._watch.loading() as loaded:
                times = self._watch.times([loaded(graph, self._target) for graph in graphs(size)])
            spent, nbytes = times[0], 4.0 * size
            yield nbytes, max(times[0] - sum(times[1:]) - less, nbytes / FASTEST_TRANSFER)

    def _thunk(self) -> float:
        if self._watch.left() <= 0:
            return self._watch.roundtrip_ns  # it stops the run once more
        with self._watch.loading() as loaded:
            graphs = _both(probes.host_part)(64)
            cut, whole = self._watch.times([loaded(graph, self._target) for graph in graphs])
        return max(0.0, cut - whole)

    # --- kinds of kernels --------------------------------------------------------------------------

    def _kernels(self, figures: Calibration) -> Calibration:
        """The figures with those of every kind that there is time for.

        Where time is left each is measured once more, at another moment; the better figure stays.
        """
        points: dict[str, dict[int, tuple[float, float]]] = {}
        for probe, size in self._order() * _ROUNDS:
            self._watch.say(probe.kind)
            if self._watch.left() <= 0 and points:  # the first kind is taken however late it is
                break
            own = points.setdefault(probe.kind, {})
            largest = max(own, default=size)
            if size > largest and not self._watch.worth(own[largest][1] * size / largest * 3):
                continue
            model = CalibratedModel(self._device, figures)
            result = self._kernel(probe, probe.shape(size), model)
            if result is None:
                continue
            limit = size > max(own, default=0)
            own[size] = min(result[:2], own.get(size, result[:2]), key=lambda point: point[1])
            curves = {kind: Curve.through(some.values()) for kind, some in points.items() if some}
            figures = replace(figures, kernel_ns_by_work=curves)
            if probe.short is not None and limit:
                rows = self._rows(probe, size, CalibratedModel(self._device, figures))
                figures = replace(figures, row_ns_by_kind={**figures.row_ns_by_kind, **rows})
        return figures

    def _waiting(self, figures: Calibration) -> Calibration:
        """The figures with the time of a step of every kind whose steps wait for each other."""
        rows, size = _WAITING_PRODUCT
        ns = self._watch.slope(_of(probes.product, DType.F32, size, rows), 8)
        results = {"product": ns / size}
        by_kind = {probe.kind: probe for probe in probes.PROBES}
        # The probes with the longest waits come first.
        for probe in (by_kind[kind] for kind in SERIAL if kind in by_kind):
            if self._watch.left() <= 0.4 * BUDGET_S:
                break
            self._watch.say(f"{probe.kind}, little of it")
            shape = probe.shape(probe.waiting or min(probe.sizes))
            model = CalibratedModel(self._device, figures)
            node = next(
                node
                for node in probes.chain(probe, shape, 1).nodes
                if probe.kind in serial_steps(node)
            )
            measured = self._kernel(probe, shape, model)
            if measured is not None:
                results[probe.kind] = measured[1] / serial_steps(node)[probe.kind]
            figures = replace(figures, serial_ns_by_kind=results)
        return figures

    def _order(self) -> list[tuple[probes.Probe, int]]:
        """Every kind at one size first, then the others: what time runs out for tells least.

        On a GPU a small kernel takes hardly more than its dispatch, so the large ones tell more.
        """
        sizes = {
            probe.kind: probe.sizes
            if self._on_host or self._software
            else tuple(dict.fromkeys((probe.large, probes.MEDIUM)))
            for probe in probes.PROBES
        }
        return [
            (probe, sizes[probe.kind][i])
            for i in range(max(map(len, sizes.values())))
            for probe in probes.PROBES
            if i < len(sizes[probe.kind])
        ]

    def _rows(self, probe: probes.Probe, size: int, model: CalibratedModel) -> dict[str, float]:
        """Returns the added cost of a row, by the same elements in short rows."""
        assert probe.short is not None
        result = self._kernel(probe, probe.short(size), model)
        if result is None:
            return {}
        work, ns, rows = result
        return {probe.kind: max(0.0, ns - model.kernel_ns(probe.kind, work)) / rows}

    def _kernel(
        self, probe: probes.Probe, shape: tuple[int, ...], model: CalibratedModel
    ) -> tuple[float, float, float] | None:
        """Work, time and surplus rows of one step of a chain, the known parts of it taken away."""
        watch = self._watch
        try:
            with self._watch.loading() as loaded:
                short = loaded(probes.chain(probe, shape, 1), self._target)
                if watch.is_clear(short):
                    steps, calls = 1, short.calls()
                    added = _work(short.lowered.graph, probe.kind)
                    spent = watch.times([short])[0] - watch.roundtrip_ns
                else:
                    steps = self._steps
                    long = loaded(probes.chain(probe, shape, 1 + steps), self._target)
                    calls = long.calls() - short.calls()
                    less = _work(short.lowered.graph, probe.kind)
                    more = _work(long.lowered.graph, probe.kind)
                    added = {name: amount - less.get(name, 0.0) for name, amount in more.items()}
                    few, lots = watch.times([short, long])
                    spent = lots - few
        except (CompileError, DeviceMemoryError):
            return None  # its stand-in serves
        work, rows = added.pop(probe.kind, 0.0), added.pop(_ROWS, 0.0)
        others = [
            model.kernel_ns(kind, amount / steps) for kind, amount in added.items() if amount > 0
        ]
        own = max(spent - watch.dispatch_ns * calls - sum(others) * steps, _OWN * spent, 1.0)
        return (work / steps, own / steps, rows / steps) if work else None

    def _with(self, options: CompileOptions) -> Target:
        return Target.of(self._device, options)


def _of(graph: Callable[..., Graph], *args: Any) -> Callable[[int], Graph]:
    """The graph of so many steps."""
    return lambda steps: graph(*args, steps)


def _both(graph: Callable[[int, bool], Graph]) -> Callable[[int], Sequence[Graph]]:
    """With what is measured, and without."""
    return lambda size: [graph(size, True), graph(size, False)]


def _work(graph: Graph, kind: str) -> dict[str, float]:
    """The work of a graph by kind, and the surplus rows of one kind."""
    total: defaultdict[str, float] = defaultdict(float)
    for node in graph.nodes:
        if node.op not in FREE:
            work = work_of(node)
            for name, amount in work.items():
                total[name] += amount
            if kind in work and kind in ROWED:
                total[_ROWS] += more_rows(node)
    return total

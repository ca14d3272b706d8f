"""Watching runs: a trace of everything that happens, and a profile of the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

from rlx.backends.base import Executable
from rlx.backends.recorder import Recorder
from rlx.cost.model import BackendCostModel
from rlx.device.figures import cost_model
from rlx.errors import CompileError, InputError, RlxError, describe
from rlx.ir.spans import Span
from rlx.runtime.inputs import Inputs
from rlx.runtime.loaded import Loaded, Part
from rlx.runtime.profile import Profile, Totals
from rlx.runtime.watched import WatchedExecutable

if TYPE_CHECKING:
    from rlx.cost.estimate import NodeCost


class Observed(Part):
    """The part of ``CompiledGraph`` that watches runs.

    Args:
        loaded: The graph.
        inputs: Takes the inputs.
        phases: What the compile took its time for.
    """

    __slots__ = ("_inputs", "_totals", "phases")

    def __init__(self, loaded: Loaded, inputs: Inputs, phases: tuple[Span, ...]) -> None:
        super().__init__(loaded)
        self._inputs, self.phases = inputs, phases
        self._totals = Totals() if loaded.target.options.profile else None
        self._keep_totals()

    @contextmanager
    def trace(self, path: str | PathLike[str]) -> Iterator[None]:
        """Writes a trace of the compile and of the runs inside the ``with``, for ui.perfetto.dev.

        It holds the phases of the compile; every call and what it is made of (upload, encode, submit,
        wait, read-back, parts that run on the host); one span per kernel with its node, types, grid,
        bytes, flops and speeds; and counters of the bytes moved. A device whose capabilities lack
        ``device_timestamps`` shows whole calls only. Runs inside are slower than others, most of all
        on a GPU, where each kernel gets a pass of its own; those outside are as fast as ever.

        ``run_slots`` is another function inside: calls through one that was taken before, as in
        ``run = cg.run_slots``, are not traced. What was recorded is written also when the block
        raises, and everything is kept in memory until then: some hundred bytes for each span.

        Args:
            path: The file; an older one is replaced.

        Raises:
            InputError: The file can't be written (before anything runs), or this CompiledGraph is
                being traced already, or is closed.
            DeviceLostError: At the end, once the file is written: the device was lost inside, and
                ``recover`` was not called.

        Example:
            >>> import numpy as np, rlx, json, tempfile, os
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.exp(g.input("x", (2,)))])
            >>> cg = rlx.compile(g, device="cpu")
            >>> path = os.path.join(tempfile.mkdtemp(), "trace.json")
            >>> with cg.trace(path):
            ...     outputs = cg.run({"x": np.zeros(2, np.float32)})
            >>> events = json.load(open(path))["traceEvents"]
            >>> [e["name"] for e in events if e.get("cat") == "kernel"]
            ['exp/elementwise']
        """
        from rlx.runtime.trace import check_writable, write_trace

        self._loaded.open()
        self._unwatched()
        file = Path(path).absolute()
        check_writable(file)
        recorder, info = Recorder(), self._loaded.target.info
        about = {
            "graph": self._loaded.graph.name,
            "device": f"{self._loaded.target.device}: {info.adapter}",
            "driver": info.driver,
        }
        began = perf_counter_ns()
        try:
            with self._watched(recorder):
                yield
        finally:
            write_trace(
                file, recorder, self.phases, self._loaded.capabilities.host_memory, about, began
            )

    def profile(self, inputs: Mapping[str, Any] | None = None, runs: int = 20) -> Profile:
        """Where the time of a run goes, kernel by kernel.

        Args:
            inputs: Named inputs; None runs on what stands in ``input_views``. A graph that was
                compiled with ``CompileOptions(profile=True)`` and has run since makes no new runs
                for None: all of its runs so far are counted.
            runs: How many runs are made. They are runs like others: handles that are fed move on.

        Returns:
            The time, bytes and flops by kind of op and by node; ``str`` of it is a table.

        Raises:
            CompileError: The device can't take the time of kernels.
            InputError: See ``run``; or ``runs`` is less than 1, or a trace is open.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.exp(g.input("x", (64, 64)))])
            >>> found = rlx.compile(g, device="cpu").profile(runs=3)
            >>> [(row.name, row.calls, row.nbytes) for row in found.rows]
            [('exp', 1.0, 32768)]
        """
        self._loaded.open()
        if runs < 1:
            raise InputError(describe("runs of a profile", got=runs, expected="1 or more"))
        totals = self._totals
        if inputs is not None or totals is None or not totals.runs:
            self._needs_times()
            self._unwatched()
            if inputs is not None:
                self._owner.call(self._inputs.fill, inputs)
            totals = Totals()
            with self._watched(totals):
                for _ in range(runs):
                    self._loaded.run_slots()
        return totals.profile(str(self._loaded.target.device), self._model(), self.cost())

    def cost(self) -> list[NodeCost]:
        """What the cost model expects of every node, on the graph as it runs.

        Returns:
            Each node that runs, in order, with its floating-point operations, bytes, nanoseconds, and
            what bounds it: "compute", "memory", "dispatch", or "host" for a node that the CPU computes
            inside a graph on a GPU. The figures are those measured on the device if there are any;
            nothing is measured here.

        Example:
            >>> import rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (64, 64)) @ g.input("w", (64, 64))])
            >>> [(cost.node.op, cost.flops) for cost in rlx.compile(g, "cpu").cost()]
            [('matmul', 524288.0)]
        """
        from rlx.compiler.device_choice import lowering_of
        from rlx.cost.estimate import node_costs

        lowering = lowering_of(self._loaded.lowered, self._loaded.target)
        return node_costs(self._loaded.lowered.graph, self._model(), lowering)

    def _model(self) -> BackendCostModel:
        return cost_model(self._loaded.target.device, self._loaded.target.info)

    # -----------------------------------------------------------------------------------------------

    def _keep_totals(self) -> None:
        """Watches every run from now on, if ``CompileOptions(profile=True)`` asks for it."""
        if self._totals is None:
            return
        try:
            self._needs_times()
        except CompileError:
            self._loaded.executable.close()
            raise
        self._watch(self._totals)

    def _needs_times(self) -> None:
        if not self._loaded.capabilities.device_timestamps:
            raise CompileError(
                describe(
                    f"{self._loaded.target.device} can't take the time of kernels",
                    got="capabilities.device_timestamps is False",
                    hint="cg.trace(path) shows the time of whole calls",
                )
            )

    def _unwatched(self) -> None:
        watched = self._loaded.executable
        if isinstance(watched, WatchedExecutable) and watched.recorder is not self._totals:
            raise InputError(
                describe(
                    f"{self._loaded.what} is being traced already",
                    hint="leave the trace around it first",
                )
            )

    @contextmanager
    def _watched(self, recorder: Recorder) -> Iterator[None]:
        """Records the calls inside it; the totals of ``CompileOptions(profile=True)`` pause."""

        def begin() -> None:
            self._unwatch()
            self._watch(recorder)

        def end() -> None:
            self._unwatch()
            self._keep_totals()

        self._owner.call(begin)
        try:
            yield
        finally:
            if not self._loaded.closed:
                self._owner.call(end)

    def suspend(self) -> tuple[Recorder, Mapping[str, int]] | None:
        """Stops watching, so that another executable can take the place of the one that is watched.

        Returns:
            What ``resume`` needs; None where nobody watches.
        """
        watched = self._loaded.executable
        again = None
        if isinstance(watched, WatchedExecutable):
            again = watched.recorder, watched.moved()
        with suppress(RlxError):  # what is lost may fail again
            self._unwatch()
        return again

    def resume(self, again: tuple[Recorder, Mapping[str, int]] | None) -> None:
        """Watches the executable that is now in use as the one before it."""
        if again is not None:
            self._watch(*again)

    def _watch(self, recorder: Recorder, moved: Mapping[str, int] | None = None) -> None:
        self._loaded.use(
            cast(Executable, WatchedExecutable(self._loaded.executable, recorder, moved))
        )

    def _unwatch(self) -> None:
        watched = self._loaded.executable
        if isinstance(watched, WatchedExecutable) and not self._loaded.closed:
            try:
                watched.end()
            finally:
                self._loaded.use(watched.plain)

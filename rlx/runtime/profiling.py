"""Traces of everything that runs do, and profiles of their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from rlx.errors import CompileError, InputError
from rlx.ir.spans import Span
from rlx.runtime.bind_inputs import bind_all
from rlx.runtime.run import choose_calls, execute, rebind
from rlx.runtime.state import RuntimeState

if TYPE_CHECKING:
    from rlx.backends.recorder import Recorder
    from rlx.cost.estimate import NodeCost
    from rlx.cost.model import BackendCostModel
    from rlx.runtime.profile import Profile, Totals


def record_all_runs(state: RuntimeState) -> Totals:
    """Begins to keep the kernel times of all runs, for ``CompileOptions(profile=True)``.

    Raises:
        CompileError: The device can't time kernels; the graph is closed then.
    """
    from rlx.runtime.profile import Totals

    try:
        _check_timestamps(state)
    except CompileError:
        state.executable.close()
        raise
    totals = Totals()
    _begin(state, totals)
    return totals


class ProfilingMethods:
    """The methods of ``CompiledGraph`` that watch runs."""

    __slots__ = ()
    _state: RuntimeState
    _phases: tuple[Span, ...]
    _totals: Totals | None

    @contextmanager
    def trace(self, path: str | PathLike[str]) -> Iterator[None]:
        """Writes a trace of the compile and of the runs inside the ``with``, for ui.perfetto.dev.

        It holds the phases of the compile; every call and what it is made of (upload, encode, submit,
        wait, read-back, parts that run on the host); one span per kernel with its node, types, grid,
        bytes, flops and speeds; and counters of the bytes moved. A device whose capabilities lack
        ``device_timestamps`` shows whole calls only. Runs inside are slower than others, most of all
        on a GPU, where each kernel gets a pass of its own; those outside are as fast as ever.

        ``run_slots`` is another function inside: calls through an earlier reference, as in ``run = cg.run_slots``, are
        not traced. What was recorded is written also when the block raises, and everything is kept in memory until
        then: some hundred bytes for each span.

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
        from rlx.backends.recorder import Recorder
        from rlx.runtime.trace import check_writable, write_trace

        state = self._state
        state.check_open()
        _check_untraced(state, self._totals)
        file = Path(path).absolute()
        check_writable(file)
        recorder, info = Recorder(), state.target.info
        about = {
            "graph": state.graph.name,
            "device": f"{state.target.device}: {info.adapter}",
            "driver": info.driver,
        }
        on_host = state.executable.capabilities.host_memory
        began = perf_counter_ns()
        try:
            with _recording(state, recorder, self._totals):
                yield
        finally:
            write_trace(file, recorder, self._phases, on_host, about, began)

    def profile(self, inputs: Mapping[str, Any] | None = None, runs: int = 20) -> Profile:
        """Profiles a run: the time of each kernel.

        Args:
            inputs: Named inputs; None runs on what stands in ``input_views``. A graph that was
                compiled with ``CompileOptions(profile=True)`` and has run since makes no new runs
                for None: all of its runs so far are counted.
            runs: How many runs are made. They are runs like others: handles that are fed move on.

        Returns:
            The time, bytes and flops by kind of op and by node; ``str`` of it is a table.

        Raises:
            CompileError: The device can't time kernels.
            InputError: See ``run``; or ``runs`` is less than 1, or a trace is open.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.exp(g.input("x", (64, 64)))])
            >>> found = rlx.compile(g, device="cpu").profile(runs=3)
            >>> [(row.name, row.calls, row.nbytes) for row in found.rows]
            [('exp', 1.0, 32768)]
        """
        from rlx.runtime.profile import Totals

        state, totals = self._state, self._totals
        state.check_open()
        if runs < 1:
            raise InputError("runs of a profile", got=runs, expected="1 or more")
        if inputs is not None or totals is None or not totals.runs:
            _check_timestamps(state)
            _check_untraced(state, self._totals)
            arrays = None if inputs is None else state.lock.call(bind_all, state, inputs)
            totals = Totals()
            with _recording(state, totals, self._totals):
                for _ in range(runs):
                    state.lock.call(_run, state, arrays)
        return totals.profile(str(state.target.device), _cost_model(state), self.cost())

    def cost(self) -> list[NodeCost]:
        """Returns the cost model's estimate for every node of the graph as it runs.

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
        from rlx.ir.static_sizes import with_sizes

        state = self._state
        lowering = lowering_of(state.lowered, state.target)
        graph = state.lowered.graph
        if state.sized is None or not graph.dims:
            return node_costs(graph, _cost_model(state), lowering)
        static = with_sizes(graph, state.sized.sizes)
        nodes = dict(zip(static.nodes, graph.nodes, strict=True))
        costs = node_costs(static, _cost_model(state), lowering)
        return [replace(cost, node=nodes[cost.node]) for cost in costs]


def _run(state: RuntimeState, arrays: list[Any] | None) -> None:
    state.check_params()
    bound = state.argument_views() if arrays is None else arrays
    execute(state, "run", bound, state.outputs, False)


def _cost_model(state: RuntimeState) -> BackendCostModel:
    from rlx.device.figures import cost_model

    return cost_model(state.target.device, state.target.info)


def _check_timestamps(state: RuntimeState) -> None:
    if not state.executable.capabilities.device_timestamps:
        raise CompileError(
            f"{state.target.device} can't time kernels",
            got="capabilities.device_timestamps is False",
            hint="cg.trace(path) shows the time of whole calls",
        )


def _check_untraced(state: RuntimeState, totals: Totals | None) -> None:
    if state.binding.recorder is not totals:
        raise InputError(f"{state.what} is being traced already", hint="end the outer trace first")


@contextmanager
def _recording(state: RuntimeState, recorder: Recorder, totals: Totals | None) -> Iterator[None]:
    """Records the calls inside it; the totals of ``CompileOptions(profile=True)`` pause."""
    state.lock.call(_begin, state, recorder)
    try:
        yield
    finally:
        if not state.closed:
            state.lock.call(_begin, state, totals)


def _begin(state: RuntimeState, recorder: Recorder | None) -> None:
    """Records later runs; None ends that."""
    try:
        rebind(state, recorder=recorder)
    except BaseException:
        if recorder is None:  # a lost device ends its recording too
            state.use_binding(state.binding._replace(recorder=None))
            choose_calls(state)
        raise
    if recorder is not None:
        recorder.begin_counting(state.executable.moved()._asdict())

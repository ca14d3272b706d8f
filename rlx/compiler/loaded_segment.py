"""The segments of a graph that computes sizes, loaded on their devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Never, cast

import numpy as np

from rlx._ext.locks import TryLock
from rlx._ext.program import SegmentRun
from rlx.backends.base import CompileOptions
from rlx.backends.executable import Binding, Executable, GpuExecutable, Pending, RunSlots, Source
from rlx.compiler.compile_cache import build
from rlx.compiler.control_flow import LoadedControl, loaded_control
from rlx.compiler.device_values import NO_VALUES, DeviceValues, device_values
from rlx.compiler.host_sizes import on_host
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.segments import Segment, SizeRead, cut
from rlx.compiler.sized import load_sized
from rlx.compiler.target import Target
from rlx.device.names import Device
from rlx.errors import GraphError, SizesError
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import computes_sizes
from rlx.ir.opdef import Array
from rlx.ir.states import states_of
from rlx.sizes import Dim, Size, SizeExpr, dims_of, value_of
from rlx.sizes.program import holds

if TYPE_CHECKING:
    from rlx.backends.recorder import Recorder


# An executable and the position of one of its outputs.
Place = tuple[GpuExecutable, int]


class Loader(NamedTuple):
    """Loads the graphs of segments for a device.

    Attributes:
        target: The device.
        options: The options.
        segmented: Loads a graph that computes sizes.
    """

    target: Target
    options: CompileOptions
    segmented: Callable[[Graph, Target, CompileOptions], LoadedGraph]

    def segments(self, graph: Graph) -> list[LoadedSegment]:
        """Cuts a graph and loads its segments. Those that are ahead of the device's run on the host."""
        able = self.target.capabilities
        parts = cut(graph, frozenset() if able.host_memory else on_host(graph))
        values = device_values(graph, parts) if able.gpu_buffers else NO_VALUES
        return [
            LoadedSegment(
                each,
                None if each.graph is None else self._of(each).loaded(each.graph),
                [loaded_control(control, self.loaded) for control in each.controls],
                values,
            )
            for each in parts
        ]

    def _of(self, segment: Segment) -> Loader:
        """The loader for the device of a segment."""
        if not segment.ahead:
            return self
        options = replace(self.options, precision="f32", io_gate=None)
        return self._replace(target=Target.of(Device("cpu"), options), options=options)

    def loaded(self, graph: Graph) -> LoadedGraph:
        """Loads a graph, in segments where it computes sizes."""
        if computes_sizes(graph):
            return self.segmented(graph, self.target, self.options)
        if graph.dims:
            return load_sized(graph, self.target, self.options, steady=True)
        return build(graph, self.target)


class LoadedSegment:
    """A segment with its executable.

    Args:
        segment: The segment.
        loaded: Its graph, loaded; None where there is nothing to run.
        controls: Its loops and branches, loaded.
        values: The values that stay on the device between segments.
    """

    def __init__(
        self,
        segment: Segment,
        loaded: LoadedGraph | None,
        controls: Sequence[LoadedControl],
        values: DeviceValues,
    ) -> None:
        self.segment, self.loaded, self._controls, self._values = segment, loaded, controls, values
        self._run = self._bound(segment.reads, None)

    @property
    def executable(self) -> Executable:
        """Its executable."""
        assert self.loaded is not None
        return self.loaded.executable

    @property
    def params(self) -> tuple[str, ...]:
        """The params that it reads."""
        return () if self.segment.graph is None else self.segment.graph.param_names

    @property
    def executables(self) -> list[Executable]:
        """Its executable and those of its loops and branches."""
        inner = [each.executable for control in self._controls for each in control.subgraphs]
        return inner if self.loaded is None else [self.executable, *inner]

    def clone(self) -> LoadedSegment:
        """Returns the same on memory of its own; params are shared."""
        controls = [control.clone() for control in self._controls]
        loaded = self.loaded
        if loaded is not None:
            loaded = loaded._replace(executable=loaded.executable.clone())
        return LoadedSegment(self.segment, loaded, controls, self._values)

    def places(self) -> dict[int, Place]:
        """The places of its values, by the ids of nodes."""
        if self.loaded is None or self.segment.ahead:
            return {}
        executable = cast(GpuExecutable, self.executable)
        return {node: (executable, i) for i, node in enumerate(self.segment.writes)}

    def states(self) -> dict[int, int]:
        """The states that it updates: by the id of the whole graph's input, its own input."""
        if self.segment.graph is None:
            return {}
        reads = self.segment.reads
        return {cast(int, reads[s.position]): s.position for s in states_of(self.segment.graph)}

    def bind(
        self, recorder: Recorder | None, residents: Sequence[int], places: Mapping[int, Place]
    ) -> None:
        """Sets how it runs; without a recorder by compiled calls where there are some.

        Args:
            recorder: Records runs.
            residents: The ids of the whole graph's states that it holds.
            places: The places of the values that segments of the device compute.
        """
        if self.segment.graph is None or self.loaded is None:
            return
        held = sorted(own for node, own in self.states().items() if node in residents)
        feeds = tuple(each for each in self.loaded.lowered.state_feeds if each[0] in held)
        taken = [
            Source(i, *places[read])
            for i, read in enumerate(self.segment.reads)
            if isinstance(read, int) and read in self._values.taken
        ]
        stays = self._values.taken - self._values.brought
        left = [i for i, node in enumerate(self.segment.writes) if node in stays]
        self._brought = [i for i in range(len(self.segment.writes)) if i not in left]
        binding = Binding(tuple(held), feeds, None, recorder, tuple(taken), frozenset(left))
        self.executable.bind(binding)
        lock = TryLock("a segment", "")
        calls = None if recorder else self.executable.compiled(lock, self.segment.graph.input_names)
        arguments = [read for i, read in enumerate(self.segment.reads) if i not in held]
        self._run = self._bound(arguments, self._submitted if calls is None else calls[0])
        self._start = self._bound(arguments, self._started)

    def _bound(self, arguments: Sequence[int | str], call: RunSlots | None) -> SegmentRun:
        """The run of the segment by a call that takes these arguments."""
        segment = self.segment
        names = sorted(frozenset[str]().union(*(guard.names() for guard in segment.guards)))
        return SegmentRun(
            [(read.dim.name, read.node, dim_bounds(read.dim), read) for read in segment.sizes],
            [(prefix.node, prefix.source, _length(prefix.length)) for prefix in segment.prefixes],
            [control.run for control in self._controls],
            (holds(segment.guards, names), names) if segment.guards else None,
            arguments,
            call,
            segment.writes,
            self._refuse,
        )

    def run(self, values: dict[int, Array], sizes: dict[str, int]) -> None:
        """Reads its sizes, and computes its values. See ``rlx._ext.program.SegmentRun``."""
        self._run.run(values, sizes)

    def start(
        self, values: dict[int, Array], sizes: dict[str, int], outputs: Sequence[int]
    ) -> Pending:
        """Does as ``run``, but does not wait for the device. Returns the run, which brings some of its results."""
        self._wanted = outputs
        self._start.run(values, sizes)
        return self._pending

    def _started(self, *arrays: Array) -> tuple[Array, ...]:
        self._pending = self.executable.submit(_plain(arrays), self._wanted, True)
        return self.executable.output_views  # without their values

    def _submitted(self, *arrays: Array) -> tuple[Array, ...]:
        """The results of an executable whose runs are not compiled, or recorded."""
        self.executable.submit(_plain(arrays), self._brought, False).wait()
        return self.executable.output_views

    def _refuse(self, what: SizeRead | Mapping[str, int], why: int | GraphError | None) -> Never:
        """Raises the error for a read of a value, or for sizes, with the error of an operation or None."""
        if isinstance(what, SizeRead):
            raise SizesError(
                f"a size that the graph computed is out of range: {what.where}",
                got=f"{what.dim.name} = {why}",
                expected=what.dim.expected,
            )
        said, names, expected = "a graph does not take the sizes that it computed", list(what), None
        if why is None:
            guard = next(guard for guard in self.segment.guards if not guard.holds(what))
            names, expected = sorted(guard.names()), str(guard)
        made = {name: f" ({where})" for name, where in self.segment.made.items()}
        got = ", ".join(f"{name} = {what[name]}{made.get(name, '')}" for name in names)
        if isinstance(why, GraphError):
            raise SizesError(said, got=got, hint=str(why)) from why
        raise SizesError(said, got=got, expected=expected)


def _plain(arrays: Sequence[Array]) -> list[Array]:
    return [np.ascontiguousarray(array) if array.ndim else array for array in arrays]


def dim_bounds(dim: Dim) -> tuple[int, int, int]:
    """The bounds of a dim as compiled runs take them."""
    return dim.min, -1 if dim.max is None else dim.max, dim.multiple_of


def _length(size: Size) -> str | Callable[[dict[str, int]], int]:
    """The length of a prefix: the name of a dim, or a function of the sizes."""
    if isinstance(size, SizeExpr) and size.terms == dims_of(size)[0].terms:
        return dims_of(size)[0].name
    return partial(value_of, size)

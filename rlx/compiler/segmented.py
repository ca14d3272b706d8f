"""Executables of graphs that compute sizes: one for each segment, run one after the other.

A segment's executable serves many sizes, as that of any graph with dims does. Values go from one segment to the next as
arrays of the host, without a copy on the CPU. On a GPU large values stay there; their arrays are no more than shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from rlx._ext.locks import TryLock
from rlx._ext.program import ExactInputs
from rlx.backends.arguments import as_array, check_args, check_slots
from rlx.backends.base import CompileOptions
from rlx.backends.executable import (
    Binding,
    Done,
    Executable,
    HostExecutable,
    Pending,
    RunDict,
    RunSlots,
    read_only,
)
from rlx.backends.state_memory import write_state
from rlx.compiler.device_values import beginnings, source_of
from rlx.compiler.loaded_segment import LoadedSegment, Loader, dim_bounds
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.lowered_module import LoweredModule
from rlx.compiler.precomputed_params import PrecomputedParams
from rlx.compiler.resizable import Resizable
from rlx.compiler.target import Target
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import InputSizes, computes_sizes
from rlx.ir.opdef import Array, TensorType
from rlx.ops.interpret import trips_of_a_run
from rlx.ops.known_sizes import with_known_sizes
from rlx.sizes import SizeExpr, dims_of

# For graphs without loops, whose trips need no bound.
_NO_BOUND = nullcontext()


def _exact(inputs: InputSizes, positions: Sequence[int]) -> ExactInputs | None:
    """Looks at arrays for some inputs; None where a size of one is more than one dim."""
    specs = []
    bounds: dict[str, tuple[int, int, int]] = {}
    for position in positions:
        type = inputs.declared[position]
        axes: list[int | str] = []
        for size in type.shape:
            dim = dims_of(size)[0] if isinstance(size, SizeExpr) else None
            if isinstance(size, SizeExpr) and (dim is None or dim.terms != size.terms):
                return None
            axes.append(size if dim is None else dim.name)
            bounds.update({} if dim is None else {dim.name: dim_bounds(dim)})
        specs.append((type.dtype.numpy.num, axes))
    return ExactInputs(specs, bounds)


class SegmentedExecutable(Resizable, HostExecutable):
    """See ``rlx.backends.executable.Executable``. The outputs of a run have the sizes that it computed.

    Args:
        graph: The whole graph.
        segments: Its segments, loaded.
        loader: Loads segments.

    Attributes:
        input_sizes: Reads the values of the dims of inputs from arrays.
    """

    def __init__(self, graph: Graph, segments: Sequence[LoadedSegment], loader: Loader) -> None:
        assert graph.assumptions is not None
        self._graph, self._segments, self._loader = graph, segments, loader
        self._run = [each for each in segments if each.loaded is not None]
        self.input_sizes = InputSizes(graph)
        self._sizes: dict[str, int] = {name: graph.assumptions.hints[name] for name in graph.dims}
        self._shown = self.input_sizes.names
        self._every = [executable for each in segments for executable in each.executables]
        self._loops = any(each.segment.controls for each in segments)
        own = [
            executable
            for each in segments
            if not each.segment.ahead
            for executable in each.executables
        ]
        # Those of the device: the host computes a few sizes ahead of it.
        self._own = own or self._every
        abilities = [executable.capabilities for executable in self._own]
        whole = replace(
            abilities[0],
            run_slots=True,
            arena_ptr=False,
            zero_copy_inputs=False,
            can_be_lost=any(each.can_be_lost for each in abilities),
            device_timestamps=all(each.device_timestamps for each in abilities),
            sized_programs=False,
            extent_programs=False,
            gpu_buffers=False,
            allocates=True,
        )
        # No output has a size before the first run.
        outputs = [
            TensorType(tuple(0 if isinstance(n, SizeExpr) else n for n in node.shape), node.dtype)
            for node in graph.outputs
        ]
        self._views: tuple[Array, ...] = ()
        super().__init__(self.input_sizes.types(self._sizes), outputs, whole)
        self._inputs = [graph.named(name).id for name in graph.input_names]
        # By the position of an input that is a state, the segment that updates it, and that segment's input.
        self._states = {
            self._inputs.index(node): (each, own)
            for each in segments
            for node, own in each.states().items()
        }
        self._results = [node.id for node in graph.outputs]
        last = segments[-1].segment
        made = {node: i for i, node in enumerate(last.writes)}
        self._places = [made.get(node, -1) for node in self._results]
        device = segments[-1].loaded is not None and not abilities[0].host_memory
        # Whether the last run was not waited for.
        self._is_ahead = False
        self._ends_on_device = device and not last.ahead and -1 not in self._places
        self.bind(Binding())

    @property
    def loaded(self) -> LoadedGraph:
        """The lowered segments, with this executable."""
        lowered = tuple(each.loaded.lowered for each in self._run if each.loaded is not None)
        notes = tuple(note for each in lowered for note in each.notes)
        module = LoweredModule(self._graph, notes, None, None, segments=lowered)
        names = frozenset(self._graph.param_names)
        return LoadedGraph(module, self, PrecomputedParams((), names, self._loader.options))

    # --- sizes -----------------------------------------------------------------------------------

    @property
    def sizes(self) -> Mapping[str, int]:
        """The values of all dims in the last run."""
        return self._sizes

    def sizes_of(self, shapes: Mapping[int, Sequence[int]]) -> dict[str, int]:
        """Returns the sizes that arguments of these shapes, by position, show; handles say theirs.

        Raises:
            InputError: They do not fit.
        """
        if self._held:
            views = self.input_views
            shapes = {**{i: views[i].shape for i in self._held}, **shapes}
        return self.input_sizes.values(shapes, self._input_sizes())

    def exact(self, inputs: Any) -> list[Array] | None:
        """See ``Resizable``."""
        if type(inputs) is not dict or len(inputs) != len(self._names) or self._exact is None:
            return None
        arrays: list[Any] = [inputs.get(name) for name in self._names]
        return arrays if self._exact.sizes_of(arrays) is not None else None

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Has ``input_views`` be of other sizes. The values of inputs that are no handles are lost."""
        self._sizes.update(sizes)

    def _input_sizes(self) -> dict[str, int]:
        return {name: self._sizes[name] for name in self._shown}

    # --- runs ------------------------------------------------------------------------------------

    def bind(self, binding: Binding) -> None:
        """Sets how later runs are made; the segments know who records, and hold states."""
        held = [self._inputs[i] for i in binding.residents if i in self._states]
        places = {node: place for each in self._segments for node, place in each.places().items()}
        sources = beginnings(each.segment for each in self._segments)
        for node in sources:
            if (whole := source_of(node, sources)) in places:
                places[node] = places[whole]
        for each in self._segments:
            each.bind(binding.recorder, held, places)
        self.binding = binding
        positions = binding.arguments(len(self._inputs))
        self._arguments = [self._inputs[i] for i in positions]
        self._names = [self._graph.input_names[i] for i in positions]
        # Other residents than states are arguments of segments.
        self._held = [i for i in binding.residents if i not in self._states]
        self._exact = None if self._held else _exact(self.input_sizes, positions)

    def submit(
        self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
    ) -> Pending:
        """Runs all segments. Where the last one makes all outputs on a device, fresh ones are not waited for."""
        shown = None if self._exact is None else self._exact.sizes_of(arrays)
        if shown is None:
            values, sizes = self._bound(arrays)
        else:
            values = {i: array for i, array in zip(self._arguments, arrays) if array is not None}
            sizes = self._sizes | shown
        if fresh and self._ends_on_device and not self.binding.feeds:
            for each in self._segments[:-1]:
                each.run(values, sizes)
            places = [self._places[i] for i in outputs]
            result = self._segments[-1].start(values, sizes, places)
            self._sizes, self._is_ahead = sizes, True
            return result
        self._compute(values, sizes)
        if fresh:
            return Done([self.output_views[i].copy() for i in outputs])
        return Done([self.output_views[i] for i in outputs])

    def _bound(self, arrays: Sequence[Array | None]) -> tuple[dict[int, Array], dict[str, int]]:
        """Values of inputs by their ids, from the views where there are no arguments, and the sizes that they show."""
        positions = self.binding.arguments(len(self._inputs))
        given = {i: a for i, a in zip(positions, arrays, strict=True) if a is not None}
        sizes = dict(self._sizes)
        if self._shown:
            sizes.update(self.sizes_of({i: array.shape for i, array in given.items()}))
        if len(given) < len(positions) or self._held:
            self.resize({name: sizes[name] for name in self._shown})
            given = {**dict(enumerate(self.input_views)), **given}
        return {self._inputs[i]: array for i, array in given.items()}, sizes

    def _compute(self, values: dict[int, Array], sizes: dict[str, int]) -> None:
        """Runs all segments.

        Args:
            values: By the ids of inputs, arrays that have the sizes of the inputs' dims.
            sizes: These sizes.
        """
        trips = trips_of_a_run(self._loader.options.max_iterations) if self._loops else _NO_BOUND
        with trips:
            for each in self._segments:
                each.run(values, sizes)
        self._sizes = sizes
        self._outputs, self._is_ahead = [values[i] for i in self._results], False
        for index, output in self.binding.feeds:
            self.input_views[index][...] = values[self._results[output]]

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict]:
        """See ``Executable``. Arrays that are just as the inputs say cost no more than a look at them."""

        def fits(arrays: Sequence[Any]) -> bool:
            sizes = None if self._exact is None else self._exact.sizes_of(arrays)
            if sizes is None:
                return False
            self._compute(dict(zip(self._arguments, arrays, strict=True)), self._sizes | sizes)
            return True

        def run_dict(inputs: Any) -> list[Array] | None:
            arrays = self.exact(inputs)
            if arrays is None or not fits(arrays):
                return None
            return [array.copy() for array in self._outputs]

        def run_slots(arrays: tuple[Any, ...]) -> tuple[Array, ...]:
            if not arrays or not fits(arrays):
                positions = self.binding.arguments(len(names))
                check_slots(arrays, len(positions) if arrays else 0)
                found = [as_array(array) for array in arrays]
                shapes = {i: a.shape for i, a in zip(positions, found, strict=False)}
                self.resize(self.sizes_of(shapes))
                views = [self.input_views[i] for i in positions]
                self.submit(check_args(found, views) if arrays else views, (), False)
            return self.output_views

        return lambda *arrays: lock.call(run_slots, arrays), lambda inputs: lock.call(
            run_dict, inputs
        )

    @property
    def output_views(self) -> tuple[Array, ...]:
        """The outputs of the last run; without their values where it was not waited for."""
        if self._is_ahead:
            views = self._segments[-1].executable.output_views
            return tuple(views[place] for place in self._places)
        return tuple(map(read_only, self._outputs))

    @output_views.setter
    def output_views(self, views: tuple[Array, ...]) -> None:
        self._outputs = list(views)

    def read_row(self, output: int, row: int) -> Array:
        """Returns a row of an output of the last run, wherever that is."""
        if self._is_ahead:
            return self._segments[-1].executable.read_row(self._places[output], row)
        return super().read_row(output, row)

    @property
    def input_views(self) -> tuple[Array, ...]:
        """Returns an array for each input, of the last sizes; ``resize`` changes them."""
        if self._shown:
            self._views = tuple(
                view if view.shape == type.shape else np.zeros(type.shape, type.dtype.numpy)
                for view, type in zip(self._views, self.input_sizes.types(self._sizes), strict=True)
            )
        return self._views

    @input_views.setter
    def input_views(self, views: tuple[Array, ...]) -> None:
        self._views = views

    def compute(self, inputs: Sequence[Array], targets: Sequence[Array]) -> None:
        """Not called: outputs have no sizes before a run."""
        raise NotImplementedError

    # --- the rest --------------------------------------------------------------------------------

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Gives weights to every segment that reads them."""
        for each in self._run:
            assert each.loaded is not None
            names = values.keys() & set(each.params)
            if names:
                own = each.loaded.precomputed.apply({name: values[name] for name in names})
                each.executable.set_params(own)

    def read_param(self, name: str) -> Array:
        """Returns a copy of the weight."""
        for each in self._run:
            assert each.loaded is not None
            if name in each.params:
                return each.loaded.precomputed.read(name, each.executable.read_param)
        node = self._graph.named(name)
        return np.zeros(node.shape, node.dtype.numpy)

    def write_input(self, index: int, array: Array) -> None:
        """Writes the input's view, or the state. The array says the sizes of dims that it shows."""
        if index in self._states:
            segment, own = self._states[index]
            segment.executable.write_input(own, array)
            if self.capabilities.can_be_lost:  # ``recover`` takes it from here
                write_state(self.input_views[index], array)
            return
        self.resize(self.input_sizes.values({index: array.shape}, self._input_sizes()))
        self.input_views[index][...] = array

    def read_input(self, index: int) -> Array:
        """Returns a copy of the input's view, or of the state."""
        if index not in self._states:
            return super().read_input(index)
        segment, own = self._states[index]
        return segment.executable.read_input(own)

    def executables(self) -> Sequence[Executable]:
        """Returns those of the segments."""
        return self._every

    def kernels(self) -> str:
        """Lists those of each segment."""
        return "\n".join(
            f"# segment {number}\n{executable.kernels()}"
            for number, executable in enumerate(self._every, 1)
        )

    def clone(self) -> SegmentedExecutable:
        """Returns the same on memory of its own; params are shared."""
        clones = [each.clone() for each in self._segments]
        return SegmentedExecutable(self._graph, clones, self._loader)

    def renewed(self) -> SegmentedExecutable:
        """Returns an executable of the same graph on a device that was opened again, without params."""
        return SegmentedExecutable(self._graph, self._loader.segments(self._graph), self._loader)

    def discard_device(self) -> None:
        """See ``Executable``."""
        self._own[0].discard_device()


def load_segmented(graph: Graph, target: Target, options: CompileOptions) -> LoadedGraph:
    """Compiles a graph that reads sizes of values: its segments, each for all sizes that the device can.

    Args:
        graph: A verified graph with ``read_size`` nodes.
        target: The device.
        options: The options.

    Raises:
        GraphError: See ``rlx.compiler.segments.cut``.
        RlxError: As ``rlx.compiler.compile_cache.build``.
    """
    graph, loader = with_known_sizes(graph), Loader(target, options, load_segmented)
    if not computes_sizes(graph):
        return loader.loaded(graph)
    return SegmentedExecutable(graph, loader.segments(graph), loader).loaded

"""Executables of graphs that compute sizes: one for each segment, run one after the other.

A segment's executable serves many sizes, as that of any graph with dims does. Values go from one segment to the next as
arrays of the host, without a copy on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Never

import numpy as np

from rlx._ext.locks import TryLock
from rlx.backends.arguments import as_array, check_args, check_slots
from rlx.backends.base import CompileOptions
from rlx.backends.executable import (
    Binding,
    Done,
    Executable,
    HostExecutable,
    Moved,
    RunDict,
    RunSlots,
    read_only,
)
from rlx.compiler.compile_cache import build
from rlx.compiler.control_flow import LoadedControl, loaded_control
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.lowered_module import LoweredModule
from rlx.compiler.precomputed_params import PrecomputedParams
from rlx.compiler.segments import Segment, SizeRead, cut
from rlx.compiler.sized import Resizable, load_sized
from rlx.compiler.target import Target
from rlx.errors import GraphError, SizesError
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import InputSizes, computes_sizes
from rlx.ir.opdef import Array, TensorType
from rlx.ops.interpret import trips_of_a_run
from rlx.ops.known_sizes import with_known_sizes
from rlx.sizes import Dim, SizeExpr, dims_of, value_of
from rlx.sizes.program import holds

if TYPE_CHECKING:
    from rlx.backends.recorder import Recorder


class _Loader(NamedTuple):
    """Loads the graphs of segments for a device."""

    target: Target
    options: CompileOptions

    def segments(self, graph: Graph) -> list[_LoadedSegment]:
        """Cuts a graph and loads its segments."""
        return [
            _LoadedSegment(
                each,
                None if each.graph is None else self.loaded(each.graph),
                [loaded_control(control, self.loaded) for control in each.controls],
            )
            for each in cut(graph)
        ]

    def loaded(self, graph: Graph) -> LoadedGraph:
        """Loads a graph, in segments where it computes sizes."""
        if computes_sizes(graph):
            return load_segmented(graph, *self)
        return load_sized(graph, *self) if graph.dims else build(graph, self.target)


class _LoadedSegment:
    """A segment with its executable.

    Args:
        segment: The segment.
        loaded: Its graph, loaded; None where there is nothing to run.
        controls: Its loops and branches, loaded.
    """

    def __init__(
        self, segment: Segment, loaded: LoadedGraph | None, controls: Sequence[LoadedControl]
    ) -> None:
        self.segment, self.loaded, self._controls = segment, loaded, controls
        names = sorted(frozenset[str]().union(*(guard.names() for guard in segment.guards)))
        self._names, self._holds = names, holds(segment.guards, names)
        self._run_slots: RunSlots | None = None

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

    def clone(self) -> _LoadedSegment:
        """Returns the same on memory of its own; params are shared."""
        controls = [control.clone() for control in self._controls]
        loaded = self.loaded
        if loaded is not None:
            loaded = loaded._replace(executable=loaded.executable.clone())
        return _LoadedSegment(self.segment, loaded, controls)

    def bind(self, recorder: Recorder | None) -> None:
        """Has runs be recorded; with None they are compiled calls where there are some."""
        if self.segment.graph is None:
            return
        self.executable.bind(Binding(recorder=recorder))
        lock = TryLock("a segment", "")
        calls = None if recorder else self.executable.compiled(lock, self.segment.graph.input_names)
        self._run_slots = calls and calls[0]

    def run(self, values: dict[int, Array], sizes: dict[str, int]) -> None:
        """Reads its sizes, and computes its values.

        Args:
            values: The values of nodes that are known, by the ids of these; it adds to them.
            sizes: The values of dims that are known; it adds to them.

        Raises:
            SizesError: A size is none that the graph takes.
        """
        segment = self.segment
        for read in segment.sizes:
            sizes[read.dim.name] = _value(read, values[read.node])
        for node, source, length in segment.prefixes:
            values[node] = values[source][: value_of(length, sizes)]
        for control in self._controls:
            control.run(values, sizes)
        if segment.guards and not self._holds(*(sizes[name] for name in self._names)):
            self._refuse(sizes)
        if segment.graph is None:
            return
        arrays = [
            np.empty((sizes[read], 0), np.uint8) if isinstance(read, str) else values[read]
            for read in segment.reads
        ]
        try:
            results = self._results(arrays)
        except GraphError as error:  # an operation of it does not take them
            raise SizesError(
                "a graph does not take the sizes that it computed",
                got=", ".join(f"{name} = {size}" for name, size in sizes.items()),
                hint=str(error),
            ) from error
        values.update(zip(segment.writes, results, strict=True))

    def _results(self, arrays: Sequence[Array]) -> Sequence[Array]:
        if self._run_slots is not None:
            return self._run_slots(*arrays)
        plain = [np.ascontiguousarray(array) if array.ndim else array for array in arrays]
        return self.executable.submit(plain, range(len(self.segment.writes)), False).wait()

    def _refuse(self, sizes: Mapping[str, int]) -> Never:
        guard = next(guard for guard in self.segment.guards if not guard.holds(sizes))
        raise SizesError(
            "a graph does not take the sizes that it computed",
            got=", ".join(f"{name} = {sizes[name]}" for name in sorted(guard.names())),
            expected=str(guard),
        )


class _Fitting:
    """Looks whether arrays are just as some inputs say, and which values of dims they show.

    Args:
        sizes: The sizes of all inputs.
        positions: The inputs.
    """

    def __init__(self, sizes: InputSizes, positions: Sequence[int]) -> None:
        self._inputs = []
        # Sizes that are more than one dim are looked at by ``InputSizes``.
        self._plain = True
        for position in positions:
            type = sizes.declared[position]
            axes = [dims_of(n)[0] if isinstance(n, SizeExpr) else n for n in type.shape]
            for axis, size in zip(axes, type.shape, strict=True):
                self._plain &= not isinstance(axis, Dim) or axis.terms == size.terms
            self._inputs.append((type.dtype.numpy, len(axes), tuple(axes)))

    def sizes_of(self, arrays: Sequence[Any]) -> dict[str, int] | None:
        """Returns the values of dims; None where an array is not just as its input says."""
        if not self._plain or len(arrays) != len(self._inputs):
            return None
        sizes: dict[str, int] = {}
        for array, (dtype, rank, axes) in zip(arrays, self._inputs, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != rank:
                return None
            if not (array.flags.c_contiguous and array.flags.aligned):
                return None
            for axis, size in zip(axes, array.shape, strict=True):
                if isinstance(axis, int):
                    if axis != size:
                        return None
                elif sizes.setdefault(axis.name, size) != size or not axis.takes(size):
                    return None
        return sizes


class SegmentedExecutable(HostExecutable, Resizable):
    """See ``rlx.backends.executable.Executable``. The outputs of a run have the sizes that it computed.

    Args:
        graph: The whole graph.
        segments: Its segments, loaded.
        loader: Loads segments.

    Attributes:
        input_sizes: Reads the values of the dims of inputs from arrays.
    """

    def __init__(self, graph: Graph, segments: Sequence[_LoadedSegment], loader: _Loader) -> None:
        assert graph.assumptions is not None
        self._graph, self._segments, self._loader = graph, segments, loader
        self._run = [each for each in segments if each.loaded is not None]
        self.input_sizes = InputSizes(graph)
        self._sizes: dict[str, int] = {name: graph.assumptions.hints[name] for name in graph.dims}
        self._shown = self.input_sizes.names
        self._every = [executable for each in segments for executable in each.executables]
        self._loops = any(each.segment.controls for each in segments)
        abilities = [executable.capabilities for executable in self._every]
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
        self._results = [node.id for node in graph.outputs]
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
        handles = {i: self.input_views[i].shape for i in self.binding.residents}
        return self.input_sizes.values({**handles, **shapes}, self._input_sizes())

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Has ``input_views`` be of other sizes. The values of inputs that are no handles are lost."""
        self._sizes.update(sizes)

    def _input_sizes(self) -> dict[str, int]:
        return {name: self._sizes[name] for name in self._shown}

    # --- runs ------------------------------------------------------------------------------------

    def bind(self, binding: Binding) -> None:
        """Sets how later runs are made; the segments know who records."""
        for each in self._segments:
            each.bind(binding.recorder)
        self.binding = binding

    def submit(self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool) -> Done:
        """Runs all segments to the end."""
        positions = self.binding.arguments(len(self._inputs))
        given = {i: a for i, a in zip(positions, arrays, strict=True) if a is not None}
        sizes = dict(self._sizes)
        if self._shown:
            sizes.update(self.sizes_of({i: array.shape for i, array in given.items()}))
        if len(given) < len(self._inputs):
            self.resize({name: sizes[name] for name in self._shown})
            given = {**dict(enumerate(self.input_views)), **given}
        self._compute([given[i] for i in range(len(self._inputs))], sizes)
        if fresh:
            return Done([self._outputs[i].copy() for i in outputs])
        return Done([read_only(self._outputs[i]) for i in outputs])

    def _compute(self, inputs: Sequence[Array], sizes: dict[str, int]) -> None:
        """Runs all segments on arrays that have the sizes of the inputs' dims."""
        values = dict(zip(self._inputs, inputs, strict=True))
        trips = (
            trips_of_a_run(self._loader.options.max_iterations) if self._loops else nullcontext()
        )
        with trips:
            for each in self._segments:
                each.run(values, sizes)
        self._sizes = sizes
        self._outputs = [values[i] for i in self._results]
        for index, output in self.binding.feeds:
            self.input_views[index][...] = self._outputs[output]

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict]:
        """See ``Executable``. Arrays that are just as the inputs say cost no more than a look at them."""
        positions = self.binding.arguments(len(names))
        args = tuple(names[i] for i in positions)
        fitting = _Fitting(self.input_sizes, positions)

        def fits(arrays: Sequence[Any]) -> bool:
            sizes = fitting.sizes_of(arrays)
            if sizes is None or len(positions) < len(names):
                return False
            self._compute(arrays, {**self._sizes, **sizes})
            return True

        def run_dict(inputs: Any) -> list[Array] | None:
            if type(inputs) is not dict or len(inputs) != len(args):
                return None
            arrays = [inputs.get(name) for name in args]
            return [array.copy() for array in self._outputs] if fits(arrays) else None

        def run_slots(arrays: tuple[Any, ...]) -> tuple[Array, ...]:
            if not arrays or not fits(arrays):
                check_slots(arrays, len(args) if arrays else 0)
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
        """The outputs of the last run."""
        return tuple(map(read_only, self._outputs))

    @output_views.setter
    def output_views(self, views: tuple[Array, ...]) -> None:
        self._outputs = list(views)

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
        """Writes the input's view. The array says the sizes of dims that it shows."""
        self.resize(self.input_sizes.values({index: array.shape}, self._input_sizes()))
        self.input_views[index][...] = array

    def moved(self) -> Moved:
        """Returns the sums of the segments."""
        moves = [executable.moved() for executable in self._every]
        return Moved(*map(sum, zip(*moves, strict=True)))

    def memory(self) -> dict[str, int]:
        """Returns the sums of the segments and of what they hold."""
        sums: dict[str, int] = {}
        for executable in self._every:
            for key, nbytes in executable.memory().items():
                sums[key] = sums.get(key, 0) + nbytes
        return sums

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
        self._every[0].discard_device()

    def close(self) -> None:
        """Closes the segments."""
        for executable in self._every:
            executable.close()


def _value(read: SizeRead, array: Array) -> int:
    """The value of a dim.

    Raises:
        SizesError: The dim does not take it.
    """
    value = int(array)
    if not read.dim.takes(value):
        raise SizesError(
            f"a size that the graph computed is out of range: {read.where}",
            got=f"{read.dim.name} = {value}",
            expected=read.dim.expected,
        )
    return value


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
    graph, loader = with_known_sizes(graph), _Loader(target, options)
    if not computes_sizes(graph):
        return loader.loaded(graph)
    return SegmentedExecutable(graph, loader.segments(graph), loader).loaded

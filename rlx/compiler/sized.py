"""Executables of graphs with dims: one program for each combination of sizes that a run brings.

The program of some sizes is that of the graph with these sizes in place of its dims. The programs that were used last are
kept. All have the same weights and the same handles.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rlx.backends.executable import (
    Binding,
    Capabilities,
    Executable,
    GpuBuffer,
    Moved,
    Pending,
    RunDict,
    RunSlots,
)
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.precomputed_params import PrecomputedParams
from rlx.errors import InputError
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import InputSizes
from rlx.ir.opdef import Array
from rlx.ir.static_sizes import with_sizes

if TYPE_CHECKING:
    from rlx._ext.locks import TryLock

# Programs that an executable keeps.
MAX_PROGRAMS = 16
Build = Callable[[Graph], LoadedGraph]
Values = Mapping[str, int]


class SharedParams:
    """The params that the programs of an executable and of its clones have in common.

    Attributes:
        values: The last value of each param.
        count: How many values were set so far.
        set_at: By param, the count when its last value was set.
    """

    def __init__(self) -> None:
        self.values: dict[str, Array] = {}
        self.set_at: dict[str, int] = {}
        self.count = 0

    def set(self, values: Mapping[str, Array]) -> None:
        """Keeps values."""
        self.count += 1
        for name, array in values.items():
            self.values[name] = array.copy() if array.flags.writeable else array
            self.set_at[name] = self.count

    def since(self, count: int) -> dict[str, Array]:
        """Returns the values that were set later."""
        return {name: self.values[name] for name, at in self.set_at.items() if at > count}


class _Program:
    """The program of some sizes.

    Attributes:
        sizes: The sizes.
        loaded: The lowered graph with its executable.
        params: How many values of params it has seen.
        binding: The binding that it has.
    """

    def __init__(self, sizes: Values, loaded: LoadedGraph) -> None:
        self.sizes, self.loaded, self.params = sizes, loaded, 0
        self.binding = Binding()

    @property
    def executable(self) -> Executable:
        return self.loaded.executable


class SizedExecutable:
    """See ``rlx.backends.executable.Executable``. A run chooses the program of its sizes.

    Args:
        graph: A graph with dims.
        build: Lowers and loads a graph.
        params: Values of params.

    Attributes:
        input_sizes: Reads the values of dims from arrays.
        capabilities: See ``Executable``.
        input_views: Those of the program of ``sizes``, as the others.
        output_views: See there.
        output_slots: See there.
    """

    capabilities: Capabilities
    input_views: tuple[Array, ...]
    output_views: tuple[Array, ...]
    output_slots: tuple[tuple[int, int], ...]

    def __init__(self, graph: Graph, build: Build, params: SharedParams | None = None) -> None:
        self._graph, self._build = graph, build
        self._names = graph.input_names
        self.input_sizes = InputSizes(graph)
        self._params = params or SharedParams()
        self._programs: OrderedDict[tuple[int, ...], _Program] = OrderedDict()
        self._binding = Binding()
        self._handles: dict[int, tuple[int, ...]] = {}
        self._closed_moves = Moved(0, 0, 0)
        assert graph.assumptions is not None
        self._use(self._program({name: graph.assumptions.hints[name] for name in graph.dims}))

    def _use(self, program: _Program) -> None:
        """Has later runs without arguments use a program."""
        executable = program.executable
        self._now, self.capabilities = program, executable.capabilities
        self.input_views, self.output_views = executable.input_views, executable.output_views
        self.output_slots = executable.output_slots

    # --- sizes -----------------------------------------------------------------------------------

    @property
    def sizes(self) -> Values:
        """The sizes of the last run, or those that ``resize`` was given."""
        return self._now.sizes

    @property
    def loaded(self) -> LoadedGraph:
        """The program of these sizes."""
        return self._now.loaded

    def resize(self, sizes: Values) -> None:
        """Chooses the program of some sizes.

        Raises:
            InputError: A handle has other sizes.
            RlxError: The graph can't be compiled for them.
        """
        if sizes == self._now.sizes:
            self._update(self._now)
            return
        shapes = [type.shape for type in self.input_sizes.types(sizes)]
        for index, shape in self._handles.items():
            if shape != shapes[index]:
                raise InputError(
                    f"the handle of input {self._names[index]!r} has another size",
                    got=str(shape),
                    expected=str(shapes[index]),
                    hint="bind it again for these sizes",
                )
        before = self._now.executable
        program = self._program(sizes)
        for index in self._handles:
            program.executable.write_input(index, before.read_input(index))
        self._use(program)

    def sizes_of(self, shapes: Mapping[int, Sequence[int]]) -> dict[str, int]:
        """Returns the sizes of a run with arguments of these shapes, by position; handles say theirs.

        Raises:
            InputError: They do not fit.
        """
        return self.input_sizes.values({**self._handles, **shapes}, self._now.sizes)

    def _program(self, sizes: Values) -> _Program:
        """The program of some sizes, with the params and the binding of now."""
        key = tuple(sizes[name] for name in self._graph.dims)
        program = self._programs.get(key)
        if program is None:
            program = _Program(dict(sizes), self._build(with_sizes(self._graph, sizes)))
            self._programs[key] = program
            if len(self._programs) > MAX_PROGRAMS:
                _, old = self._programs.popitem(last=False)
                self._closed_moves = _sum(self._closed_moves, old.executable.moved())
                old.executable.close()
        self._programs.move_to_end(key)
        self._update(program)
        return program

    def _update(self, program: _Program) -> None:
        """Gives a program the params and the binding that it has not."""
        if program.params != self._params.count:
            values = program.loaded.precomputed.apply(self._params.since(program.params))
            program.executable.set_params(values)
            program.params = self._params.count
        if program.binding is not self._binding:
            program.executable.bind(self._binding)
            program.binding = self._binding

    # --- the protocol ----------------------------------------------------------------------------

    def bind(self, binding: Binding) -> None:
        """See ``Executable``."""
        self._now.executable.bind(binding)
        self._now.binding = self._binding = binding
        self._handles = {
            index: self._now.executable.input_views[index].shape for index in binding.residents
        }

    def submit(
        self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
    ) -> Pending:
        """Starts a run of the program of its sizes."""
        arguments = self._binding.arguments(len(self._names))
        shapes = {
            i: array.shape for i, array in zip(arguments, arrays, strict=True) if array is not None
        }
        self.resize(self.sizes_of(shapes))
        return self._now.executable.submit(arrays, outputs, fresh)

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict] | None:
        """Returns None: each run first looks for its program."""
        return None

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Sets params of all programs, each when it is used next."""
        self._params.set(values)
        self._update(self._now)

    def read_param(self, name: str) -> Array:
        """See ``Executable``."""
        return self._params.values[name].copy()

    def write_input(self, index: int, array: Array) -> None:
        """See ``Executable``. The array says the sizes of dims that it shows."""
        rest = {i: shape for i, shape in self._handles.items() if i != index}
        sizes = self.input_sizes.values({**rest, index: array.shape}, self._now.sizes)
        self._handles.pop(index, None)
        self.resize(sizes)
        self._now.executable.write_input(index, array)
        if index in self._binding.residents:
            self._handles[index] = array.shape

    def read_input(self, index: int) -> Array:
        """See ``Executable``."""
        return self._now.executable.read_input(index)

    def read_row(self, output: int, row: int) -> Array:
        """See ``Executable``."""
        return self._now.executable.read_row(output, row)

    def arena(self) -> int:
        """See ``Executable``."""
        return self._now.executable.arena()

    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Returns the buffers of the program of ``sizes``."""
        return self._now.executable.gpu_buffers()

    def moved(self) -> Moved:
        """See ``Executable``."""
        moves = [program.executable.moved() for program in self._programs.values()]
        return _sum(self._closed_moves, *moves)

    def memory(self) -> dict[str, int]:
        """Returns the bytes of all programs that are kept."""
        result: dict[str, int] = {}
        for program in self._programs.values():
            for name, nbytes in program.executable.memory().items():
                result[name] = result.get(name, 0) + nbytes
        return result

    def kernels(self) -> str:
        """Returns those of the program of ``sizes``."""
        return self._now.executable.kernels()

    def clone(self) -> Executable:
        """See ``Executable``. The clone has programs of its own."""
        return SizedExecutable(self._graph, self._build, self._params)

    def renewed(self) -> SizedExecutable:
        """Returns an executable of the same graph on a device that was opened again, without params."""
        return SizedExecutable(self._graph, self._build)

    def discard_device(self) -> None:
        """See ``Executable``."""
        self._now.executable.discard_device()

    def close(self) -> None:
        """See ``Executable``."""
        for program in self._programs.values():
            program.executable.close()


def _sum(*moves: Moved) -> Moved:
    return Moved(*map(sum, zip(*moves, strict=True)))


def load_sized(graph: Graph, build: Build, params: PrecomputedParams) -> LoadedGraph:
    """Compiles a graph with dims for usual sizes; other sizes are compiled when a run brings them.

    Args:
        graph: A verified graph with dims.
        build: Lowers and loads a graph without dims.
        params: What ``LoadedGraph`` has for an executable that computes params by itself.

    Raises:
        RlxError: As ``build``.
    """
    executable = SizedExecutable(graph, build)
    return LoadedGraph(executable.loaded.lowered, executable, params)

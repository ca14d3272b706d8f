"""Executables of graphs with dims: programs for ranges of sizes, or one for each combination of sizes that a run brings.

Some backends have programs for many sizes. Such a program serves all sizes that keep the assumptions of its lowering. On other
backends, and for sizes of 0 and 1, numbers take the place of the dims, and the result is compiled as any graph is. The
programs that were used last are kept. All programs have the same params and the same handles.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rlx.backends.base import CompileOptions
from rlx.backends.executable import (
    Binding,
    Capabilities,
    Executable,
    GpuBuffer,
    Moved,
    Pending,
    RunDict,
    RunSlots,
    SizedProgram,
)
from rlx.compiler.compile_cache import build
from rlx.compiler.loading import LoadedGraph, load
from rlx.compiler.precomputed_params import PrecomputedParams
from rlx.compiler.target import Target
from rlx.errors import InputError, UnknownSizeError, UnsupportedOpError, first_line
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import InputSizes
from rlx.ir.opdef import Array
from rlx.ir.static_sizes import check_guards, with_sizes
from rlx.sizes import Assumptions, Guard, SizeExpr, deciding
from rlx.sizes import polynomial as poly
from rlx.sizes.guards import POSITIVE, ZERO
from rlx.sizes.program import holds

if TYPE_CHECKING:
    from rlx._ext.locks import TryLock

# Programs that an executable keeps: of single sizes, and of ranges.
MAX_PROGRAMS = 16
MAX_RANGES = 32
Values = Mapping[str, int]


class Builder(NamedTuple):
    """Lowers and loads graphs for one target.

    Attributes:
        static: Takes a graph without dims.
        sized: Takes a graph with dims, and the assumptions that it is lowered with; None where the backend has no programs
            for many sizes.
    """

    static: Callable[[Graph], LoadedGraph]
    sized: Callable[[Graph, Assumptions], LoadedGraph] | None


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
    """A program, which serves the sizes that it has now or a range of sizes.

    Attributes:
        sizes: The sizes that it has now.
        serves: Tells whether it serves values of the dims, in their order; None for a program of single sizes.
        loaded: The lowered graph with its executable.
        params: How many values of params it has seen.
        binding: The binding that it has.
    """

    def __init__(
        self, sizes: Values, loaded: LoadedGraph, serves: Callable[..., bool] | None = None
    ) -> None:
        self.sizes, self.loaded, self.params, self.serves = sizes, loaded, 0, serves
        self.binding = Binding()

    @property
    def executable(self) -> Executable:
        return self.loaded.executable


class SizedExecutable:
    """See ``rlx.backends.executable.Executable``. A run chooses the program of its sizes.

    Args:
        graph: A graph with dims.
        builder: Lowers and loads graphs.
        params: Values of params.
        ranges: Programs to begin with.

    Attributes:
        input_sizes: Reads the values of dims from arrays.
        capabilities: See ``Executable``.
        input_views: Those of the program in use, as the others.
        output_views: See there.
        output_slots: See there.
    """

    capabilities: Capabilities
    input_views: tuple[Array, ...]
    output_views: tuple[Array, ...]
    output_slots: tuple[tuple[int, int], ...]

    def __init__(
        self,
        graph: Graph,
        builder: Builder,
        params: SharedParams | None = None,
        ranges: Sequence[_Program] = (),
    ) -> None:
        self._graph, self._builder = graph, builder
        self._names = graph.input_names
        self.input_sizes = InputSizes(graph)
        self._params = params or SharedParams()
        self._programs: OrderedDict[tuple[int, ...], _Program] = OrderedDict()
        self._ranges = list(ranges)
        # Why the last program was made for single sizes, and dims that lowering needs as numbers.
        self._why = "" if builder.sized else "the device has no programs for many sizes"
        self._needed: frozenset[str] = frozenset()
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
    def loaded(self) -> LoadedGraph:
        """The program of the last run, or of the sizes that ``resize`` was given."""
        return self._now.loaded

    @property
    def sizes(self) -> Values:
        """The sizes of the last run, or those that ``resize`` was given."""
        return self._now.sizes

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
        held = {index: self._now.executable.read_input(index) for index in self._handles}
        program = self._program(sizes)
        for index, array in held.items():
            program.executable.write_input(index, array)
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
        program = self._of_a_range(key) or self._programs.get(key) or self._new_range(sizes, key)
        if program is None:
            loaded = self._builder.static(with_sizes(self._graph, sizes))
            said = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            noted = loaded.lowered.noted("sizes", f"a program for {said} alone: {self._why}")
            program = _Program(dict(sizes), loaded._replace(lowered=noted))
            self._programs[key] = program
            if len(self._programs) > MAX_PROGRAMS:
                self._drop(self._programs.popitem(last=False)[1])
        if program.serves is None:
            self._programs.move_to_end(key)
        elif program.sizes != sizes:
            self._closed_moves = _sum(self._closed_moves, _resize(program, sizes))
        self._update(program)
        return program

    def _drop(self, program: _Program) -> None:
        """Closes a program in whose place there is another one."""
        self._closed_moves = _sum(self._closed_moves, program.executable.moved())
        program.executable.close()

    def _of_a_range(self, key: tuple[int, ...]) -> _Program | None:
        """The program of a range that has these values of the dims."""
        for program in self._ranges:
            assert program.serves is not None
            if program.serves(*key):
                return program
        return None

    def _new_range(self, sizes: Values, key: tuple[int, ...]) -> _Program | None:
        """A new program of all sizes that lowering does not tell from some; None where there is none."""
        if self._builder.sized is None:
            return None
        check_guards(self._graph, sizes)
        fixed = {n: size for n, size in sizes.items() if size < 2 or n in self._needed}
        while len(fixed) < len(sizes):
            program = self._range(sizes, fixed)
            if isinstance(program, _Program):
                self._ranges.append(program)
                if len(self._ranges) > MAX_RANGES:
                    self._drop(self._ranges.pop(0))
                return program
            names = program.intersection(sizes.keys() - fixed.keys()) or sizes.keys()
            fixed |= {name: sizes[name] for name in names}
        self._why = self._why or "its sizes are 0 or 1"
        return None

    def _range(self, sizes: Values, fixed: Values) -> _Program | frozenset[str]:
        """A program of a range of sizes in which some dims are fixed; or the names of dims that have to be fixed, too."""
        assert self._builder.sized is not None
        graph = with_sizes(self._graph, fixed) if fixed else self._graph
        assumptions = Assumptions(sizes)
        try:
            loaded = self._builder.sized(graph, assumptions)
        except (UnknownSizeError, UnsupportedOpError) as error:
            self._why = first_line(error)
            self._needed |= getattr(error, "names", frozenset()) or sizes.keys()
            return self._needed
        varied = _varied(loaded.lowered.graph)
        broken = [guard.names() for guard in varied if not guard.holds(sizes)]
        if broken:
            loaded.executable.close()
            self._why = "a size inside of the graph is 0 or 1"
            return broken[0].union(*broken)
        guards = {**assumptions.guards, **varied, **_equal(self._graph, fixed)}
        if self._graph.assumptions is not None:
            guards |= self._graph.assumptions.guards
        return _Program(dict(sizes), loaded, holds(list(guards), list(self._graph.dims)))

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
        """Returns the buffers of the program in use."""
        return self._now.executable.gpu_buffers()

    def moved(self) -> Moved:
        """See ``Executable``."""
        moves = [program.executable.moved() for program in self._every()]
        return _sum(self._closed_moves, *moves)

    def memory(self) -> dict[str, int]:
        """Returns the bytes of all programs that are kept."""
        result: dict[str, int] = {}
        for program in self._every():
            for name, nbytes in program.executable.memory().items():
                result[name] = result.get(name, 0) + nbytes
        return result

    def kernels(self) -> str:
        """Returns those of the program in use."""
        return self._now.executable.kernels()

    def clone(self) -> Executable:
        """See ``Executable``. The clone has programs of its own."""
        ranges = []
        for program in self._ranges:
            loaded = program.loaded._replace(executable=program.executable.clone())
            copy = _Program(program.sizes, loaded, program.serves)
            copy.params = program.params
            ranges.append(copy)
        return SizedExecutable(self._graph, self._builder, self._params, ranges)

    def renewed(self) -> SizedExecutable:
        """Returns an executable of the same graph on a device that was opened again, without params."""
        return SizedExecutable(self._graph, self._builder)

    def discard_device(self) -> None:
        """See ``Executable``."""
        self._now.executable.discard_device()

    def close(self) -> None:
        """See ``Executable``."""
        for program in self._every():
            program.executable.close()

    def _every(self) -> list[_Program]:
        """All programs."""
        return [*self._ranges, *self._programs.values()]


def _equal(graph: Graph, fixed: Values) -> dict[Guard, None]:
    """Guards that dims have these values."""
    return {
        Guard(poly.add(graph.dims[name].terms, poly.constant(-value)), ZERO): None
        for name, value in fixed.items()
    }


def _sum(*moves: Moved) -> Moved:
    return Moved(*map(sum, zip(*moves, strict=True)))


def _resize(program: _Program, sizes: Values) -> Moved:
    """Gives a program of a range other sizes; returns the bytes that an executable moved which is closed for that."""
    executable, moved = cast(SizedProgram, program.executable), Moved(0, 0, 0)
    if executable.fits(sizes):
        executable.resize(sizes)
    else:
        grown, moved = executable.grown(sizes), executable.moved()
        executable.close()
        program.loaded, program.binding = program.loaded._replace(executable=grown), Binding()
    program.sizes = dict(sizes)
    return moved


def _varied(graph: Graph) -> dict[Guard, None]:
    """Guards that no size of a graph is 0 or 1: such sizes have programs of their own."""
    types = (type for node in graph.nodes for type in node.types)
    sizes: list[Any] = [size for type in types for size in type.shape]
    return {
        Guard(poly.add(size.terms, poly.constant(-1)), POSITIVE): None
        for size in sizes
        if isinstance(size, SizeExpr)
    }


def load_sized(graph: Graph, target: Target, options: CompileOptions) -> LoadedGraph:
    """Compiles a graph with dims for usual sizes; other sizes are compiled when a run brings them.

    Args:
        graph: A verified graph with dims.
        target: The device.
        options: The options.

    Raises:
        RlxError: As ``rlx.compiler.compile_cache.build``.
    """

    def sized(graph: Graph, assumptions: Assumptions) -> LoadedGraph:
        from rlx.compiler.sized_cache import lowered_for_sizes

        lowered = lowered_for_sizes(graph, target, assumptions)
        with deciding(assumptions):
            return load(lowered, target)

    able = target.capabilities.sized_programs and options.memory_limit is None
    builder = Builder(partial(build, target=target), sized if able else None)
    params = PrecomputedParams((), frozenset(graph.param_names), options)
    executable = SizedExecutable(graph, builder)
    return LoadedGraph(executable.loaded.lowered, executable, params)

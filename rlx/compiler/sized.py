"""Executables of graphs with dims: programs for ranges of sizes, or one for each combination of sizes that a run brings.

Some backends have programs for many sizes. Such a program serves all sizes that keep the assumptions of its lowering. On other
backends, numbers take the place of the dims, and the result is compiled as any graph is. The programs that were used last
are kept. All programs have the same params and the same handles.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import ref

from rlx._ext.locks import ReadWriteLock
from rlx._ext.program import SizedRuns
from rlx.backends.arguments import as_array, check_slots
from rlx.backends.base import CompileOptions
from rlx.backends.executable import (
    Binding,
    Capabilities,
    Executable,
    GpuBuffer,
    GpuExecutable,
    Moved,
    ParamSharing,
    Pending,
    RunDict,
    RunSlots,
    sharing,
)
from rlx.backends.state_memory import StateMemory, with_state_memory
from rlx.compiler.compile_cache import build
from rlx.compiler.kept_programs import KeptProgram, SharedParams, Values, resize
from rlx.compiler.loading import LoadedGraph, load
from rlx.compiler.precomputed_params import PrecomputedParams, shared_params
from rlx.compiler.resizable import Resizable, sum_of
from rlx.compiler.target import Target
from rlx.errors import GraphError, InputError, UnsupportedOpError, first_line
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import InputSizes
from rlx.ir.opdef import Array
from rlx.ir.static_sizes import check_guards, equal_to, with_sizes, with_values
from rlx.sizes import Assumptions, deciding
from rlx.sizes.program import holds

if TYPE_CHECKING:
    from rlx._ext.locks import TryLock

# Programs that an executable keeps: of single sizes, and of ranges.
MAX_PROGRAMS = 16
MAX_RANGES = 32


class Builder(NamedTuple):
    """Lowers and loads graphs for one target.

    Attributes:
        static: Takes a graph without dims.
        sized: Takes a graph with dims, and the assumptions that it is lowered with; None where the backend has no programs
            for many sizes.
        steady: Whether no program is made for the sake of speed alone; see ``Assumptions``.
    """

    static: Callable[[Graph], LoadedGraph]
    sized: Callable[[Graph, Assumptions], LoadedGraph] | None
    steady: bool = False


class SizedExecutable(Resizable):
    """See ``rlx.backends.executable.Executable``. A run chooses the program of its sizes.

    Args:
        graph: A graph with dims.
        builder: Lowers and loads graphs.
        params: Values of params.
        ranges: Programs to begin with.
        states: The memory of the states, which these programs have.

    Attributes:
        input_sizes: Reads the values of dims from arrays.
        capabilities: See ``Executable``.
    """

    capabilities: Capabilities

    def __init__(
        self,
        graph: Graph,
        builder: Builder,
        params: SharedParams | None = None,
        ranges: Sequence[KeptProgram] = (),
        states: StateMemory | None = None,
    ) -> None:
        self._graph, self._builder = graph, builder
        self._states: StateMemory = {} if states is None else states
        self._names = graph.input_names
        self.input_sizes = InputSizes(graph)
        self._params = params or SharedParams()
        self._programs: OrderedDict[tuple[int, ...], KeptProgram] = OrderedDict()
        self._ranges = list(ranges)
        # Why the last program was made for single sizes, and dims that lowering needs as numbers.
        self._why = "" if builder.sized else "the device has no programs for many sizes"
        self._needed: frozenset[str] = frozenset()
        # Dims and their values, 0 or 1, that lowering told from larger ones.
        self._apart: set[frozenset[tuple[str, int]]] = set()
        self._binding = Binding()
        self._handles: dict[int, tuple[int, ...]] = {}
        self._closed_moves = Moved(0, 0, 0)
        # Weak: compiled runs hold this executable.
        self._runs: Callable[[], SizedRuns | None] = lambda: None
        assert graph.assumptions is not None
        self._hints = {name: graph.assumptions.hints[name] for name in graph.dims}
        self._use(self._program(self._hints))

    def _use(self, program: KeptProgram) -> None:
        """Has later runs without arguments use a program."""
        self._last, self.capabilities = program, program.executable.capabilities
        runs, compiled = self._runs(), program.compiled()
        if runs is None or compiled is None:
            return
        # Handles stand in the memory of the program in use, but for states.
        others = () if self._moved_handles() else tuple(filter(self._is_ready, self._ranges))
        runs.use(compiled, [run for run in map(KeptProgram.compiled, others) if run is not None])
        if not self._is_ready(program):  # another thread has set params meanwhile
            runs.stale()

    def _is_ready(self, program: KeptProgram) -> bool:
        """Returns whether a program has the params and the binding of now."""
        return program.params == self._params.count and program.binding is self._binding

    @property
    def _now(self) -> KeptProgram:
        """The program in use: compiled runs choose among those of ranges."""
        runs = self._runs()
        if runs is not None and runs.now is not self._last.compiled():
            self._last = next(each for each in self._ranges if each.compiled() is runs.now)
        return self._last

    @property
    def input_views(self) -> tuple[Array, ...]:
        """Views of the program in use."""
        return self._now.executable.input_views

    @property
    def output_views(self) -> tuple[Array, ...]:
        """Views of the program in use."""
        return self._now.executable.output_views

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """Slots of the program in use."""
        return self._now.executable.output_slots

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
            self._use(self._now)
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
        held = {i: self._now.executable.read_input(i) for i in self._moved_handles()}
        program = self._program(sizes)
        for index, array in held.items():
            program.executable.write_input(index, array)
        self._use(program)

    def _moved_handles(self) -> list[int]:
        """The handles that each program has memory of its own for."""
        shared = {name for name, _ in self._states}
        return [index for index in self._handles if self._names[index] not in shared]

    def sizes_of(self, shapes: Mapping[int, Sequence[int]]) -> dict[str, int]:
        """Returns the sizes of a run with arguments of these shapes, by position; handles say theirs.

        Raises:
            InputError: They do not fit.
        """
        return self.input_sizes.values({**self._handles, **shapes}, self._now.sizes)

    def _program(self, sizes: Values) -> KeptProgram:
        """The program of some sizes, with the params and the binding of now."""
        key = tuple(sizes[name] for name in self._graph.dims)
        program = self._of_a_range(key) or self._programs.get(key) or self._new_range(sizes, key)
        if program is None:
            with with_state_memory(self._states):
                loaded = self._builder.static(with_sizes(self._graph, sizes))
            said = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            noted = loaded.lowered.noted("sizes", f"a program for {said} alone: {self._why}")
            program = KeptProgram(dict(sizes), loaded._replace(lowered=noted))
            self._programs[key] = program
            if len(self._programs) > MAX_PROGRAMS:
                self._drop(self._programs.popitem(last=False)[1])
        if program.serves is None:
            self._programs.move_to_end(key)
        elif program.sizes != sizes:
            with with_state_memory(self._states):
                self._closed_moves = sum_of((self._closed_moves, resize(program, sizes)))
        self._update(program)
        return program

    def _drop(self, program: KeptProgram) -> None:
        """Closes a program in whose place there is another one."""
        self._closed_moves = sum_of((self._closed_moves, program.executable.moved()))
        program.executable.close()

    def _of_a_range(self, key: tuple[int, ...]) -> KeptProgram | None:
        """The program of a range that has these values of the dims."""
        for program in self._ranges:
            assert program.serves is not None
            if program.serves(*key):
                return program
        return None

    def _new_range(self, sizes: Values, key: tuple[int, ...]) -> KeptProgram | None:
        """A new program of all sizes that lowering does not tell from some; None where there is none."""
        if self._builder.sized is None:
            return None
        check_guards(self._graph, sizes)
        dims = self._graph.dims
        fixed = {name: sizes[name] for name in dims if name in self._needed}
        hints = self._hints
        few = {
            name: size
            for name, size in sizes.items()
            if size < 2 and name not in fixed and hints[name] > 1
        }
        known = frozenset(few.items())
        # What is true of 0 or 1 alone would make a program for it alone, where that is not the usual size.
        if few and known not in self._apart:
            usual = {name: 2 * dims[name].multiple_of for name in few}
            if all(dims[name].takes(size) for name, size in usual.items()):
                program = self._lowered(sizes, fixed, usual)
                if isinstance(program, KeptProgram):
                    return program
            self._apart.add(known)
        while len(fixed) < len(sizes):
            program = self._lowered(sizes, fixed, {})
            if isinstance(program, KeptProgram):
                return program
            names = program.intersection(sizes.keys() - fixed.keys()) or sizes.keys()
            fixed |= {name: sizes[name] for name in names}
        self._why = self._why or "its sizes are 0 or 1"
        return None

    def _lowered(self, sizes: Values, fixed: Values, hints: Values) -> KeptProgram | frozenset[str]:
        """A program of all sizes that lowering does not tell from some; or the names of dims that have to be fixed, too.

        Args:
            sizes: The sizes.
            fixed: Dims that are numbers in it.
            hints: Other sizes of dims, which lowering decides by.
        """
        assert self._builder.sized is not None
        names = [name for name in self._graph.dims if name not in fixed]
        known = {name: hints.get(name, sizes[name]) for name in names}
        assumptions = Assumptions(known, ones=True, steady=self._builder.steady)
        try:
            with deciding(assumptions):
                graph = with_sizes(self._graph, fixed) if fixed else self._graph
            with with_state_memory(self._states):
                loaded = self._builder.sized(graph, assumptions)
            guards = [*assumptions.guards, *with_values(self._graph, fixed)]
            own = holds(guards, names)
            serves = holds([*guards, *equal_to(self._graph, fixed)], list(self._graph.dims))
        except (GraphError, UnsupportedOpError, TypeError) as error:
            # NumPy hides the error of a size that it reads as a number behind a TypeError of its own.
            if hints:
                return frozenset()
            if not isinstance(error, TypeError | UnsupportedOpError):
                raise
            self._why = first_line(error)
            self._needed |= getattr(error, "names", frozenset()) or sizes.keys()
            return self._needed
        if not own(*(sizes[name] for name in names)):
            loaded.executable.close()
            self._why = "lowering tells these sizes from usual ones"
            return frozenset()
        program = KeptProgram(dict(sizes), loaded, serves, own, fixed)
        self._ranges.append(program)
        if len(self._ranges) > MAX_RANGES:
            self._drop(self._ranges.pop(0))
        return program

    def _update(self, program: KeptProgram) -> None:
        """Gives a program the params and the binding that it has not."""
        count = self._params.count
        if program.params != count:
            values = program.loaded.precomputed.apply(self._params.since(program.params))
            program.executable.set_params(values)
            program.params = count
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
        self._use(self._now)

    def submit(
        self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
    ) -> Pending:
        """Starts a run of the program of its sizes."""
        runs = self._runs()
        if fresh and runs is not None and runs.place(tuple(arrays)):
            return cast(GpuExecutable, self._now.executable).start(outputs)
        arguments = self._binding.arguments(len(self._names))
        shapes = {
            i: array.shape for i, array in zip(arguments, arrays, strict=True) if array is not None
        }
        self.resize(self.sizes_of(shapes))
        return self._now.executable.submit(arrays, outputs, fresh)

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict] | None:
        """See ``Executable``. Runs of other sizes than the program in use serves look for their program."""
        if self._now.compiled() is None:
            return None
        now, runs = self._now, SizedRuns(lock, names, self._chosen)
        self._params.readers.add(runs)
        self._runs = ref(runs)
        self._use(now)
        return runs.run_slots_locked, runs.run_dict

    def _chosen(self, arrays: tuple[Any, ...]) -> tuple[Array, ...]:
        """Chooses the program of the arguments of ``run_slots``; returns them as arrays.

        Raises:
            InputError: They do not fit.
        """
        positions = self._binding.arguments(len(self._names)) if arrays else ()
        check_slots(arrays, len(positions))
        results = tuple(map(as_array, arrays))
        shapes = {i: array.shape for i, array in zip(positions, results, strict=True)}
        self.resize(self.sizes_of(shapes) if arrays else self._now.sizes)
        return results

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

    def output_place(self, output: int) -> tuple[int, int]:
        """See ``GpuExecutable``."""
        return cast(GpuExecutable, self._now.executable).output_place(output)

    def moved(self) -> Moved:
        """See ``Executable``."""
        return sum_of((self._closed_moves, super().moved()))

    def executables(self) -> Sequence[Executable]:
        """Returns those of all programs that are kept."""
        return [program.executable for program in (*self._ranges, *self._programs.values())]

    def kernels(self) -> str:
        """Returns those of the program in use."""
        return self._now.executable.kernels()

    def clone(self) -> Executable:
        """See ``Executable``. The clone has programs of its own."""
        states: StateMemory = {}
        with with_state_memory(states):
            ranges = [program.clone() for program in self._ranges]
        return SizedExecutable(self._graph, self._builder, self._params, ranges, states)

    def renewed(self) -> SizedExecutable:
        """Returns an executable of the same graph on a device that was opened again, without params."""
        return SizedExecutable(self._graph, self._builder)

    def discard_device(self) -> None:
        """See ``Executable``."""
        self._now.executable.discard_device()


def load_sized(
    graph: Graph, target: Target, options: CompileOptions, steady: bool = False
) -> LoadedGraph:
    """Compiles a graph with dims for usual sizes; other sizes are compiled when a run brings them.

    Args:
        graph: A verified graph with dims.
        target: The device.
        options: The options.
        steady: Whether no program is made for the sake of speed alone: sizes that depend on data change at each run.

    Raises:
        RlxError: As ``rlx.compiler.compile_cache.build``.
    """
    gate = ReadWriteLock()

    def sized(graph: Graph, assumptions: Assumptions) -> LoadedGraph:
        from rlx.compiler.sized_cache import lowered_for_sizes

        lowered = lowered_for_sizes(graph, target, assumptions)
        with deciding(assumptions), sharing(ParamSharing(gate, shared_params(lowered))):
            return load(lowered, target)

    able = target.capabilities.sized_programs and options.memory_limit is None
    builder = Builder(partial(build, target=target), sized if able else None, steady)
    params = PrecomputedParams((), frozenset(graph.param_names), options)
    executable = SizedExecutable(graph, builder)
    return LoadedGraph(executable.loaded.lowered, executable, params)

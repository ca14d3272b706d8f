"""The state of a ``CompiledGraph``: the executable in use, and every setting that a replacement needs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from rlx._ext.locks import TryLock
from rlx.backends.executable import Binding, Executable, RunDict, RunSlots
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.precomputed_params import ParamTransform, PrecomputedParams, ReadParam
from rlx.compiler.resizable import Resizable
from rlx.compiler.target import Target
from rlx.errors import ClosedError, InputError, UnknownNameError, did_you_mean, listed
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, TensorType

if TYPE_CHECKING:
    from rlx.passes.dynamic_batch import DynamicRows
    from rlx.runtime.expert_placement import ExpertPlacement


class RuntimeState:
    """The state that all methods of a ``CompiledGraph`` share.

    Args:
        holder: The ``CompiledGraph``, whose attributes ``run_slots`` and ``_run_dict`` are set.
        graph: The graph as it was built.
        target: The target that it is compiled for.
        loaded: The lowered graph and its executable.
        missing: Names of params that have no value yet; shared between clones.
        values: Values of params that are kept for ``recover``; shared between clones.

    Attributes:
        names: Names of the inputs, in order.
        lock: Held by one call at a time.
        binding: The settings of runs.
        arguments: Positions of the inputs that take an argument.
        handles: Inputs that keep their value from run to run: "host" or "device" by name.
        outputs: Positions of the outputs that the caller knows.
        routers: Positions of the hidden outputs that count the experts that a run chooses.
        placement: Places and counts the experts; None where nobody asked for either.
        precomputed: Translates params to those of the executable; shared between clones.
        splits: Translate params before that: parts of weights on the device and on the host.
        extents: The graph on fewer rows, by ``upper``; shared between clones.
        pending: Runs that were enqueued and not waited for.
        closed: Whether nothing runs any more.
        uncompiled: The ``run_slots`` of the general way, as long as somebody holds them.
        was_incomplete: Whether params were missing when the calls were chosen.
        sized: The executable of a graph with dims; None for other graphs.
    """

    def __init__(
        self,
        holder: Any,
        graph: Graph,
        target: Target,
        loaded: LoadedGraph,
        missing: set[str],
        values: dict[str, Array],
    ) -> None:
        # Weak, to make no reference cycle: a dropped graph is freed at once.
        self._holder: Callable[[], Any] = weakref.ref(holder)
        self._compiled: tuple[RunSlots, RunDict] | None = None
        self._compiled_of: Executable | None = None
        self.graph: Graph = graph
        self.target: Target = target
        self.lowered = loaded.lowered
        self.executable: Executable = loaded.executable
        self.precomputed: PrecomputedParams = loaded.precomputed
        self.splits: tuple[ParamTransform, ...] = ()
        self.names: tuple[str, ...] = graph.input_names
        self.sized = resizable(loaded.executable)
        hint = "give each thread its own: cg.clone() shares the params"
        self.lock = TryLock("this CompiledGraph", hint)
        self.missing: set[str] = missing
        self.values: dict[str, Array] = values
        self.use_binding(Binding())
        self.handles: dict[str, str] = {}
        self.outputs: tuple[int, ...] = tuple(range(len(graph.outputs)))
        self.routers: tuple[int, ...] = ()
        self.placement: ExpertPlacement | None = None
        self.extents: dict[int, DynamicRows] = {}
        self.pending: dict[str, Any] = {}
        self.closed = False
        self.was_incomplete = False
        self.uncompiled: WeakValueDictionary[tuple[int, bool], RunSlots] = WeakValueDictionary()

    @property
    def what(self) -> str:
        """The graph's name in messages."""
        return f"<CompiledGraph {self.graph.name!r} on {self.target.device}>"

    # --- bindings ----------------------------------------------------------------------------------

    def choose_calls(self, slow: tuple[RunSlots, RunDict]) -> None:
        """Sets ``run_slots`` and ``_run_dict`` of the holder.

        Compiled calls serve runs that nobody watches, once all params are set. The same executable always has the same
        two, since callers may hold them.

        Args:
            slow: The calls for all other cases.
        """
        holder, calls = self._holder(), None
        self.was_incomplete = bool(self.missing)
        if not (self.closed or self.is_watched()):
            if self._compiled_of is not self.executable:
                self._compiled = self.executable.compiled(self.lock, self.names)
                self._compiled_of = self.executable
            calls = self._compiled
        holder.run_slots, holder._run_dict = calls or slow

    def is_watched(self) -> bool:
        """Returns whether runs are recorded, wait for params, or have hidden outputs, and so take the general way."""
        hidden = len(self.executable.output_views) > len(self.outputs)
        return bool(self.missing or hidden or self.binding.recorder)

    def use_binding(self, binding: Binding) -> None:
        """Notes the binding that the executable has."""
        self.binding = binding
        self.arguments = binding.arguments(len(self.names))

    def argument_views(self) -> list[Array]:
        """Returns the views of the inputs that take an argument."""
        views = self.executable.input_views
        return [views[i] for i in self.arguments]

    def input_types(self, arrays: Mapping[int, Array]) -> Mapping[int, TensorType]:
        """Returns the types of the inputs of a run, by position; arrays for some of them say the values of dims.

        Raises:
            InputError: The shapes of arrays contradict each other or their dims.
        """
        if self.sized is None:
            return {i: self.graph.named(name).type for i, name in enumerate(self.names)}
        sizes = self.sized.sizes_of({i: array.shape for i, array in arrays.items()})
        return dict(enumerate(self.sized.input_sizes.types(sizes)))

    def output_views(self) -> tuple[Array, ...]:
        """Returns the views of the outputs that the caller knows."""
        return self.executable.output_views[: len(self.outputs)]

    @contextmanager
    def span(self, name: str, runs: int = 0) -> Iterator[None]:
        """Records a call while the graph is traced; does nothing otherwise.

        Args:
            name: The call.
            runs: Runs that it makes.
        """
        recorder = self.binding.recorder
        if recorder is None:
            yield
            return
        with recorder.span(name):
            yield
        recorder.runs += runs
        recorder.count_moved(self.executable.moved()._asdict())

    # --- params --------------------------------------------------------------------------------------

    def set_params(self, values: dict[str, Array]) -> None:
        """Gives the executable new values of the graph's params. Each fits its param."""
        for transform in (*self.splits, self.precomputed):
            values = transform.apply(values)
        self.executable.set_params(values)

    def read_param(self, name: str) -> Array:
        """Returns a copy of a param's value."""
        read: ReadParam = self.executable.read_param
        for transform in (self.precomputed, *reversed(self.splits)):
            read = partial(transform.read, read=read)
        return read(name)

    def check_params(self) -> None:
        """Refuses runs while params are missing.

        Raises:
            InputError: They are.
        """
        if self.missing:
            raise InputError(
                f"params of graph {self.graph.name!r} were never set",
                got=f"no value for {listed(sorted(self.missing))}",
                hint="cg.set_param(name, array), or rlx.compile(g, params={...})",
            )

    # --- life ----------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Refuses calls after ``close``.

        Raises:
            ClosedError: It was closed.
        """
        if self.closed:
            raise ClosedError(f"{self.what} is closed", hint="compile the graph again")

    # --- lookups -------------------------------------------------------------------------------------

    def param(self, name: str) -> Node:
        """Returns the param of that name.

        Raises:
            UnknownNameError: The graph has none.
        """
        graph = self.graph
        if graph.has(name) and graph.named(name).op == "param":
            return graph.named(name)
        raise unknown_name(graph, name, graph.param_names, "param")

    def input(self, name: str) -> int:
        """Returns the position of the input of that name.

        Raises:
            UnknownNameError: The graph has none.
        """
        if name not in self.names:
            raise unknown_name(self.graph, name, self.names, "input")
        return self.names.index(name)

    def output(self, index: int) -> int:
        """Returns the position of an output, counted from the front.

        Raises:
            InputError: The graph has none there.
        """
        count = len(self.outputs)
        if not -count <= index < count:
            raise InputError("no such output", got=index, expected=f"0 to {count - 1}")
        return index % count


def resizable(executable: Executable) -> Resizable | None:
    """An executable of a graph with dims; None for others."""
    return executable if isinstance(executable, Resizable) else None


def unknown_name(graph: Graph, name: str, names: Sequence[str], what: str) -> UnknownNameError:
    """The error for a name that no input or param of a graph has."""
    hint = did_you_mean(str(name), names)
    return UnknownNameError(f"graph {graph.name!r} has no {what} named {name!r}", hint=hint)

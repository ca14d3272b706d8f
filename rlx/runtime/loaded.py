"""The state of a ``CompiledGraph``: the executable in use, and all settings that a replacement needs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from rlx._ext.owner import Owner
from rlx.backends.base import Capabilities, Executable
from rlx.compiler.extents import Extents
from rlx.compiler.lowered import Lowered
from rlx.compiler.target import Target
from rlx.errors import ClosedError, InputError, UnknownNameError, describe, did_you_mean
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.passes.extent import Extent
from rlx.passes.place_experts import expert_layers
from rlx.runtime.half_params import rounded_params
from rlx.runtime.owning import Incomplete, Refusing, RunSlots, guarded
from rlx.runtime.routed import Placement
from rlx.runtime.watched import WatchedExecutable

# Wraps a new executable before it is used.
Wrap = Callable[[Executable], Executable]
P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="Part")


class Loaded:
    """The state that all parts of a ``CompiledGraph`` share.

    Args:
        holder: The ``CompiledGraph``, whose attribute ``run_slots`` is set to what runs.
        graph: The graph as it was built.
        target: What it is compiled for.
        lowered: What it became.
        executable: What runs it.
        values: Values of params, as far as they are kept for ``recover``; shared between clones.
        missing: Names of params that have no value yet; shared between clones.

    Attributes:
        names: Names of the inputs, in order.
        owner: Held by one call at a time.
        extents: The graph on fewer rows.
        extent: The rows that runs compute; None for all.
        bound: Inputs that keep their value from run to run: "host" or "device" by name.
        feeds: The output that an input takes after each run, by the position of the input.
        placement: Where experts are placed, and counts of their use.
        rounded: Names of params that are multiplied as halves though they are wider.
        wrap: Wraps a new executable before it is used.
        closed: Whether nothing runs any more.
    """

    __slots__ = (
        "_holder",
        "_plain",
        "bound",
        "capabilities",
        "closed",
        "executable",
        "extent",
        "extents",
        "feeds",
        "graph",
        "lowered",
        "missing",
        "names",
        "owner",
        "placement",
        "rounded",
        "target",
        "values",
        "wrap",
    )

    def __init__(
        self,
        holder: Any,
        graph: Graph,
        target: Target,
        lowered: Lowered,
        executable: Executable,
        values: dict[str, Array],
        missing: set[str],
    ) -> None:
        # Weak, to make no reference cycle: a dropped graph is freed at once.
        self._holder: Callable[[], Any] = weakref.ref(holder)
        self.graph: Graph = graph
        self.target: Target = target
        self.lowered: Lowered = lowered
        self.capabilities: Capabilities = executable.capabilities
        self.names: tuple[str, ...] = graph.input_names
        self.owner: Owner = Owner(
            "this CompiledGraph", "give each thread its own: cg.clone() shares the params"
        )
        self.values: dict[str, Array] = values
        self.missing: set[str] = missing
        self.extents: Extents = Extents(lowered, target)
        self.extent: Extent | None = None
        self.bound: dict[str, str] = {}
        self.feeds: dict[int, int] = {}
        self.placement: Placement = Placement(expert_layers(graph))
        self.rounded: frozenset[str] = rounded_params(graph, target)
        self.wrap: Wrap = _as_it_is
        self.closed: bool = False
        # The unwatched executable and its ``run_slots``. Callers may hold that function: it is used again later.
        self._plain: tuple[Executable | None, RunSlots] = None, Refusing(self.what)
        self.use(executable)

    @property
    def what(self) -> str:
        """The graph's name in messages."""
        return f"<CompiledGraph {self.graph.name!r} on {self.target.device}>"

    @property
    def run_slots(self) -> RunSlots:
        """The current ``run_slots``."""
        found: RunSlots = self._holder().run_slots
        return found

    def use(self, executable: Executable) -> None:
        """Runs on this executable from now on; nothing runs as long as params are missing."""
        self.executable: Executable = executable
        kept, run = self._plain
        if kept is not executable:
            run = guarded(executable, self.owner)
            if not isinstance(executable, WatchedExecutable):
                self._plain = executable, run
        holder = self._holder()
        if self.missing:
            run = Incomplete(holder, run, self.missing, self.graph.name)
        holder.run_slots = run

    def open(self) -> None:
        """Refuses calls after ``close``.

        Raises:
            ClosedError: It was closed.
        """
        if self.closed:
            raise ClosedError(describe(f"{self.what} is closed", hint="compile the graph again"))

    def complete(self) -> None:
        """Refuses runs while params are missing.

        Raises:
            InputError: They are.
        """
        run = self.run_slots
        if isinstance(run, Incomplete):
            run.check()

    def close(self) -> None:
        """Frees the executable; every later call is refused."""
        self.closed = True
        refusing = Refusing(self.what)
        self._holder().run_slots = refusing
        self._plain = None, refusing
        self.owner.close()
        self.executable.close()

    def param(self, name: str) -> Node:
        """The param of that name.

        Raises:
            UnknownNameError: The graph has none.
        """
        graph = self.graph
        if graph.has(name) and graph.named(name).op == "param":
            return graph.named(name)
        return self._named(name, graph.param_names, "param")

    def input(self, name: str) -> int:
        """The position of the input of that name.

        Raises:
            UnknownNameError: The graph has none.
        """
        self._named(name, self.names, "input")
        return self.names.index(name)

    def output(self, index: int) -> int:
        """The position of an output from the front.

        Raises:
            InputError: The graph has none there.
        """
        count = len(self.graph.outputs)
        if not -count <= index < count:
            raise InputError(describe("no such output", got=index, expected=f"0 to {count - 1}"))
        return index % count

    def _named(self, name: str, names: tuple[str, ...], what: str) -> Node:
        if name not in names:
            raise UnknownNameError(
                describe(
                    f"graph {self.graph.name!r} has no {what} named {name!r}",
                    hint=did_you_mean(name, names),
                )
            )
        return self.graph.named(name)


def _as_it_is(executable: Executable) -> Executable:
    return executable


class Part:
    """A group of methods of a ``CompiledGraph``, which works on the shared state.

    Args:
        loaded: That state.
    """

    __slots__ = ("_loaded", "_owner")

    def __init__(self, loaded: Loaded) -> None:
        self._loaded, self._owner = loaded, loaded.owner


def part(name: str, method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Forwards a method of ``CompiledGraph`` to one of its parts.

    Args:
        name: The attribute that holds the part.
        method: The part's method.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(self, name), *args, **kwargs)

    return call

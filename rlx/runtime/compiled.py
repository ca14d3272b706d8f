"""CompiledGraph: a graph loaded on a device, and every way of running it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx._ext.owner import Owner
from rlx.backends.base import Capabilities, Executable, Moved
from rlx.compiler.build import Lowered
from rlx.compiler.extents import Extents
from rlx.compiler.target import Target
from rlx.errors import CompileError, InputError, UnknownNameError, describe, did_you_mean
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.spans import Span
from rlx.passes.extent import Extent
from rlx.runtime.fit import fit
from rlx.runtime.handles import Handles
from rlx.runtime.observed import Observed
from rlx.runtime.owning import Incomplete, Refusing, RunSlots, guarded, owned
from rlx.runtime.profile import Totals
from rlx.runtime.recovery import Recovery
from rlx.runtime.residency import Experts, Placement, placement_of
from rlx.runtime.runs import Runs
from rlx.runtime.watched import WatchedExecutable

STAGES = ("graph", "fused", "schedule", "memory", "kernels")


class CompiledGraph(Handles, Runs, Observed, Recovery, Experts):
    """A graph compiled for one device. Made by ``rlx.compile`` or ``Session.compile``.

    One call at a time uses it, from the first read of its arguments to the last copy of its results. A
    second one raises ``BusyError`` at once: a call from another thread, or one from inside the first (a
    signal handler, a custom operation, ``__array__`` of an argument). Different graphs run in parallel;
    ``clone`` makes one for another thread.

    Attributes:
        device: The device it runs on.
        run_slots: ``run_slots(*arrays)`` takes every input in declaration order and returns the
            same preallocated read-only views at every call; the next run overwrites them. With no
            argument it runs on what stands in ``input_views``, where arguments need not show up: the
            CPU reads contiguous arrays of the right dtype where they are. It allocates nothing,
            looks nothing up and runs no Python loop. Raises ``InputError`` for a wrong count, shape
            or dtype or a param that was never set, ``BusyError`` where another call is under way.
        capabilities: What this device's executable can do.
        host_fallbacks: Ops that run on the host for want of a kernel on the device, each with the
            reason; every such place costs a read-back and an upload.
    """

    __slots__ = (
        "__weakref__",
        "_bound",
        "_closed",
        "_executable",
        "_extent",
        "_extents",
        "_feeds",
        "_graph",
        "_lowered",
        "_missing",
        "_names",
        "_owner",
        "_phases",
        "_placement",
        "_plain",
        "_target",
        "_totals",
        "_values",
        "_wrap",
        "capabilities",
        "device",
        "host_fallbacks",
        "run_slots",
    )

    run_slots: Callable[..., tuple[Array, ...]]

    def __init__(
        self,
        graph: Graph,
        target: Target,
        lowered: Lowered,
        executable: Executable,
        missing: set[str],
        values: dict[str, Array],
        phases: Sequence[Span] = (),
    ) -> None:
        self.device = target.device
        self.capabilities: Capabilities = executable.capabilities
        schedule = lowered.schedule
        self.host_fallbacks = schedule.host_fallbacks() if schedule else ()
        self._graph = graph
        self._target = target
        self._lowered = lowered
        self._names = graph.input_names
        self._extent: Extent | None = None
        self._extents = Extents(lowered, target)
        self._closed = False
        hint = "give each thread its own: cg.clone() shares the params"
        self._owner = Owner("this CompiledGraph", hint)
        # Shared between clones, as the params are.
        self._values, self._missing = values, missing
        # Inputs that keep their value from run to run, and the outputs they take over.
        self._bound: dict[str, str] = {}
        self._feeds: dict[int, int] = {}
        self._placement = placement_of(graph)
        self._wrap: Callable[[Executable], Executable] = _as_it_is
        self._phases = tuple(phases)
        self._plain: tuple[Executable | None, RunSlots] = None, Refusing(repr(self))
        self._use(executable)
        self._totals = Totals() if target.options.profile else None
        self._keep_totals()

    def _exchange(
        self,
        lowered: Lowered,
        wrap: Callable[[Executable], Executable],
        extent: Extent | None,
        placement: Placement,
    ) -> None:
        self._lowered, self._wrap, self._extent = lowered, wrap, extent
        self._extents = Extents(lowered, self._target)
        self._placement = placement
        self.host_fallbacks = lowered.schedule.host_fallbacks() if lowered.schedule else ()

    def _take(self, executable: Executable, missing: set[str]) -> None:
        # Params are no longer those of clones, which keep their values for themselves.
        self._missing, self._values = missing, dict(self._values)
        self._use(executable)

    # --- params ------------------------------------------------------------------------------------

    @owned
    def set_param(self, name: str, array: Any) -> None:
        """Uploads a weight.

        Clones have it from their next run on; those that run meanwhile end with the old values. No run
        sees a part of it.

        Args:
            name: A param of the graph.
            array: Its value: the declared shape; a float of another width is converted, also to bf16,
                which may be given in storage (uint16) as well.

        Raises:
            UnknownNameError: The graph has no param of that name.
            InputError: Wrong shape, or a dtype that does not convert.
        """
        self._set_param(name, array)

    def _set_param(self, name: str, array: Any) -> None:
        self._open()
        if name not in self._graph.param_names:
            raise UnknownNameError(
                describe(
                    f"graph {self._graph.name!r} has no param named {name!r}",
                    hint=did_you_mean(name, self._graph.param_names),
                )
            )
        node = self._graph.named(name)
        value = fit(array, node.shape, node.dtype, f"param {name!r}")
        self._executable.set_param(name, value)
        self._keep(name, array, value)
        self._missing.discard(name)
        if not self._missing:
            self._use(self._executable)

    def _use(self, executable: Executable) -> None:
        """Runs on this executable from now on; nothing runs as long as params are missing."""
        self._executable = executable
        # The same function again once nobody watches any more: callers may have kept it.
        kept, run = self._plain
        if kept is not executable:
            run = guarded(executable, self._owner)
            if not isinstance(executable, WatchedExecutable):
                self._plain = executable, run
        if self._missing:
            run = Incomplete(self, run, self._missing, self._graph.name)
        self.run_slots = run

    # --- running -----------------------------------------------------------------------------------

    @owned
    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """Runs on named inputs and returns fresh arrays, one per output.

        Args:
            inputs: One array per input of the graph.

        Returns:
            Copies of the outputs, which later runs leave alone.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: An input is missing, has the wrong shape or dtype, or a param was never set.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (2,)) + 1.0])
            >>> rlx.compile(g, device="cpu").run({"x": np.zeros(2, np.float32)})
            [array([1., 1.], dtype=float32)]
        """
        return [view.copy() for view in self._run(inputs)]

    @owned
    def run_raw(self, inputs: Mapping[str, Any]) -> list[Array]:
        """Runs on named inputs and returns read-only views, valid until the next run.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: An input is missing, has the wrong shape or dtype, or a param was never set.
        """
        return list(self._run(inputs))

    def _run(self, inputs: Mapping[str, Any]) -> tuple[Array, ...]:
        self._fill(inputs)
        return self._executable.run_slots()

    def _checked(self, inputs: Mapping[str, Any]) -> list[tuple[int, Array]]:
        """Named inputs by position, all of them checked, none copied yet."""
        self._open()
        if not isinstance(inputs, Mapping):
            got, expected = type(inputs).__name__, "a mapping of names to arrays"
            raise InputError(describe("the inputs of a run", got=got, expected=expected))
        for name in inputs:
            if name not in self._names:
                raise UnknownNameError(
                    describe(
                        f"graph {self._graph.name!r} has no input named {name!r}",
                        hint=did_you_mean(name, self._names),
                    )
                )
            if name in self._bound:
                raise InputError(
                    describe(
                        f"input {name!r} is fed by a handle", hint="bind it again to change it"
                    )
                )
        wanted = [name for name in self._names if name not in self._bound]
        missing = [name for name in wanted if name not in inputs]
        if missing:
            raise InputError(
                describe(
                    "inputs are missing",
                    got=", ".join(inputs) or "none",
                    expected=", ".join(wanted),
                    hint="missing: " + ", ".join(missing),
                )
            )
        found = []
        for at, (name, view) in enumerate(zip(self._names, self.input_views, strict=True)):
            if name in inputs:
                dtype = self._graph.named(name).dtype
                value = fit(inputs[name], view.shape, dtype, f"input {name!r}")
                found.append((at, value))
        # Converting runs code of the caller's, which may have changed an array that came before.
        for at, value in found:
            name, shape = self._names[at], self.input_views[at].shape
            if value.shape != shape:
                fit(value, shape, self._graph.named(name).dtype, f"input {name!r}")
        return found

    def _fill(self, inputs: Mapping[str, Any]) -> None:
        """Named inputs into the input views.

        Raises:
            InputError: One does not fit, or a param was never set.
        """
        found = self._apart(inputs)
        self._complete()
        for at, value in found:
            self.input_views[at][...] = value

    def _apart(self, inputs: Mapping[str, Any]) -> list[tuple[int, Array]]:
        """``_checked``, with copies of values that are views of inputs, which runs write to."""
        views = self.input_views
        return [
            (at, value.copy() if any(_overlap(value, view) for view in views) else value)
            for at, value in self._checked(inputs)
        ]

    def _complete(self) -> None:
        if isinstance(self.run_slots, Incomplete):
            self.run_slots.check()

    @owned
    def set_active_extent(self, extent: tuple[int, int] | None) -> None:
        """Makes later runs compute fewer rows than the graph was compiled for.

        Each input whose leading axis is ``upper`` counts as ``actual`` rows, and so does all that is
        computed from them row by row; arrays keep their shapes. The caller promises that rows are
        independent. Rows past ``actual`` of inputs are not read where that saves something, and those
        of outputs are unspecified. Nothing is compiled on a GPU: it dispatches fewer workgroups. Where
        an op allows no other number of rows the whole is computed; ``as_text("schedule")`` says so.

        Args:
            extent: ``(actual, upper)``; None computes everything again.

        Raises:
            InputError: It is no pair of whole numbers, ``actual`` is not in 0 to ``upper``, or no
                input has ``upper`` rows.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (8, 2)) * 2.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> cg.set_active_extent((3, 8))
            >>> cg.run({"x": np.ones((8, 2), np.float32)})[0][:3].tolist()
            [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
        """
        self._open()
        found = None
        if extent is not None:
            actual, upper = _rows(extent)
            leading = {self._graph.named(name).shape[:1] for name in self._names}
            if not 0 <= actual <= upper or (upper,) not in leading:
                sizes = sorted(shape[0] for shape in leading if shape)
                raise InputError(
                    describe(
                        "no such extent",
                        got=f"{actual} of {upper} rows",
                        expected=f"0 to upper, and an upper of {sizes or 'no input with rows'}",
                        hint="upper is the leading axis of the inputs that hold rows",
                    )
                )
            if actual < upper:
                found = self._extents.of(actual, upper)
        self._executable.set_extent(found)
        self._extent = found

    @property
    def active_extent(self) -> tuple[int, int] | None:
        """What ``set_active_extent`` was last given; None where all rows are computed."""
        return None if self._extent is None else (self._extent.actual, self._extent.upper)

    def __call__(self, **inputs: Any) -> list[Array]:
        """``cg(x=..., y=...)`` is ``cg.run({"x": ..., "y": ...})``."""
        return self.run(inputs)

    @property
    def bytes_moved(self) -> Moved:
        """Bytes that runs have moved so far: ``(uploaded, read_back, copied)``, params apart.

        On the CPU nothing moves.
        """
        return self._executable.bytes_moved

    @property
    def input_views(self) -> tuple[Array, ...]:
        """Writable arrays, one per input: fill them, then call ``run_slots()``."""
        return self._executable.input_views

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """``(byte offset, element count)`` of each output in the memory at ``arena_ptr``."""
        return self._executable.output_slots

    @property
    def arena_ptr(self) -> int:
        """Address of the host memory that holds the outputs; it stays until ``close``.

        Raises:
            CompileError: This device keeps no such memory.
        """
        if not self.capabilities.arena_ptr:
            raise CompileError(
                describe(f"{self.device} keeps no arena in host memory", hint="use run_slots")
            )
        return self._executable.arena_ptr

    def clone(self) -> CompiledGraph:
        """An independent executable, for another thread, that shares the params.

        Any thread may ask for one, also while this one runs.
        """
        while True:
            self._open()
            lowered, placement, wrap = self._lowered, self._placement, self._wrap
            executable = self._executable.clone()
            if lowered is self._lowered and placement is self._placement:
                break
            executable.close()  # experts were placed meanwhile
        found = CompiledGraph(
            self._graph,
            self._target,
            lowered,
            executable,
            self._missing,
            self._values,
            self._phases,
        )
        found._placement, found._wrap, found._extents = placement, wrap, self._extents
        return found

    # --- explaining --------------------------------------------------------------------------------

    def as_text(self, stage: str = "fused") -> str:
        """What was compiled, at one stage of the compiler.

        Args:
            stage: "graph" as built, "fused" with every change taken or refused and why,
                "schedule", "memory", or "kernels".

        Raises:
            UnknownNameError: There is no such stage.
        """
        if stage not in STAGES:
            raise UnknownNameError(
                describe(f"no stage is named {stage!r}", hint=did_you_mean(stage, STAGES))
            )
        lowered = self._lowered
        none = f"{self.device} runs the graph without this stage"
        if stage == "graph":
            return str(self._graph)
        if stage == "fused":
            return "\n".join([str(lowered.graph), *(f"# {note}" for note in lowered.notes)])
        if stage == "kernels":
            return self._executable.kernels()
        found = str(lowered.schedule or none) if stage == "schedule" else str(lowered.plan or none)
        if self._extent is not None:
            extent = self._extent
            how = f"; all are computed: {extent.reason}" if extent.graph is None else ""
            found += f"\n# active extent {extent.actual} of {extent.upper} rows{how}"
        return found

    def memory(self) -> dict[str, int]:
        """Bytes held: ``arena``, ``params``, ``staging`` and their sum ``peak``."""
        return self._executable.memory()

    # --- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Frees device memory; running afterwards raises. Closing twice does nothing.

        Raises:
            BusyError: A call is under way, in another thread or further up in this one.
        """
        if not self._closed:
            with self._owner:
                self._closed = True
                self.run_slots = Refusing(repr(self))
                self._plain = None, self.run_slots
                self._owner.close()
                self._executable.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def __enter__(self) -> CompiledGraph:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CompiledGraph {self._graph.name!r} on {self.device}>"

    def _open(self) -> None:
        if self._closed:
            raise InputError(describe(f"{self!r} is closed", hint="compile the graph again"))


def _overlap(value: Array, view: Array) -> bool:
    """Whether a value may be (in) the memory of an input's view; most have memory of their own."""
    return value is view or (value.base is not None and np.may_share_memory(value, view))


def _rows(extent: Any) -> tuple[int, int]:
    try:
        actual, upper = (operator.index(count) for count in extent)
    except (TypeError, ValueError):
        text = describe("not an extent", got=repr(extent), expected="(actual, upper) or None")
        raise InputError(text) from None
    return actual, upper


def _as_it_is(executable: Executable) -> Executable:
    return executable


def run_slots(compiled: CompiledGraph, *arrays: Any) -> tuple[Array, ...]:
    """``compiled.run_slots(*arrays)`` as a function.

    Args:
        compiled: What to run.
        *arrays: Every input in declaration order, or none to run on ``input_views``.

    Returns:
        The same read-only views at every call.
    """
    return compiled.run_slots(*arrays)

"""From a verified graph to something that runs: the steps of a compile, each from one record to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

from rlx import flags
from rlx.backends.base import Backend, CompileOptions, DeviceInfo, Executable, KernelLimitError
from rlx.backends.plugins import is_built_in, refusal
from rlx.backends.registry import backend
from rlx.budget import budget
from rlx.compiler.prepared import PreparedExecutable, Preparing
from rlx.cost.gate import IoFusionGate
from rlx.cost.tuned import stored_variants
from rlx.device.figures import cost_model
from rlx.device.names import Device, info_of
from rlx.errors import (
    CompileError,
    DeviceMemoryError,
    InputError,
    RlxError,
    UnsupportedOpError,
    describe,
)
from rlx.ir.graph import Graph, Node
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ir.spans import phase
from rlx.ir.variants import SUBGROUPS, Choices
from rlx.lru import Lru
from rlx.passes.extent import Extent, extent_of
from rlx.passes.hoist import Hoisted, Preparation, check_fit, check_same, hoist
from rlx.passes.large_weights import split_large
from rlx.passes.legalize import blocked, refuse_unready
from rlx.passes.lift import lift
from rlx.passes.memory_plan import plan_memory
from rlx.passes.pipeline import GRAPH_PASSES, KERNEL_PASSES, PIPELINE, Pass, run_pipeline
from rlx.passes.schedule import Scheduler, check_supported

# Numbers of rows that a lowered graph remembers.
MOST_EXTENTS = 32


@dataclass(frozen=True)
class Target:
    """What a graph is compiled for.

    Attributes:
        device: The device as it was named.
        info: The device as it was found.
        backend: What runs graphs on it.
        kernel_set: Which kernels of the op records it runs; "" when it reads none.
        options: The user's choices, the fusion gate filled in.
        choices: What is known about variants of its kernels.
    """

    device: Device
    info: DeviceInfo
    backend: Backend
    kernel_set: str
    options: CompileOptions
    choices: Choices = field(default_factory=Choices)

    @classmethod
    def of(cls, device: Device, options: CompileOptions) -> Target:
        """The target that a device's name stands for.

        Raises:
            DeviceUnavailableError: It is not on this machine.
            CompileError: It has no half-precision arithmetic, and that was asked for.
        """
        info, runs_on = info_of(device), backend(device.backend)
        kernel_set = runs_on.kernel_set
        if options.precision != "f32" and kernel_set:
            if kernel_set != "webgpu" or "shader-f16" not in info.features:
                raise CompileError(
                    describe(
                        f"{device} has no half-precision arithmetic",
                        got=f"{info.adapter}: {', '.join(sorted(info.features)) or 'no features'}",
                        expected="a GPU with shader-f16",
                        hint='precision="f32" keeps f16 in memory and computes in f32',
                    )
                )
            kernel_set = "webgpu-f16"
        if options.io_gate is None and kernel_set:
            # What was measured on the device, or the defaults of its kind; any gain is taken.
            gate = IoFusionGate.from_cost_model(cost_model(device, info))
            options = replace(options, io_gate=replace(gate, min_gain_ns=0.0))
        choices = Choices()
        if kernel_set.startswith("webgpu"):
            choices = Choices.now(stored_variants(device))
        return cls(device, info, runs_on, kernel_set, options, choices)


@dataclass(frozen=True)
class Lowered:
    """A graph made ready for a target, with nothing of the target's memory taken yet.

    Attributes:
        graph: The graph after the passes.
        notes: A line for every change that a pass took or refused.
        schedule: Its calls; None for a backend that reads no kernels.
        plan: Where its values live; None likewise.
        preparations: What is computed when params are set.
        subgraphs: What the bodies of loops and branches became, in the order in which the schedule
            writes them out.
        first: What it was before nodes that the device can't run at their sizes were moved to the host.
            That is what is stored, since every load moves them again.
        extents: What it is on fewer rows, for those numbers of rows that were asked for last.
    """

    graph: Graph
    notes: list[str]
    schedule: Schedule | None
    plan: MemoryPlan | None
    preparations: tuple[Preparation, ...] = ()
    subgraphs: tuple[Graph, ...] = ()
    first: Lowered | None = None
    extents: Lru[tuple[int, int], Extent] = field(
        default_factory=lambda: Lru(MOST_EXTENTS), repr=False, compare=False
    )


@dataclass(frozen=True)
class Decisions:
    """What lowering decides: ``derive`` makes the rest of it again. It may come out of a file.

    Attributes:
        graph: See ``Lowered``; every node has been inferred.
        notes: See ``Lowered``.
        preparations: See ``Lowered``.
        subgraphs: See ``Lowered``.
        offsets: Where temporaries lie; see ``MemoryPlan.temps``.
    """

    graph: Graph
    notes: list[str]
    preparations: tuple[Preparation, ...]
    subgraphs: tuple[Graph, ...]
    offsets: tuple[int, ...]


def lower(graph: Graph, target: Target) -> Lowered:
    """Passes, schedule and memory plan.

    Args:
        graph: A verified graph; it is not changed.
        target: What it is for.

    Raises:
        UnsupportedOpError: The target has no kernel for an op.
        DeviceMemoryError: The graph is above the memory limit.
        LimitError: It is more work than ``rlx.limits`` allows.
    """
    with budget():
        return _lower(graph, target)


def _lower(graph: Graph, target: Target) -> Lowered:
    options, kernel_set = target.options, target.kernel_set
    reason = refusal(target.info, graph)
    if reason is not None:
        raise UnsupportedOpError(
            describe(
                f"{target.device} refuses graph {graph.name!r}",
                got=reason,
                hint="compile for another device; rlx.GraphDevices finds one",
            )
        )
    if kernel_set:
        check_supported(graph, kernel_set, str(target.device), options.allow_host_fallback)
    with phase("passes"):
        early = list[str]()
        if kernel_set and options.hoist:
            graph = _within_bindings(lift(graph, early), target, early)
        whole, notes = _specialise(graph, target, GRAPH_PASSES)
        notes = early + notes
        hoisted = hoist(whole, notes) if kernel_set and options.hoist else Hoisted(whole)
        fused, more = _specialise(hoisted.graph, target, KERNEL_PASSES)
        notes += more
    if not kernel_set:
        return Lowered(fused, notes, None, None)
    subgraphs: list[Graph] = []

    def specialise(one: Graph) -> tuple[Graph, list[str]]:
        found = _specialise(one, target)
        subgraphs.append(found[0])
        return found

    with phase("schedule"):
        schedule = _schedule(fused, target, specialise)
    with phase("memory plan"):
        plan = _plan(schedule, target)
    return Lowered(fused, notes, schedule, plan, hoisted.preparations, tuple(subgraphs))


def derive(graph: Graph, target: Target, decisions: Decisions) -> Lowered:
    """What ``lower`` gives, from what it decided once: the kernel calls are written anew.

    The decisions are not believed. Calls and parameters come from the lowering rules of the operations
    alone, so they stay within the memory of their operands as those of any graph do; the memory plan is
    checked. What a plan computes is its own matter: it belongs to the file that it stands in.

    Args:
        graph: The verified graph that the decisions are for; it is not changed.
        target: What it is for.
        decisions: What was decided.

    Raises:
        RlxError: They are not decisions about such a graph for such a target.
    """
    check_fit(graph, decisions.graph, decisions.preparations)
    refuse_unready([decisions.graph, *decisions.subgraphs], target.kernel_set)
    allow_host = target.options.allow_host_fallback
    check_supported(decisions.graph, target.kernel_set, str(target.device), allow_host)
    known = iter(decisions.subgraphs)

    def specialise(one: Graph) -> tuple[Graph, list[str]]:
        found = next(known, None)
        if found is None:
            raise InputError(describe("a plan without a subgraph that its graph has", got=one.name))
        check_same(one, found)
        return found, []

    with budget():
        with phase("schedule"):
            schedule = _schedule(decisions.graph, target, specialise)
        with phase("memory plan"):
            plan = _plan(schedule, target, decisions.offsets)
    if next(known, None) is not None:
        raise InputError(describe("a plan with subgraphs that its graph has not"))
    return Lowered(
        decisions.graph,
        decisions.notes,
        schedule,
        plan,
        decisions.preparations,
        decisions.subgraphs,
    )


def _within_bindings(graph: Graph, target: Target, notes: list[str]) -> Graph:
    """The graph with no weight above what the device binds, as far as that can be."""
    limit = target.info.limits.get("max-storage-buffer-binding-size")
    return graph if limit is None else split_large(graph, limit, notes)


def fewer_rows(lowered: Lowered, target: Target, actual: int, upper: int) -> Extent:
    """What runs do on ``actual`` of ``upper`` rows."""
    found = lowered.extents.get((actual, upper))
    if found is None:
        found = extent_of(lowered.graph, actual, upper)
        if found.graph is not None and target.kernel_set == "cpu":
            schedule = _schedule(found.graph, target, lambda one: _specialise(one, target))
            found = replace(found, lowered=(schedule, _plan(schedule, target)))
        lowered.extents.put((actual, upper), found)
    return found


def _specialise(
    graph: Graph, target: Target, passes: Sequence[Pass] = PIPELINE
) -> tuple[Graph, list[str]]:
    options = target.options

    def enabled(name: str) -> bool:
        return bool(getattr(options, name))

    return run_pipeline(graph, enabled, target.kernel_set, options.io_gate, passes)


def _schedule(
    graph: Graph,
    target: Target,
    specialise: Callable[[Graph], tuple[Graph, list[str]]],
    host: Mapping[int, str] = MappingProxyType({}),
) -> Schedule:
    limits = dict(target.info.limits)
    if "subgroup" in target.info.features and not flags.WEBGPU_DEFAULT_LIMITS.get():
        limits[SUBGROUPS] = 1

    return Scheduler(graph, target.kernel_set, limits, specialise, target.choices, host).run()


def _plan(schedule: Schedule, target: Target, offsets: Sequence[int] | None = None) -> MemoryPlan:
    options, limit = target.options, target.options.memory_limit
    param_bytes = sum(value.type.nbytes for value in schedule.params.values())
    if limit is not None and param_bytes > limit:
        raise DeviceMemoryError(
            describe(
                "the params alone are above the memory limit",
                got=f"{param_bytes} bytes",
                expected=f"at most {limit} bytes (memory_limit)",
            )
        )
    alignment = target.info.limits.get("min-storage-buffer-offset-alignment", 1)
    return plan_memory(
        schedule,
        max(options.arena_alignment, alignment),
        None if limit is None else limit - param_bytes,
        options.reuse_memory,
        offsets=offsets,
    )


def loaded(lowered: Lowered, target: Target) -> tuple[Lowered, Executable]:
    """``load``; nodes that are too large for the target's kernels run on the host.

    Returns:
        What is loaded in the end, and its executable.

    Raises:
        UnsupportedOpError: There are such nodes, and the host may not help or can't.
    """
    try:
        return lowered, load(lowered, target)
    except KernelLimitError as error:
        host = _moved(lowered.graph, error.reasons)
        allowed = target.options.allow_host_fallback
        if not allowed or any(blocked(lowered.graph.nodes[at], "cpu") for at in host):
            raise UnsupportedOpError(str(error)) from error
        schedule = _schedule(lowered.graph, target, lambda one: _specialise(one, target), host)
        moved = replace(lowered, schedule=schedule, plan=_plan(schedule, target), first=lowered)
        return moved, load(moved, target)


def _moved(graph: Graph, reasons: Mapping[Node, str]) -> dict[int, str]:
    """The nodes of a graph that have to run on the host: those named, and those that hold one in a subgraph."""
    found = {
        node.id: reason
        for node, reason in reasons.items()
        if node.id < len(graph.nodes) and graph.nodes[node.id] is node
    }
    if len(found) < len(reasons):
        inside = next(iter(reasons.values()))
        for node in graph.nodes:
            if any(isinstance(value, Graph) for value in node.attrs.values()):
                found[node.id] = f"in its subgraph: {inside}"
    return found


def load(lowered: Lowered, target: Target) -> Executable:
    """Takes the target's memory and makes everything that runs need.

    Raises:
        CompileError: A kernel does not compile.
        DeviceMemoryError: The device has no room.
    """
    with phase("load"):
        try:
            executable = target.backend.load(
                target.info, lowered.graph, lowered.schedule, lowered.plan, target.options
            )
        except Exception as error:
            if isinstance(error, RlxError) or is_built_in(target.backend.name):
                raise
            raise CompileError(
                describe(
                    f"the plug-in for {target.device} could not load graph {lowered.graph.name!r}",
                    got=f"{type(error).__name__}: {error}",
                    hint="compile for another device, or report it to the plug-in's authors",
                )
            ) from error
        if not lowered.preparations:
            return executable
        preparing = Preparing(lowered.preparations, frozenset(lowered.graph.param_names))
        for name, value in preparing.at_once():
            executable.set_param(name, value)
        return cast(Executable, PreparedExecutable(executable, preparing))

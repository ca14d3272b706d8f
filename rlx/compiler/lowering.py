"""From a verified graph to a lowered one: passes, schedule and memory plan. Each step makes a new record from the last.

A start from the compile cache does none of this, and does not import this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rlx import flags
from rlx.backends.base import KernelLimitError
from rlx.compiler.lowered_module import NOTHING_HOSTED, Decisions, LoweredModule
from rlx.compiler.target import Target
from rlx.errors import DeviceMemoryError, GraphError, InputError, UnsupportedOpError
from rlx.ir.dtype import HALVES
from rlx.ir.fragments import BF16, INT8, ROUNDS, fragment_limits
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.kernel_sets import HOST_KERNELS, KERNEL_SETS
from rlx.ir.notes import Note
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ir.rewrite import subgraphs
from rlx.ir.shape import UPDATE
from rlx.ir.spans import phase
from rlx.ir.static_sizes import inferred_anew
from rlx.ir.variants import SUBGROUPS, UNPACKS
from rlx.ops.placeholders import LEAVES
from rlx.passes.branch_hoist import BRANCHES, lift
from rlx.passes.dynamic_batch import MAX_SCHEDULES, ROWS, DynamicRows, RowsSchedule
from rlx.passes.large_weights import split_large
from rlx.passes.legalize import blocked, refuse_unready
from rlx.passes.memory_plan import plan_memory
from rlx.passes.param_hoist import Hoisted, check_fit, check_same, hoist
from rlx.passes.pipeline import (
    FOLD_PASSES,
    KERNEL_PASSES,
    PATTERN_PASSES,
    SIMPLIFY_PASSES,
    Pass,
    run_pipeline,
)
from rlx.passes.promote import promote, reads_halves
from rlx.passes.schedule import Scheduler, check_supported
from rlx.resource_limits import budget
from rlx.sizes import Assumptions, Dim, deciding, pinned

# Vendors whose drivers unpack all halves exactly, by API: tests/test_packed_products.py looks at each of them.
_UNPACKERS = frozenset({(0x10DE, "Vulkan")})


def lower(graph: Graph, target: Target) -> LoweredModule:
    """Passes, schedule and memory plan.

    Args:
        graph: A verified graph; it is not changed.
        target: The device and its options.

    Raises:
        UnsupportedOpError: The target has no kernel for an op.
        DeviceMemoryError: The graph is above the memory limit.
        LimitError: It is more work than ``rlx.limits`` allows.
    """
    with budget():
        try:
            return _lower(graph, target, promotes=True)
        except DeviceMemoryError:
            if not any(item.dtype in HALVES for node in graph.nodes for item in node.types):
                raise
            # Values of 16 bits take half the memory, and are rounded after each operation.
            return _lower(graph, target, promotes=False)


def lower_sized(graph: Graph, target: Target, assumptions: Assumptions) -> LoweredModule:
    """Lowers a graph with dims for all sizes for which some assumptions hold; there is no memory plan.

    Args:
        graph: A verified graph with dims; it is not changed.
        target: The device and its options.
        assumptions: Values of the dims; it gets the guards of what was assumed.

    Raises:
        UnknownSizeError: Something needs a size as a number.
        RlxError: As ``lower``.
    """
    with budget(), deciding(assumptions):
        lowered = _lower(inferred_anew(graph), target, promotes=True)
    assert lowered.schedule is not None
    lowered.schedule.sizes = dict(assumptions.hints)
    return lowered


def _lower(graph: Graph, target: Target, promotes: bool) -> LoweredModule:
    options, kernel_set = target.options, target.kernel_set
    reason = target.backend.refusal(target.info, graph)
    if reason is not None:
        raise UnsupportedOpError(
            f"{target.device} refuses graph {graph.name!r}",
            got=reason,
            hint="compile for another device; rlx.GraphDevices finds one",
        )
    if target.reads_kernels:
        check_supported(graph, kernel_set, str(target.device), options.allow_host_fallback)
    graph = _with_states(graph)
    with phase("passes"):
        early = list[Note]()
        if target.reads_kernels and options.hoist:
            if any(node.op in BRANCHES for node in graph.nodes):
                graph = lift(graph, early)
            graph = _within_bindings(graph, target, early)
        whole, notes = _joined(graph, target, promotes)
        notes = early + notes
        prepares = target.reads_kernels or target.capabilities.prepared_params
        prepares = prepares and options.hoist and _has_weights(whole)
        hoisted = hoist(whole, notes) if prepares else Hoisted(whole)
        fused, more = _specialise(hoisted.graph, target, KERNEL_PASSES)
        notes += more
    if not target.reads_kernels:
        # Params alone may be above the memory limit: nothing of the graph is loaded then.
        _params_limit(target, sum(fused.named(name).type.nbytes for name in fused.param_names))
        hosted = _without_kernels(fused, target, target.backend.unsupported(target.info, fused))
        return LoweredModule(fused, tuple(notes), None, None, hoisted.preparations, (), hosted)
    # Param values belong to the caller. The lowered graph may be shared with other compiles, so it holds none.
    fused.param_values.clear()
    with phase("schedule"):
        schedule, subgraphs = _specialised(fused, target)
    with phase("memory plan"):
        plan = None if fused.dims else _plan(schedule, target)
    return LoweredModule(
        fused, tuple(notes), schedule, plan, hoisted.preparations, subgraphs, NOTHING_HOSTED
    )


def _with_states(graph: Graph) -> Graph:
    """See ``rlx.ir.states.with_states``."""
    if not graph.uses(UPDATE):
        return graph
    from rlx.ir.states import with_states

    return with_states(graph)


def _has_weights(graph: Graph) -> bool:
    """Returns whether something may depend on params and constants alone."""
    return any(node.op in ("param", "constant") for node in graph.nodes)


def _without_kernels(
    graph: Graph, target: Target, reasons: Mapping[Node, str]
) -> Mapping[int, str]:
    """The nodes that a backend without kernel set leaves to the host, by id, and why.

    Raises:
        UnsupportedOpError: There are some, and the host may not help, or can't.
    """
    refused = [
        f"{node.op}: {reason} ({node.where()})"
        for node, reason in reasons.items()
        if not target.options.allow_host_fallback or blocked(node, HOST_KERNELS) is not None
    ]
    if refused:
        raise UnsupportedOpError(
            f"{target.device} can't run {len(refused)} nodes of graph {graph.name!r}",
            got="; ".join(refused),
            hint="allow host fallbacks, cast to another dtype, or compile for another device",
        )
    return MappingProxyType({node.id: reason for node, reason in reasons.items()})


def derive(graph: Graph, target: Target, decisions: Decisions) -> LoweredModule:
    """Rebuilds the result of ``lower`` from its decisions: the kernel calls are written anew.

    The decisions are not believed. Calls and parameters come from the lowering rules of the operations
    alone, so they stay within the memory of their operands as those of any graph do; the memory plan is
    checked. Nothing checks that a plan computes the graph's results: it belongs to the file that holds it.

    Args:
        graph: The verified graph that the decisions are for; it is not changed.
        target: The device and its options.
        decisions: The decisions of the compiler.

    Raises:
        RlxError: They are not decisions about such a graph for such a target.
    """
    check_fit(_with_states(graph), decisions.graph, decisions.preparations)
    refuse_unready([decisions.graph, *decisions.subgraphs], target.kernel_set)
    allow_host = target.options.allow_host_fallback
    check_supported(decisions.graph, target.kernel_set, str(target.device), allow_host)
    _check_hosted(decisions, target)
    known = iter(decisions.subgraphs)
    results: dict[Graph, Graph] = {}

    def specialise(graph: Graph) -> tuple[Graph, list[Note]]:
        if graph not in results:
            result = next(known, None)
            if result is None:
                raise InputError("a plan lacks a subgraph of its graph", got=graph.name)
            check_same(graph, result)
            results[graph] = result
        return results[graph], []

    with budget():
        with phase("schedule"):
            schedule = _schedule(decisions.graph, target, specialise, decisions.hosted)
        with phase("memory plan"):
            plan = _plan(schedule, target, decisions.offsets)
    if next(known, None) is not None:
        raise InputError("a plan has subgraphs that its graph lacks")
    more = decisions.preparations, decisions.subgraphs, decisions.hosted
    lowered = LoweredModule(decisions.graph, decisions.notes, schedule, plan, *more)
    if decisions.program is None:
        return lowered  # the backend makes its program when it is loaded
    program = target.backend.unpacked(
        decisions.program, target.info, lowered.graph, schedule, plan, target.options
    )
    return replace(lowered, program=program)


def _check_hosted(decisions: Decisions, target: Target) -> None:
    """Checks that the nodes that a plan moves to the host may run there.

    Raises:
        InputError: There is no such node, it needs no kernel, or the host can't or may not run it.
    """
    nodes = decisions.graph.nodes
    for i in decisions.hosted:
        fits = 0 <= i < len(nodes) and nodes[i].op not in LEAVES and nodes[i].op != PART
        if not fits or nodes[i].opdef.view or _only_here(nodes[i], target):
            raise InputError("a plan moves a node to the host, which can't run it", got=i)


def _only_here(node: Node, target: Target) -> bool:
    """Returns whether a node may run on its target only, or can't run on the host."""
    allowed = target.options.allow_host_fallback and not KERNEL_SETS[target.kernel_set].on_host
    return not allowed or blocked(node, HOST_KERNELS) is not None


def _promoted(graph: Graph, target: Target, notes: list[Note]) -> Graph:
    """The graph with f32 between its operations in place of halves."""
    if not any(type.dtype in HALVES for node in graph.nodes for type in node.types):
        return graph
    halves = reads_halves(target.kernel_set, target.options.precision)
    largest = target.info.limits.get("max-storage-buffer-binding-size", math.inf)
    return promote(graph, notes, halves, largest)


def _joined(graph: Graph, target: Target, promotes: bool = True) -> tuple[Graph, list[Note]]:
    """The graph after the passes on it as its owner wrote it."""
    graph, notes = _specialise(graph, target, SIMPLIFY_PASSES)
    # Patterns join products of halves with what follows them, before that is computed in f32.
    late = target.options.precision == "f16"
    if promotes and not late:
        graph = _promoted(graph, target, notes)
    graph, fused = _specialise(graph, target, PATTERN_PASSES)
    if promotes and late:
        graph = _promoted(graph, target, fused)
    graph, folded = _specialise(graph, target, FOLD_PASSES)
    if not promotes:
        notes.append(Note("promote", ("left out: f32 takes more memory than there is",)))
    return graph, [*notes, *fused, *folded]


def _within_bindings(graph: Graph, target: Target, notes: list[Note]) -> Graph:
    """Splits weights that are larger than the device can bind, where that is possible."""
    limit = target.info.limits.get("max-storage-buffer-binding-size")
    if limit is None or not _has_weights(graph):
        return graph
    return split_large(graph, limit, notes)


def fewer_rows(rows: DynamicRows, target: Target, actual: int) -> DynamicRows:
    """Returns how runs compute another number of rows."""
    result = rows.of(actual)
    if rows.sized is None or not target.capabilities.extent_programs:
        return result
    for schedule in rows.schedules:
        if schedule.serves(actual):
            result.schedule = schedule
            return result
    result.schedule = _rows_schedule(result, target)
    if result.schedule is not None:
        rows.schedules.append(result.schedule)
        del rows.schedules[:-MAX_SCHEDULES]
    return result


def _rows_schedule(rows: DynamicRows, target: Target) -> RowsSchedule | None:
    """The calls for such numbers of rows, or for one alone where lowering needs it; None where an operation takes none."""
    assert rows.sized is not None
    assumptions = Assumptions({ROWS: rows.actual}, ones=True)
    # What is true of 0 or 1 alone would make a range of it alone.
    if rows.ranges and rows.actual > 1:
        try:
            with deciding(assumptions):
                schedule, _ = _specialised(inferred_anew(rows.sized), target)
        except (GraphError, UnsupportedOpError, TypeError):
            assumptions = Assumptions({ROWS: rows.actual})
        else:
            schedule.sizes = dict(assumptions.hints)
            return RowsSchedule(schedule, assumptions)
    if rows.graph is None:
        return None
    with deciding(assumptions):
        pinned(Dim(ROWS))
    return RowsSchedule(_specialised(rows.graph, target)[0], assumptions)


def _specialise(graph: Graph, target: Target, passes: Sequence[Pass]) -> tuple[Graph, list[Note]]:
    options = target.options

    def enabled(name: str) -> bool:
        return bool(getattr(options, name))

    return run_pipeline(graph, enabled, target.kernel_set, options.io_gate, passes)


def _specialised(
    graph: Graph, target: Target, hosted: Mapping[int, str] = NOTHING_HOSTED
) -> tuple[Schedule, tuple[Graph, ...]]:
    """The schedule of a graph, and what the passes made of its subgraphs."""
    # One that stands in many places is specialised once.
    results: dict[Graph, tuple[Graph, list[Note]]] = {}

    def specialise(graph: Graph) -> tuple[Graph, list[Note]]:
        if graph not in results:
            whole, notes = _joined(graph, target)
            result, more = _specialise(whole, target, KERNEL_PASSES)
            results[graph] = result, notes + more
        return results[graph]

    schedule = _schedule(graph, target, specialise, hosted)
    return schedule, tuple(item for item, _ in results.values())


def _schedule(
    graph: Graph,
    target: Target,
    specialise: Callable[[Graph], tuple[Graph, list[Note]]],
    hosted: Mapping[int, str],
) -> Schedule:
    limits = dict(target.info.limits)
    if "subgroup" in target.info.features and not flags.WEBGPU_DEFAULT_LIMITS.get():
        limits[SUBGROUPS] = 1
    if target.info.fragments:
        limits |= fragment_limits(target.info.fragments, target.info.features)
    if (target.info.vendor_id, target.info.api) in _UNPACKERS:
        limits[UNPACKS] = 1
    limits[ROUNDS] = int(KERNEL_SETS[target.kernel_set].computes_f16)
    limits[INT8] = int(target.options.precision in ("int8", "bf16"))
    limits[BF16] = int(target.options.precision == "bf16")
    kernels, choices = target.kernel_set, target.choices
    return Scheduler(graph, kernels, limits, specialise, choices, hosted, in_place=True).run()


def _plan(schedule: Schedule, target: Target, offsets: Sequence[int] | None = None) -> MemoryPlan:
    options, limit = target.options, target.options.memory_limit
    param_bytes = sum(value.type.nbytes for value in schedule.params.values())
    _params_limit(target, param_bytes)
    alignment = target.info.limits.get("min-storage-buffer-offset-alignment", 1)
    return plan_memory(
        schedule,
        max(options.arena_alignment, alignment),
        None if limit is None else limit - param_bytes,
        options.reuse_memory,
        offsets=offsets,
    )


def _params_limit(target: Target, nbytes: int) -> None:
    """Refuses a graph whose params alone, of so many bytes, are above the memory limit."""
    limit = target.options.memory_limit
    if limit is not None and nbytes > limit:
        raise DeviceMemoryError(
            "the params alone exceed the memory limit",
            got=f"{nbytes} bytes",
            expected=f"at most {limit} bytes (memory_limit)",
        )


def moved_to_host(lowered: LoweredModule, target: Target, error: KernelLimitError) -> LoweredModule:
    """A lowered graph whose nodes that are too large for the target's kernels run on the host.

    Args:
        lowered: The graph.
        target: The device and its options.
        error: Which nodes these are, as the backend said.

    Raises:
        UnsupportedOpError: The host may not help, or can't.
    """
    hosted = {**lowered.hosted, **_moved(lowered.graph, error.reasons)}
    if not target.reads_kernels:
        nodes = {lowered.graph.nodes[key]: reason for key, reason in hosted.items()}
        return replace(lowered, hosted=_without_kernels(lowered.graph, target, nodes))
    if any(_only_here(lowered.graph.nodes[i], target) for i in hosted):
        raise UnsupportedOpError(str(error)) from error
    schedule, subgraphs = _specialised(lowered.graph, target, hosted)
    return replace(
        lowered,
        schedule=schedule,
        plan=_plan(schedule, target),
        subgraphs=subgraphs,
        hosted=MappingProxyType(hosted),
    )


def _moved(graph: Graph, reasons: Mapping[Node, str]) -> dict[int, str]:
    """The nodes of a graph that have to run on the host: those named, and those that hold one in a subgraph."""
    results = {
        node.id: reason
        for node, reason in reasons.items()
        if node.id < len(graph.nodes) and graph.nodes[node.id] is node
    }
    if len(results) < len(reasons):
        inside = next(iter(reasons.values()))
        for node in graph.nodes:
            if subgraphs(node):
                results[node.id] = f"in its subgraph: {inside}"
    return results

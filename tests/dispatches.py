"""The WGSL that cases become, without a device; and one case of each kind for the normal run."""

from __future__ import annotations

import math
from unittest import mock

from samples import ALL, SIZED_BY_DATA

from rlx.backends.webgpu import codegen
from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.codegen import lower
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import computes_sizes
from rlx.ir.plan import HOST
from rlx.ir.static_sizes import usual as usual_sizes
from rlx.lru import Lru
from rlx.ops.conformance_cases import cases
from rlx.passes.memory_plan import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler

CASES = [*cases(), *cases(bench=True)]
OF_ONE_PLAN = [case for case in CASES if case.opdef.name not in SIZED_BY_DATA]
_kernels = {}
PER_DIMENSION = DEFAULT_LIMITS["max-compute-workgroups-per-dimension"]


def planned_as(graph):
    """The graph, or where it computes sizes the same graph of usual sizes: it has no plan of its own."""
    return usual_sizes(graph) if computes_sizes(graph) else graph


def schedule_of(graph, limits=DEFAULT_LIMITS, device="webgpu"):
    """The schedule of a graph for a device within some limits."""

    def specialise(item):
        # Without folding: it would compute a composite of constants by the reference.
        return run_pipeline(item, lambda option: option != "fold", device)

    fused, _ = specialise(planned_as(graph))
    return Scheduler(fused, device, limits, specialise).run()


def dispatches(case, limits=DEFAULT_LIMITS):
    """Every dispatch of a case."""
    return planned(case.graph(), limits)[0]


def planned(graph, limits=DEFAULT_LIMITS, **options):
    """Every dispatch of a graph, and the memory plan that they are for."""
    schedule = schedule_of(graph, limits)
    plan = plan_memory(schedule, **options)
    results = [lower(call, PER_DIMENSION, plan) for call in schedule.calls if call.kernel != HOST]
    return [item for item in results if item is not None], plan


def kernels_of(case, device):
    """The kernels that a case calls. Lists of cases have the same samples."""
    key = case.opdef.name, id(case.sample), case.dtypes, device
    if key not in _kernels:
        limits = {} if device == "cpu" else DEFAULT_LIMITS
        calls = schedule_of(case.graph(), limits, device).calls
        _kernels[key] = {call.kernel for call in calls}
    return _kernels[key]


def of_each_kernel(group, device="cpu"):
    """The identities of cases by which each op meets every kernel with each dtype; of all cases with ``--all``.

    Large cases are taken before small ones, which often have no whole vector; those that are there to be timed last.

    Args:
        group: The cases.
        device: The device whose kernels are meant.
    """
    if ALL:
        return {id(case) for case in group}
    result, seen = set(), set()
    for case in sorted(group, key=lambda case: (case.sample.bench, -elements(case))):
        key, kernels = (case.opdef.name, case.dtypes[:1]), getattr(case.opdef, device)
        # Elementwise ops share kernels that their records do not name.
        named = {(key, kernel) for kernel in kernels.names} if kernels else set()
        left = not named or named - seen
        if left and not any(0 in shape for shape in case.sample.shapes):
            met = {(key, kernel) for kernel in kernels_of(case, device)}
            if not met <= seen:
                result.add(id(case))
                seen |= met
    assert result, "no case meets a kernel"
    return result


def usual(group, few, others=True):
    """Selects the cases of the normal run: all of f32, ``few``, and every third of the ``others``; with ``--all`` all.

    The kernels of other types come from the same sources as those of f32.
    """
    return [
        case
        for index, case in enumerate(group)
        if ALL or case.dtypes[:1] == (DType.F32,) or id(case) in few or (others and index % 3 == 0)
    ]


def elements(case):
    """Elements of a case's operands."""
    return sum(math.prod(shape) for shape in case.sample.shapes)


def thinned(chosen=OF_ONE_PLAN, every=False):
    """The first case of each op and dtype that has work; all of them with ``script/test --all``.

    With ``every``, where a run is quick, only those large enough to be timed are left out.
    """
    result, seen = [], set()
    for case in chosen:
        key = case.opdef.name, case.dtypes[:1]
        first = key not in seen and not any(0 in shape for shape in case.sample.shapes)
        if first:
            seen.add(key)
        if first or ALL or (every and not case.sample.bench):
            result.append(case)
    return result


def native(case):
    """Returns whether WebGPU computes the case itself: it holds no f64."""
    return DType.F64 not in case.dtypes


def render_with(monkeypatch, render):
    """Renders kernels otherwise from here on: texts that were rendered before are not used."""
    monkeypatch.setattr(codegen, "render", render)
    monkeypatch.setattr(codegen, "_sources", Lru(64))


def joined_graph(case):
    """A case whose operands of one type are one value; and for each operand the first of its type, by position."""
    first = {}
    arguments = [*zip(case.sample.shapes, case.dtypes, strict=True)]
    pattern = [first.setdefault(item, index) for index, item in enumerate(arguments)]
    plain, result = Graph.input, {}

    def shared(graph, name, shape, dtype):
        key = shape, dtype
        if key not in result:
            result[key] = plain(graph, name, shape, dtype)
        return result[key]

    with mock.patch.object(Graph, "input", shared):
        return case.graph(), pattern

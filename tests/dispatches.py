"""The WGSL that cases become, without a device; and one case of each kind for the normal run."""

from __future__ import annotations

from samples import ALL

from rlx.backends.webgpu import rendering
from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.rendering import lower
from rlx.ir.dtype import DType
from rlx.ir.plan import HOST
from rlx.lru import Lru
from rlx.ops.cases import cases
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler

CASES = [*cases(), *cases(bench=True)]
PER_DIMENSION = DEFAULT_LIMITS["max-compute-workgroups-per-dimension"]


def schedule_of(graph, limits=DEFAULT_LIMITS):
    """The schedule of a graph for WebGPU within some limits."""

    def specialise(one):
        # Without folding: it would compute a composite of constants by the reference.
        return run_pipeline(one, lambda option: option != "fold", "webgpu")

    fused, _ = specialise(graph)
    return Scheduler(fused, "webgpu", limits, specialise).run()


def dispatches(case, limits=DEFAULT_LIMITS):
    """Every dispatch of a case."""
    calls = schedule_of(case.graph(), limits).calls
    made = [lower(call, PER_DIMENSION) for call in calls if call.kernel != HOST]
    return [one for one in made if one is not None]


def thinned(chosen=CASES, every=False):
    """The first case of each op and dtype that has work; all of them with ``script/test --all``.

    With ``every``, where a run is quick, only those large enough to be timed are left out.
    """
    found, seen = [], set()
    for case in chosen:
        key = case.opdef.name, case.dtypes[:1]
        first = key not in seen and not any(0 in shape for shape in case.sample.shapes)
        if first:
            seen.add(key)
        if first or ALL or (every and not case.sample.bench):
            found.append(case)
    return found


def native(case):
    """Whether WebGPU computes the case itself: it holds no f64."""
    return DType.F64 not in case.dtypes


def render_with(monkeypatch, render):
    """Renders kernels otherwise from here on: texts that were rendered before are not used."""
    monkeypatch.setattr(rendering, "render", render)
    monkeypatch.setattr(rendering, "_sources", Lru(64))

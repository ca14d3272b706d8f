"""The tuner: times the variants of kernels on a device, and keeps the fastest for later compiles."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from time import perf_counter
from typing import Any

import numpy as np

from rlx import flags
from rlx.backends.base import CompileOptions
from rlx.compiler.lowering import lower
from rlx.compiler.target import Target
from rlx.cost.tuned import store_variants, stored_variants
from rlx.dataclasses import dataclass
from rlx.device.names import Device, info_of
from rlx.errors import CompileError, RlxError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.spans import watched
from rlx.ir.variants import Family, Table, Variant, point, watching
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import compile
from rlx.tune.tune_probes import TuneProbe, probes, product

# Variants are timed in turns: number of rounds, and runs per round.
ROUNDS, RUNS = 5, 8
# A GPU that waits for the host lowers its clock, some of them to a sixth, and takes its time to raise it: products
# of this size keep it busy for so many seconds before a problem's first run, and before each of its variants.
HEATER, FIRST_HEAT_S, HEAT_S = 2048, 0.4, 0.01
# Minimum speed-up for a variant to replace the one that the rule chooses: less is noise.
WORTH = 0.97


@dataclass(frozen=True)
class Tuned:
    """The tuner's result for one problem of one family.

    Attributes:
        family: The family of variants.
        problem: The problem in words.
        at: The problem as a point (``rlx.ir.variants.point``).
        us: Microseconds of the run's kernels by variant, in the fastest round: others were disturbed.
        default: The choice of the family's rule.
        simplest: The family's simplest variant that can do it.
        best: The stored variant: the fastest, or the default if it is as fast within noise.
    """

    family: str
    problem: str
    at: tuple[float, ...]
    us: dict[str, float]
    default: str
    simplest: str
    best: str

    def to_json(self) -> dict[str, Any]:
        """Returns the record as values that JSON can hold."""
        return asdict(self)


def tune(
    device: Device | str,
    told: Callable[[float, str], None] | None = None,
    which: Iterable[TuneProbe] | None = None,
    keep: bool = True,
    only: str = "",
) -> list[Tuned]:
    """Times every variant that is legal on a device, on every problem of the sweep.

    Args:
        device: A WebGPU device that can take the time of kernels.
        told: Called with the part that is done (0 to 1) and what comes next.
        which: The problems; those of ``tune_probes.probes`` if None.
        keep: Whether the winners are stored, in place of older ones of the same problems.
        only: A regular expression: families whose name it matches. All by default.

    Returns:
        What was found, a record per problem and family.

    Raises:
        CompileError: The device can't time kernels.
        DeviceUnavailableError: It is not on this machine.
    """
    device = Device.parse(device)
    info = info_of(device)
    limit, software = info.limits.get("max-storage-buffer-binding-size", 0), info.software
    todo = [
        probe
        for probe in (probes() if which is None else which)
        if probe.nbytes <= limit and (info.fragments or not probe.half)
    ]
    results: list[Tuned] = []
    with ExitStack() as stack, watched(None):
        heater = None if software else stack.enter_context(_resident(product(HEATER), device))
        for i, probe in enumerate(todo):
            if told is not None:
                told(i / max(1, len(todo)), probe.name)
            results += _measured(probe, device, heater, only)
    if told is not None:
        told(1.0, "done")
    if keep:
        store_variants(device, joined(stored_variants(device), results))
    return results


def joined(before: Table, results: Iterable[Tuned]) -> Table:
    """A table with what was found in place of older rows of the same problems."""
    rows = {family: dict(entries) for family, entries in before.items()}
    for item in results:
        rows.setdefault(item.family, {})[item.at] = item.best
    return {family: tuple(sorted(points.items())) for family, points in rows.items()}


def _measured(
    probe: TuneProbe, device: Device, heater: CompiledGraph | None, only: str
) -> list[Tuned]:
    """The families of a problem one after the other, the others as their rules have it."""
    graph = probe.build()
    with forcing(""), watching() as chosen:
        lower(graph, Target.of(device, _options(probe)))
    cases = {
        (family.name, point(problem)): (family, problem, legal) for family, problem, legal in chosen
    }
    return [
        _of_family(probe, graph, device, heater, *case)
        for case in cases.values()
        if len(case[2]) > 1 and re.search(only, case[0].name)
    ]


def _of_family(
    probe: TuneProbe,
    graph: Graph,
    device: Device,
    heater: CompiledGraph | None,
    family: Family,
    problem: Any,
    legal: tuple[Variant, ...],
) -> Tuned:
    compiled: dict[str, CompiledGraph] = {}
    times: dict[str, list[float]] = {variant.name: [] for variant in legal}
    try:
        for variant in legal:
            with forcing(f"{family.name}={variant.name}"):
                try:
                    compiled[variant.name] = _resident(graph, device, _options(probe))
                except RlxError:
                    continue  # a driver that refuses one variant still has the others
        _heat(heater, FIRST_HEAT_S)
        for _ in range(ROUNDS):
            for name, value in compiled.items():
                _heat(heater, HEAT_S)
                times[name].append(value.profile(runs=RUNS).us)
    finally:
        for value in compiled.values():
            value.close()
    us = {name: min(time) for name, time in times.items() if time}
    if not us:
        raise CompileError(f"no variant of {family.name} runs on {device}", got=probe.name)
    default = family.rule(problem, legal).name
    fastest = min(us, key=lambda name: us[name])
    noise = default in us and us[fastest] > WORTH * us[default]
    best = default if noise else fastest
    return Tuned(family.name, probe.name, point(problem), us, default, legal[-1].name, best)


def _heat(heater: CompiledGraph | None, seconds: float) -> None:
    """Keeps the GPU busy for a while; a few products are always on their way."""
    if heater is None:
        return
    over = perf_counter() + seconds
    while perf_counter() < over:
        for _ in range(4):
            heater.commit_no_wait({})
        heater.sync_pending()


def _options(probe: TuneProbe) -> CompileOptions:
    return CompileOptions(precision="f16" if probe.half else "f32")


def _resident(graph: Graph, device: Device, options: CompileOptions | None = None) -> CompiledGraph:
    """The graph with random inputs on the device, so that runs move nothing."""
    compiled = compile(graph, device, options=options)
    rng = np.random.default_rng(0)
    for node in graph.nodes:
        if node.op == "input":
            value = rng.standard_normal(node.shape, np.float32)
            value = np.abs(value) if node.dtype is DType.U8 else value
            compiled.bind_gpu_handle(node.name, value.astype(node.dtype.numpy))
    return compiled


@contextmanager
def forcing(text: str) -> Iterator[None]:
    """``RLX_VARIANT`` as it is wanted, for compiles of this process."""
    name = flags.VARIANT.name
    before = os.environ.get(name)
    os.environ[name] = text
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

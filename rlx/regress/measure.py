"""Measuring one case on one device in this process: the evidence that is the same in each run, and the times."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import psutil

from rlx.backends.base import CompileOptions
from rlx.dataclasses import dataclass
from rlx.ir.dtype import widen
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.regress.exact import difference, exact_outputs
from rlx.regress.record_schema import COLD, CaseLine, Difference, Kernel, Output, SourceText, Times
from rlx.regress.recording import packed
from rlx.regress.regress_cases import Subject
from rlx.regress.system_load import LoadWatch
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session

# Runs of one process: for so many seconds, within these numbers; what is kept of them.
FEWEST, _MOST, KEPT = 5, 5000, 60
# Before a GPU's times count it runs for this part of the time, so that its clock is that of a busy one.
_WARMING = 0.4
# Profiles whose kernel times are kept.
_PROFILES = 10
# Where in the program a node was made: a path of whoever built the graph.
_ORIGIN = re.compile(r" <- [^\n]*?:\d+")
_SECTION = re.compile(r"^// --- ", re.MULTILINE)


@dataclass
class LoadedCase:
    """A case on a device, after its first run.

    Attributes:
        graph: The graph.
        compiled: The graph on the device.
        inputs: Its inputs.
        outputs: Copies of the outputs of the first run.
        compile_ns: Nanoseconds of the compile.
        first_ns: Nanoseconds of the first run.
    """

    graph: Graph
    compiled: CompiledGraph
    inputs: Sequence[Array]
    outputs: list[Array]
    compile_ns: int
    first_ns: int


def loaded(
    graph: Graph, inputs: Sequence[Array], device: str, options: CompileOptions
) -> LoadedCase:
    """Compiles a graph and runs it once."""
    session = Session(device, options=options)
    began = time.perf_counter_ns()
    compiled = session.compile(graph)
    ready = time.perf_counter_ns()
    outputs = [np.array(view) for view in compiled.run_slots(*inputs)]
    first = time.perf_counter_ns()
    # From here on the inputs are where rlx puts them: an address that NumPy chose would be noise.
    for view, array in zip(compiled.input_views, inputs, strict=True):
        view[...] = array
    return LoadedCase(graph, compiled, inputs, outputs, ready - began, first - ready)


def digest(data: bytes) -> str:
    """The digest by which lines name outputs, schedules and texts."""
    return hashlib.sha256(data).hexdigest()[:32]


def bits(outputs: Sequence[Array]) -> list[str]:
    """The digests of some outputs' elements."""
    return [digest(np.ascontiguousarray(array).tobytes()) for array in outputs]


def runs(item: LoadedCase, seconds: float, fewest: int = FEWEST) -> list[int]:
    """Runs a case for a while: nanoseconds of each run. One run at least before them does not count."""
    call = item.compiled.run_slots
    clock = time.perf_counter_ns
    _warm(item, _WARMING * seconds if item.compiled.device.backend != "cpu" else 0.0)
    results: list[int] = []
    end = clock() + int(seconds * 1e9)
    while (clock() < end and len(results) < _MOST) or len(results) < fewest:
        start = clock()
        call()
        results.append(clock() - start)
    return results


def times(
    item: LoadedCase,
    results: Sequence[int],
    seconds: float,
    watch: LoadWatch,
    run: str,
    device: str,
    case: str,
    process: int,
) -> Times:
    """The line of a case's times in this process.

    Args:
        item: The case.
        results: Nanoseconds of its runs; empty where none was timed.
        seconds: How long it ran; 0 where its times do not count, so that no timestamps are taken either.
        watch: Tells what other processes took meanwhile.
        run: The recording.
        device: The device.
        case: The case's digest.
        process: Number of this process.
    """
    gpu = item.compiled.device.backend != "cpu"
    # Runs that are left out are spread over all of them, so that those kept span the same time.
    retained = list(results[:: max(1, -(-len(results) // KEPT))])
    return Times(
        run,
        device,
        case,
        process,
        retained,
        _gpu_times(item, seconds) if gpu and seconds else [],
        item.compile_ns,
        item.first_ns,
        _memory(),
        watch.contention(),
        bits(item.outputs),
    )


def _warm(item: LoadedCase, seconds: float) -> None:
    """Runs a case for a while, once at least."""
    end = time.perf_counter() + seconds
    item.compiled.run_slots()
    while time.perf_counter() < end:
        item.compiled.run_slots()


def _gpu_times(item: LoadedCase, seconds: float) -> list[int]:
    """Nanoseconds of the kernels of a run, by timestamps of the device; none where it has none."""
    if not item.compiled.capabilities.device_timestamps:
        return []
    args = _named(item)
    _warm(item, _WARMING * seconds)
    return [round(item.compiled.profile(args, runs=1).us * 1e3) for _ in range(_PROFILES)]


def _named(item: LoadedCase) -> dict[str, Any]:
    return dict(zip(item.graph.input_names, item.inputs, strict=True))


def _memory() -> int:
    """The most bytes of memory that this process used so far."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return limit if sys.platform == "darwin" else limit * 1024


def evidence(
    item: LoadedCase, subject: Subject, expected: Sequence[Array] | None, run: str, device: str
) -> tuple[CaseLine, list[SourceText]]:
    """All of a case that does not depend on the clock, and the texts that it names.

    Args:
        item: The case.
        subject: The measured case.
        expected: The reference's outputs in float64; None where there is none.
        run: The recording.
        device: The device.
    """
    compiled = item.compiled
    schedule = _ORIGIN.sub("", compiled.as_text("schedule"))
    kernels, texts = _kernels(_ORIGIN.sub("", compiled.as_text("kernels")))
    texts[digest(schedule.encode())] = schedule
    memory = compiled.memory()
    before = compiled.bytes_moved
    compiled.run_slots(*item.inputs)
    after = compiled.bytes_moved
    line = CaseLine(
        run=run,
        device=device,
        case=subject.digest,
        name=subject.name,
        suite=subject.suite,
        op=subject.op,
        shapes=[list(shape) for shape in subject.shapes],
        dtypes=list(subject.dtypes),
        attributes=subject.attributes[:4000],
        seed=subject.seed,
        tolerance=subject.tolerance,
        outputs=_outputs(item, expected),
        schedule=digest(schedule.encode()),
        kernels=kernels,
        bytes=_bytes(item),
        uploaded=after.uploaded - before.uploaded,
        read_back=after.read_back - before.read_back,
        arena=memory["arena"],
        params=memory["params"],
        peak=memory["peak"],
        allocations=_left_behind(item),
        timed=subject.timed or subject.suite == COLD,
        on_the_host=[_ORIGIN.sub("", text)[:400] for text in compiled.host_fallbacks],
    )
    packs = ((name, packed(text)) for name, text in texts.items())
    return line, [SourceText(name, data) for name, data in packs if data is not None]


def _outputs(item: LoadedCase, expected: Sequence[Array] | None) -> list[Output]:
    results = []
    for i, (node, got) in enumerate(zip(item.graph.outputs, item.outputs, strict=True)):
        flat = widen(got, node.dtype).ravel()
        chosen = flat[np.linspace(0, flat.size - 1, min(8, flat.size)).astype(int)]
        apart: Difference | None = None
        if expected is not None:
            apart = difference(got, node.dtype, expected[i])
        results.append(
            Output(
                (node.name or f"output_{i}")[:400],
                str(node.dtype),
                list(got.shape),
                bits([got])[0],
                [str(value.item()) for value in chosen],
                apart,
            )
        )
    return results


def reference(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs in float64."""
    leaves = {**graph.param_values, **dict(zip(graph.input_names, inputs, strict=True))}
    return exact_outputs(graph, leaves)


def _kernels(text: str) -> tuple[list[Kernel], dict[str, str]]:
    """The kernels that ``as_text("kernels")`` names, and the WGSL of each by digest."""
    sections = _SECTION.split(text)
    counts: dict[tuple[str, str], int] = {}
    texts: dict[str, str] = {}
    if len(sections) == 1:
        # Without WGSL there is one line for each call; the first line names the instruction set.
        for line in text.splitlines()[1:]:
            key = line.split(",")[0].strip()[:400], ""
            counts[key] = counts.get(key, 0) + 1
    for section in sections[1:]:
        head, _, body = section.partition("\n")
        name = digest(body.encode())
        texts[name] = body
        key = head.split(",")[0].strip()[:400], name
        counts[key] = counts.get(key, 0) + 1
    return [Kernel(name, count, wgsl) for (name, wgsl), count in counts.items()], texts


def _bytes(item: LoadedCase) -> int | None:
    """Bytes that the kernels of a run read and write; None where the device can't time kernels."""
    if not item.compiled.capabilities.device_timestamps:
        return None
    return sum(row.nbytes for row in item.compiled.profile(_named(item), runs=1).rows)


def _left_behind(item: LoadedCase) -> int:
    """Blocks of Python's memory that each run leaves behind; those of the first runs do not count."""
    call, inputs, runs = item.compiled.run_slots, item.inputs, 8
    call(*inputs)
    before = sys.getallocatedblocks()
    for _ in repeat(None, runs):
        call(*inputs)
    return max(0, sys.getallocatedblocks() - before) // runs

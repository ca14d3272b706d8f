"""Pythons whose rlx has a fault that a test planted: what ``rlx regress`` has to find.

``faulty`` makes a program that starts this Python with a module that Python imports first of all. In measuring
processes that module changes rlx before anything is compiled.
"""

import sys
import textwrap
from pathlib import Path

_START = """
import sys

if {{"rlx.regress.worker", "rlx.regress.fresh"}} & {{*sys.orig_argv}}:
{body}
"""

# Replaces lines of WGSL in modules that hold a text.
_WGSL = """
from rlx.backends.webgpu import codegen

FAULTS = {faults!r}
before = codegen._source


def source(*args, **kwargs):
    text = before(*args, **kwargs)
    for marker, old, new in FAULTS:
        if marker in text:
            assert old in text, text
            text = text.replace(old, new)
    return text


codegen._source = source
"""

# Wastes a part of the time of each run of some cases: waiting, or reading memory once more.
_SLOW = """
import time
from types import SimpleNamespace

import numpy as np

from rlx.regress import measure

NAMES, PART, HOW = {names!r}, {part!r}, {how!r}
before = measure.runs
slowed = {{}}
memory = np.ones(1 << 22, np.float32)


class Slow:
    def __init__(self, one):
        self._one, run = one, one.compiled.run_slots
        for _ in range(3):
            run()
        times = []
        for _ in range(9):
            began = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - began)
        extra = int(PART * sorted(times)[4])

        def slow():
            found = run()
            end = time.perf_counter_ns() + extra
            while time.perf_counter_ns() < end:
                if HOW == "memory":
                    memory[: 1 << 10].sum()
            return found

        self.compiled = SimpleNamespace(
            run_slots=slow, device=one.compiled.device, capabilities=one.compiled.capabilities
        )

    def __getattr__(self, name):
        return getattr(self._one, name)


def runs(one, *args, **kwargs):
    if one.graph.name in NAMES and id(one) not in slowed:
        slowed.clear()
        slowed[id(one)] = Slow(one), one
    return before(slowed[id(one)][0] if one.graph.name in NAMES else one, *args, **kwargs)


measure.runs = runs
"""

# Changes what a run on the CPU gives.
_RESULTS = """
import numpy as np

from rlx.regress import measure

CHANGES = {changes!r}
before = measure.loaded


def loaded(graph, inputs, device, options):
    one = before(graph, inputs, device, options)
    if graph.name in CHANGES and device == "cpu":
        y = one.outputs[0].reshape(-1)
        exec(CHANGES[graph.name], {{"y": y, "np": np}})
    return one


measure.loaded = loaded
"""

# Measures peaks of the machine, and runs graphs, for a shorter time. Where only results are compared, that is no fault.
_HURRIED = """
from rlx.regress import machine_peaks, measure

machine_peaks._LONG_S, machine_peaks._REPEATS = 0.001, 2
_runs = measure.runs
measure.runs = lambda item, seconds, fewest=measure.FEWEST: _runs(item, seconds / 10, fewest)
"""


def _faulty(folder: Path, body: str) -> str:
    folder.mkdir(parents=True)
    text = _START.format(body=textwrap.indent(textwrap.dedent(body), "    "))
    (folder / "sitecustomize.py").write_text(text)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder}${{PYTHONPATH:+:$PYTHONPATH}}" exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def faulty_wgsl(folder: Path, faults) -> str:
    """A Python whose WGSL has other lines: (a text of the module, what is replaced, by what)."""
    return _faulty(folder, _WGSL.format(faults=faults) + _HURRIED)


def slow(folder: Path, names, part: float, how: str = "wait") -> str:
    """A Python whose runs of the operations ``names`` take this part longer."""
    return _faulty(folder, _SLOW.format(names=sorted(names), part=part, how=how))


def faulty_results(folder: Path, changes) -> str:
    """A Python whose operations give other results on the CPU: statements on the flat output ``y``."""
    return _faulty(folder, _RESULTS.format(changes=changes) + _HURRIED)


def hurried(folder: Path) -> str:
    """A Python without a fault that measures as much as others do, for a shorter time."""
    return _faulty(folder, _HURRIED)

"""The test run of an application: its own graphs are measured, recorded, and compared with a recording.

``rlx.pytest_plugin`` is the way in: each call of its fixture is a ``look`` here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import InputError, RlxError, one_line
from rlx.ir.opdef import Array
from rlx.regress import fresh, machine, measure, system_load
from rlx.regress.bisect_oracles import figures
from rlx.regress.compare import CHANGED, CaseResult, compare, fail_on
from rlx.regress.own_graph import SUITE, OwnGraph, own_graph
from rlx.regress.record import end_of
from rlx.regress.record_schema import Line, Run, Times
from rlx.regress.recording import Measured, Recording, encoded_once, lines, read
from rlx.regress.timing import TimeVerdict
from rlx.runtime.compiled import CompiledGraph


class RegressWarning(UserWarning):
    """A test could not tell whether a graph became slower, or had nothing to compare it with."""


@dataclass(frozen=True)
class MeasureSettings:
    """The options of the command line.

    Attributes:
        baseline: The recordings to compare with, the newest first; none for no comparison.
        record: The file that a recording is added to; None for none.
        processes: Fresh processes that time each graph.
        min_effect: The least change of a time that counts, as a part of it.
        fails: The outcomes that fail a test: "changed", verdicts, or kinds of findings.
    """

    baseline: tuple[Recording, ...]
    record: Path | None
    processes: int
    min_effect: float
    fails: Collection[str]

    @classmethod
    def of(
        cls,
        baseline: Path | None,
        record: Path | None,
        processes: int,
        min_effect: float,
        fails: str,
    ) -> MeasureSettings:
        """Reads the baseline, and looks at the file that is added to.

        Raises:
            InputError: A file is no record file, or a value is out of range.
            OSError: A file can't be read.
        """
        if not 0 <= processes <= 1000:
            raise InputError("--rlx-processes", got=processes, expected="0 to 1000")
        if not 0 < min_effect < 10:
            raise InputError("--rlx-min-effect", got=min_effect, expected="0 to 10")
        if record is not None and record.exists() and record.stat().st_size:
            next(lines(record))
        result = read([baseline]) if baseline is not None else []
        # If two began in the same second, the later one in the file is the newer one.
        newest = sorted(reversed(result), key=lambda item: item.run.began, reverse=True)
        return cls(tuple(newest), record, processes, min_effect, fail_on(fails))


@dataclass
class CallProbe:
    """The findings of one call.

    Attributes:
        outputs: The outputs, copied.
        figures: Numbers and texts that other benchmarks may keep beside theirs.
        failures: Why the test fails; empty where it passes.
        warnings: The questions that the times leave open.
    """

    outputs: list[Array]
    figures: dict[str, object]
    failures: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Application:
    """The graphs of one test run.

    Args:
        settings: The settings of the caller.
        header: The recording's header from the process that began it; None where this one begins.

    Raises:
        OSError: The record file can't be written.
    """

    def __init__(self, settings: MeasureSettings, header: str | None = None) -> None:
        self._settings, self._given = settings, header
        self._texts: set[str] = set()
        if settings.record is not None and header is None:
            self._write([self._run])

    @cached_property
    def _run(self) -> Run:
        if self._given is not None:
            return msgspec.json.decode(self._given, type=Run)
        return machine.header([SUITE], max(1, self._settings.processes), False)

    @property
    def header(self) -> str | None:
        """The header of the recording, for further processes that add to it; None where nothing is recorded."""
        return None if self._settings.record is None else msgspec.json.encode(self._run).decode()

    def close(self) -> None:
        """Writes the last line of the recording, where this process began one."""
        path = self._settings.record
        if path is not None and self._given is None:
            self._write([end_of(path, self._run.run)])

    def look(
        self, name: str, compiled: CompiledGraph, inputs: Sequence[Any], tolerance: float | None
    ) -> CallProbe:
        """Runs a graph once and checks its outputs; measures, records and compares it where that is asked for.

        Args:
            name: Names the case, together with the graph and the inputs.
            compiled: The graph.
            inputs: Every input in declaration order, or one table of them by name.
            tolerance: The largest difference of an element from the reference that passes, in parts of the
                output's largest element; None for 1e-9 (f64), 1e-4 (f32), 1e-2 (f16), 5e-2 (bf16), 0 (integers).

        Raises:
            InputError: ``compiled`` is no compiled graph, or the inputs do not fit.
        """
        single = own_graph(name, compiled, inputs, tolerance)
        result = CallProbe(
            single.loaded.outputs, {"case": single.subject.digest, "device": single.device}
        )
        result.failures += single.wrong()
        if not single.complete:
            result.warnings.append(
                f"{name}: its weights are not in graph.param_values, so that there is no reference"
            )
        for output, far in single.differences:
            result.figures[f"{output}: relative error"] = far.relative
            result.figures[f"{output}: largest error, ULP"] = far.max_ulp
        if self._settings.baseline or self._settings.record is not None:
            self._measure(single, result)
        return result

    def _measure(self, graph: OwnGraph, probe: CallProbe) -> None:
        run, device = self._run.run, graph.device
        case, texts = measure.evidence(graph.loaded, graph.subject, graph.expected, run, device)
        measured = Measured(case, self._times(graph, 0, probe))
        if measured.times:
            runs = [ns for times in measured.times.values() for ns in times.ns]
            probe.figures["median, us"] = float(np.median(runs)) / 1e3
        line = machine.device_line(run, device)
        if self._settings.record is not None:
            self._write([*texts, line, case, *measured.times.values()])
        if self._settings.baseline:
            own = Recording(self._run, {device: line}, {}, {(device, case.case): measured})
            self._compare(graph, own, probe)

    def _times(self, graph: OwnGraph, first: int, probe: CallProbe) -> dict[int, Times]:
        """Times of fresh processes, numbered from ``first`` on; of this one where there can be none."""
        numbers = range(first, first + self._settings.processes)
        run, case = self._run.run, graph.subject.digest
        job = fresh.FreshProcessJob(graph.device, graph.options, graph.loaded.inputs, run, case)
        try:
            if numbers and not graph.complete:
                raise RlxError("its weights are not in graph.param_values")
            return {time.process: time for time in fresh.times(graph.loaded.graph, job, numbers)}
        except RlxError as error:
            reason = one_line(error)
            probe.warnings.append(
                f"{graph.subject.name}: timed by the tests' own process alone: {reason}"
            )
            watch, runs = system_load.LoadWatch(), measure.runs(graph.loaded, fresh.SECONDS)
            args = fresh.SECONDS, watch, run, graph.device, case, first
            return {first: measure.times(graph.loaded, runs, *args)}

    def _compare(self, graph: OwnGraph, own: Recording, probe: CallProbe) -> None:
        result = self._newest(own)
        if result is None:
            probe.warnings.append(
                f"{graph.subject.name}: the baseline has no such graph with these inputs on such a device"
            )
            return
        base, worst = result
        timing = worst.decisive
        if timing is not None:
            probe.figures["verdict"] = str(timing.verdict)
            probe.figures["compared with the baseline"] = figures(timing)
        told = [
            f"{finding.kind}: {finding.text}"
            for finding in worst.findings
            if finding.kind in self._settings.fails
            or (finding.changed and CHANGED in self._settings.fails)
        ]
        if timing is not None and timing.verdict in self._settings.fails:
            if timing.verdict is not TimeVerdict.SLOWER or self._still_slower(graph, own, probe):
                told.append(f"{timing.verdict}: {figures(timing)}")
        elif timing is not None and timing.verdict in (
            TimeVerdict.INCONCLUSIVE,
            TimeVerdict.MACHINE,
        ):
            probe.warnings.append(f"{graph.subject.name}: {timing.verdict}: {figures(timing)}")
        if told:
            about = f"{base.run.began}, rlx {base.run.rlx} {base.run.commit[:10]}".rstrip()
            head = f"{graph.subject.name} on {worst.pair.title}, compared with the recording of {about}:"
            probe.failures.append("\n  ".join([head, *told]))

    def _newest(self, own: Recording) -> tuple[Recording, CaseResult] | None:
        """The newest recording that has the case, and how it compares; None where none has."""
        (case,) = [digest for _, digest in own.measured]
        for base in self._settings.baseline:
            known = {key: value for key, value in base.measured.items() if key[1] == case}
            only = Recording(base.run, base.devices, base.peaks, known, base.end)
            cases = compare(only, own, self._settings.min_effect).cases if known else ()
            if cases:
                return base, cases[0]
        return None

    def _still_slower(self, graph: OwnGraph, own: Recording, probe: CallProbe) -> bool:
        """Repeats the measurement with as many processes: one measurement in a hundred is slower by chance."""
        (key,) = own.measured
        before = own.measured[key]
        again = Recording(own.run, own.devices, {}, {})
        again.measured[key] = Measured(before.case, self._times(graph, len(before.times), probe))
        result = self._newest(again)
        timing = result[1].decisive if result else None
        if timing is not None and timing.verdict is TimeVerdict.SLOWER:
            return True
        probe.warnings.append(
            f"{graph.subject.name}: slower at first, and not when it was measured again"
        )
        return False

    def _write(self, results: Sequence[Line]) -> None:
        """Adds lines to the record file in one piece: other processes add to it as well."""
        assert self._settings.record is not None
        raw = b"".join(encoded_once(results, self._texts))
        with open(self._settings.record, "ab", buffering=0) as file:
            file.write(raw)

"""Recording: fresh processes measure every case in turn, of one install of rlx or of several side by side.

The process is what a comparison counts, since two processes of the same code differ more than runs within one do: by
the addresses that they got and by what the machine did meanwhile. So each case is measured by several of them, in
another order each time. Installs that are compared take turns case by case.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

import rlx
from rlx.dataclasses import dataclass
from rlx.errors import InputError
from rlx.ir.spans import progress
from rlx.python_start import python
from rlx.regress import machine, system_load
from rlx.regress.record_schema import COLD, End, Failure, Line, Run, SourceText
from rlx.regress.recording import encoded_once, read
from rlx.regress.regress_cases import SUITES
from rlx.regress.timing import floors
from rlx.regress.worker import (
    Begin,
    CloseCase,
    Command,
    DescribeDevice,
    Header,
    Here,
    Listed,
    Measure,
    Turn,
)

# Seconds of runs of a case in one process, and with --quick.
_SECONDS, _QUICK_SECONDS = 0.15, 0.05
# Installs that are compared run a case in so many turns: noise that lasts for longer than a turn meets them all.
_TURNS = 5
# Cases that are there for their numbers alone are measured by so many processes: enough to see whether bits differ.
_UNTIMED_PROCESSES = 2
# A command that is not answered after so many seconds is given up.
_PATIENCE_S = 600.0
_DRIVER_COMPILES = {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
NOTHING_KEPT = {"RLX_CACHE": "off", **_DRIVER_COMPILES}
"""Environment of processes in which nothing counts that an earlier one left behind."""

# Nor may figures choose that were measured at another time. Without times the driver may keep what it compiled.
_ENVIRONMENT = {"RLX_CACHE": "off", "RLX_CALIBRATION": "off"}


@dataclass(frozen=True)
class RecordTarget:
    """An install of rlx, and where its recording goes.

    Attributes:
        python: The interpreter of the environment that it is installed in.
        path: The record file; lines are added to its end.
    """

    python: str
    path: Path


@dataclass(frozen=True)
class RecordPlan:
    """The selection of devices, cases and processes to record.

    Attributes:
        suites: Names of suites, and models' files.
        devices: Names of devices; empty for all.
        processes: How many processes measure each case.
        quick: Fewer cases, and less time for each.
        only: A regular expression that a case's name or the beginning of its digest matches; empty for all.
        texts: Whether schedules and WGSL are kept, so that a report can show what changed.
        times: Whether times are measured; without them results, kernels and memory are recorded.
    """

    suites: Sequence[str] = tuple(SUITES)
    devices: Sequence[str] = ()
    processes: int = 5
    quick: bool = False
    only: str = ""
    texts: bool = True
    times: bool = True

    def chooses(self, name: str, case: str) -> bool:
        """Returns whether a case is measured, by its name and its digest."""
        begins = bool(self.only) and case.startswith(self.only)
        return begins or re.search(self.only, name) is not None


def record(targets: Sequence[RecordTarget], plan: RecordPlan) -> None:
    """Measures the plan's cases on every target.

    Args:
        targets: The installs.
        plan: The plan of the measurement.

    Raises:
        InputError: There is no such suite, device or case, a record file can't be written, or an
            install has no rlx that can measure.
        OSError: A file can't be read.
    """
    plan = checked(plan)
    turns = secrets.token_hex(8) if len(targets) > 1 else None
    with ExitStack() as stack:
        sides = [stack.enter_context(_opened(target, plan, turns)) for target in targets]
        for number in range(plan.processes):
            _process(sides, plan, number)
        for side in sides:
            side.finish()


def end_of(path: Path, run: str) -> End:
    """The last line of a recording, by the lines of it that its file has."""
    (recording,) = [item for item in read([path]) if item.run.run == run]
    return End(run, machine.now(), system_load.load(), floors(recording))


def checked(plan: RecordPlan) -> RecordPlan:
    """The plan with devices by name and models by their whole paths.

    Raises:
        InputError: There are too few processes, or ``only`` is no regular expression.
        DeviceParseError: A device has no such name.
    """
    if plan.processes < 1:
        raise InputError("--processes", got=plan.processes, expected="1 or more")
    try:
        re.compile(plan.only)
    except re.error as error:
        raise InputError(
            "--only is no regular expression", got=plan.only, hint=str(error)
        ) from error
    asked = ",".join(plan.devices)
    result = rlx.parse_device_list(asked) if plan.devices else rlx.available_devices()
    # A name without a suffix is a suite, or a misspelt one.
    suites = [os.path.abspath(suite) if Path(suite).suffix else suite for suite in plan.suites]
    return replace(plan, suites=suites, devices=[str(device) for device in result])


@dataclass
class _TargetState:
    """A target while it is recorded.

    Attributes:
        target: The target.
        plan: The plan of the measurement.
        file: Its record file.
        turns: A name that all sides share; None for a side alone.
        run: Name of the recording.
        worker: The process that measures.
        listed: The cases.
        written: Digests of texts that the file has.
        process: The number that the system gave the worker.
        measured: The case that is measured, or the last one.
    """

    target: RecordTarget
    plan: RecordPlan
    file: BinaryIO
    turns: str | None
    run: str = ""
    worker: _Worker | None = None
    listed: list[Listed] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    process: int = 0
    measured: Measure | None = None

    def start(self) -> None:
        """Begins a fresh process; the first one writes the header."""
        self.stop()
        plan = self.plan
        self.worker = _Worker(self.target.python, _DRIVER_COMPILES if plan.times else {})
        begun = self.worker.ask(Begin(list(plan.suites), plan.quick, plan.processes, plan.times))
        (self.process,) = [item.process for item in begun if isinstance(item, Here)]
        self.listed = [
            item
            for item in begun
            if isinstance(item, Listed) and plan.chooses(item.name, item.case)
        ]
        if not self.listed:
            raise InputError("no case is chosen", got=plan.only or ", ".join(plan.suites))
        if not self.run:
            header = self.worker.ask(Header())[0]
            assert isinstance(header, Run)
            self.run = header.run
            self.write([msgspec.structs.replace(header, turns=self.turns)])
            for device in plan.devices:
                self.ask(DescribeDevice(self.run, device))

    def ask(self, command: Command) -> None:
        """Writes the answers of the process."""
        if isinstance(command, Measure):
            self.measured = command
        if self.worker is None:
            self.start()
        assert self.worker is not None
        try:
            lines = self.worker.ask(command)
            self.write([line for line in lines if not isinstance(line, Listed | Here)])
        except _GoneError as error:
            self.stop()
            if self.measured is None or not isinstance(command, Measure | Turn | CloseCase):
                raise InputError("a measuring process ended", got=error) from error
            names = {item.case: item.name for item in self.listed}
            failed = self.measured
            where = failed.run, failed.device, failed.case, names[failed.case], failed.process
            self.write([Failure(*where, str(error))])

    def write(self, lines: Sequence[Line]) -> None:
        """Adds lines to the record file, texts once and only where they are wanted."""
        if not self.plan.texts:
            lines = [line for line in lines if not isinstance(line, SourceText)]
        self.file.writelines(encoded_once(lines, self.written))
        self.file.flush()

    def stop(self) -> None:
        """Ends the process."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def finish(self) -> None:
        """Writes the last line."""
        self.stop()
        self.write([end_of(self.target.path, self.run)])


@contextmanager
def _opened(target: RecordTarget, plan: RecordPlan, turns: str | None) -> Iterator[_TargetState]:
    try:
        file = target.path.open("ab")
    except OSError as error:
        raise InputError(
            "the record file can't be written", got=target.path, hint=str(error)
        ) from error
    with file:
        side = _TargetState(target, plan, file, turns)
        try:
            yield side
        finally:
            side.stop()


def _process(sides: Sequence[_TargetState], plan: RecordPlan, number: int) -> None:
    """One fresh process of each side measures every case."""
    for side in sides:
        side.start()
        for device in plan.devices if plan.times else ():
            side.ask(DescribeDevice(side.run, device, number))
    seconds = _QUICK_SECONDS if plan.quick else _SECONDS
    cases = _order(sides, number)
    for i, item in enumerate(cases):
        progress((number + i / len(cases)) / plan.processes, item.name)
        for turn, device in enumerate(plan.devices):
            # Who is first changes, so that what one leaves in caches helps both alike.
            first = (number + i + turn) % len(sides)
            order = [*sides[first:], *sides[:first]]
            _case(
                [side for side in order if any(item.case == other.case for other in side.listed)],
                Measure("", device, item.case, number, seconds, number == 0, []),
            )


def _case(sides: Sequence[_TargetState], command: Measure) -> None:
    """Measures a case on each side, in turns where there are several."""
    for side in sides:
        beside = [other.process for other in sides if other is not side]
        side.ask(msgspec.structs.replace(command, run=side.run, beside=beside))
    turns = 0 if not sides[0].plan.times else _TURNS if len(sides) > 1 else 1
    for turn in range(turns):
        for side in sides if turn % 2 == 0 else reversed(sides):
            side.ask(Turn(1 / turns))
    for side in sides:
        side.ask(CloseCase())


def _order(sides: Sequence[_TargetState], number: int) -> list[Listed]:
    """The cases that this process measures: first those of a cold start, then the others in an order of its own."""
    known = {item.case: item for side in sides for item in side.listed}
    cold = [value for value in known.values() if value.suite == COLD]
    rest = [
        value
        for value in known.values()
        if value.suite != COLD and (value.timed or number < _UNTIMED_PROCESSES)
    ]
    random.Random(number).shuffle(rest)
    return cold + rest


class _GoneError(Exception):
    """A measuring process ended, or did not answer."""


_Answer: TypeAlias = Line | Listed | Here


class _Refusal(msgspec.Struct):
    error: str


class _Worker:
    """A measuring process, in a Python of some environment, with ``more`` variables."""

    _decoder: msgspec.json.Decoder[_Answer] = msgspec.json.Decoder(_Answer)

    def __init__(self, interpreter: str, more: Mapping[str, str]) -> None:
        # A checkout of rlx in the current folder does not count either.
        command = python("-m", "rlx.regress.worker", executable=interpreter)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT, **more},
            )
        except OSError as error:
            raise InputError(
                "no Python to measure with", got=interpreter, hint=str(error)
            ) from error
        self._python = interpreter

    def ask(self, command: Command) -> list[_Answer]:
        """The lines that answer a command.

        Raises:
            InputError: The process refuses the command.
            _GoneError: The process ended, or did not answer for ten minutes.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Timer(_PATIENCE_S, self._process.kill)
        late.start()
        try:
            self._process.stdin.write(msgspec.json.encode(command) + b"\n")
            self._process.stdin.flush()
            raw: list[bytes] = []
            while (line := self._process.stdout.readline()).strip():
                raw.append(line)
        except OSError:
            line = b""
        finally:
            expired = not late.is_alive()
            late.cancel()
        if not line and expired:
            raise _GoneError(f"no answer within {_PATIENCE_S:.0f} seconds")
        if not line:
            raise _GoneError(f"the process ended with status {self._process.wait()}")
        return [self._decoded(item) for item in raw]

    def _decoded(self, raw: bytes) -> _Answer:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError:
            raise InputError(msgspec.json.decode(raw, type=_Refusal).error) from None

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

"""One measuring process of ``rlx regress``: commands come on stdin, a line of JSON each; lines of a record file go out.

A blank line ends the answer to a command. The process ends with its input. ``record.py`` is at the other end.
"""

from __future__ import annotations

import gc
import math
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import field, replace
from typing import BinaryIO, TypeAlias

import msgspec
from msgspec import Struct

from rlx.dataclasses import dataclass
from rlx.errors import RlxError, one_line
from rlx.ir.opdef import Array
from rlx.regress import machine, measure
from rlx.regress.machine_peaks import peaks
from rlx.regress.record_schema import COLD, Failure, Line
from rlx.regress.regress_cases import Subject, subjects
from rlx.regress.system_load import LoadWatch


class Begin(Struct, frozen=True, tag_field="do", tag="begin"):
    """A message that announces a process's work. The answer names the process, and lists the cases.

    Without ``times`` no case is timed. Cases of a cold start are nothing but times, so they are left out.
    """

    suites: list[str]
    quick: bool
    processes: int
    times: bool = True


class Header(Struct, frozen=True, tag_field="do", tag="header"):
    """The answer is the header of a recording."""


class DescribeDevice(Struct, frozen=True, tag_field="do", tag="look"):
    """The answer describes a device; with a process's number, by its peaks."""

    run: str
    device: str
    process: int | None = None


class Measure(Struct, frozen=True, tag_field="do", tag="measure"):
    """A message that asks for one case. The answer has what does not depend on the clock if ``evidence`` is true.

    ``seconds`` says how long it will run, 0 where its times do not count. ``beside`` are the processes that take turns
    with this one.
    """

    run: str
    device: str
    case: str
    process: int
    seconds: float
    evidence: bool
    beside: list[int]


class Turn(Struct, frozen=True, tag_field="do", tag="turn"):
    """The loaded case runs for a part of its time. There is no answer."""

    part: float


class CloseCase(Struct, frozen=True, tag_field="do", tag="done"):
    """The loaded case is closed; the answer is its times."""


class Here(Struct, frozen=True, tag_field="kind", tag="here"):
    """The number that the system gave the measuring process."""

    process: int


class Listed(Struct, frozen=True, tag_field="kind", tag="listed"):
    """A case that can be measured."""

    case: str
    name: str
    suite: str
    timed: bool


Command: TypeAlias = Begin | Header | DescribeDevice | Measure | Turn | CloseCase
_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


# A path of two parts or more, in the ways of any system; its last part is kept.
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/][^\s\\/:'\"]+)+[\\/](?=[^\s\\/:'\"])")


def without_paths(text: str) -> str:
    """A text whose paths are the last names of them: a record file says nothing of folders."""
    return _PATH.sub("", text)


@dataclass
class _Open:
    """A case between ``Measure`` and ``CloseCase``.

    Attributes:
        command: The command that asked for it.
        loaded: The case on its device.
        seconds: How long it runs in all.
        runs: Nanoseconds of its runs so far.
    """

    command: Measure
    loaded: measure.LoadedCase
    seconds: float
    runs: list[int] = field(default_factory=list)


class MeasurementWorker:
    """The state of the process between commands."""

    def __init__(self) -> None:
        self._begin = Begin([], False, 1)
        self._found: dict[str, Subject] = {}
        self._watch = LoadWatch()
        self._reference: tuple[str, list[Array]] = ("", [])
        self._open: _Open | None = None

    def answer(self, command: Command) -> Iterator[Line | Listed | Here]:
        """The lines that answer a command.

        Raises:
            RlxError: A suite or a device does not exist.
        """
        match command:
            case Begin():
                self._begin = command
                result = subjects(command.suites, command.quick)
                if not command.times:
                    result = [replace(item, timed=False) for item in result if item.suite != COLD]
                self._found = {item.digest: item for item in result}
                yield Here(os.getpid())
                for digest, value in self._found.items():
                    yield Listed(digest, value.name, value.suite, value.timed)
                # Python looks for garbage between cases only, and not among what is there for good.
                gc.disable()
                gc.collect()
                gc.freeze()
            case Header():
                begin = self._begin
                yield machine.header(begin.suites, begin.processes, begin.quick)
            case DescribeDevice(process=None):
                yield machine.device_line(command.run, command.device)
            case DescribeDevice():
                yield peaks(command.run, command.device, command.process or 0)
            case Measure():
                yield from self._guarded(command, self._loaded(command))
            case Turn() | CloseCase() if self._open is None:
                pass  # loading it failed
            case Turn():
                yield from self._guarded(self._open.command, self._turn(self._open, command.part))
            case CloseCase():
                yield from self._guarded(self._open.command, self._done(self._open))

    def _loaded(self, command: Measure) -> Iterator[Line]:
        subject = self._found[command.case]
        graph, inputs = subject.make()
        single = measure.loaded(graph, inputs, command.device, subject.options)
        self._open = _Open(command, single, command.seconds if subject.timed else 0.0)
        if command.evidence:
            expected = self._expected(command.case)
            line, texts = measure.evidence(single, subject, expected, command.run, command.device)
            yield from texts
            yield line
        self._watch.begin(command.beside)

    def _turn(self, case: _Open, part: float) -> Iterator[Line]:
        fewest = math.ceil(measure.FEWEST * part)
        case.runs += measure.runs(case.loaded, case.seconds * part, fewest)
        yield from ()

    def _done(self, case: _Open) -> Iterator[Line]:
        command = case.command
        yield measure.times(
            case.loaded,
            case.runs,
            case.seconds,
            self._watch,
            run=command.run,
            device=command.device,
            case=command.case,
            process=command.process,
        )
        self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open.loaded.compiled.close()
            self._open = None
        gc.collect()

    def _guarded(self, command: Measure, lines: Iterator[Line]) -> Iterator[Line]:
        """The lines; whatever a driver does is a result, and closes the case."""
        try:
            yield from lines
        except Exception as error:
            self._close()
            text = one_line(error) or type(error).__name__
            kind = "" if isinstance(error, RlxError) else f"{type(error).__name__}: "
            yield Failure(
                command.run,
                command.device,
                command.case,
                self._found[command.case].name,
                command.process,
                without_paths(f"{kind}{text}")[:2000],
            )

    def _expected(self, case: str) -> list[Array]:
        """The reference's outputs; the last case's are kept, since all devices measure it one after the other."""
        if self._reference[0] != case:
            self._reference = case, measure.reference(*self._found[case].make())
        return self._reference[1]


def main() -> None:
    """Answers commands until stdin ends."""
    answers: BinaryIO = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints is no answer
    worker = MeasurementWorker()
    for raw in sys.stdin.buffer:
        try:
            for line in worker.answer(_decoder.decode(raw)):
                answers.write(msgspec.json.encode(line) + b"\n")
        except (RlxError, OSError) as error:
            answers.write(msgspec.json.encode({"error": one_line(error)}) + b"\n")
        answers.write(b"\n")
        answers.flush()


if __name__ == "__main__":
    main()

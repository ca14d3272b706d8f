"""Record files: reading what may be damaged or hostile, writing line by line, and recordings put together."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import msgspec

from rlx.dataclasses import dataclass
from rlx.errors import InputError, describe
from rlx.files import UnfitFileError, open_regular
from rlx.regress import record_schema as schema
from rlx.regress.record_schema import (
    CaseLine,
    DeviceLine,
    End,
    Failure,
    Line,
    Peaks,
    Run,
    SourceText,
    Times,
)

# A file's bytes, a line's bytes and lines of a file, at most.
_MAX_BYTES = 2 << 30
_MAX_LINE = 8 << 20
_MAX_LINES = 5_000_000

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


@dataclass
class Measured:
    """A case on a device of one recording.

    Attributes:
        case: The facts that are the same in each process; None where every process failed before.
        times: By the number of the process.
        failures: By the number of the process.
    """

    case: CaseLine | None = None
    times: dict[int, Times] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)


@dataclass
class Recording:
    """One recording.

    Attributes:
        run: Its header.
        devices: Its devices by name.
        peaks: For each device, by the number of the process.
        measured: By the name of the device and the digest of the case.
        end: Its last line; None where it was interrupted.
        texts: Schedules and WGSL modules of the file by digest, compressed; ``text`` unpacks one.
    """

    run: Run
    devices: dict[str, DeviceLine] = field(default_factory=dict)
    peaks: dict[str, dict[int, Peaks]] = field(default_factory=dict)
    measured: dict[tuple[str, str], Measured] = field(default_factory=dict)
    end: End | None = None
    texts: dict[str, str] = field(default_factory=dict)

    def of(self, device: str, case: str) -> Measured:
        """Returns the record of a case; creates it if there is none."""
        return self.measured.setdefault((device, case), Measured())

    def cases(self, device: str) -> dict[str, Measured]:
        """The cases of a device by their digests."""
        return {case: value for (name, case), value in self.measured.items() if name == device}

    def text(self, digest: str) -> str | None:
        """A schedule or a WGSL module; None where the file does not hold it.

        Raises:
            InputError: The file holds no such text.
        """
        data = self.texts.get(digest)
        return None if data is None else unpacked(data)


def packed(text: str) -> str | None:
    """A text as ``SourceText.data``; None where it is too long."""
    raw = text.encode()
    data = base64.b64encode(zlib.compress(raw, 9)).decode() if len(raw) <= schema.MAX_TEXT else ""
    return data if data and len(data) <= 1 << 20 else None


def unpacked(data: str) -> str:
    """The text of ``SourceText.data``; at most ``MAX_TEXT`` bytes of it are unpacked.

    Raises:
        InputError: It is no such text.
    """
    try:
        unzip = zlib.decompressobj()
        raw = unzip.decompress(base64.b64decode(data, validate=True), schema.MAX_TEXT)
        if unzip.unconsumed_tail or not unzip.eof:
            raise ValueError("too long or cut off")
        return raw.decode()
    except (ValueError, zlib.error, binascii.Error) as error:
        raise InputError("a text of the record file is damaged", got=error) from error


def encoded(line: Line) -> bytes:
    """A line as bytes, with its end."""
    return _encoder.encode(line) + b"\n"


def encoded_once(results: Iterable[Line], texts: set[str]) -> Iterator[bytes]:
    """Lines as bytes, with their ends; a text only the first time.

    Args:
        results: The lines.
        texts: Digests of the texts that the file has; those of further ones are added.
    """
    for line in results:
        if isinstance(line, SourceText):
            if line.digest in texts:
                continue
            texts.add(line.digest)
        yield encoded(line)


def lines(path: str | PathLike[str]) -> Iterator[Line]:
    """The lines of a record file, one at a time.

    Raises:
        InputError: It is no record file, of a later version, too large, or a line is damaged.
        OSError: It can't be read.
    """
    try:
        file = open_regular(path)
    except UnfitFileError as error:
        raise InputError(str(error)) from error
    with file:
        for number, raw in _raw_lines(path, file):
            yield _decoded(path, number, raw)


def _raw_lines(path: str | PathLike[str], file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    total = number = 0
    while raw := file.readline(_MAX_LINE + 1):
        number += 1
        total += len(raw)
        if len(raw) > _MAX_LINE or total > _MAX_BYTES or number > _MAX_LINES:
            raise InputError(
                f"{path} is too large for a record file",
                where=f"line {number}",
                expected=f"lines of at most {_MAX_LINE} bytes, {_MAX_LINES} of them, {_MAX_BYTES} bytes in all",
            )
        if raw.strip():
            yield number, raw


def _decoded(path: str | PathLike[str], number: int, raw: bytes) -> Line:
    where = f"{path}, line {number}"
    try:
        line = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = None if raw.endswith(b"\n") else "the recording was cut off in this line"
        raise InputError(
            # The message repeats a foreign value, however long.
            describe("no line of a record file", where=where, got=str(error)[:400], hint=hint)
        ) from error
    if isinstance(line, Run) and line.schema != schema.VERSION:
        raise InputError(
            "a record file of an unsupported version",
            where=where,
            got=line.schema,
            expected=schema.VERSION,
            hint="a newer rlx reads it" if line.schema > schema.VERSION else None,
        )
    return line


def read(paths: Iterable[str | PathLike[str]]) -> list[Recording]:
    """The recordings of some files, in the order of their headers.

    Raises:
        InputError: A file is no record file or damaged, holds no recording, or a line names a recording
            or a device that no line describes.
        OSError: A file can't be read.
    """
    results: dict[str, Recording] = {}
    texts: dict[str, str] = {}
    later: list[tuple[Path, Line]] = []
    for path in map(Path, paths):
        before = len(results)
        for line in lines(path):
            if isinstance(line, Run):
                if results.setdefault(line.run, Recording(line, texts=texts)).run != line:
                    raise InputError(f"{path} describes recording {line.run} twice")
            elif isinstance(line, SourceText):
                texts[line.digest] = line.data
            else:
                later.append((path, line))
        if len(results) == before and not any(item == path for item, _ in later):
            raise InputError(f"{path} holds no recording")
    for path, line in later:
        _put(results, path, line)
    for recording in results.values():
        _check(recording)
    return list(results.values())


def _put(results: dict[str, Recording], path: Path, line: Line) -> None:
    assert not isinstance(line, Run | SourceText)
    recording = results.get(line.run)
    if recording is None:
        raise InputError(
            "a line without a header",
            where=path,
            got=f"recording {line.run}",
            hint="merge it with the file that holds the header",
        )
    match line:
        case DeviceLine():
            before: Line | None = recording.devices.setdefault(line.device, line)
        case Peaks():
            before = recording.peaks.setdefault(line.device, {}).setdefault(line.process, line)
        case CaseLine():
            measured = recording.of(line.device, line.case)
            before = measured.case = measured.case or line
        case Times():
            measured = recording.of(line.device, line.case)
            before = measured.times.setdefault(line.process, line)
        case Failure():
            measured = recording.of(line.device, line.case)
            before = measured.failures.setdefault(line.process, line)
        case End():
            before = recording.end = recording.end or line
    if before != line:
        kind = type(line).__struct_config__.tag
        raise InputError(
            f"{path} holds two lines of kind {kind!r} for the same thing", got=line.run
        )


def _check(recording: Recording) -> None:
    for (device, case), measured in recording.measured.items():
        if device not in recording.devices:
            raise InputError("a case of a device that no line describes", got=device, where=case)
        if measured.case is None and measured.times:
            raise InputError("times of a case that no line describes", got=case)

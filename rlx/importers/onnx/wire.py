"""The protobuf wire format: fields of a message, read in place and with every bound checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import ImportModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIRE_NAMES = {0: "varint", 1: "fixed64", 2: "bytes", 3: "group", 4: "end of group", 5: "fixed32"}
_U64 = 1 << 64


class FileSpan(NamedTuple):
    """A part of the file.

    Attributes:
        view: Its bytes, not copied.
        offset: Where it begins in the file.
    """

    view: memoryview
    offset: int


class WireField(NamedTuple):
    """One field of a message as it stands in the file.

    Attributes:
        number: The field's number.
        wire: Its wire type.
        value: An integer for a varint (unsigned), the bytes of everything else.
        offset: Where it begins in the file.
    """

    number: int
    wire: int
    value: int | FileSpan
    offset: int


def malformed(what: str, offset: int, **parts: Any) -> ImportModelError:
    """The error of bytes that are not protobuf, or not that of the message expected."""
    return ImportModelError(what, where=f"byte {offset} of the file", **parts)


def varint(view: memoryview, index: int, base: int) -> tuple[int, int]:
    """An unsigned varint at a position of ``view``, which begins at ``base`` of the file.

    Returns:
        The value, modulo 2^64, and the position behind it.

    Raises:
        ImportModelError: It is cut short, or longer than ten bytes.
    """
    value = shift = 0
    for pos in range(index, min(index + 10, len(view))):
        byte = view[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _U64, pos + 1
        shift += 7
    if len(view) - index < 10:
        raise malformed("the file ends within a number", base + index)
    raise malformed("a number is longer than ten bytes", base + index)


def signed(value: int) -> int:
    """A varint's 64 bits as a signed integer."""
    return value - _U64 if value >= _U64 >> 1 else value


def fields(span: FileSpan) -> Iterator[WireField]:
    """The fields of a message in the order of the file.

    Raises:
        ImportModelError: The bytes are not a message.
    """
    view, base = span
    pos, end = 0, len(view)
    while pos < end:
        start = pos
        # Most numbers take one byte.
        key, pos = (view[pos], pos + 1) if view[pos] < 0x80 else varint(view, pos, base)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise malformed("no field has this number", base + start, got=number)
        if wire == VARINT:
            value, pos = varint(view, pos, base)
            yield WireField(number, wire, value, base + start)
            continue
        if wire == BYTES:
            short = pos < end and view[pos] < 0x80
            size, pos = (view[pos], pos + 1) if short else varint(view, pos, base)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            name = _WIRE_NAMES.get(wire, wire)
            raise malformed("a wire type that ONNX does not use", base + start, got=name)
        if size > end - pos:
            raise malformed(
                f"field {number} is longer than what holds it",
                base + start,
                got=f"{size} bytes",
                expected=f"at most {end - pos}",
                hint="the file is cut short or damaged",
            )
        yield WireField(number, wire, FileSpan(view[pos : pos + size], base + pos), base + start)
        pos += size


def need(entry: WireField, wire: int, what: str) -> Any:
    """The value of a field that has to be of a wire type.

    Raises:
        ImportModelError: It is of another.
    """
    if entry.wire != wire:
        raise malformed(
            f"{what} has the wrong wire type",
            entry.offset,
            got=_WIRE_NAMES[entry.wire],
            expected=_WIRE_NAMES[wire],
        )
    return entry.value


def text(span: FileSpan) -> str:
    """UTF-8 text.

    Raises:
        ImportModelError: It is not UTF-8.
    """
    try:
        return bytes(span.view).decode()
    except UnicodeDecodeError as error:
        raise malformed(f"text is not UTF-8: {error.reason}", span.offset + error.start) from None


def number(entry: WireField, kind: str, what: str) -> int | float:
    """One number of kind "int", "float" or "double"."""
    if kind == "int":
        return signed(need(entry, VARINT, what))
    if kind == "float":
        return float(struct.unpack("<f", need(entry, FIXED32, what).view)[0])
    return float(struct.unpack("<d", need(entry, FIXED64, what).view)[0])


def numbers(entry: WireField, kind: str, what: str) -> np.ndarray[Any, Any]:
    """One field of a repeated number, packed or not.

    Returns:
        int64, float32 or float64, one-dimensional; floats are a view of the file.

    Raises:
        ImportModelError: The field holds something else.
    """
    dtype: np.dtype[Any] = np.dtype({"int": "<i8", "float": "<f4", "double": "<f8"}[kind])
    if entry.wire != BYTES:
        return np.array([number(entry, kind, what)], dtype)
    span: FileSpan = need(entry, BYTES, what)
    if kind == "int":
        return _packed_varints(span)
    if len(span.view) % dtype.itemsize:
        raise malformed(
            f"{what} is not a whole number of elements", span.offset, got=f"{len(span.view)} bytes"
        )
    return np.frombuffer(span.view, dtype)


def _packed_varints(span: FileSpan) -> np.ndarray[Any, Any]:
    """All varints of a span at once: a byte below 0x80 ends one."""
    data = np.frombuffer(span.view, np.uint8)
    ends = np.flatnonzero(data < 0x80)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise malformed("the field ends within a number", span.offset)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if len(ends) else ends
    lengths = ends - starts + 1
    if len(lengths) and lengths.max() > 10:
        bad = int(starts[np.argmax(lengths)])
        raise malformed("a number is longer than ten bytes", span.offset + bad)
    result = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max()) if len(lengths) else 0):
        longer = lengths > place
        part = (data[starts[longer] + place] & 0x7F).astype(np.uint64)
        result[longer] |= part << np.uint64(7 * place)
    return result.view(np.int64)

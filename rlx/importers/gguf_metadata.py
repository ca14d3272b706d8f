"""The typed keys and values at the front of a GGUF file, read without ever leaving the file."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.mapped import Entries, refuse, view
from rlx.ir.opdef import Array

# Numbers of the file's value types: the numeric ones as NumPy has them, and those with a length.
_NUMBERS: dict[int, np.dtype[Any]] = {
    **dict(enumerate(map(np.dtype, "u1 i1 <u2 <i2 <u4 <i4 <f4 ?".split()))),
    **dict(enumerate(map(np.dtype, "<u8 <i8 <f8".split()), 10)),
}
_STRING, _ARRAY = 8, 9
_TYPE_COUNT = 13
# Fewest bytes of an element that has a length of its own: arrays also state their type.
_LEAST = {_STRING: 8, _ARRAY: 12}
_DEPTH = 4
# Texts from which on they are read when they are asked for: those of a vocabulary take as much memory as small models.
_MANY = 4096


class Texts(Sequence[str]):
    """Many texts of a file, which stay there until they are asked for.

    Args:
        raw: The file.
        starts: Where each text stands, a length and as many bytes of UTF-8.
    """

    def __init__(self, raw: mmap.mmap, starts: Array) -> None:
        self._raw, self._starts = raw, starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Texts(self._raw, self._starts[index])
        start = int(self._starts[index]) + 8
        length = int.from_bytes(self._raw[start - 8 : start], "little")
        return self._raw[start : start + length].decode("utf-8", "backslashreplace")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __repr__(self) -> str:
        return repr(list(self))


class Cursor:
    """A place in a mapped file that moves on as values are read.

    Args:
        raw: The file.
        path: Its name in messages.
    """

    def __init__(self, raw: mmap.mmap, path: object) -> None:
        self.raw = raw
        self.path = path
        self.at = 0
        self._unreadable: list[ImportModelError] = []

    def error(self, what: str, got: object = None, expected: object = None) -> ImportModelError:
        """Returns the error for the data at this position."""
        return refuse(what, f"{self.path}, byte {self.at}", got, expected)

    def unreadable(self) -> str | None:
        """Returns the first fault of the values read since the last call; None if they have none. Reading can go on."""
        result, self._unreadable = self._unreadable, []
        return str(result[0]) if result else None

    def take(self, count: int) -> int:
        """Moves behind the next ``count`` bytes.

        Returns:
            Where they begin.

        Raises:
            ImportModelError: The file ends before.
        """
        start, left = self.at, len(self.raw) - self.at
        if count > left:
            raise self.error("a GGUF file is cut short", f"{left} bytes", f"{count} more")
        self.at += count
        return start

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Numbers of a fixed form."""
        return form.unpack_from(self.raw, self.take(form.size))

    def u32(self) -> int:
        """A number of 4 bytes."""
        return int.from_bytes(self.raw[self.take(4) : self.at], "little")

    def u64(self) -> int:
        """A number of 8 bytes."""
        return int.from_bytes(self.raw[self.take(8) : self.at], "little")

    def text(self) -> str:
        """A length and as many bytes of UTF-8. Others are unreadable, and given as escapes."""
        start = self.take(self.u64())
        raw = self.raw[start : self.at]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._unreadable.append(self.error("a text is not UTF-8", error))
            return raw.decode("utf-8", "backslashreplace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of a type: a number, bool or text, a NumPy array of numbers, or a list.

        Raises:
            ImportModelError: There is no such type, or the value does not fit the file.
        """
        if kind in _NUMBERS:
            return self._numbers(_NUMBERS[kind], 1)[0].item()
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise self.error("no such type of value", kind, f"0 to {_TYPE_COUNT - 1}")
        if depth == _DEPTH:
            raise self.error("arrays of arrays go too deep", expected=f"at most {_DEPTH} levels")
        inner, count = self.u32(), self.u64()
        if inner in _NUMBERS:
            return self._numbers(_NUMBERS[inner], count)
        if count * _LEAST.get(inner, 1) > len(self.raw) - self.at:
            raise self.error("a GGUF file is cut short", f"an array of {count} elements")
        if inner == _STRING and count >= _MANY:
            starts = np.zeros(count, np.min_scalar_type(len(self.raw)))
            for index in range(count):
                starts[index] = self.at
                self.text()  # says whether it can be read
            return Texts(self.raw, starts)
        return [self.value(inner, depth + 1) for _ in range(count)]

    def _numbers(self, dtype: np.dtype[Any], count: int) -> Any:
        start = self.take(count * dtype.itemsize)
        if dtype == np.bool_ and self.raw[start : self.at].strip(b"\0\1"):
            self._unreadable.append(self.error("a bool is neither 0 nor 1"))
        return view(self.raw, dtype, (count,), start)


def read_metadata(cursor: Cursor, count: int) -> Entries[Any]:
    """The file's keys and values.

    Args:
        cursor: Stands at the first key; behind the last value afterwards.
        count: How many there are.

    Returns:
        Python's int, float, bool and str, read-only NumPy arrays, lists of these, and ``Texts``. Values with a text that is
        not UTF-8, or a bool that is none, are refused when they are asked for.

    Raises:
        ImportModelError: A key occurs twice, or the data does not fit the file.
    """
    result = Entries[Any]()
    for _ in range(count):
        key = cursor.text()
        if key in result:
            raise cursor.error("a key occurs twice", f"{key!r:.80}")
        value = cursor.value(cursor.u32())
        why = cursor.unreadable()
        if why is None:
            result[key] = value
        else:
            result.refused[key] = why
    return result

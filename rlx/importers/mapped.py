"""Model files mapped into memory, and readers of their headers that never leave the file."""

from __future__ import annotations

import difflib
import math
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from rlx.errors import ImportModelError, UnknownNameError, did_you_mean, unreadable
from rlx.files import open_regular
from rlx.ir.attributes import frozen
from rlx.ir.opdef import Array

# NumPy before 2 has arrays of up to 32 axes.
_AXES = 32
_MOST = 2**63 - 1
_V = TypeVar("_V")


class Entries(dict[str, _V]):
    """The readable entries of a file, by name.

    Looking up an unreadable entry raises an error. It counts as present, and loops skip it.

    Attributes:
        refused: By the name of each entry that can't be read, why.
    """

    refused: dict[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.refused = {}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.refused

    def get(self, name: str, default: Any = None, /) -> Any:
        """The entry of a name, or ``default`` where the file has none.

        Raises:
            ImportModelError: The entry can't be read.
        """
        return self[name] if name in self else default

    def __missing__(self, name: str) -> _V:
        if name in self.refused:
            raise ImportModelError(self.refused[name])
        near = difflib.get_close_matches(str(name), [*self, *self.refused])
        hint = did_you_mean(str(name), near) if near else None
        raise UnknownNameError(f"the file has no entry {name!r}", hint=hint)


def refuse(
    what: str, path: object, got: object = None, expected: object = None, hint: str | None = None
) -> ImportModelError:
    """Returns the error for a malformed file.

    Example:
        >>> print(refuse("cut short", "a.gguf"))
        cut short
          where: a.gguf
    """
    return ImportModelError(what, where=path, got=got, expected=expected, hint=hint)


def map_file(path: str | os.PathLike[str], kind: str) -> mmap.mmap:
    """A whole file as read-only memory, read when it is touched; messages name the kind that was expected.

    Raises:
        ImportModelError: It can't be opened, or is empty.
    """
    try:
        with open_regular(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise refuse(f"a {kind} file is empty", path)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, TypeError, ValueError) as error:
        raise unreadable(f"a {kind} file can't be opened", path, error) from None


def legal_shape(shape: Sequence[object], itemsize: int) -> bool:
    """Returns whether NumPy has arrays of this shape: sizes from 0 on, few axes, countable bytes."""
    sizes = [size for size in shape if type(size) is int and size >= 0]
    if len(sizes) != len(shape) or len(sizes) > _AXES:
        return False
    return math.prod(max(size, 1) for size in sizes) * itemsize <= _MOST


def view(raw: mmap.mmap, dtype: np.dtype[np.generic], shape: tuple[int, ...], offset: int) -> Array:
    """An array in the file: a read-only view, or a copy where the file holds it unaligned.

    Args:
        raw: The file.
        dtype: The dtype of the bytes.
        shape: A legal shape whose bytes lie within the file.
        offset: Where they begin.
    """
    count = math.prod(shape)
    if not count:
        return cast(Array, frozen(np.zeros(shape, dtype)))
    output: Array = np.frombuffer(raw, dtype, count, offset).reshape(shape)
    if not output.flags.aligned:
        output = output.copy()
        output.setflags(write=False)
    return output


def release_pages(arrays: Iterable[Array]) -> None:
    """Gives the memory of mapped files that some arrays view back to the system, which reads them again when needed."""
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if advice is None:  # Windows takes them back by itself
        return
    files: dict[int, mmap.mmap] = {}
    for array in arrays:
        base: object = array
        while isinstance(base, np.ndarray | memoryview):
            base = base.base if isinstance(base, np.ndarray) else base.obj
        if isinstance(base, mmap.mmap):
            files[id(base)] = base
    for file in files.values():
        file.madvise(advice)

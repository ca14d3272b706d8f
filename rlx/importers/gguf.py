"""GGUF files, versions 2 and 3: typed metadata and tensors in blocks, memory-mapped, packed as they are."""

from __future__ import annotations

import itertools
import math
import mmap
import os
import struct
from dataclasses import field
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import ImportModelError, printable
from rlx.importers.gguf_metadata import Cursor, read_metadata
from rlx.importers.mapped import Entries, legal_shape, map_file, refuse, view
from rlx.ir.dtype import DType, widen
from rlx.ir.opdef import Array
from rlx.ops.block_formats import FORMATS, decode_blocks

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_FRONT = struct.Struct("<4sIQQ")
_ALIGNMENT_KEY, _ALIGNMENT = "general.alignment", 32
_AXES = 4
# Fewest bytes of a key with its value, and of a tensor's entry.
_LEAST_KEY, _LEAST_TENSOR = 13, 24
# Types by their numbers in files; the names are those of the block formats and of the dtypes.
TYPES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K",
    11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 20: "IQ4_NL", 23: "IQ4_XS",
    24: "I8", 26: "I32", 27: "I64", 28: "F64", 30: "BF16", 39: "MXFP4",
}  # fmt: skip
# Types that exist and that rlx has no kernels for.
_KNOWN = {
    9: "Q8_1", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    25: "I16", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a GGUF file.

    Attributes:
        name: Its name.
        shape: Its shape as NumPy has it: the file's sizes in reverse, rows of weights last.
        type: A block format ("Q4_K") or a plain type ("F32", "F16", "BF16", "F64", "I8", "I32", "I64").
        packed: Its bytes as they are, a read-only view u8 ``[*shape[:-1], bytes of a row]``: what
            ``g.dequant_matmul(x, packed, type)`` multiplies by.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    packed: Array = field(repr=False)

    @property
    def dtype(self) -> DType | None:
        """The element type of a plain tensor; None for block formats."""
        return None if self.type in FORMATS else DType[self.type]

    def array(self) -> Array:
        """The elements of a plain tensor as they are: a view where aligned; bf16 in uint16.

        Raises:
            ImportModelError: The tensor is in a block format.
        """
        if self.dtype is None:
            raise ImportModelError(
                "a tensor of blocks has no plain elements",
                where=self.name,
                got=self.type,
                hint=".dequantized() decodes it, .packed has its bytes",
            )
        flat = self.packed.reshape(-1).view(self.dtype.numpy)
        return np.require(flat, requirements="A").reshape(self.shape)

    def dequantized(self) -> Array:
        """The weights in f32, F64 and integers in their own type.

        Block formats give the values that ggml computes, bit for bit. F32 is a view, not a copy.
        """
        if self.dtype is None:
            return decode_blocks(self.packed, self.type).astype(np.float32)
        result = self.array()
        narrow = self.dtype in (DType.F16, DType.BF16)
        return widen(result, self.dtype).astype(np.float32) if narrow else result


@dataclass(frozen=True, eq=False)
class File:
    """The contents of a GGUF file.

    Attributes:
        metadata: Values by key: int, float, bool, str, NumPy arrays of numbers, lists of str, and of thousands of str
            sequences that read them when they are asked for.
        tensors: Tensors by name, in the order of the file.

    Both have ``refused``: by the name of each entry that can't be read, why. ``[]`` raises it.
    """

    metadata: Entries[Any] = field(repr=False)
    tensors: Entries[Tensor] = field(repr=False)

    def __repr__(self) -> str:
        kind = dict.get(self.metadata, "general.architecture", "?")
        return f"<gguf.File {printable(kind):.40}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"


def load(path: str | os.PathLike[str]) -> File:
    """Reads the header of a GGUF file; the tensors stay in the file, packed, until they are touched.

    The file must stay as it is while the tensors are in use.

    Args:
        path: The file: version 2 or 3, little endian.

    Returns:
        Its metadata and tensors.

    Raises:
        ImportModelError: The file can't be read, is malformed, or of another version or byte order. A single tensor or
            text that can't be read is refused when it is asked for: a tensor of a type that rlx has no kernels for, or
            a truncated tensor.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "empty.gguf")
        >>> with open(path, "wb") as file:
        ...     _ = file.write(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
        >>> load(path)
        <gguf.File ?: 0 keys, 0 tensors>
    """
    raw = map_file(path, "GGUF")
    cursor = Cursor(raw, path)
    tensors, keys = _front(cursor)
    metadata = read_metadata(cursor, keys)
    alignment = metadata.get(_ALIGNMENT_KEY, _ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise refuse(f"{_ALIGNMENT_KEY} is no power of two", path, f"{alignment!r:.80}")
    entries = _entries(cursor, tensors)
    start = -(-cursor.at // alignment) * alignment
    return File(metadata, _tensors(raw, entries, start, alignment, path))


def _front(cursor: Cursor) -> tuple[int, int]:
    """Reads the numbers of tensors and keys."""
    magic, version, tensors, keys = cursor.unpack(_FRONT)
    if magic != _MAGIC:
        raise cursor.error("not a GGUF file", magic, _MAGIC)
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
        what = "a big-endian GGUF file" if swapped else "a GGUF file of an unsupported version"
        raise cursor.error(what, version, f"version {' or '.join(map(str, _VERSIONS))}")
    if tensors * _LEAST_TENSOR + keys * _LEAST_KEY > len(cursor.raw):
        raise cursor.error("a GGUF file is cut short", f"{tensors} tensors, {keys} keys")
    return tensors, keys


# Name, shape, number of the type, offset, and why the name can't be read.
_Entry = tuple[str, tuple[int, ...], int, int, str | None]


def _entries(cursor: Cursor, count: int) -> list[_Entry]:
    """Name, shape, type and offset of each tensor."""
    results: dict[str, _Entry] = {}
    for _ in range(count):
        name, axes = cursor.text(), cursor.u32()
        if name in results:
            raise cursor.error("a tensor occurs twice", f"{name!r:.80}")
        if axes > _AXES:
            raise cursor.error(f"tensor {name!r:.80} has too many axes", axes, f"up to {_AXES}")
        shape = tuple(cursor.u64() for _ in range(axes))[::-1]
        results[name] = (name, shape, cursor.u32(), cursor.u64(), cursor.unreadable())
    return list(results.values())


def _row_bytes(kind: str, weights: int) -> int | None:
    """Bytes of a row; None where it is no whole number of blocks."""
    if kind not in FORMATS:
        return weights * DType[kind].itemsize
    form = FORMATS[kind]
    return None if weights % form.weights else weights // form.weights * form.nbytes


def _tensors(
    raw: mmap.mmap, entries: list[_Entry], start: int, alignment: int, path: object
) -> Entries[Tensor]:
    result = Entries[Tensor]()
    spans: list[tuple[int, int, str]] = []
    for entry in entries:
        name, *_, offset, unreadable = entry
        try:
            if unreadable is not None:
                raise ImportModelError(unreadable)
            result[name] = _tensor(raw, entry, start, alignment, f"{path}, tensor {name!r:.80}")
        except ImportModelError as error:
            result.refused[name] = str(error)
            continue
        nbytes = result[name].packed.nbytes
        spans += [(offset, offset + nbytes, name)] if nbytes else []
    spans.sort()
    for (_, last, _), (first, _, name) in itertools.pairwise(spans):
        if first < last:
            raise refuse("tensors overlap", f"{path}, tensor {name!r:.80}", first, f"from {last}")
    return result


def _tensor(raw: mmap.mmap, entry: _Entry, start: int, alignment: int, place: str) -> Tensor:
    """A tensor of the file; tensors begin at ``start``, at multiples of ``alignment``.

    Raises:
        ImportModelError: It can't be read.
    """
    name, shape, number, offset, _ = entry
    kind = TYPES.get(number)
    if kind is None:
        unread = _KNOWN.get(number, f"number {number}")
        raise refuse("a type that can't be read", place, unread, ", ".join(TYPES.values()))
    if not legal_shape(shape, 8):
        raise refuse("not a shape", place, shape)
    row = _row_bytes(kind, shape[-1] if shape else 1)
    if row is None:
        form = FORMATS[kind]
        raise refuse(f"rows are no whole number of blocks of {kind}", place, shape, form.weights)
    nbytes = math.prod(shape[:-1]) * row
    if offset % alignment or start + offset + nbytes > max(len(raw), start):
        got = f"{nbytes} bytes at {offset}"
        expected = f"a multiple of {alignment} in {max(len(raw) - start, 0)} bytes"
        raise refuse("a tensor lies outside of the file, or not aligned", place, got, expected)
    packed = view(raw, np.dtype(np.uint8), (*shape[:-1], row), start + offset)
    return Tensor(name, shape, kind, packed)

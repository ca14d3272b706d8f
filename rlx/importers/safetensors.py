"""safetensors files: a JSON header and arrays behind it, memory-mapped.

Little endian: 8 bytes, the length of the header; the header, a JSON object of names with dtype, shape
and the first and last byte of each tensor; the tensors, which fill the rest without holes.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections import Counter
from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.mapped import Entries, legal_shape, map_file, refuse, view
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array

# Types by their names in files: NumPy's, and rlx's if it has one. bf16 is carried in uint16.
TYPES: dict[str, tuple[np.dtype[Any], DType | None]] = {
    "F64": (np.dtype("<f8"), DType.F64),
    "F32": (np.dtype("<f4"), DType.F32),
    "F16": (np.dtype("<f2"), DType.F16),
    "BF16": (np.dtype("<u2"), DType.BF16),
    "I64": (np.dtype("<i8"), DType.I64),
    "I32": (np.dtype("<i4"), DType.I32),
    "I16": (np.dtype("<i2"), None),
    "I8": (np.dtype("i1"), DType.I8),
    "U64": (np.dtype("<u8"), None),
    "U32": (np.dtype("<u4"), DType.U32),
    "U16": (np.dtype("<u2"), None),
    "U8": (np.dtype("u1"), DType.U8),
    "BOOL": (np.dtype("?"), DType.BOOL),
}
_METADATA = "__metadata__"
# The limit of the format's own reader.
_HEADER_BYTES = 100_000_000
_FIELDS = {"dtype", "shape", "data_offsets"}


class Tensors(Entries[Array]):
    """Arrays by name, in the order of the file's header.

    Attributes:
        metadata: The file's own texts.
        dtypes: The type of each tensor; None for those that rlx has no counterpart of (I16, U16, U64).
        refused: By the name of each tensor that can't be read, why: what ``[]`` raises.
    """

    metadata: dict[str, str]
    dtypes: dict[str, DType | None]

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {}
        self.dtypes = {}


def load(path: str | os.PathLike[str]) -> Tensors:
    """The tensors of a safetensors file, as views of the mapped file.

    Nothing is read before an array is touched, and nothing is copied, except a tensor that the file
    stores at an unaligned address. The file must stay as it is while they are in use.

    Args:
        path: The file.

    Returns:
        A dict of read-only arrays. bf16 is in uint16, which ``set_param`` and ``g.param(dtype="bf16")``
        take as it is; ``.dtypes`` tells it from U16, ``.metadata`` has the file's own texts.

    Raises:
        ImportModelError: The file can't be read, or is malformed. A single tensor that can't be read is in
            ``.refused``, with the reason, and is refused when it is asked for: a tensor of 8-bit floats, or a truncated
            tensor.

    Example:
        >>> import json, os, tempfile
        >>> header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
        >>> path = os.path.join(tempfile.mkdtemp(), "one.safetensors")
        >>> with open(path, "wb") as file:
        ...     _ = file.write(len(header).to_bytes(8, "little") + header.encode())
        ...     _ = file.write(np.float32([1, 2]).tobytes())
        >>> load(path)["w"].tolist()
        [1.0, 2.0]
    """
    raw = map_file(path, "safetensors")
    entries, start = _header(raw, path)
    result = Tensors()
    result.metadata = _metadata(entries.pop(_METADATA, None), path)
    nbytes = len(raw) - start
    spans: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        pos = f"{path}, tensor {name!r:.80}"
        span = _span(entry)
        if span is not None:
            spans.append((*span, name))
        try:
            dtype, known, shape = _described(entry, span, nbytes, pos)
            assert span is not None
            array = view(raw, dtype, shape, start + span[0])
            if dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
                raise refuse("bytes of BOOL are neither 0 nor 1", pos)
        except ImportModelError as error:
            result.refused[name] = str(error)
            continue
        result[name], result.dtypes[name] = array, known
    # The bytes of tensors without a place, or behind the end of the file, are unknown.
    lost = len(spans) < len(entries) or any(last > nbytes for _, last, _ in spans)
    _check_filled(spans, nbytes, path, lost)
    return result


class _Object(dict[str, Any]):
    """An object of the header.

    Attributes:
        twice: Names that stand there twice.
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs) if len(self) < len(pairs) else Counter[str]()
        self.twice = {name for name, count in counts.items() if count > 1}


def _header(raw: mmap.mmap, path: object) -> tuple[dict[str, Any], int]:
    """The header's entries, and where the tensors begin."""
    if len(raw) < 8:
        raise refuse("a safetensors file is cut short", path, f"{len(raw)} bytes", "8 or more")
    length = int.from_bytes(raw[:8], "little")
    limit = min(len(raw) - 8, _HEADER_BYTES)
    if length > limit:
        raise refuse(
            "the header's length does not fit the file", path, f"{length} bytes", f"at most {limit}"
        )

    try:
        entries = json.loads(
            raw[8 : 8 + length].decode("utf-8"),
            object_pairs_hook=_Object,
            parse_constant=_no_constant,
        )
        if isinstance(entries, _Object):
            "".join(entries).encode("utf-8")  # escapes may write halves of characters
    except (ValueError, RecursionError) as error:
        raise refuse("the header is not JSON", path, f"{type(error).__name__}: {error}") from None
    if not isinstance(entries, _Object):
        raise refuse("the header is not a JSON object", path, type(entries).__name__)
    if entries.twice:
        raise refuse("a tensor occurs twice", path, f"{min(entries.twice)!r:.80}")
    return entries, 8 + length


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _metadata(entry: Any, path: object) -> dict[str, str]:
    """The file's own texts; null stands for none."""
    if entry is None:
        return {}
    if not isinstance(entry, dict) or not all(isinstance(text, str) for text in entry.values()):
        raise refuse(f"{_METADATA} is not a table of texts", path, f"{entry!r:.80}")
    return dict(entry)


def _span(entry: Any) -> tuple[int, int] | None:
    """The first and last byte of a tensor behind the header; None where they are not said."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or [type(offset) for offset in offsets] != [int, int]:
        return None
    first, last = offsets
    return (first, last) if 0 <= first <= last else None


def _described(
    entry: Any, span: tuple[int, int] | None, nbytes: int, place: str
) -> tuple[np.dtype[Any], DType | None, tuple[int, ...]]:
    """dtype, rlx's dtype and shape of a tensor; fields of other names are not looked at.

    Raises:
        ImportModelError: It can't be read.
    """
    if not isinstance(entry, _Object) or not entry.keys() >= _FIELDS or entry.twice & _FIELDS:
        got = sorted(entry) if isinstance(entry, dict) else entry
        raise refuse("a tensor is not described", place, f"{got!r:.80}", sorted(_FIELDS))
    named = entry["dtype"]
    if not isinstance(named, str) or named not in TYPES:
        raise refuse("a type that can't be read", place, f"{named!s:.20}", ", ".join(TYPES))
    dtype, known = TYPES[named]
    shape = entry["shape"]
    if not isinstance(shape, list) or not legal_shape(shape, dtype.itemsize):
        raise refuse("not a shape", place, f"{shape!r:.80}", "a list of sizes from 0 on")
    if span is None or span[1] > nbytes:
        got = f"{entry['data_offsets']!r:.80}"
        raise refuse("a tensor lies outside of the file", place, got, f"0 to {nbytes}")
    needed = dtype.itemsize * math.prod(shape)
    if span[1] - span[0] != needed:
        raise refuse(
            "bytes do not fit dtype and shape",
            place,
            f"{span[1] - span[0]} bytes",
            f"{needed} for {named}{shape}",
        )
    return dtype, known, tuple(shape)


def _check_filled(spans: list[tuple[int, int, str]], nbytes: int, path: object, lost: bool) -> None:
    """Checks that the tensors fill the file: no overlap, and no hole unless the place of some is lost.

    Raises:
        ImportModelError: They do not.
    """
    pos = 0
    for first, last, name in sorted(spans):
        if first < pos or (first > pos and not lost):
            what = "tensors overlap" if first < pos else "there is a hole between tensors"
            raise refuse(what, f"{path}, tensor {name!r:.80}", f"begins at {first}", pos)
        pos = last
    if pos != nbytes and not lost:
        raise refuse(
            "bytes after the last tensor belong to no tensor", path, f"{nbytes - pos} bytes", 0
        )

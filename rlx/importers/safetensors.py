"""safetensors files: a JSON header and arrays behind it, memory-mapped.

Little endian: 8 bytes, the length of the header; the header, a JSON object of names with dtype, shape
and the first and last byte of each tensor; the tensors, which fill the rest without holes.
"""

from __future__ import annotations

import json
import mmap
import os
from collections import Counter
from typing import Any

import numpy as np

from rlx.importers.mapped import legal_shape, map_file, refuse, view
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array

# What the files call a type: NumPy's, and rlx's where it has one. bf16 is carried in uint16.
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


class Tensors(dict[str, Array]):
    """Arrays by name, in the order of the file's header.

    Attributes:
        metadata: The file's own texts.
        dtypes: The type of each tensor; None for those that rlx has no counterpart of (I16, U16, U64).
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
    holds at an address its type can't be read from. The file must stay as it is while they are in use.

    Args:
        path: The file.

    Returns:
        A dict of read-only arrays. bf16 is in uint16, which ``set_param`` and ``g.param(dtype="bf16")``
        take as it is; ``.dtypes`` tells it from U16, ``.metadata`` has the file's own texts.

    Raises:
        ImportModelError: The file can't be read, is malformed, or has types of fewer than 8 bits or
            8-bit floats.

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
    found = Tensors()
    found.metadata = _metadata(entries.pop(_METADATA, {}), path)
    _refuse_types(entries, path)
    spans: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        dtype, known, shape, span = _entry(name, entry, len(raw) - start, path)
        spans.append((*span, name))
        found[name] = view(raw, dtype, shape, start + span[0])
        if dtype == np.bool_ and found[name].size and found[name].view(np.uint8).max() > 1:
            raise refuse("bytes of BOOL are neither 0 nor 1", f"{path}, tensor {name!r:.80}")
        found.dtypes[name] = known
    _check_filled(spans, len(raw) - start, path)
    return found


def _header(raw: mmap.mmap, path: object) -> tuple[dict[str, Any], int]:
    """The header's entries, and where the tensors begin."""
    if len(raw) < 8:
        raise refuse("a safetensors file is cut short", path, f"{len(raw)} bytes", "8 or more")
    length = int.from_bytes(raw[:8], "little")
    most = min(len(raw) - 8, _HEADER_BYTES)
    if length > most:
        raise refuse(
            "the header's length does not fit the file", path, f"{length} bytes", f"at most {most}"
        )

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            twice = [name for name, count in Counter(key for key, _ in pairs).items() if count > 1]
            raise ValueError(f"the name {twice[0]!r:.80} stands there twice")
        return made

    try:
        entries = json.loads(raw[8 : 8 + length].decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise refuse("the header is not JSON", path, f"{type(error).__name__}: {error}") from None
    if not isinstance(entries, dict):
        raise refuse("the header is not a JSON object", path, type(entries).__name__)
    return entries, 8 + length


def _metadata(entry: Any, path: object) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(text, str) for text in entry.values()):
        raise refuse(f"{_METADATA} is not a table of texts", path, f"{entry!r:.80}")
    return entry


def _refuse_types(entries: dict[str, Any], path: object) -> None:
    """Names every type that can't be read at once."""
    named = [str(entry.get("dtype")) for entry in entries.values() if isinstance(entry, dict)]
    unknown = Counter(name for name in named if name not in TYPES)
    if unknown:
        listed = ", ".join(
            f"{name:.20} ({count} tensors)" for name, count in unknown.most_common(8)
        )
        raise refuse("the file has types that can't be read", path, listed, ", ".join(TYPES))


def _entry(
    name: str, entry: Any, nbytes: int, path: object
) -> tuple[np.dtype[Any], DType | None, tuple[int, ...], tuple[int, int]]:
    """dtype, rlx's dtype, shape, and first and last byte of a tensor."""
    at = f"{path}, tensor {name!r:.80}"
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        got = sorted(entry) if isinstance(entry, dict) else entry
        raise refuse("a tensor is not described", at, f"{got!r:.80}", sorted(_FIELDS))
    dtype, known = TYPES[str(entry["dtype"])]
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not legal_shape(shape, dtype.itemsize):
        raise refuse("not a shape", at, f"{shape!r:.80}", "a list of sizes from 0 on")
    pair = isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets)
    if not pair or not 0 <= offsets[0] <= offsets[1] <= nbytes:
        raise refuse("a tensor lies outside of the file", at, f"{offsets!r:.80}", f"0 to {nbytes}")
    needed = dtype.itemsize
    for size in shape:
        needed *= size
    if offsets[1] - offsets[0] != needed:
        raise refuse(
            "bytes do not fit dtype and shape",
            at,
            f"{offsets[1] - offsets[0]} bytes",
            f"{needed} for {entry['dtype']}{shape}",
        )
    return dtype, known, tuple(shape), (offsets[0], offsets[1])


def _check_filled(spans: list[tuple[int, int, str]], nbytes: int, path: object) -> None:
    """Checks that the tensors fill the file: no overlap, no hole.

    Raises:
        ImportModelError: They do not.
    """
    at = 0
    for first, last, name in sorted(spans):
        if first != at:
            what = "tensors overlap" if first < at else "there is a hole between tensors"
            raise refuse(what, f"{path}, tensor {name!r:.80}", f"begins at {first}", at)
        at = last
    if at != nbytes:
        raise refuse("bytes behind the last tensor belong to none", path, f"{nbytes - at} bytes", 0)

"""The container file: a JSON header and aligned arrays, checked by SHA-256, read or memory-mapped.

Little endian::

    0   8   magic
    8   4   version of this layout
    12  4   zero
    16  8   bytes of the header
    24  8   bytes of the whole file
    32  32  SHA-256 of the body: everything from the first array on
    64  32  SHA-256 of bytes 0 to 64 and the header
    96      the header: JSON with "kind", "data" and "arrays" [[offset in the body, dtype, shape], ...]
            arrays, each at a multiple of 64 from the start of the file

Nothing in it is code and reading it runs none: the header is data, and only plain numbers make arrays.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import RlxError
from rlx.files import UnfitFileError, create, open_regular, read_regular, replace
from rlx.ir.dtype import stored_array
from rlx.ir.opdef import Array

MAGIC = b"\x93RLXBOX\n"
VERSION = 1
ALIGNMENT = 64
_PREFIX = struct.Struct("<8sIIQQ")
_HEADER_AT = 96
_KINDS = "biuf"
# The largest file that is read into memory at once.
MAX_BYTES = 1 << 30
# The largest header that is read; that of a graph of 100 000 nodes has some ten MiB.
_MAX_HEADER = 256 << 20


class ContainerError(RlxError, ValueError):
    """A file is not a container, of another version, or damaged."""


@dataclass(frozen=True)
class Container:
    """The contents of a container.

    Attributes:
        kind: Its kind, "lowered" or "model" for instance.
        data: The JSON values of the writer's header.
        arrays: Read-only arrays, views of the file's bytes.
        digest: A SHA-256 of the arrays: of their bytes, types and shapes, and of where each begins.
    """

    kind: str
    data: Any
    arrays: Sequence[Array]
    digest: bytes


def dump(kind: str, data: Any, arrays: Sequence[Array]) -> bytes:
    """A container as bytes.

    Args:
        kind: Its kind.
        data: JSON values; or what makes them of ``Container.digest``.
        arrays: Numbers and bools of 1 to 8 bytes each.

    Returns:
        The bytes of the file.

    Raises:
        ContainerError: An array holds something else.

    Example:
        >>> import numpy as np
        >>> load(dump("note", {"a": 1}, [np.arange(3)])).arrays[0].tolist()
        [0, 1, 2]
    """
    pieces: list[Any] = []
    places, pos, body = [], 0, hashlib.sha256()
    for array in arrays:
        if array.dtype.kind not in _KINDS or array.dtype.itemsize > 8:
            raise ContainerError("not an array for a container", got=array.dtype)
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        # Offsets count from the body's start, so that they do not change the header's length.
        places.append([pos, little.dtype.str, list(array.shape)])
        for piece in (little.reshape(-1).view(np.uint8).data, bytes(-little.nbytes % ALIGNMENT)):
            body.update(piece)
            pieces.append(piece)
            pos += len(piece)
    digest = body.digest()
    if callable(data):
        data = data(_of_arrays(places, digest))
    said = {"kind": kind, "data": data, "arrays": places}
    header = json.dumps(said, separators=(",", ":")).encode()
    header += b" " * (-(_HEADER_AT + len(header)) % ALIGNMENT)
    total = _HEADER_AT + len(header) + pos
    front = _PREFIX.pack(MAGIC, VERSION, 0, len(header), total) + digest
    return b"".join((front, hashlib.sha256(front + header).digest(), header, *pieces))


def _of_arrays(places: Any, body: bytes) -> bytes:
    """A digest of arrays: the same bytes, divided in another way, are other arrays."""
    return hashlib.sha256(json.dumps(places).encode() + body).digest()


def load(raw: bytes | mmap.mmap, where: object = "bytes", check: bool = True) -> Container:
    """Reads the bytes written by ``dump``.

    Args:
        raw: The whole file.
        where: Its name in errors.
        check: Whether the arrays' checksum is computed, which reads all of them; the header's
            always is.

    Raises:
        ContainerError: It is damaged, of another version, or no container.
    """

    def refuse(what: str, got: object = None, expected: object = None) -> ContainerError:
        return ContainerError(what, where=where, got=got, expected=expected)

    if len(raw) < _HEADER_AT:
        raise refuse("a container file is cut short", f"{len(raw)} bytes")
    view = memoryview(raw)
    magic, version, zero, length, total = _PREFIX.unpack(view[: _PREFIX.size])
    if magic != MAGIC:
        raise refuse("not a container file", magic, MAGIC)
    if version != VERSION or zero:
        raise refuse("a container of an unsupported version", version, VERSION)
    if total != len(raw) or length > total - _HEADER_AT:
        raise refuse("a container file has the wrong length", f"{len(raw)} bytes", f"{total} bytes")
    if length > _MAX_HEADER:
        raise refuse("a container's header is too large", f"{length} bytes", f"{_MAX_HEADER} bytes")
    start = _HEADER_AT + length
    head = hashlib.sha256(view[:64])
    head.update(view[_HEADER_AT:start])
    if head.digest() != bytes(view[64:96]):
        raise refuse("a container file is damaged: its header's checksum does not match")
    if check and hashlib.sha256(view[start:]).digest() != bytes(view[32:64]):
        raise refuse("a container file is damaged: its arrays' checksum does not match")
    try:
        header = json.loads(bytes(view[_HEADER_AT:start]))
        kind, data, places = header["kind"], header["data"], header["arrays"]
        body = view[start:]
        arrays = [stored_array(body, dtype, shape, offset) for offset, dtype, shape in places]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise refuse("a container file is malformed", f"{type(error).__name__}: {error}") from None
    return Container(kind, data, arrays, _of_arrays(places, bytes(view[32:64])))


def read(path: str | os.PathLike[str], limit: int = MAX_BYTES, links: bool = True) -> Container:
    """A container file, read into memory: what happens to the file afterwards does not matter.

    Args:
        path: The file.
        limit: Bytes that it may have.
        links: Whether it may be a symbolic link.

    Raises:
        ContainerError: It is damaged, of another version, no container, no file, or too large.
        OSError: It can't be read.
    """
    try:
        raw = read_regular(path, limit, links)
    except UnfitFileError as error:
        raise ContainerError("not a container file", where=path, got=error) from None
    return load(raw, path)


def mapped(path: str | os.PathLike[str], check: bool = False) -> Container:
    """A container file, memory-mapped: arrays are read when they are touched.

    The file must stay as it is while the arrays are in use; ``write`` puts another one in its place.

    Args:
        path: The file.
        check: Whether the arrays' checksum is computed now, which reads the whole file.

    Raises:
        ContainerError: It is damaged, of another version, or no container.
        OSError: It can't be read.
    """
    try:
        file = open_regular(path)
    except UnfitFileError as error:
        raise ContainerError("not a container file", where=path, got=error) from None
    with file:
        if not os.fstat(file.fileno()).st_size:
            raise ContainerError("a container file is empty", where=path)
        raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return load(raw, path, check)


def write(path: str | os.PathLike[str], raw: bytes) -> None:
    """Writes a file in one step: readers see the old one or the new one, never a part of it.

    Whoever has mapped the old one keeps it; see ``rlx.files.replace`` for Windows.

    Args:
        path: The file.
        raw: The output of ``dump``.

    Raises:
        FileInUseError: On Windows: a program has it open and forbids renaming it.
        OSError: It can't be written.
    """
    path = Path(path)
    # The number of the process and of the thread: two writers never share a name.
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        create(aside, raw)
        replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise

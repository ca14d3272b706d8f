"""Entries of the cache folder that this user's rlx has sealed: whole records, which are used as they are.

What the compiler makes is large, and to check it is to make it again. So an entry carries a seal: a keyed digest of the
digest of its bytes. The key is 32 random bytes in a file of its own that only this user can read, outside of the cache
folder. Whoever can make a seal can change the user's programs as well. An entry without the right seal is not looked into.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import io
import logging
import os
import pickle
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx import flags
from rlx.build_digest import build_digest
from rlx.compiler.cache_stats import count
from rlx.compiler.disk import DiskCache, disk_cache
from rlx.errors import first_line, users_level
from rlx.files import is_private, read_regular
from rlx.ir import container
from rlx.ir.content import OpaqueError
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, TensorType, lookup

KIND = "sealed"
# Entries above it are not written: the cache folder is for many models.
MAX_BYTES = 32 << 20
# Bytes of an array from which on it stands beside the record.
_LARGE_BYTES = 4096
_KEY_BYTES = 32
_log = logging.getLogger(__name__)
# Names an array that is found elsewhere when the record is read again; None for one that is not.
Elsewhere = Callable[[Array], Any]


def key_file() -> Path:
    """Returns the path of the key."""
    import platformdirs

    return Path(platformdirs.user_data_dir("rlx", appauthor=False)) / "cache-key"


@functools.cache
def _key(path: Path) -> bytes | None:
    """The key, made where there is none that can be read; None where it can't be kept, and then nothing is sealed."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        if not is_private(path.parent):
            return None
        result = os.lstat(path)
        if hasattr(os, "geteuid") and (result.st_uid != os.geteuid() or result.st_mode & 0o077):
            _log.debug("%s is not this user's alone: nothing is sealed", path)
            return None
        if not stat.S_ISREG(result.st_mode):
            _log.debug("%s is no regular file: nothing is sealed", path)
            return None
        problem = _damage(path)
        if problem is not None:
            text = f"{path}, the key of the compile cache, {problem}: a new one is made, and what was sealed is made again"
            warnings.warn(text, RuntimeWarning, stacklevel=users_level())
            path.unlink(missing_ok=True)
            _make(path)
        return read_regular(path, _KEY_BYTES, links=False)
    except OSError as error:
        _log.debug("no key for the compile cache: %s", error)
        return None


def _damage(path: Path) -> str | None:
    """Why a file is not a key; None where it is one."""
    try:
        size = len(read_regular(path, _KEY_BYTES, links=False))
    except OSError as error:
        return f"can't be read ({first_line(error)})"
    return None if size == _KEY_BYTES else f"has {size} bytes in place of {_KEY_BYTES}"


def _make(path: Path) -> None:
    """Writes a new key aside, and puts it in its place unless another process was faster."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    handle = os.open(
        aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
        try:
            # Neither replaces what is there: renaming does so on Windows alone, links everywhere else.
            (os.rename if os.name == "nt" else os.link)(aside, path)
        except FileExistsError:
            pass
    finally:
        aside.unlink(missing_ok=True)


class Sealed:
    """Sealed entries in a cache folder.

    Args:
        disk: The folder.
        key: The key.
    """

    def __init__(self, disk: DiskCache, key: bytes) -> None:
        self._disk, self._key = disk, key
        build = build_digest(), np.__version__, sys.version_info[:2], sys.platform
        self._id = hmac.digest(key, repr(build).encode(), "sha256").hex()

    def name(self, *parts: Any) -> str:
        """The name of an entry: that of this user's, for this build of rlx.

        Args:
            *parts: Plain values that say what it is.
        """
        return hashlib.sha256(repr((self._id, parts)).encode()).hexdigest()

    def get(self, name: str, arrays: Callable[[Any], Array] | None = None) -> Any:
        """An entry's record; None where there is no usable one, with a warning if it is damaged.

        Args:
            name: Its name.
            arrays: Finds the arrays that ``put`` left out.
        """
        where = self._disk.path(name)
        try:
            result = self._disk.get(name)
            if result is None:
                return None
            if result.kind != KIND or not result.arrays:
                raise _NotSealedError("the entry is not sealed")
            if not hmac.compare_digest(str(result.data["seal"]), self._seal(name, result.digest)):
                raise _NotSealedError("its seal does not match")
            record, *large = result.arrays
            return _Reader(io.BytesIO(record.data), arrays, large).load()
        except Exception as error:  # of whatever records are made of
            count("refused" if isinstance(error, _NotSealedError) else "damaged")
            said = str(error) or type(error).__name__
            text = f"{where}, an entry of the cache, is not used and is made again: {said}"
            warnings.warn(text, RuntimeWarning, stacklevel=users_level())
            return None

    def put(self, name: str, record: Any, elsewhere: Elsewhere | None = None) -> bool:
        """Writes an entry.

        Args:
            name: Its name.
            record: The contents: records of rlx, plain values and arrays.
            elsewhere: Names the arrays that are left out.

        Returns:
            Whether it was written.

        Raises:
            OpaqueError: The record holds what can't be written, or is too large.
        """
        try:
            stored = [np.frombuffer(item, np.uint8) for item in _dumped(record, elsewhere)]
        except Exception as error:  # of whatever records are made of
            raise OpaqueError(f"{type(error).__name__}: {error}") from error
        nbytes = sum(item.nbytes for item in stored)
        if nbytes > MAX_BYTES:
            raise OpaqueError(f"{nbytes} bytes, at most {MAX_BYTES} are sealed")
        raw = container.dump(KIND, lambda digest: {"seal": self._seal(name, digest)}, stored)
        return self._disk.put(name, raw)

    def _seal(self, name: str, digest: bytes) -> str:
        """The seal of an entry whose arrays have a digest; the container checks that they have it."""
        return hmac.digest(self._key, name.encode() + digest, "sha256").hex()


class _NotSealedError(Exception):
    """An entry that this user's rlx did not write."""


def sealed_entries() -> Sealed | None:
    """The sealed entries of the cache that ``RLX_CACHE`` names; None where there can't be any.

    Raises:
        InputError: One of the variables of the cache does not parse.
    """
    wanted = flags.CACHE.get()
    if wanted == "off" or build_digest() is None:
        return None
    key = _key(key_file())
    return None if key is None else Sealed(disk_cache(wanted), key)


# --- records as bytes ------------------------------------------------------------------------------


class _GraphPickler(pickle.Pickler):
    """Writes a graph as a list of rows: nodes that refer to each other would nest as deep as the graph is long."""

    def __init__(self, file: io.BytesIO) -> None:
        self.large: list[memoryview] = []
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=self._keeps)

    def _keeps(self, buffer: pickle.PickleBuffer) -> bool:
        """Returns whether the record holds the bytes of an array.

        Large arrays lie beside it, and are not copied when it is read.
        """
        raw = buffer.raw()
        if raw.nbytes >= _LARGE_BYTES:
            self.large.append(raw)
        return raw.nbytes < _LARGE_BYTES

    def reducer_override(self, obj: Any) -> Any:
        """Defines how to pickle objects that pickle would write badly, or not at all."""
        kind = type(obj)
        if kind is Node:
            if obj.graph.nodes[obj.id] is not obj:
                raise pickle.PicklingError(f"{obj.where()} is no node of its graph any more")
            return _node, (obj.graph, obj.id)
        if kind is Graph:
            return _empty, (), _rows(obj), None, None, _fill
        if kind is TensorType:
            return TensorType, (obj.shape, obj.dtype)
        if kind is MappingProxyType:
            return _read_only, (dict(obj),)
        return NotImplemented


class _FilePickler(_GraphPickler):
    """Leaves out arrays that are stored elsewhere. It is asked about every object, which takes as long as the rest."""

    def __init__(self, file: io.BytesIO, elsewhere: Elsewhere) -> None:
        super().__init__(file)
        self._elsewhere = elsewhere

    def persistent_id(self, obj: Any) -> Any:
        """Returns the identifier of an array that is stored elsewhere."""
        return self._elsewhere(obj) if type(obj) is np.ndarray else None


class _Reader(pickle.Unpickler):
    """Reads the records of both."""

    def __init__(
        self, file: io.BytesIO, arrays: Callable[[Any], Array] | None, large: Sequence[Array]
    ) -> None:
        super().__init__(file, buffers=large)
        self._arrays = arrays

    def persistent_load(self, pid: Any) -> Array:
        """The array that was left out."""
        if self._arrays is None:
            raise pickle.UnpicklingError("an array that is elsewhere")
        return self._arrays(pid)


def _dumped(record: Any, elsewhere: Elsewhere | None) -> list[memoryview]:
    """A record as bytes, and those of its large arrays."""
    file = io.BytesIO()
    writer = _GraphPickler(file) if elsewhere is None else _FilePickler(file, elsewhere)
    writer.dump(record)
    return [file.getbuffer(), *writer.large]


def _node(graph: Graph, index: int) -> Node:
    return graph.nodes[index]


def _read_only(items: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(items)


def _empty() -> Graph:
    return Graph.__new__(Graph)


def _rows(graph: Graph) -> tuple[Any, ...]:
    rows = [
        (
            (node.op, [item.id for item in node.inputs], node.attrs, node.types),
            (node.name, node.source),
            node.given,
        )
        for node in graph.nodes
    ]
    outputs = [node.id for node in graph.outputs]
    return graph.name, rows, outputs, graph.param_values, graph.sizes_state()


def _fill(graph: Graph, state: tuple[Any, ...]) -> None:
    name, rows, outputs, values, sizes = state
    graph.__init__(name)  # type: ignore[misc]
    graph.set_sizes_state(sizes)
    nodes = graph.nodes
    for (op, inputs, attrs, types), (called, source), given in rows:
        operands = tuple([nodes[i] for i in inputs])
        node = Node(graph, lookup(op), operands, attrs, types, called, source)
        node.given = given
        nodes.append(node)
        if op in ("input", "param"):
            graph._named[called] = node
    graph.outputs = tuple([nodes[output] for output in outputs])
    graph.param_values.update(values)

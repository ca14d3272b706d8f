"""Opening files that somebody else may have put there, whose kind and size are checked first, and replacing files."""

from __future__ import annotations

import os
import stat
import sys
import time
import warnings
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from rlx.errors import FileInUseError, InputError

# Windows: others may read, write, and rename or remove a file that is open.
_SHARE_ALL = 1 | 2 | 4
# Absent on Windows, where these kinds of files are.
_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# True if mapped files can't be removed, and so not replaced either.
_MAPPED_STAY = os.name == "nt"
# The suffix of a file that was replaced while it was mapped.
REPLACED = ".old"
# Folders that were complained about; once is enough.
_refused: set[Path] = set()


class UnfitFileError(OSError):
    """A path is no regular file, or the file is too large to be what it should be."""


def open_regular(path: str | os.PathLike[str], links: bool = True) -> BufferedReader:
    """Opens a file for reading, without waiting for whoever is at the other end of it.

    Args:
        path: The file.
        links: Whether it may be a symbolic link.

    Raises:
        UnfitFileError: It is a folder, a FIFO, a socket or a device.
        OSError: It can't be opened.
    """
    # Before it is opened as well: opening a device may do something, and a folder has no name for it.
    kind = _kind(os.stat(path).st_mode)
    if kind is None:
        file = os.fdopen(_opened(os.fspath(path), links), "rb")
        kind = _kind(os.fstat(file.fileno()).st_mode)
        if kind is None:
            return file
        file.close()
    raise UnfitFileError(f"{os.fspath(path)!r} is {kind}, and no file")


def _opened(path: str, links: bool) -> int:
    """The descriptor of a file that is read. On Windows others may rename the file meanwhile, also while it is mapped."""
    if sys.platform != "win32":
        return os.open(path, os.O_RDONLY | _NEVER_WAIT | (0 if links else _NO_LINK))
    # ``os.open`` forbids renaming, and a file that is mapped stays open.
    import _winapi
    import msvcrt

    try:
        handle = _winapi.CreateFile(
            os.fsdecode(path), _winapi.GENERIC_READ, _SHARE_ALL, 0, _winapi.OPEN_EXISTING, 0, 0
        )
    except OSError as error:
        raise OSError(error.errno, error.strerror, path, error.winerror) from None
    return msvcrt.open_osfhandle(handle, os.O_RDONLY | _BINARY)


def _kind(mode: int) -> str | None:
    """Returns the kind of a file that is not regular; None for a regular one."""
    if stat.S_ISREG(mode):
        return None
    return next((name for test, name in _KINDS if test(mode)), "something else")


def read_regular(path: str | os.PathLike[str], limit: int, links: bool = True) -> bytes:
    """Reads a file of at most so many bytes.

    Raises:
        UnfitFileError: It is larger, or no regular file.
        OSError: It can't be read.
    """
    with open_regular(path, links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise UnfitFileError(f"{os.fspath(path)!r} has {size} bytes, at most {limit} are read")
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise UnfitFileError(f"{os.fspath(path)!r} has more than {limit} bytes")
    return raw


def digest_of_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's contents, in hexadecimal digits.

    Raises:
        UnfitFileError: It is no regular file.
        OSError: It can't be read.
    """
    import hashlib

    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def create(path: Path, raw: bytes) -> None:
    """Writes a new file. What is there under its name is removed, and never written through.

    Raises:
        OSError: It can't be written.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY | _NO_LINK
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(raw)


def replace(result: Path, path: Path) -> None:
    """Puts a file in the place of another one, in one step. Whoever has the old one open or mapped keeps it.

    Windows can't remove a file that is mapped. There the old one gets a name that ends in ``.old`` first, and for
    a moment there is no file under its own; it goes with a later call, when nobody maps it any more.

    Args:
        result: The new file.
        path: Where it belongs.

    Raises:
        FileInUseError: A program has the old file open and forbids renaming it, which is possible on Windows.
        OSError: It can't be replaced.
    """
    if not _MAPPED_STAY:
        os.replace(result, path)
        return
    for left in _replaced(path):
        _remove(left)
    try:
        os.replace(result, path)
    except PermissionError:
        aside = _set_aside(path)
        try:
            os.replace(result, path)
        except BaseException:
            os.replace(aside, path)
            raise
        _remove(aside)


def _set_aside(path: Path) -> Path:
    """Gives a file another name, and returns that."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{time.monotonic_ns()}{REPLACED}")
    try:
        os.rename(path, aside)
    except PermissionError as error:
        raise FileInUseError(
            "a file can't be replaced",
            where=path,
            got=error,
            hint="close the program that has it open, or choose another name",
        ) from None
    return aside


def _replaced(path: Path) -> list[Path]:
    """Lists the files that earlier calls of ``replace`` left behind."""
    start = f"{path.name}."
    with os.scandir(path.parent) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if entry.name.startswith(start) and entry.name.endswith(REPLACED)
        ]


def _remove(path: Path) -> None:
    """Removes a file, if nobody has it mapped."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def is_private(folder: Path) -> bool:
    """Returns whether only this user can put files into a folder; a missing folder counts as private.

    Files in other folders may be anybody's. The first time a folder is refused, a
    ``RuntimeWarning`` says why. On Windows a user's folders are private by their access lists.
    """
    if not hasattr(os, "geteuid"):
        return True
    try:
        results = [os.lstat(folder), os.stat(folder)]
    except OSError:
        return True  # whoever goes on finds out why
    problem = None
    if any(item.st_uid != os.geteuid() for item in results):
        problem = "another user owns it"
    elif results[1].st_mode & 0o022:
        problem = f"others can write it (mode {stat.S_IMODE(results[1].st_mode):o})"
    if problem is not None and folder not in _refused:
        _refused.add(folder)
        text = f"the cache folder {folder} is not used, since {problem}; chmod 700 makes it private"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return problem is None


def contents(source: Any) -> memoryview | None:
    """The contents of bytes or of a binary file object, which is read to its end; None for a path.

    Args:
        source: A path, an object with a buffer, or one with ``read``.

    Raises:
        InputError: A file object gives text.
        OSError: It can't be read.
    """
    if hasattr(source, "read"):
        source = source.read()
        if isinstance(source, str):
            what = "a file object gives text"
            raise InputError(what, got="str", expected="bytes", hint="open it with 'rb'")
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source)
        # An empty buffer of any shape has no bytes to cast.
        return view.cast("B") if view.nbytes else memoryview(b"")
    return None

"""A folder of container files under hashed names, bounded in size; nothing that goes wrong in it is an error."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from rlx import flags
from rlx.file_cache import kept_files, mark_used, prune, user_folder
from rlx.files import is_private
from rlx.ir.container import Container, read, write

_SUFFIX = ".rlxc"
_OURS = re.compile(r".+\.rlxc")
_ENGINES = re.compile(r".+")
# The folder's size is measured once per this many stores: listing all files costs more than writing one.
_PUTS_PER_LOOK = 64
# Per folder: its size in bytes when it was last measured, and the stores since then.
_believed: dict[Path, tuple[int, int]] = {}
_log = logging.getLogger(__name__)


class DiskCache:
    """Entries in a folder, one file each.

    Several processes may share it: a file appears whole or not at all. An inaccessible folder counts as empty, and a
    debug line says so. A folder that other users can write or own counts as empty too, and a warning says so.

    Args:
        folder: The folder; the first stored entry creates it, for this user only.
        most: Bytes of all files; the least recently used entry is removed first.
        days: Entries unused for more days are removed, however small the folder is.
    """

    def __init__(self, folder: Path, most: int, days: int) -> None:
        self._folder, self._most, self._days = folder, most, days

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self._folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> Container | None:
        """Returns the entry and marks it as used; None if it is missing.

        Raises:
            ContainerError: Its file is damaged.
        """
        path = self.path(key)
        if not is_private(self._folder):
            return None
        try:
            result = read(path, self._most, links=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.debug("the compile cache can't be read: %s", error)
            return None
        mark_used(path)
        return result

    def put(self, key: str, raw: bytes) -> bool:
        """Stores an entry, and removes the surplus.

        Returns:
            Whether it was stored.
        """
        if len(raw) > self._most:
            _log.debug("an entry of %d bytes is too large for the compile cache", len(raw))
            return False
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_private(self._folder):
                return False
            write(self.path(key), raw)
            self._make_room(len(raw))
        except OSError as error:
            _log.debug("nothing is stored in the compile cache: %s", error)
            return False
        return True

    def _make_room(self, added: int) -> None:
        # Entries of other processes are counted when the folder is measured again.
        stored, puts = _believed.get(self._folder, (0, _PUTS_PER_LOOK))
        if puts < _PUTS_PER_LOOK and stored + added <= self._most:
            _believed[self._folder] = stored + added, puts + 1
        else:
            _believed[self._folder] = self._prune(), 1

    def clear(self) -> int:
        """Removes every entry.

        Returns:
            How many bytes that freed.
        """
        _believed.pop(self._folder, None)
        return sum(file.nbytes for file in kept_files(self._folder, _OURS) if file.remove())

    def nbytes(self) -> int:
        """Bytes of all entries."""
        return sum(file.nbytes for file in kept_files(self._folder, _OURS))

    def _prune(self) -> int:
        """Removes surplus, old and abandoned files, and returns the bytes that are left."""
        return prune(self._folder, _OURS, self._days, self._most)


def disk_cache(wanted: str) -> DiskCache:
    """The cache that ``RLX_CACHE`` names, as large as ``RLX_CACHE_BYTES`` and ``RLX_CACHE_DAYS`` say.

    Args:
        wanted: "on" for the user's cache folder, or a folder.

    Raises:
        InputError: One of the two variables does not parse.
    """
    folder = user_folder("lowered") if wanted == "on" else Path(wanted)
    return DiskCache(folder, flags.CACHE_BYTES.get(), flags.CACHE_DAYS.get())


def engine_folder(name: str) -> Path | None:
    """A folder for what an engine of a plug-in keeps on disk itself, such as XLA's compiled programs.

    It lies beside rlx's own entries, for this user only. ``RLX_CACHE`` moves it and switches it off. A call removes the least
    recently used files while the folder is larger than ``RLX_CACHE_BYTES``, and files older than ``RLX_CACHE_DAYS``.

    Args:
        name: The plug-in.

    Returns:
        The existing folder; None if caching is switched off, or if other users can write to it.
    """
    wanted = flags.CACHE.get()
    if wanted == "off":
        return None
    own = f"engine-{name}"
    folder = user_folder(own) if wanted == "on" else Path(wanted) / own
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _log.debug("the folder of %s can't be made: %s", name, error)
        return None
    if not is_private(folder):
        return None
    prune(folder, _ENGINES, flags.CACHE_DAYS.get(), flags.CACHE_BYTES.get())
    return folder

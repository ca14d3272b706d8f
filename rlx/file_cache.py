"""Cache folders on disk: the least recently used files are removed first.

Several processes may use a folder at once, programs with another build of rlx among them. What one of them removes is missing
for the others, and what can't be removed stays: neither is an error. Windows keeps a file that a process has open.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlx.files import REPLACED

DAY_S = 86_400.0
# A writer finishes its temporary file within seconds; one that is older than this was left behind.
_ABANDONED_S = 3600.0
# The names that ``rlx.ir.container.write`` gives to a file while writing, and to a replaced file on Windows.
_WRITING = re.compile(r"\.\d+-\d+\.(tmp|old)$")
_log = logging.getLogger(__name__)


def user_folder(name: str) -> Path:
    """A folder in the user's cache folder for rlx; it need not exist."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("rlx", appauthor=False)) / name


@dataclass(frozen=True, order=True)
class KeptFile:
    """A file of such a folder; the order is that of their last use.

    Attributes:
        used: When it was last used, in seconds since 1970: the time of its last change.
        nbytes: Its size.
        path: Where it is.
    """

    used: float
    nbytes: int
    path: Path

    def remove(self) -> bool:
        """Removes it.

        Returns:
            Whether it is gone; if not, a debug line says why.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            _log.debug("%s stays: %s", self.path, error)
            return False
        return True


def mark_used(path: Path) -> None:
    """Lets a file count as used now, where that can be written down."""
    try:
        os.utime(path)
    except OSError as error:
        _log.debug("the use of %s is not noted: %s", path, error)


def kept_files(folder: Path, ours: re.Pattern[str]) -> list[KeptFile]:
    """Lists the files of a folder, and the leftovers of their writers.

    Args:
        folder: The folder.
        ours: The pattern of the whole name of a file of this kind, without a writer's ending. Other files are left alone.
    """
    results: list[KeptFile] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if ours.fullmatch(_WRITING.sub("", entry.name)) is None:
                    continue
                try:
                    stat = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # another process removed it meanwhile
                results.append(KeptFile(stat.st_mtime, stat.st_size, Path(entry.path)))
    except FileNotFoundError:
        return []
    except OSError as error:
        _log.debug("the folder %s can't be listed: %s", folder, error)
    return results


def prune(
    folder: Path,
    ours: re.Pattern[str],
    days: int,
    limit: int | None = None,
    now: Callable[[], float] = time.time,
) -> int:
    """Removes old files, abandoned files, and the surplus.

    Args:
        folder: The folder.
        ours: Which files are meant; see ``kept_files``.
        days: Files that were not used for more days go.
        limit: Bytes of all files, above which those go that were used longest ago; None for no bound.
        now: The time in seconds since 1970.

    Returns:
        The bytes that are left.
    """
    files, time_now = sorted(kept_files(folder, ours)), now()
    total = sum(file.nbytes for file in files)
    for file in files:
        unused_s = time_now - file.used
        written = file.path.suffix == ".tmp"  # by another process, now or never again
        replaced = file.path.suffix == REPLACED  # while a process had it mapped
        too_much = limit is not None and total > limit
        too_old = unused_s > days * DAY_S
        gone = unused_s > _ABANDONED_S if written else replaced or too_much or too_old
        if gone and file.remove():
            total -= file.nbytes
    return total

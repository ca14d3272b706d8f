"""Determines the threads that the CPU kernels may use: the user's setting, else the machine's limit."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from rlx import flags
from rlx.cgroups import folders, text

MAX_THREADS = 1024
# Bytes from which on a thread of Python's gains more than it takes to start.
_BYTES_OF_A_THREAD = 1 << 20
_T = TypeVar("_T")
_R = TypeVar("_R")


def thread_count(wanted: int | None = None) -> int:
    """Threads of one compiled graph, the caller's included.

    Args:
        wanted: ``CompileOptions.threads``.

    Returns:
        ``wanted``, else ``RLX_THREADS``, else what ``usable_cores`` counts; 1 or more.

    Raises:
        InputError: ``RLX_THREADS`` is not a whole number from 1 to 1024.

    Example:
        >>> from rlx.threads import thread_count
        >>> thread_count(2)
        2
    """
    return wanted or flags.THREADS.get() or min(MAX_THREADS, usable_cores())


def mapped(function: Callable[[_T], _R], items: Collection[_T], nbytes: int) -> list[_R]:
    """Returns a function's results of some items, which threads share where they are of many bytes."""
    workers = min(thread_count(), len(items), nbytes // _BYTES_OF_A_THREAD)
    if workers < 2:
        return [function(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def usable_cores(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy: of its affinity, within its cgroup's quota.

    Two threads of one core share its arithmetic, so that they count as one.

    Args:
        root: Where /proc and /sys are.
    """
    return _usable(root, frozenset(processors()))


@functools.lru_cache(maxsize=16)
def _usable(root: Path, processors: frozenset[int]) -> int:
    result, quota = _cores(root, processors), cpu_quota(root)
    return max(1, result if quota is None else min(result, quota))


def cpu_quota(root: Path = Path("/")) -> int | None:
    """Processors that the cgroup's quota amounts to, rounded up; None without one.

    The strictest of the process's own group and of those above it counts, in the one hierarchy of
    version 2 as in that of version 1 which holds the controller "cpu".

    Args:
        root: Where /proc and /sys are.
    """
    results: list[int] = []
    for folder, first in folders(root, "cpu"):
        results += _quota_of(folder, first)
    return min(results, default=None)


def _quota_of(folder: Path, first: bool) -> list[int]:
    """The quota that a group's folder states, as a list of one or none; ``first`` is of version 1."""
    if first:
        words = [text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    else:
        words = text(folder / "cpu.max").split()
    # "max", or -1 in version 1, is no quota.
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return []
    return [max(1, -(-int(words[0]) // int(words[1])))]


def processors() -> set[int]:
    """Processors that the process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _cores(root: Path, processors: frozenset[int]) -> int:
    """Cores that those processors are threads of; as many as there are processors if nobody tells."""
    folder = root / "sys/devices/system/cpu"
    listed = {text(folder / f"cpu{n}/topology/thread_siblings_list").strip() for n in processors}
    return len(processors) if "" in listed else len(listed)

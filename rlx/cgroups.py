"""The limits that Linux sets for a process: the cgroups that it is in, and the memory that it may have."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path


def folders(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """The folders of a process's own cgroup and of those above it, each with whether it is of version 1.

    These are in the one hierarchy of version 2 and in that of version 1 which holds the controller.

    Args:
        root: Where /proc and /sys are.
        controller: Such as "cpu".
    """
    for line in text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        tops = ["sys/fs/cgroup"]
        if controllers:
            tops = [f"sys/fs/cgroup/{controllers}", f"sys/fs/cgroup/{controller}"]
        for top in tops:
            parts = [part for part in group.split("/") if part not in ("", "..")]
            # In a container the group's path may be the host's: then only the top is there.
            for depth in range(len(parts) + 1):
                yield root.joinpath(top, *parts[:depth]), bool(controllers)


@functools.cache
def most_memory(root: Path = Path("/")) -> int | None:
    """Bytes that a process may have: the machine's memory and swap space, within its cgroup's limit; None if nobody tells.

    Linux promises more memory than there is, and ends a process that uses it.

    Args:
        root: Where /proc and /sys are.
    """
    found = dict(
        line.split(":", 1) for line in text(root / "proc/meminfo").splitlines() if ":" in line
    )
    sizes = [found[name].split()[0] for name in ("MemTotal", "SwapTotal") if name in found]
    results = [1024 * sum(map(int, sizes))] if sizes else []
    for folder, first in folders(root, "memory"):
        said = text(folder / ("memory.limit_in_bytes" if first else "memory.max")).strip()
        results += [int(said)] if said.isdecimal() else []
    return min(results, default=None)


def text(path: Path) -> str:
    """The text of a file; "" if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

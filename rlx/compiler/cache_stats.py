"""Counters of the compile caches of this process."""

from __future__ import annotations

import dataclasses

from rlx.dataclasses import dataclass
from rlx.locks import Lock


@dataclass(frozen=True)
class CacheStats:
    """Counters of this process's compile caches; see ``rlx.cache_stats``.

    Attributes:
        lowered: Graphs that went through the compiler.
        memory_hits: Graphs that were found in memory instead.
        disk_hits: Graphs that were found in the cache folder instead.
        model_hits: Graphs that were found in the model file they came from.
        stored: Graphs written to the cache folder.
        damaged: Entries of the cache folder that could not be used.
        refused: Plans in a model file that failed their checks, entries of the cache folder without this
            user's seal, and graphs that can't be cached, because they hold custom ops or Python objects.
        unidentified: Graphs for which nothing was looked up or stored on disk, because this rlx was
            packaged without the digest that tells one build from another.
        imported: ONNX models that were read and turned into a graph for some shapes.
        import_hits: Such graphs that were found in the cache folder instead.
    """

    lowered: int = 0
    memory_hits: int = 0
    disk_hits: int = 0
    model_hits: int = 0
    stored: int = 0
    damaged: int = 0
    refused: int = 0
    unidentified: int = 0
    imported: int = 0
    import_hits: int = 0


_stats = CacheStats()
_lock = Lock()


def cache_stats() -> CacheStats:
    """Returns the counters of this process's compile caches.

    Returns:
        Counts; compare two to see what happened between them.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (2,)) + 1.0])
        >>> before = rlx.cache_stats()
        >>> a, b = rlx.compile(g, device="cpu"), rlx.compile(g, device="cpu")
        >>> after = rlx.cache_stats()
        >>> after.lowered + after.memory_hits + after.disk_hits - before.lowered >= 2
        True
    """
    return _stats


def count(name: str) -> None:
    """Counts one more of something."""
    global _stats
    with _lock:
        _stats = dataclasses.replace(_stats, **{name: getattr(_stats, name) + 1})

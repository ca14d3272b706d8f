"""Executables of one graph for callers in any number of threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rlx.errors import RlxError
from rlx.locks import Lock
from rlx.runtime.compiled import CompiledGraph


class ExecutablePool:
    """A compiled graph and clones of it, each used by one caller at a time. Clones share its params.

    Args:
        first: The graph.
        kept: Most executables that are kept while nobody uses them; there are as many as callers at a time.

    Attributes:
        made: Executables made so far.
    """

    def __init__(self, first: CompiledGraph, kept: int) -> None:
        self.first = first
        self.made = 1
        self._kept = kept
        self._idle = [first]
        self._lock = Lock()
        self._closed = self._lent = False

    @contextlib.contextmanager
    def lease(self) -> Iterator[CompiledGraph]:
        """Returns an idle executable."""
        compiled = self.take()
        try:
            yield compiled
        finally:
            self.give(compiled)

    def take(self) -> CompiledGraph:
        """The executable that was used last, or a new one where all are in use."""
        try:
            return self._idle.pop()
        except IndexError:
            self.made += 1
            return self.first.clone()

    def give(self, compiled: CompiledGraph) -> None:
        """Returns an executable of ``take`` to the pool."""
        with self._lock:
            # All others are clones of the first one.
            first = compiled is self.first
            keeps = not self._closed and (first or len(self._idle) < self._kept)
            if first and self._lent:
                return
            if keeps:
                self._idle.append(compiled)
        if not keeps:
            _closed(compiled)

    def lend(self) -> CompiledGraph:
        """Returns the first executable; ``take`` no longer returns it."""
        with self._lock:
            self._lent = True
            if self.first in self._idle:
                self._idle.remove(self.first)
        return self.first

    def close(self) -> None:
        """Closes all executables; an executable in use is closed on its return."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            if self._lent and self.first not in idle:
                idle.append(self.first)
        for compiled in idle:
            _closed(compiled)


def _closed(compiled: CompiledGraph) -> None:
    with contextlib.suppress(RlxError):  # what a lost device held can't be freed, and need not be
        compiled.close()

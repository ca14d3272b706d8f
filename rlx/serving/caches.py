"""CompileCache: compiled graphs under keys of the caller's, the one used longest ago going first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from rlx.backends.base import CompileOptions
from rlx.device.names import DeviceLike
from rlx.errors import ClosedError
from rlx.ir.graph import Graph
from rlx.locks import Lock
from rlx.lru import Lru
from rlx.runtime.closing import Closing
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session


class CompileCache(Closing):
    """Compiled graphs for one device, bounded in number and in bytes. Safe to use from threads.

    A graph that is evicted is let go of, not closed: whoever holds it goes on running it. Memory that
    nobody holds any more is free right after the eviction.

    Args:
        device: A device or its name.
        capacity: Most graphs.
        max_bytes: Most bytes of all graphs' arenas, params and staging; None for no bound. A graph
            above it alone is compiled but not kept.
        options: How graphs are compiled.

    Attributes:
        hits: Calls that found their graph.
        misses: Calls that compiled it.

    Raises:
        DeviceParseError: ``device`` is not a device.
        DeviceUnavailableError: It is not on this machine.
        InputError: A bound is below 1.

    Example:
        >>> import rlx
        >>> def double():
        ...     g = rlx.Graph()
        ...     g.set_outputs([g.input("x", (2,)) * 2.0])
        ...     return g
        >>> cache = rlx.CompileCache("cpu", 8)
        >>> cache.get_or_compile("double", double) is cache.get_or_compile("double", double)
        True
        >>> cache.hits, cache.misses, len(cache)
        (1, 1, 1)
    """

    def __init__(
        self,
        device: DeviceLike,
        capacity: int,
        *,
        max_bytes: int | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        self._session = Session(device, options=options)
        self._kept: Lru[Hashable, CompiledGraph] = Lru(capacity, max_bytes)
        self._lock = Lock()
        # Held while the graph of a key is compiled: a second thread waits instead of compiling too.
        self._gates: dict[Hashable, _Gate] = {}
        self._closed = False
        self.hits: int = 0
        self.misses: int = 0

    def get_or_compile(
        self, key: Hashable, builder: Callable[[], Graph], params: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        """The graph of a key, compiled when it is not here.

        Args:
            key: Its key.
            builder: Makes the graph; called only when it is compiled. Two threads that ask for the
                same key at the same time get the same graph, compiled once.
            params: Values of its params, set when it is compiled.

        Returns:
            The graph. It runs in one thread at a time; give others ``compiled.clone()``.

        Raises:
            ClosedError: The cache is closed.
            RlxError: See ``Session.compile``; nothing is kept then.
        """
        with self._lock:
            result = self._find(key)
            if result is not None:
                return result
            gate = self._gates.setdefault(key, _Gate())
            gate.waiting += 1
        try:
            with gate.lock:
                with self._lock:
                    result = self._find(key)
                return result if result is not None else self._compile(key, builder, params)
        finally:
            with self._lock:
                gate.waiting -= 1
                if not gate.waiting:
                    del self._gates[key]

    def _find(self, key: Hashable) -> CompiledGraph | None:
        if self._closed:
            raise ClosedError("this CompileCache is closed", hint="make a new one")
        result = self._kept.get(key)
        self.hits += result is not None
        return result

    def _compile(
        self, key: Hashable, builder: Callable[[], Graph], params: Mapping[str, Any] | None
    ) -> CompiledGraph:
        compiled = self._session.compile(builder(), params)
        nbytes = compiled.memory()["peak"]
        with self._lock:
            if self._closed:
                compiled.close()
                self._find(key)
            self.misses += 1
            self._kept.put(key, compiled, nbytes)
        return compiled

    @property
    def evictions(self) -> int:
        """Graphs that were let go of to make room."""
        return self._kept.evictions

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the graphs that are kept: ``cg.memory()["peak"]`` of each, summed."""
        return self._kept.nbytes

    def keys(self) -> list[Hashable]:
        """Returns the cached keys, the least recently used first."""
        return self._kept.keys()

    def clear(self) -> None:
        """Lets go of every graph, without closing it."""
        self._kept.clear()

    def close(self) -> None:
        """Closes every graph that is kept, and the cache. Closing twice does nothing."""
        with self._lock:
            self._closed = True
            gone = self._kept.values()
            self._kept.clear()
        for compiled in gone:
            compiled.close()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept.keys()


class _Gate:
    """The lock of one key, and how many threads are at it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.waiting = 0

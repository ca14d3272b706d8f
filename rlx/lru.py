"""A bounded map that evicts the least recently used entry."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from rlx.errors import InputError
from rlx.locks import Lock

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Keeps at most ``count`` values of together at most ``nbytes`` bytes. Safe to use from threads.

    A value that is forgotten is only let go of: whoever holds it keeps it.

    Args:
        count: Most values.
        nbytes: Most bytes of all; None for no bound. A value above it alone is not kept at all.

    Attributes:
        nbytes: Bytes of what is kept, as ``put`` was told.
        evictions: Values forgotten so far to make room.

    Raises:
        InputError: A bound is below 1.

    Example:
        >>> kept = Lru[str, int](2)
        >>> kept.put("a", 1), kept.put("b", 2), kept.get("a"), kept.put("c", 3)
        ([], [], 1, [2])
        >>> kept.keys()
        ['a', 'c']
    """

    def __init__(self, count: int, nbytes: int | None = None) -> None:
        for name, bound in (("count", count), ("bytes", nbytes)):
            if bound is not None and bound < 1:
                raise InputError(f"a cache's bound ({name})", got=bound, expected=">= 1")
        self._count, self._most = count, math.inf if nbytes is None else nbytes
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        # A signal handler may use the cache while its thread does.
        self._lock = Lock()
        self.nbytes = 0
        self.evictions = 0

    def get(self, key: K) -> V | None:
        """Returns the value and marks it as used; None if it is missing."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: K, value: V, nbytes: int = 0) -> list[V]:
        """Keeps a value, in place of one under the same key.

        Args:
            key: Its key.
            value: The value.
            nbytes: Its size.

        Returns:
            The values that were forgotten to make room.
        """
        gone: list[V] = []
        with self._lock:
            if key in self._kept:
                self.nbytes -= self._kept.pop(key)[1]
            if nbytes > self._most:
                return gone
            self._kept[key] = value, nbytes
            self.nbytes += nbytes
            while len(self._kept) > self._count or self.nbytes > self._most:
                _, (old, size) = self._kept.popitem(last=False)
                self.nbytes -= size
                self.evictions += 1
                gone.append(old)
        return gone

    def keys(self) -> list[K]:
        """Keys, the one used longest ago first."""
        with self._lock:
            return list(self._kept)

    def values(self) -> list[V]:
        """Values, the one used longest ago first."""
        with self._lock:
            return [value for value, _ in self._kept.values()]

    def clear(self) -> None:
        """Lets go of everything; ``evictions`` does not count it."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)


# Caches of what is in the memory of devices. ``rlx.clear_cache`` empties them.
ON_DEVICES: WeakSet[Lru[Any, Any]] = WeakSet()

"""A lock that no signal handler leaves taken, and a bell that wakes threads.

CPython 3.14 runs Python's signal handlers between the entry of a ``with`` and its block, where the entry is compiled. A
handler that raises there, as that of Ctrl-C does, leaves a lock of ``threading`` taken for ever. ``rlx._ext.locks`` has
locks for what is called often or takes long.

``threading.Condition`` is not safe from them either: its exit is Python, and a wait that is cut off may end without the
lock. A thread therefore waits for a ``Bell`` without any lock, and looks again under the lock when it rings.
"""

from __future__ import annotations

import contextlib
import threading
from queue import Empty, SimpleQueue
from typing import Any

# The type of what ``threading.RLock`` makes, whose exit is compiled: no handler runs before it gives the lock back.
_Compiled: Any = type(threading.RLock())
# A thread that waits looks again after so many seconds: a signal handler may have cut off the call that rings.
LOOK_AGAIN = 1.0


class Lock(_Compiled):  # type: ignore[misc]
    """A lock for ``with``: other threads wait; the thread that has it may take it again."""

    def __enter__(self) -> bool:
        # Handlers run after calls of compiled functions, not between the return of this one and the block.
        inside = self._is_owned()
        try:
            self.acquire()
        except BaseException:
            # A thread that has the lock never waits for it, so that the exception came when it was taken once more.
            if inside or self._is_owned():
                self.release()
            raise
        return True


class Bell(SimpleQueue[None]):
    """Wakes a thread that waits for it. A ring without a waiting thread counts for the next wait, once."""

    def ring(self) -> None:
        """Wakes one thread."""
        if self.empty():
            self.put(None)

    def wait(self, timeout: float | None = None) -> None:
        """Waits for a ring, or some seconds."""
        with contextlib.suppress(Empty):
            self.get(timeout=timeout)

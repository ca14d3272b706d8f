"""A lock that no signal handler leaves taken.

CPython 3.14 runs Python's signal handlers between the entry of a ``with`` and its block, where the entry is compiled. A
handler that raises there, as that of Ctrl-C does, leaves a lock of ``threading`` taken for ever. ``rlx._ext.owner`` has
locks for what is called often or takes long.
"""

from __future__ import annotations

import threading
from typing import Any

# The type of what ``threading.RLock`` makes, whose exit is compiled: no handler runs before it gives the lock back.
_Compiled: Any = type(threading.RLock())


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

"""A lock that threads take in turn, and that a thread which holds it is refused."""

from __future__ import annotations

import threading

from rlx.errors import BusyError, describe


class Turns:
    """``with turns:`` waits for other threads. A call from inside the block would wait for ever.

    Such calls come from signal handlers, custom operations and ``__array__``.

    Args:
        what: What messages call the thing that is used in turn.

    Example:
        >>> turns = Turns("this cache")
        >>> with turns:
        ...     pass
    """

    def __init__(self, what: str) -> None:
        self._what, self._lock, self._holder = what, threading.Lock(), 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._holder == me:
            raise BusyError(
                describe(
                    f"{self._what} is already in use, further up in this thread",
                    got="a call from a signal handler, a custom operation or __array__",
                    hint="make the call when the one that is under way has returned",
                )
            )
        self._lock.acquire()
        self._holder = me

    def __exit__(self, *exc: object) -> None:
        self._holder = 0
        self._lock.release()

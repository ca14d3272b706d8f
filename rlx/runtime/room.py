"""Room for calls: threads and coroutines wait until fewer than so many are under way."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from rlx.errors import ClosedError, InputError, describe
from rlx.locks import Lock

if TYPE_CHECKING:
    import asyncio


class Room:
    """Counts calls that wait or run, and makes others wait while there are as many as may be.

    Args:
        what: What errors call the thing that is called.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._changed = threading.Condition(Lock())
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._inside = 0
        self._closed = False

    def enter(self, most: int, calls: int = 1) -> None:
        """Waits until there is room for so many calls among ``most``, and counts them.

        Raises:
            InputError: It is closed, or ``most`` is below 1.
        """
        with self._changed:
            while not self._enters(most, calls):
                self._changed.wait()

    async def enter_async(self, most: int) -> None:
        """``enter`` for asyncio: the event loop goes on meanwhile.

        Raises:
            InputError: It is closed, or ``most`` is below 1.
        """
        import asyncio  # takes a while: only programs that use it pay for it

        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._enters(most):
                    return
                turn: asyncio.Future[None] = loop.create_future()
                self._waiting.append((loop, turn))
            try:
                await turn
            except asyncio.CancelledError:
                with self._changed:
                    if (loop, turn) in self._waiting:
                        self._waiting.remove((loop, turn))
                    else:  # its turn goes to the next one
                        self._wake()
                raise

    def leave(self, calls: int = 1) -> None:
        """So many calls have ended."""
        with self._changed:
            self._inside -= calls
            self._changed.notify(calls)
            for _ in range(calls):
                self._wake()

    def close(self) -> None:
        """Refuses calls that wait, and those that come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._waiting:
                self._wake()

    def closed(self) -> ClosedError:
        """What a call after ``close`` raises."""
        return ClosedError(describe(f"{self._what} is closed", hint="make a new one"))

    def _enters(self, most: int, calls: int = 1) -> bool:
        """Whether there is room for so many calls, which are counted if so. The caller holds the lock."""
        if most < 1:
            raise InputError(describe("option max_pending", got=most, expected=">= 1"))
        if self._closed:
            raise self.closed()
        if self._inside + calls > max(most, calls):
            return False
        self._inside += calls
        return True

    def _wake(self) -> None:
        """Lets the coroutine that has waited longest try again. The caller holds the lock."""
        if self._waiting:
            loop, turn = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_done, turn)
            except RuntimeError:  # its event loop is closed
                self._wake()


def _done(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)

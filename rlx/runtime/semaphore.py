"""A bounded semaphore for calls: threads and coroutines wait until fewer calls than the limit are running."""

from __future__ import annotations

import operator
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from rlx.errors import BusyError, ClosedError, InputError
from rlx.locks import LOOK_AGAIN, Bell, Lock

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


class BoundedSemaphore:
    """Limits concurrent calls: further calls wait.

    A call has its places until its future is done. Places are counted from the futures, which are held weakly, so that
    none is lost wherever a signal handler raises an exception.

    Args:
        what: The name of the called object in errors.
        crew: Identities of the threads that make the calls. They never wait here: each has one place more.
    """

    def __init__(self, what: str, crew: Set[int] = frozenset()) -> None:
        self._what, self._crew, self._process = what, crew, os.getpid()
        self._lock = Lock()
        self._places: set[tuple[weakref.ref[Future[Any]], int]] = set()
        self._swept = time.monotonic()
        self._threads: OrderedDict[Bell, None] = OrderedDict()
        self._waiting: OrderedDict[_Turn, None] = OrderedDict()
        self._closed = False

    def acquire(self, call: Future[Any], limit: int, calls: int = 1) -> None:
        """Acquires places for calls, of at most ``limit`` in all; waits until they are free.

        A future releases its places when it is done.

        Raises:
            InputError: It is closed, or belongs to another process, or ``limit`` is no whole number from 1 on.
            BusyError: No place is free, and only the calling thread could release one.
        """
        bell, places = Bell(), self._for(call, calls)
        try:
            while not self._try_acquire(places, limit, bell):
                bell.wait(LOOK_AGAIN)
        finally:
            self._threads.pop(bell, None)

    async def acquire_async(self, call: Future[Any], limit: int) -> None:
        """``acquire`` for asyncio: the event loop goes on meanwhile.

        Raises:
            InputError: As ``acquire``.
        """
        import asyncio  # takes a while: only programs that use it pay for it

        turn, places = _Turn(asyncio.get_running_loop()), self._for(call, 1)
        try:
            while not self._try_acquire(places, limit, turn):
                await turn.comes()
        except asyncio.CancelledError:
            with self._lock:
                if turn not in self._waiting:  # its turn goes to the next one
                    self._wake()
            raise
        finally:
            self._waiting.pop(turn, None)

    def close(self) -> None:
        """Refuses waiting and later calls."""
        with self._lock:
            self._closed = True
            for bell in self._threads:
                bell.ring()
            for turn in self._waiting:
                turn.ring()

    def closed(self) -> ClosedError:
        """Returns the error that a call after ``close`` raises."""
        return ClosedError(f"{self._what} is closed", hint="make a new one")

    @property
    def forked(self) -> bool:
        """True if this process was forked from the process that owns this object."""
        return os.getpid() != self._process

    @property
    def _inside(self) -> int:
        """Calls that wait or run."""
        return sum(not _ended(place) for place in list(self._places))

    def _for(self, call: Future[Any], calls: int) -> list[tuple[weakref.ref[Future[Any]], int]]:
        """Returns the places of a call, which releases them itself."""
        if self.forked:
            raise InputError(
                f"{self._what} belongs to another process, whose threads were not forked with it",
                hint="make another one in this process",
            )
        stored = weakref.ref(call)
        # A reference keeps its hash when the call is gone. It can't make one then.
        hash(stored)
        places = [(stored, i) for i in range(calls)]
        call.add_done_callback(lambda _: self._release(places))
        return places

    def _release(self, places: list[tuple[weakref.ref[Future[Any]], int]]) -> None:
        with self._lock:
            self._places.difference_update(places)
            for _ in places:
                self._wake()

    def _try_acquire(
        self, places: list[tuple[weakref.ref[Future[Any]], int]], limit: int, waits: Bell | _Turn
    ) -> bool:
        """Takes places if they are free, and returns whether it did; else the caller is woken later."""
        limit = whole(limit)
        inside = threading.get_ident() in self._crew
        limit = max(limit + len(self._crew) if inside else limit, len(places))
        waiting: Any = self._threads if isinstance(waits, Bell) else self._waiting
        with self._lock:
            if self._closed:
                raise self.closed()
            if not self._has_room(len(places), limit):
                if inside:
                    raise BusyError(
                        f"{self._what} is full",
                        got="a call in one of its own threads, which would wait for itself",
                        hint="a callback may make one call; make more of them in another thread",
                    )
                waiting[waits] = None
                return False
            self._places.update(places)
            waiting.pop(waits, None)
            return True

    def _has_room(self, calls: int, limit: int) -> bool:
        """Returns whether so many calls fit. The caller holds the lock."""
        if len(self._places) + calls <= limit:
            return True
        # A signal handler may have cut off calls that were about to leave. It costs as much as there are places.
        if time.monotonic() - self._swept >= LOOK_AGAIN / 2:
            self._places.difference_update([place for place in self._places if _ended(place)])
            self._swept = time.monotonic()
        return len(self._places) + calls <= limit

    def _wake(self) -> None:
        """Lets the thread and the coroutine that have waited longest try again. The caller holds the lock."""
        if self._threads:
            bell = next(iter(self._threads))
            bell.ring()
            self._threads.pop(bell, None)
        while self._waiting and not self._waiting.popitem(last=False)[0].ring():
            pass


class _Turn:
    """A coroutine that waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._comes: asyncio.Future[None] = loop.create_future()

    async def comes(self) -> None:
        """Waits until it is woken; it also looks again now and then."""
        again = self._loop.call_later(LOOK_AGAIN, _done, self._comes)
        try:
            await self._comes
        finally:
            again.cancel()
            self._comes = self._loop.create_future()

    def ring(self) -> bool:
        """Wakes it; False if its event loop has stopped."""
        try:
            self._loop.call_soon_threadsafe(_done, self._comes)
        except RuntimeError:  # the event loop is closed
            return False
        return self._loop.is_running()


def whole(limit: int) -> int:
    """``max_pending`` as a whole number.

    Raises:
        InputError: It is none, or below 1.
    """
    try:
        result = 0 if isinstance(limit, bool) else operator.index(limit)
    except TypeError:
        result = 0
    if result < 1:
        raise InputError("option max_pending", got=repr(limit), expected="a whole number >= 1")
    return result


def check_outside(crew: Set[int], what: str) -> None:
    """Refuses a call that waits for an answer in a thread that gives the answers.

    Raises:
        BusyError: The thread is one of those.
    """
    if threading.get_ident() in crew:
        raise BusyError(
            f"{what} would wait for itself",
            got="a wait in one of its own threads: in a custom operation, or a callback of a future",
            hint="wait in another thread; submit does not wait there",
        )


def _ended(place: tuple[weakref.ref[Future[Any]], int]) -> bool:
    call = place[0]()
    return call is None or call.done()


def _done(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)

"""Calls that wait for their turn in threads of their own: futures, and coroutines for asyncio."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rlx.errors import InputError, describe
from rlx.locks import Lock

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

R = TypeVar("R")

# Calls that may wait or run at a time, if the caller does not say how many.
MOST_PENDING = 64


class Queue(Generic[R]):
    """Makes calls in threads of its own, in the order in which they came.

    Args:
        call: What is called.
        workers: Calls that are made at a time.
        what: What errors call it.
    """

    def __init__(self, call: Callable[..., R], workers: int, what: str) -> None:
        self._call, self._what = call, what
        from concurrent.futures import ThreadPoolExecutor

        self._threads = ThreadPoolExecutor(workers, "rlx-queue")
        self._room = threading.Condition(Lock())
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._pending = 0
        self._closed = False

    def submit(self, *args: Any, max_pending: int = MOST_PENDING) -> Future[R]:
        """Has a call made, and returns at once; while ``max_pending`` calls wait or run, it waits.

        Raises:
            InputError: The queue is closed, or ``max_pending`` is below 1.
        """
        with self._room:
            while not self._enters(max_pending):
                self._room.wait()
        return self._started(args)

    async def run(self, *args: Any, max_pending: int = MOST_PENDING) -> R:
        """Has a call made, and waits without blocking the event loop.

        A task that is cancelled takes its call out of the queue; one that runs already is made to the end, and its
        results are dropped.

        Raises:
            InputError: The queue is closed, or ``max_pending`` is below 1.
        """
        import asyncio  # takes a while: only programs that use it pay for it

        loop = asyncio.get_running_loop()
        while True:
            with self._room:
                if self._enters(max_pending):
                    break
                turn: asyncio.Future[None] = loop.create_future()
                self._waiting.append((loop, turn))
            try:
                await turn
            except asyncio.CancelledError:
                with self._room:
                    if (loop, turn) in self._waiting:
                        self._waiting.remove((loop, turn))
                    else:  # its turn goes to the next one
                        self._wake()
                raise
        return await asyncio.wrap_future(self._started(args))

    def close(self) -> None:
        """Takes what waits out of the queue, and waits for what runs. Closing twice does nothing."""
        with self._room:
            self._closed = True
            self._room.notify_all()
            while self._waiting:
                self._wake()
        self._threads.shutdown(cancel_futures=True)

    def _enters(self, most: int) -> bool:
        """Whether there is room for a call, which is counted if so. The caller holds the lock."""
        if most < 1:
            raise InputError(describe("option max_pending", got=most, expected=">= 1"))
        if self._closed:
            raise InputError(describe(f"{self._what} is closed"))
        if self._pending >= most:
            return False
        self._pending += 1
        return True

    def _started(self, args: tuple[Any, ...]) -> Future[R]:
        try:
            future = self._threads.submit(self._call, *args)
        except RuntimeError:  # it was closed meanwhile
            self._leave(None)
            raise InputError(describe(f"{self._what} is closed")) from None
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _: Future[R] | None) -> None:
        with self._room:
            self._pending -= 1
            self._room.notify()
            self._wake()

    def _wake(self) -> None:
        """Lets the coroutine that has waited longest try again. The caller holds the lock."""
        if self._waiting:
            loop, turn = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(_done, turn)
            except RuntimeError:  # its event loop is closed
                self._wake()


def run_in(background: bool, call: Callable[[], R]) -> Future[R]:
    """A future of a call that is made now, or in a thread of its own. What it raises now is raised.

    Args:
        background: Whether it is made in a thread, which is waited for at the end of the program.
        call: The call.
    """
    from concurrent.futures import Future, ThreadPoolExecutor

    if background:
        threads = ThreadPoolExecutor(1, "rlx-background")
        started = threads.submit(call)
        threads.shutdown(wait=False)  # the thread ends with the call
        return started
    done: Future[R] = Future()
    done.set_result(call())
    return done


def _done(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)

"""Calls that wait for their turn in threads of their own: futures, and coroutines for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rlx.runtime.room import Room

if TYPE_CHECKING:
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
        self._call, self._room = call, Room(what)
        from concurrent.futures import ThreadPoolExecutor

        self._threads = ThreadPoolExecutor(workers, "rlx-queue")

    def submit(self, *args: Any, max_pending: int = MOST_PENDING) -> Future[R]:
        """Has a call made, and returns at once; while ``max_pending`` calls wait or run, it waits.

        Raises:
            InputError: The queue is closed, or ``max_pending`` is below 1.
        """
        self._room.enter(max_pending)
        return self._started(args)

    async def run(self, *args: Any, max_pending: int = MOST_PENDING) -> R:
        """Has a call made, and waits without blocking the event loop.

        A task that is cancelled takes its call out of the queue; one that runs already is made to the end, and its
        results are dropped.

        Raises:
            InputError: The queue is closed, or ``max_pending`` is below 1.
        """
        import asyncio

        await self._room.enter_async(max_pending)
        return await asyncio.wrap_future(self._started(args))

    def close(self) -> None:
        """Takes what waits out of the queue, and waits for what runs. Closing twice does nothing."""
        self._room.close()
        self._threads.shutdown(cancel_futures=True)

    def _started(self, args: tuple[Any, ...]) -> Future[R]:
        try:
            future = self._threads.submit(self._call, *args)
        except RuntimeError:  # it was closed meanwhile
            self._room.leave()
            raise self._room.closed() from None
        future.add_done_callback(lambda _: self._room.leave())
        return future


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

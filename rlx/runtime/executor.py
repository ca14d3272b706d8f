"""Calls that wait for their turn in threads of their own: futures, and coroutines for asyncio."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rlx.dataclasses import dataclass
from rlx.locks import Bell
from rlx.runtime import MAX_PENDING
from rlx.runtime.semaphore import BoundedSemaphore, check_outside
from rlx.runtime.workers import J, Workers

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rlx.runtime.answers import Answer

R = TypeVar("R")


class Queue(Generic[J]):
    """A bounded queue of jobs, each with a future.

    The threads end when this is dropped and no job is left.

    Args:
        workers: The threads that do them.
    """

    def __init__(self, workers: Workers[J]) -> None:
        self._threads, self._room = workers, BoundedSemaphore(workers.what, workers.crew)
        # At the end of the program threads are not waited for.
        weakref.finalize(self, workers.finish).atexit = False

    @property
    def forked(self) -> bool:
        """True if this process was forked from the process that owns the threads."""
        return self._room.forked

    def answer(self) -> Answer[Any]:
        """The future of a new job."""
        from rlx.runtime.answers import Answer

        return Answer(self._threads.crew, self._threads.what)

    def submit(self, job: J, max_pending: int = MAX_PENDING, calls: int = 1) -> Future[Any]:
        """Has a job done, and returns at once; while ``max_pending`` calls wait or run, it waits.

        Args:
            job: The function to call.
            max_pending: See above.
            calls: As how many calls it counts.

        Raises:
            InputError: The queue is closed, or ``max_pending`` is no whole number from 1 on.
            BusyError: The queue is full, and this is one of its threads.
        """
        try:
            self._room.acquire(job.future, max_pending, calls)
            self._threads.add(job)
        except BaseException:
            job.future.cancel()
            raise
        return job.future

    async def run(self, job: J, max_pending: int = MAX_PENDING) -> Any:
        """Runs a job, and waits for it without blocking the event loop.

        Cancelling the task removes a pending job from the queue. A running job is not interrupted; its results are
        dropped.

        Raises:
            InputError: As ``submit``.
            BusyError: This is one of the threads of the queue.
        """
        import asyncio

        self.check_outside()
        try:
            await self._room.acquire_async(job.future, max_pending)
            self._threads.add(job)
            return await asyncio.wrap_future(job.future)
        except BaseException:
            job.future.cancel()
            raise

    def check_outside(self) -> None:
        """Refuses a call that waits for an answer in one of the threads.

        Raises:
            BusyError: This is one of them.
        """
        check_outside(self._threads.crew, self._threads.what)

    def close(self) -> None:
        """Cancels waiting jobs, and waits for running ones. Closing twice does nothing."""
        if not self.forked:
            self._room.close()
            self._threads.close()


@dataclass(eq=False)
class QueuedCall(Generic[R]):
    """A call that waits.

    Attributes:
        future: Gets what it returns.
        call: The function to call.
        args: Its arguments.
    """

    future: Future[R]
    call: Callable[..., R] | None
    args: tuple[Any, ...] = field(default=())

    def drop(self) -> None:
        """Lets go of the inputs."""
        self.call, self.args = None, ()


class _Callers(Workers[QueuedCall[Any]]):
    """Threads that make calls, in the order in which they came."""

    def _do(self, index: int, job: QueuedCall[Any]) -> None:
        if job.future.set_running_or_notify_cancel() and job.call is not None:
            job.future.set_result(job.call(*job.args))


class CallQueue(Queue[QueuedCall[R]], Generic[R]):
    """Makes calls of one function in threads of its own.

    Args:
        workers: Calls that are made at a time.
        what: Its name in errors.
    """

    def __init__(self, workers: int, what: str) -> None:
        super().__init__(_Callers(what, ["rlx-queue"] * workers, [Bell()] * workers))

    def of(self, call: Callable[..., R], *args: Any) -> QueuedCall[R]:
        """A call that ``submit`` and ``run`` take."""
        return QueuedCall(self.answer(), call, args)


def run_in(background: bool, call: Callable[[], R]) -> Future[R]:
    """Returns the future of a call that is made now, or in a thread of its own. What it raises now is raised.

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

"""Threads that take jobs from a queue: each job is answered once, whatever the thread meets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rlx.errors import ClosedError
from rlx.locks import Bell, Lock

if TYPE_CHECKING:
    from concurrent.futures import Future


class Job(Protocol):
    """A task for a thread.

    Attributes:
        future: Gets the answer.
    """

    future: Future[Any]

    def drop(self) -> None:
        """Lets go of the inputs. It is not done any more."""


J = TypeVar("J", bound=Job)


class Waiting(OrderedDict[J, None]):
    """Jobs that wait, in their order."""

    qsize = OrderedDict.__len__


class Workers(Generic[J]):
    """Threads, and the queue that they share. The threads start with the first job.

    Args:
        what: The name of the whole in messages.
        names: Names of the threads.
        bells: The bell of each of them; threads that do the same share one.

    Attributes:
        what: See above.
        crew: Identities of the threads.
    """

    def __init__(self, what: str, names: Sequence[str], bells: Sequence[Bell]) -> None:
        self.what, self._names, self._bells = what, names, bells
        self.crew: set[int] = set()
        self._lock = Lock()
        self._waiting: Waiting[J] = Waiting()
        self._busy: dict[int, J] = {}  # what each thread does now
        self._threads: dict[int, threading.Thread] = {}
        self._closed = self._finishing = False

    @property
    def _work_queue(self) -> Waiting[J]:
        return self._waiting

    def add(self, job: J) -> None:
        """Queues a job behind the waiting ones.

        Raises:
            ClosedError: It is closed.
        """
        # A future that is cancelled takes its job out, and its inputs with it.
        job.future.add_done_callback(lambda _: self._forget(job))
        with self._lock:
            self._check()
            self._waiting[job] = None
        for i, name in enumerate(self._names):
            if i not in self._threads:
                thread = threading.Thread(target=self._work, args=(i,), name=name, daemon=True)
                thread.start()
                self._threads.setdefault(i, thread)
        self._ring()

    def close(self) -> None:
        """Cancels waiting jobs, and lets running ones end. Closing twice does nothing."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
        self._ring()
        for job in waiting:
            self._refused(job)
        if threading.get_ident() in self.crew:
            return  # threads that wait for each other would never end
        for thread in list(self._threads.values()):
            thread.join()
        for i in range(len(self._names)):
            if i not in self._threads:
                self._ended(i)

    def finish(self) -> None:
        """Lets the threads end when no job is left. It takes no lock: the garbage collector may call it anywhere."""
        self._finishing = True
        self._ring()

    def closed(self) -> ClosedError:
        """Returns the error that a call after ``close`` raises."""
        return ClosedError(f"{self.what} is closed", hint="make a new one")

    # --- what the threads do; the caller holds the lock where it says so ------------------------------

    def _work(self, index: int) -> None:
        thread, me = threading.current_thread(), threading.get_ident()
        if self._threads.setdefault(index, thread) is not thread:
            return  # a signal handler cut off the start of another one, and this is the second
        self.crew.add(me)
        failure: BaseException | None = None
        try:
            while (job := self._next(index)) is not None:
                self._try(index, job)
                del job  # a thread that waits keeps no inputs
        except BaseException as error:
            failure = error
            if index in self._busy:
                self._answered(self._busy.pop(index), error)
        try:
            self._ended(index, failure)
        finally:
            self.crew.discard(me)
            self._bells[index].ring()  # for another thread that waits for the same bell

    def _next(self, index: int) -> J | None:
        """The job that a thread does next; None where it is to end."""
        while True:
            with self._lock:
                if self._closed or self._leaves(index):
                    return None
                job = self._chosen(index)
                if job is not None:
                    self._busy[index] = job
                    del self._waiting[job]
                    self._takes(index, job)
                    if self._waiting:  # one ring wakes one of the threads that share a bell
                        self._bells[index].ring()
                    return job
                # Where a job of another thread fails, this one may have to do it.
                if self._finishing and not self._waiting and not self._busy:
                    return None
                patience = self._patience(index)
            self._bells[index].wait(patience)

    def _try(self, index: int, job: J) -> None:
        """Does a job. Whatever escapes is its answer."""
        try:
            self._do(index, job)
        except BaseException as error:
            self._answered(job, error)
        finally:
            with self._lock:
                self._busy.pop(index, None)
                self._idles(index)
            if self._finishing:
                self._ring()

    def _answered(self, job: J, error: BaseException) -> None:
        """Gives a job an error that nothing else took care of."""
        with self._lock:
            again = job in self._waiting
        if again:
            return
        try:
            if not job.future.done():
                job.future.set_exception(error)
                return
        except BaseException as another:
            error = another
        # The job has its answer: the error is that of a callback.
        told = (type(error), error, error.__traceback__, threading.current_thread())
        threading.excepthook(threading.ExceptHookArgs(told))

    def _forget(self, job: J) -> None:
        with self._lock:
            self._waiting.pop(job, None)
        job.drop()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    # --- what kinds of workers differ in --------------------------------------------------------------

    def _check(self) -> None:
        """Refuses a job; the caller holds the lock."""
        if self._closed:
            raise self.closed()

    def _leaves(self, index: int) -> bool:
        """Returns whether a thread has to end before the others; the caller holds the lock."""
        return False

    def _chosen(self, index: int) -> J | None:
        """The waiting job that a thread takes now; the caller holds the lock."""
        return next(iter(self._waiting), None)

    def _patience(self, index: int) -> float | None:
        """Returns how long a thread sleeps before it looks for work again; the caller holds the lock."""
        return None

    def _takes(self, index: int, job: J) -> None:
        """A thread begins a job; the caller holds the lock."""

    def _do(self, index: int, job: J) -> None:
        """Does a job and answers it."""
        raise NotImplementedError

    def _idles(self, index: int) -> None:
        """A thread has no job any more; the caller holds the lock."""

    def _refused(self, job: J) -> None:
        """Answers a job that waits while it is closed."""
        job.future.cancel()

    def _ended(self, index: int, failure: BaseException | None = None) -> None:
        """Notes that a thread has ended, or never began. After an unforeseen end, waiting jobs are not run."""
        if failure is not None:
            with self._lock:
                self._closed = True
                waiting = list(self._waiting)
                self._waiting.clear()
            for job in waiting:
                self._answered(job, failure)

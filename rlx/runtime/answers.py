"""Futures that threads answer: safe to wait for under signal handlers, and never waited for by those threads."""

from __future__ import annotations

import time
from collections.abc import Set
from concurrent.futures import Future
from typing import TypeVar

from rlx.locks import LOOK_AGAIN, Bell, Lock
from rlx.runtime.semaphore import check_outside

R = TypeVar("R")


class _Told(Lock):
    """The condition of a future. Threads wait for the future without this lock."""

    def __init__(self) -> None:
        self.bells: dict[Bell, None] = {}

    def notify_all(self) -> None:
        """Wakes all who wait."""
        for bell in list(self.bells):
            bell.ring()

    def wait(self, timeout: float | None = None) -> bool:
        """Does not wait: ``Answer`` has done so."""
        return False


class Answer(Future[R]):
    """A future that some threads answer.

    A signal handler that raises an exception leaves its lock free: with the lock of a plain ``Future`` taken for ever,
    the thread that has the answer would wait for ever.

    Args:
        crew: Identities of the threads that answer. They must not wait for it.
        what: The name of their owner in errors.
    """

    def __init__(self, crew: Set[int], what: str) -> None:
        super().__init__()
        self._condition = _Told()  # what a future uses of a condition
        self._crew, self._what = crew, what

    def result(self, timeout: float | None = None) -> R:
        """See ``concurrent.futures.Future.result``.

        Raises:
            BusyError: The calling thread runs the answers; it would wait for itself.
        """
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See ``concurrent.futures.Future.exception``.

        Raises:
            BusyError: The calling thread runs the answers; it would wait for itself.
        """
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        check_outside(self._crew, self._what)
        until = None if timeout is None else time.monotonic() + timeout
        bell, told = Bell(), self._condition
        assert isinstance(told, _Told)
        try:
            told.bells[bell] = None
            while not self.done():
                left = LOOK_AGAIN if until is None else min(LOOK_AGAIN, until - time.monotonic())
                if left <= 0:
                    return
                bell.wait(left)
        finally:
            told.bells.pop(bell, None)

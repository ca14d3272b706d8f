"""Progress and cancellation of a compile, under the control of whoever asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlx.dataclasses import dataclass
from rlx.errors import CancelledError, describe
from rlx.ir.spans import checked, checkpoint, watched, watcher


@dataclass(frozen=True)
class Progress:
    """How far a compile is.

    Attributes:
        phase: What is done now, such as "lower" or "pipelines".
        part: The part of the phase that is done, from 0 to 1; None where that is not known.
        seconds: Time since the call began.
    """

    phase: str
    part: float | None
    seconds: float

    def __str__(self) -> str:
        return self.phase if self.part is None else f"{self.phase} {self.part:.0%}"


ProgressCallback = Callable[[Progress], object]


class CancelToken:
    """Ends compiles from another thread.

    The compile looks at it between kernels, nodes and phases, and raises ``rlx.CancelledError``; what it had made is
    freed, and compiling again starts anew. One token may be given to several calls.

    Example:
        >>> import rlx
        >>> token = rlx.CancelToken()
        >>> token.cancel()
        >>> g = rlx.Graph("scale")
        >>> g.set_outputs([g.input("x", (2,)) * 2.0])
        >>> try:
        ...     rlx.compile(g, device="cpu", cancel=token)
        ... except rlx.CancelledError as error:
        ...     print(str(error).splitlines()[0])
        the compile was cancelled
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Ends the compiles that were given this token, and those that will be. Any thread may call it."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._event.is_set()

    def check(self, during: str = "") -> None:
        """Raises if ``cancel`` was called.

        Args:
            during: What is done now, for the message.

        Raises:
            CancelledError: It was.
        """
        if self._event.is_set():
            raise CancelledError(describe("the compile was cancelled", where=during or None))


@contextmanager
def watching(told: ProgressCallback | None, cancel: CancelToken | None) -> Iterator[None]:
    """Tells what is compiled inside it, and ends it where a token says so.

    Args:
        told: Called in the thread that compiles, with a ``Progress``. What it raises ends the compile.
        cancel: The token.

    Raises:
        CancelledError: The token was cancelled.
    """
    if told is None and cancel is None:
        yield
        return
    began, outer, now = time.perf_counter(), watcher(), "begin"

    def watch(what: str, part: float | None) -> None:
        nonlocal now
        now = what
        checkpoint()
        if outer is not None:
            outer(what, part)
        if told is not None:
            told(Progress(what, part, time.perf_counter() - began))

    def check() -> None:
        if cancel is not None:
            cancel.check(now)

    with checked(check), watched(watch):
        watch(now, None)
        yield

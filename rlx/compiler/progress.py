"""Progress and cancellation of a compile, under the control of whoever asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlx.dataclasses import dataclass
from rlx.errors import CancelledError
from rlx.ir.spans import checked, checkpoint, watched, watcher


@dataclass(frozen=True)
class Progress:
    """The progress of a compile.

    Attributes:
        phase: The current phase, such as "lower" or "pipelines".
        part: The part of the phase that is done, from 0 to 1; None where that is not known.
        seconds: Time since the call began.
        done: How much of the whole call is done, from 0 to 1. It never falls, and is an estimate: phases take their
            usual part of the time.
    """

    phase: str
    part: float | None
    seconds: float
    done: float = 0.0

    def __str__(self) -> str:
        return self.phase if self.part is None else f"{self.phase} {self.part:.0%}"


# Where the phases of a compile usually begin and end, as parts of all of it. Others belong to the one before them.
_SPANS = {
    "begin": (0.0, 0.0),
    "read": (0.0, 0.05),
    "nodes": (0.05, 0.3),
    "passes": (0.3, 0.45),
    "schedule": (0.45, 0.5),
    "load": (0.5, 0.55),
    "render": (0.55, 0.6),
    "pipelines": (0.6, 0.95),
    "params": (0.95, 1.0),
    "done": (1.0, 1.0),
}
# The phase that ends each step of a call that compiles several times.
STEP = "shapes"


class Whole:
    """Progress of a whole call, from the phases that it reports. It never falls.

    Args:
        steps: Compiles, or stages of a command, each of which takes as much of the whole.
    """

    def __init__(self, steps: int = 1) -> None:
        self._steps = max(steps, 1)
        self._step, self._span, self._done = 0, (0.0, 1.0), 0.0

    def step(self, index: int) -> None:
        """A step begins.

        Args:
            index: Its number, from 0.
        """
        self._step, self._span = index, (0.0, 1.0)

    def tell(self, phase: str, part: float | None) -> float:
        """A phase begins, or goes on; gives the part of the whole that is done.

        Args:
            phase: Its name.
            part: The part of it that is done.
        """
        if phase == STEP and part is not None:
            self.step(round(part * self._steps))
            phase, part = "", 0.0
        self._span = _SPANS.get(phase, self._span)
        low, high = self._span
        result = (self._step + low + (part or 0.0) * (high - low)) / self._steps
        self._done = max(self._done, min(result, 1.0))
        return self._done


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
        """True if ``cancel`` was called."""
        return self._event.is_set()

    def check(self, during: str = "") -> None:
        """Raises if ``cancel`` was called.

        Args:
            during: The current step, for the message.

        Raises:
            CancelledError: It was.
        """
        if self._event.is_set():
            raise CancelledError("the compile was cancelled", where=during or None)


@contextmanager
def watching(
    told: ProgressCallback | None, cancel: CancelToken | None, steps: int = 1
) -> Iterator[None]:
    """Reports compiles inside the ``with``, and ends them when a token is cancelled.

    Args:
        told: A function called with a ``Progress`` in the thread that compiles. Its exceptions end the compile.
        cancel: The token.
        steps: Compiles inside it, each of which ends in the phase ``STEP``.

    Raises:
        CancelledError: The token was cancelled.
    """
    if told is None and cancel is None:
        yield
        return
    began, outer, now, whole = time.perf_counter(), watcher(), "begin", Whole(steps)

    def watch(what: str, part: float | None) -> None:
        nonlocal now
        now = what
        checkpoint()
        if outer is not None:
            outer(what, part)
        if told is not None:
            done = whole.tell(what, part)
            told(Progress(what, part, time.perf_counter() - began, done))

    def check() -> None:
        if cancel is not None:
            cancel.check(now)

    with checked(check), watched(watch):
        watch(now, None)
        yield

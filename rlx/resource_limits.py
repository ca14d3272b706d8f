"""Limits on the work of loading, building and compiling: counted before it is done, and before memory is taken.

A file of a hundred bytes can ask for tables of gigabytes or a million nodes. The work of a run is not counted: it
follows from the sizes of the graph's tensors, which are visible.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeVar

from rlx import flags
from rlx.dataclasses import dataclass
from rlx.errors import InputError, LimitError
from rlx.locks import Lock

T = TypeVar("T")


@contextmanager
def during(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Gives a context variable a value for what is done inside the ``with``."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@dataclass(frozen=True)
class Limits:
    """The most that one call may do; see ``rlx.limits``."""

    elements: float
    nodes: float
    seconds: float


class Budget:
    """The rest of the limits during one call.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._elements = self._nodes = 0.0
        self._end = time.monotonic() + limits.seconds

    def charge(self, what: str, elements: float = 0, nodes: int = 0) -> None:
        """Counts work that is about to be done.

        Args:
            what: Its name in the message.
            elements: Numbers that are computed.
            nodes: Nodes or kernel calls that are made.

        Raises:
            LimitError: That is more than is left.
        """
        self._elements += elements
        self._nodes += nodes
        limits = self._limits
        if self._elements > limits.elements:
            raise _refused(what, "elements", self._elements, limits.elements)
        if self._nodes > limits.nodes:
            raise _refused(what, "nodes", self._nodes, limits.nodes)
        if time.monotonic() > self._end:
            raise _refused(what, "seconds", limits.seconds, limits.seconds)

    def try_charge(self, elements: float) -> bool:
        """Counts so many more numbers if the limits allow them, and returns whether they do."""
        if self._elements + elements > self._limits.elements or time.monotonic() > self._end:
            return False
        self._elements += elements
        return True


def _refused(what: str, unit: str, got: float, limit: float) -> LimitError:
    return LimitError(
        f"{what} is more work than the limits allow",
        got=f"more than {limit:g} {unit}" if got <= limit else f"{got:g} {unit}",
        expected=f"at most {limit:g} {unit}",
        hint=f"if you trust the file, raise the limit: rlx.limits({unit}=...), "
        f"or RLX_MOST_{unit.upper()}",
    )


_limits: ContextVar[Limits | None] = ContextVar("rlx_limits", default=None)
_open: ContextVar[Budget | None] = ContextVar("rlx_budget", default=None)


def limits_now() -> Limits:
    """The limits in force: those of ``rlx.limits`` around the call, else the environment's."""
    result = _limits.get()
    if result is not None:
        return result
    return Limits(flags.MAX_ELEMENTS.get(), flags.MAX_NODES.get(), float(flags.MAX_SECONDS.get()))


@contextmanager
def limits(
    elements: float | None = None, nodes: float | None = None, seconds: float | None = None
) -> Iterator[None]:
    """Sets how much work loading, building and compiling may be, for the calls inside it.

    It holds for each call by itself: ``rlx.onnx.load``, a builder of ``Graph``, ``rlx.compile``. What a
    graph computes when it runs is not counted.

    Args:
        elements: Numbers that are computed on the way: tables, indices, folded constants; by default
            ``RLX_MOST_ELEMENTS``, 2^26. ``math.inf`` is no limit.
        nodes: Nodes that are imported, loops written out, and kernel calls; ``RLX_MOST_NODES``.
        seconds: ``RLX_MOST_SECONDS``; looked at between nodes.

    Raises:
        InputError: A limit is not above 0.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> with rlx.limits(elements=1000):
        ...     try:
        ...         g.arange(10**9)
        ...     except rlx.LimitError as error:
        ...         print(str(error).splitlines()[0])
        [arange] is more work than the limits allow
    """
    inputs = {"elements": elements, "nodes": nodes, "seconds": seconds}
    chosen = {name: value for name, value in inputs.items() if value is not None}
    for name, value in chosen.items():
        if not isinstance(value, int | float) or not value > 0:
            raise InputError(f"[limits] {name}", got=repr(value), expected="above 0")
    with during(_limits, replace(limits_now(), **chosen)):
        yield


_lock, _pauses = Lock(), set[int]()
_resumes = False


class _Pause:
    """Keeps Python from looking for garbage in cycles while one exists: a search goes through all objects of a graph.

    It ends when it is dropped, too: Ctrl-C may cut off ``end``.
    """

    def __init__(self) -> None:
        global _resumes
        with _lock:
            _resumes = gc.isenabled() or bool(_pauses and _resumes)
            _pauses.add(id(self))
            gc.disable()

    def end(self) -> None:
        """Lets Python search again unless another one lasts."""
        with _lock:
            if _resumes and _pauses == {id(self)}:
                gc.enable()
            _pauses.discard(id(self))

    __del__ = end


def _in_child() -> None:
    """Ends the pauses of threads that a forked process has not. One of them may have held the lock."""
    global _lock
    if _pauses and _resumes:
        gc.enable()
    _pauses.clear()
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


@contextmanager
def budget() -> Iterator[Budget]:
    """The budget of the call that is under way; a new one where none is."""
    result = _open.get()
    if result is not None:
        yield result
        return
    output, pause = Budget(limits_now()), _Pause()
    try:
        with during(_open, output):
            yield output
    finally:
        pause.end()


def charge(what: str, elements: float = 0, nodes: int = 0) -> None:
    """Counts work in the budget of the call that is under way, or of this step alone.

    Raises:
        LimitError: It is more than is left; see ``Budget.charge``.
    """
    (_open.get() or Budget(limits_now())).charge(what, elements, nodes)


def try_charge(elements: float) -> bool:
    """Counts so many more numbers if the running call's limits allow them, and returns whether they do."""
    return (_open.get() or Budget(limits_now())).try_charge(elements)

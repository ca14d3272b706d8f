"""Spans of time, and the phases of a compile as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from time import perf_counter_ns
from typing import Any

from rlx.dataclasses import dataclass
from rlx.resource_limits import during

PHASE, CALL, KERNEL, PART = "phase", "call", "kernel", "host part"


@dataclass(frozen=True)
class Span:
    """Something that took time.

    Attributes:
        name: Its name.
        start: When it began, on the clock of ``time.perf_counter_ns``.
        end: When it was over, on the same clock.
        kind: "phase" of a compile, "call" or what a call is made of, "kernel", or "host part" of a
            graph that runs on a GPU. Spans of one kind lie in or behind each other.
        args: More about it, fit for JSON.
    """

    name: str
    start: int
    end: int
    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)


_open: ContextVar[list[Span] | None] = ContextVar("rlx_phases", default=None)


# Called with the name of a phase and, where known, the part of it that is done, from 0 to 1.
Watcher = Callable[[str, float | None], None]
_watcher: ContextVar[Watcher | None] = ContextVar("rlx_watcher", default=None)


def watched(watcher: Watcher | None) -> AbstractContextManager[None]:
    """Tells what is done inside it: each phase as it begins, and how far long ones are."""
    return during(_watcher, watcher)


def watcher() -> Watcher | None:
    """Returns the watcher of this context."""
    return _watcher.get()


def progress(part: float, what: str) -> None:
    """Reports progress to the watcher; it costs next to nothing without one.

    Args:
        part: From 0 to 1.
        what: The current step.
    """
    told = _watcher.get()
    if told is not None:
        told(what, part)


# Called between steps of long work; it raises to end the work.
_check: ContextVar[Callable[[], None] | None] = ContextVar("rlx_check", default=None)


def checked(check: Callable[[], None] | None) -> AbstractContextManager[None]:
    """Has ``check`` called between the steps of what is done inside it.

    Args:
        check: A function whose exceptions end the work; None for no call.
    """
    return during(_check, check)


def checkpoint() -> None:
    """Ends long work between two steps: raises if it was cancelled. It costs next to nothing."""
    check = _check.get()
    if check is not None:
        check()


@contextmanager
def phases() -> Iterator[list[Span]]:
    """Collects the phases inside it, the inner ones before those around them. Who collects around it has them too."""
    results: list[Span] = []
    outer = _open.get()
    try:
        with during(_open, results):
            yield results
    finally:
        if outer is not None:
            outer += results


@contextmanager
def phase(name: str, **args: Any) -> Iterator[None]:
    """One phase of a compile; it costs next to nothing where nobody collects them.

    Args:
        name: The name of the step.
        **args: More about it.
    """
    result, told = _open.get(), _watcher.get()
    if told is not None:
        told(name, None)
    if result is None:
        yield
        return
    start = perf_counter_ns()
    try:
        yield
    finally:
        result.append(Span(name, start, perf_counter_ns(), PHASE, args))

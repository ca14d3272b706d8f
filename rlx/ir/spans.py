"""Spans of time, and the phases of a compile as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

PHASE, CALL, KERNEL, PART = "phase", "call", "kernel", "host part"


@dataclass(frozen=True)
class Span:
    """Something that took time.

    Attributes:
        name: What it was.
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


_watcher: ContextVar[Callable[[str], None] | None] = ContextVar("rlx_watcher", default=None)


@contextmanager
def watched(watcher: Callable[[str], None]) -> Iterator[None]:
    """Tells what is done inside it, as it begins.

    Args:
        watcher: Called with the name of each phase.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def phases() -> Iterator[list[Span]]:
    """Collects the phases inside it, the inner ones before those around them."""
    found: list[Span] = []
    token = _open.set(found)
    try:
        yield found
    finally:
        _open.reset(token)


@contextmanager
def phase(name: str, **args: Any) -> Iterator[None]:
    """One phase of a compile; it costs next to nothing where nobody collects them.

    Args:
        name: What is done.
        **args: More about it.
    """
    found, watcher = _open.get(), _watcher.get()
    if watcher is not None:
        watcher(name)
    if found is None:
        yield
        return
    start = perf_counter_ns()
    try:
        yield
    finally:
        found.append(Span(name, start, perf_counter_ns(), PHASE, args))

"""Counts the trips that the loops of a run may still make, as a value of the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_LEFT: ContextVar[list[Any] | None] = ContextVar("trips", default=None)


@contextmanager
def bounded(limit: Any) -> Iterator[list[Any]]:
    """Counts trips inside; the list holds what is left, which is below 0 after one too many."""
    cell = [limit]
    token = _LEFT.set(cell)
    try:
        yield cell
    finally:
        _LEFT.reset(token)


def trips_left(new: Any = None) -> Any:
    """Returns the trips that are left, or None where nothing is counted; sets a new number first if given."""
    cell = _LEFT.get()
    if cell is None:
        return None
    if new is not None:
        cell[0] = new
    return cell[0]


def count_trip(left: Any) -> Any:
    """Returns the trips that are left after one more trip."""
    return None if left is None else left - 1


def counted(body: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A body of XLA's control flow that takes and gives what is left, which loops inside of it change."""

    def run(left: Any, arrays: Any) -> Any:
        if left is None:
            return None, body(arrays)
        with bounded(left) as cell:
            result = body(arrays)
        return cell[0], result

    return run

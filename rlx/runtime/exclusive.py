"""One call at a time: methods that hold the lock of their graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from rlx.runtime.state import RuntimeState

P = ParamSpec("P")
R = TypeVar("R")


class HasState(Protocol):
    """A ``CompiledGraph``, as the groups of its methods know it."""

    _state: RuntimeState


S = TypeVar("S", bound=HasState)


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Makes a method hold the lock during the whole call, including the conversion of arguments.

    It raises ``BusyError`` where another call is under way, in another thread or further up in this one, and
    ``ClosedError`` where the graph is closed. Methods that hold the lock don't call each other.
    """

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._state.lock.call(method, self, *args, **kwargs)

    return call

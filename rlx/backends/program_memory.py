"""Params and states that several programs of one graph have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from rlx.dataclasses import dataclass

if TYPE_CHECKING:
    from rlx._ext.locks import ReadWriteLock
    from rlx.ir.plan import Value


@dataclass(frozen=True, eq=False)
class ParamSharing:
    """The params of a program that other programs of the same graph may have, too.

    Attributes:
        gate: Keeps changes of params out of runs of several submissions, for all these programs.
        keys: By the name of a param the text that says its value: programs whose params have equal texts share them.
    """

    gate: ReadWriteLock
    keys: Mapping[str, str]


M = TypeVar("M")
# The memory of states, by the names of the inputs and their bytes.
StateMemory = dict[tuple[str, int], Any]
_states: ContextVar[StateMemory | None] = ContextVar("rlx_states", default=None)


@contextmanager
def with_state_memory(memory: StateMemory) -> Iterator[None]:
    """Has programs that are loaded meanwhile keep states in this memory, and add to it those that it lacks."""
    token = _states.set(memory)
    try:
        yield
    finally:
        _states.reset(token)


def state_memory(value: Value, made: Callable[[Value], M]) -> M:
    """Returns the memory of a state, which other programs of the graph may have, too.

    Args:
        value: The state.
        made: Makes its memory, zeroed.
    """
    memory, key = _states.get(), (value.name, value.type.nbytes)
    if memory is None:
        return made(value)
    if key not in memory:
        memory[key] = made(value)
    found: M = memory[key]
    return found


_sharing: ContextVar[ParamSharing | None] = ContextVar("rlx_param_sharing", default=None)


def sharing_now() -> ParamSharing | None:
    """Returns the params that the program that is loaded now shares; None where it has its own alone."""
    return _sharing.get()


@contextmanager
def sharing(params: ParamSharing) -> Iterator[None]:
    """Has programs that are loaded meanwhile share params."""
    token = _sharing.set(params)
    try:
        yield
    finally:
        _sharing.reset(token)

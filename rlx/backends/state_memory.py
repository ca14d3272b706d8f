"""The memory of states, which several programs of one graph have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rlx.ir.plan import Value

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

"""The memory of states, which several programs of one graph have in common."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rlx.resource_limits import during

if TYPE_CHECKING:
    from rlx.ir.opdef import Array
    from rlx.ir.plan import Value

M = TypeVar("M")
# The memory of states, by the names of the inputs and their bytes.
StateMemory = dict[tuple[str, int], Any]
# Bytes that are compared at a time.
_PART = 1 << 16
_states: ContextVar[StateMemory | None] = ContextVar("rlx_states", default=None)


def with_state_memory(memory: StateMemory) -> AbstractContextManager[None]:
    """Has programs that are loaded meanwhile keep states in this memory, and add to it those that it lacks."""
    return during(_states, memory)


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


def write_state(memory: Array, array: Array) -> None:
    """Writes a value to the memory of a state, but for parts that hold it already: pages of zeros take no memory.

    Args:
        memory: A contiguous array.
        array: The value, of the same shape.
    """
    if not memory.size:
        return
    value = np.ascontiguousarray(array, memory.dtype)
    new, now = (each.reshape(-1).view(np.uint8) for each in (value, memory))
    for begin in range(0, len(now), _PART):
        part = slice(begin, begin + _PART)
        if not np.array_equal(now[part], new[part]):
            now[part] = new[part]

"""Schedule -> the calls between which each value needs memory."""

from __future__ import annotations

from collections.abc import Iterator

from rlx.dataclasses import dataclass
from rlx.ir.plan import ARENA, KernelCall, Schedule, Value


@dataclass
class Life:
    """The time in which a value needs its memory.

    Attributes:
        first: Position of the first call that uses it.
        last: Position of the last one; one past all calls for what is kept after the run.
    """

    first: int
    last: int


def lifetimes(schedule: Schedule) -> dict[int, Life]:
    """The life of every value of the arena, by the value's id."""
    lives: dict[int, Life] = {}
    for i, call in enumerate(schedule.calls):
        for value in in_arena(call):
            lives.setdefault(value.id, Life(i, i)).last = i
    for begin, finish in schedule.loops:
        for call in schedule.calls[begin : finish + 1]:
            for value in in_arena(call):
                _extend_over(begin, finish, lives[value.id])
    end = len(schedule.calls)
    for value in schedule.values:
        if value.kind == "input":
            lives[value.id] = Life(0, end)
        elif value.kind == "output":
            # No call writes an empty output.
            lives.setdefault(value.id, Life(0, end)).last = end
    return lives


def in_arena(call: KernelCall) -> Iterator[Value]:
    """Returns the values of a call in the arena: its operands, then its results."""
    for value in (*call.inputs, *call.outputs):
        if value is not None and value.kind in ARENA:
            yield value


def _extend_over(begin: int, finish: int, life: Life) -> None:
    """Keeps a value that enters or leaves a loop for the whole loop: every trip uses it."""
    if life.first < begin <= life.last <= finish:
        life.last = finish
    elif begin <= life.first <= finish < life.last:
        # Trips may fill it part by part, so none of it is free before the loop.
        life.first = begin

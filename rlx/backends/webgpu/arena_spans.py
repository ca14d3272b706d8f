"""Ranges of the arena in one transfer, whose lengths may depend on sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Ranges that are closer are merged into one transfer, in bytes.
_NEAR = 4096


def words(nbytes: int) -> int:
    """Returns bytes in whole 32-bit words, the unit of every copy."""
    return -(-nbytes // 4) * 4


class ArenaSpan(NamedTuple):
    """Range of the arena in one transfer.

    Attributes:
        offset: Its first byte.
        size: Its bytes, whole words.
        most: The same for the largest sizes.
        fixed: Bytes in front, which do not depend on sizes.
        register: The register of the other bytes; -1 where there are none.
    """

    offset: int
    size: int
    most: int
    fixed: int = 0
    register: int = -1


def spans(slots: Sequence[ArenaSpan], chosen: Sequence[int]) -> list[ArenaSpan]:
    """Joins the chosen slots to few ranges.

    Args:
        slots: Place of every slot.
        chosen: Positions in ``slots``.

    Returns:
        Ranges of whole words. Neighbours are joined over the padding between them, but never over a slot that was not
        chosen, nor behind one whose end depends on sizes.
    """
    wanted = {slots[i] for i in chosen}
    joined: list[ArenaSpan] = []
    whole = False
    for slot in sorted(set(slots)):
        offset, size, most, _, register = slot
        if slot not in wanted:
            whole = False
        elif most:
            start, before = joined[-1][:2] if whole else (offset, 0)
            if whole and offset - start - before <= _NEAR:
                joined.pop()
            else:
                start = offset
            fixed = offset - start
            joined.append(
                ArenaSpan(start, fixed + words(size), fixed + words(most), fixed, register)
            )
            whole = register < 0
    return joined


def lengths_of(table: int, found: Sequence[ArenaSpan]) -> list[tuple[int, int, int, int]]:
    """The lengths of transfers that depend on sizes."""
    return [
        (table, row, span.fixed, span.register)
        for row, span in enumerate(found)
        if span.register >= 0
    ]

"""The commands of ``rlx regress`` that read record files, and their shared parts."""

from __future__ import annotations

import math

from rlx.errors import InputError


def part(text: str) -> float:
    """A part of a whole: "5%" or "0.05".

    Raises:
        InputError: It is neither.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not 0 <= value < 10:
        raise InputError("not a fraction", got=text, expected="such as 5% or 0.05")
    return value

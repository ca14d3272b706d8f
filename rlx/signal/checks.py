"""Checks of settings that several functions share."""

from __future__ import annotations

import math
from typing import Any

from rlx.errors import InputError, did_you_mean


def positive(where: str, name: str, value: Any) -> None:
    """Refuses a setting that is no finite number above 0.

    Raises:
        InputError: It is not that.
    """
    try:
        good = not isinstance(value, complex) and math.isfinite(value) and value > 0
    except TypeError:
        good = False
    if not good:
        raise InputError(f"[{where}] {name}", got=repr(value), expected="a finite number above 0")


def integer(where: str, name: str, value: Any, least: int = 1) -> int:
    """A setting that has to be an integer of at least ``least``; 2.0 counts as 2.

    Raises:
        InputError: It is not that.
    """
    try:
        result = None if isinstance(value, (bool, str)) else int(value)
    except (TypeError, ValueError, OverflowError):
        result = None
    if result is None or result != value or result < least:
        raise InputError(
            f"[{where}] {name}", got=repr(value), expected=f"an integer, at least {least}"
        )
    return result


def one_of(where: str, name: str, value: Any, allowed: tuple[object, ...]) -> Any:
    """The value, which has to be one of those allowed.

    Raises:
        InputError: It is not that.
    """
    # 0 equals False and is not meant.
    if not any(
        value is choice or (isinstance(value, str) and value == choice) for choice in allowed
    ):
        raise InputError(
            f"[{where}] {name}",
            got=repr(value),
            expected=", ".join(map(repr, allowed)),
            hint=did_you_mean(str(value), [str(choice) for choice in allowed]),
        )
    return value

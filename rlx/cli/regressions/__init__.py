"""The commands of ``rlx regress`` that read record files, and what they share."""

from __future__ import annotations

import math
from importlib.util import find_spec

from rlx.errors import InputError, describe

# What the extra rlx[regress] installs.
_NEEDED = ("msgspec", "psutil", "scipy", "ruptures")


def require() -> None:
    """Checks that the extra is installed, which the modules of ``rlx.regress`` import.

    Raises:
        InputError: A part of it is missing.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        what = f"rlx regress needs {', '.join(missing)}"
        raise InputError(describe(what, hint="pip install rlx[regress]"))


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
        raise InputError(describe("no part of a whole", got=text, expected="such as 5% or 0.05"))
    return value


def plain(value: object) -> str:
    """A text from a file for the console: control characters, which could drive a terminal, as escapes."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )

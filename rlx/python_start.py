"""How rlx starts Python: so that nothing in the folder that the user is in is imported."""

from __future__ import annotations

import sys


def python(*arguments: str, executable: str = "") -> list[str]:
    """The command that starts Python. No other place of rlx starts it.

    ``python -m`` looks for modules in the current folder first, and a ``numpy.py`` there would run. ``-P`` leaves that
    folder out.

    Args:
        *arguments: What follows the interpreter: ``"-m", "rlx.cli.contestant"``.
        executable: The interpreter of another environment; "" for the one that runs this.
    """
    return [executable or sys.executable, "-P", *arguments]

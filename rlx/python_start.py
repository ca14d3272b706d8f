"""Starts Python so that nothing in the current folder is imported."""

from __future__ import annotations

import sys


def python(*arguments: str, executable: str = "") -> list[str]:
    """Returns the command that starts Python. All of rlx starts Python by it.

    ``python -m`` looks for modules in the current folder first, and a ``numpy.py`` there would run. ``-P`` leaves that
    folder out.

    Args:
        *arguments: The arguments after the interpreter: ``"-m", "rlx.cli.contestant"``.
        executable: The interpreter of another environment; "" for the running interpreter.
    """
    return [executable or sys.executable, "-P", *arguments]

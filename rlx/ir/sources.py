"""The line of the user's code that a node is made by."""

from __future__ import annotations

import functools
import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def caller() -> str:
    """``file:line`` of the first frame outside this package; "" where there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _file(frame.f_code.co_filename):
        frame = frame.f_back
    name = _file(frame.f_code.co_filename)
    return f"{name}:{frame.f_lineno}" if name else ""


@functools.lru_cache(4096)
def _file(path: str) -> str:
    """The name of a source file; "" for those of this package."""
    return "" if path.startswith(_PACKAGE) else os.path.basename(path)

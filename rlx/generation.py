"""The generation of devices and figures: a number that changes when something is found or measured anew."""

from __future__ import annotations

import itertools
import os

_numbers = itertools.count()
_current = next(_numbers)


def generation() -> tuple[int, int]:
    """Returns the generation. Results that were derived from devices and figures of another one are stale."""
    return os.getpid(), _current


def renew() -> None:
    """Begins a new generation: backends, adapters, calibrations or tuned variants have changed."""
    global _current
    _current = next(_numbers)

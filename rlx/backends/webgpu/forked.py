"""WebGPU after ``os.fork``: a driver's threads and locks don't come along, so the child must not use it.

A child that calls the driver of its parent hangs for good. It gets a typed error instead, and frees nothing.
Where the parent had not used WebGPU yet, the child may.
"""

from __future__ import annotations

import os
from typing import ClassVar

from rlx.errors import DeviceUnavailableError

ABSENT = (
    "this process was forked from one that used WebGPU, whose driver does not survive that; "
    'start it with multiprocessing.get_context("spawn"), or fork before WebGPU is used'
)


class _State:
    """The libraries that were used in this process, and whether one was used in the parent before a fork."""

    used: ClassVar[set[str]] = set()
    dead = False


def mark_used(library: str) -> None:
    """Notes that WebGPU is used in this process.

    Args:
        library: The name of its ``Provider``.
    """
    _State.used.add(library)


def dead() -> bool:
    """Returns whether WebGPU is unusable because the parent process used it before the fork."""
    return _State.dead


def check() -> None:
    """Refuses the use of WebGPU in such a process.

    Raises:
        DeviceUnavailableError: It is one.
    """
    if _State.dead:
        raise DeviceUnavailableError(
            "WebGPU can't be used in a forked process", got=f"pid {os.getpid()}", hint=ABSENT
        )


def _in_child() -> None:
    if not _State.used or _State.dead:
        return
    _State.dead = True
    from rlx._ext import webgpu_hot

    webgpu_hot.stop_all()
    from rlx.backends.webgpu.provider import provider

    # The objects belong to the parent process. Freeing them would take driver locks that nobody can release.
    for name in _State.used:
        provider(name).keep_objects()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

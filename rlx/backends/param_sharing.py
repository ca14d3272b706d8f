"""Params that several programs of one graph have in common, so that a device holds them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from rlx._ext.locks import ReadWriteLock
from rlx.dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class ParamSharing:
    """The params of a program that other programs of the same graph may have, too.

    Attributes:
        gate: Keeps changes of params out of runs of several submissions, for all these programs.
        keys: By the name of a param the text that says its value: programs whose params have equal texts share them.
    """

    gate: ReadWriteLock
    keys: Mapping[str, str]


_sharing: ContextVar[ParamSharing | None] = ContextVar("rlx_param_sharing", default=None)


def sharing_now() -> ParamSharing | None:
    """Returns the params that the program that is loaded now shares; None where it has its own alone."""
    return _sharing.get()


@contextmanager
def sharing(params: ParamSharing) -> Iterator[None]:
    """Has programs that are loaded meanwhile share params."""
    token = _sharing.set(params)
    try:
        yield
    finally:
        _sharing.reset(token)

"""The adapters of each library, asked for once: the slowest part of a program's start on a GPU."""

from __future__ import annotations

from typing import Any

from rlx.backends.webgpu.provider import Provider, mark_used
from rlx.locks import Lock

_lock = Lock()
_found: dict[str, tuple[Any, ...]] = {}


def listed(library: Provider) -> tuple[Any, ...]:
    """The adapters as a library lists them; none where it fails in any way. Threads that ask meanwhile wait."""
    with _lock:
        if library.name not in _found:
            _found[library.name] = _asked(library)
        return _found[library.name]


def forget() -> None:
    """Asks anew the next time."""
    with _lock:
        _found.clear()


def _asked(library: Provider) -> tuple[Any, ...]:
    mark_used(library.name)
    try:
        return library.listed()
    except Exception:  # A missing or broken driver means no device, whatever form that takes.
        return ()

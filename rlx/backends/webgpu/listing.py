"""wgpu's list of adapters, asked for once: the slowest part of a program's start on a GPU."""

from __future__ import annotations

import threading
from typing import Any

from rlx.backends.webgpu import forked
from rlx.backends.webgpu.ctypes_known import parse_together
from rlx.ir.spans import phase

_lock = threading.Lock()
_found: list[tuple[Any, ...]] = []


def listed() -> tuple[Any, ...]:
    """The adapters as wgpu lists them; none where it fails in any way. Threads that ask meanwhile wait."""
    with _lock:
        if not _found:
            _found.append(_asked())
        return _found[0]


def forget() -> None:
    """Asks anew the next time."""
    with _lock:
        _found.clear()


def _asked() -> tuple[Any, ...]:
    forked.mark_used()
    try:
        with phase("wgpu"):
            # Imported here: without cffi there is no wgpu.
            from rlx.backends.webgpu.c_types import import_native

            parse_together(import_native().ffi)
            import wgpu
        with phase("adapters"):
            return tuple(wgpu.gpu.enumerate_adapters_sync())
    except Exception:  # A missing or broken driver means no device, whatever form that takes.
        return ()

"""Diagnoses an installation that can't use a GPU of this machine: shaders, wgpu, or wgpu's library are missing.

A program frozen without a part of rlx, or a package removed by hand, causes this.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rlx.backends.webgpu.wgsl import can_render, shader_place
from rlx.errors import CompileError, first_line

# Files that the drivers of a GPU make on Linux: graphics cards, NVIDIA's, and those of Windows below WSL.
_HARDWARE = ("dri/renderD*", "nvidia[0-9]*", "dxg")
_FOLDER = Path("/dev")
_HINT = "install rlx again; a frozen program needs what docs/guides/freezing.md lists"


def missing_part() -> str | None:
    """Names the missing part of rlx or of wgpu, and what to do; None where this installation is complete."""
    return missing_kernels() or _without_wgpu()


@functools.cache
def missing_kernels() -> str | None:
    """Names the missing kernels, and what to do; None where none is missing."""
    try:
        shader_place()
    except CompileError:
        return f"the WGSL shaders are missing; {_HINT}"
    if not can_render():
        return f"the compiled templates of kernels (rlx._templates) are missing; {_HINT}"
    return None


def _native() -> None:
    # Imported here: without cffi there is no wgpu.
    from rlx.backends.webgpu.c_types import import_native

    import_native()


def first_failure(loads: Sequence[tuple[Callable[[], object], str]], hint: str) -> str | None:
    """Names the first of some loads that fails, why, and what to do; None where all succeed."""
    for load, what in loads:
        try:
            load()
        except Exception as error:  # whatever form it takes: OSError and RuntimeError are usual
            return f"{what} ({first_line(error)}); {hint}"
    return None


@functools.cache
def _without_wgpu() -> str | None:
    wgpu = partial(importlib.import_module, "wgpu"), "the package wgpu can't be imported"
    native = _native, "the library of the package wgpu can't be loaded"
    return first_failure((wgpu, native), _HINT)


def is_loadable() -> bool:
    """Returns whether wgpu and its library are installed."""
    return _without_wgpu() is None


def has_hardware() -> bool:
    """Returns whether this machine seems to have a GPU, without asking wgpu.

    On Linux drivers make files for each one. Other systems draw their windows with one.
    """
    if not sys.platform.startswith("linux"):
        return True
    return any(next(_FOLDER.glob(pattern), None) is not None for pattern in _HARDWARE)


def forget() -> None:
    """Looks anew at the next question."""
    missing_kernels.cache_clear()
    _without_wgpu.cache_clear()

"""JAX as rlx uses it: imported when a device is asked for, with its memory and its settings left to the program."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rlx.plugin import engine_folder

# JAX would reserve most of a GPU's memory at once: rlx shares the GPU with other programs, and with its own devices.
_SETTINGS = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@functools.cache
def jax() -> Any:
    """The module, set up.

    Settings of the environment stay as the program has them, and so does the global flag for 64 bits. The folder of
    compiled programs is set where the program has set none: it lies in the cache folder of rlx.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    result: Any = import_module("jax")
    folder = engine_folder("xla")
    if folder is not None and not result.config.jax_compilation_cache_dir:
        result.config.update("jax_compilation_cache_dir", str(folder))
    return result


@contextmanager
def wide_types() -> Iterator[None]:
    """Lets JAX have types of 64 bits inside, in this thread."""
    with jax().enable_x64(True):
        yield


def devices_of(platform: str) -> list[Any]:
    """JAX's devices of a platform; empty where there are none, or JAX does not start."""
    try:
        return list(jax().devices(platform))
    except (ImportError, RuntimeError):
        return []


def version() -> str:
    """Returns the versions of JAX and of its compiler."""
    return f"JAX {jax().__version__}, jaxlib {import_module('jaxlib.version').__version__}"

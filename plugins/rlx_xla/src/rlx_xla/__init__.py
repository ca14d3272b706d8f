"""Graphs of rlx by XLA: the devices ``xla`` (the processor), ``cuda``, ``rocm`` and ``tpu``.

rlx finds them by entry points. ``register()`` adds them in a program that runs from sources.
"""

from __future__ import annotations

from typing import Any

from rlx_xla.backend import CUDA as CUDA
from rlx_xla.backend import ROCM as ROCM
from rlx_xla.backend import TPU as TPU
from rlx_xla.backend import XLA as XLA
from rlx_xla.version import __version__ as __version__


def register() -> None:
    """Registers the backends, where no entry point does."""
    from rlx.plugin import register_backend

    for backend in (XLA, CUDA, ROCM, TPU):
        register_backend(backend)


def run_on_device(compiled: Any, *arrays: Any) -> tuple[Any, ...]:
    """Runs a compiled graph and leaves its outputs on the device.

    Args:
        compiled: A ``rlx.CompiledGraph`` for a device of this package.
        *arrays: Its inputs in order: NumPy arrays, JAX arrays, or whatever has ``__dlpack__``. What is on the device
            already is not copied.

    Returns:
        JAX arrays, one for each output. Other libraries take them by ``__dlpack__``, without a copy.

    Raises:
        InputError: The graph runs on another device.
    """
    from rlx.plugin import method_of

    return tuple(method_of(compiled, "run_on_device")(*arrays))

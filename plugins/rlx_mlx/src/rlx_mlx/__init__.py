"""Graphs of rlx by MLX: the device ``mlx``, the GPU of a Mac."""

from __future__ import annotations

from typing import Any

from rlx_mlx.backend import MLX as MLX
from rlx_mlx.version import __version__ as __version__


def register() -> None:
    """Registers the backend, where no entry point does."""
    from rlx.plugin import register_backend

    register_backend(MLX)


def run_on_device(compiled: Any, *arrays: Any) -> tuple[Any, ...]:
    """Runs a compiled graph and leaves its outputs in MLX's arrays.

    Args:
        compiled: A ``rlx.CompiledGraph`` for ``mlx``, with no part on the host.
        *arrays: Its inputs in order.

    Returns:
        MLX arrays, one for each output.

    Raises:
        InputError: The graph runs on another device, or partly on the host.
    """
    from rlx.plugin import method_of

    return tuple(method_of(compiled, "run_on_device")(*arrays))

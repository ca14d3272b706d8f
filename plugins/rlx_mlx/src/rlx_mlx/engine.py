"""MLX as rlx uses it: imported when a device is asked for, with products of f32 in f32."""

from __future__ import annotations

import functools
import os
from importlib import import_module
from typing import Any


@functools.cache
def mlx() -> Any:
    """The module ``mlx.core``; None where it is not installed or does not start.

    Where a GPU has units for TF32, MLX would multiply f32 by them unless it is told not to before it starts.
    """
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    try:
        return import_module("mlx.core")
    except (ImportError, RuntimeError, OSError):
        return None


def device_facts() -> tuple[str, str]:
    """The name of the device that MLX runs on, and the kind of it."""
    core = mlx()
    result = core.device_info()
    on_gpu = bool(core.metal.is_available())
    name = str(result.get("device_name", "Apple GPU" if on_gpu else "processor"))
    return (name, "integrated") if on_gpu else (f"MLX on the processor, {name}", "cpu")

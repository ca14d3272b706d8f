"""The WebGPU backend: graphs as WGSL compute kernels through wgpu (Vulkan, Metal, D3D12).

What looks for adapters is small, and is imported without the rest: see ``rlx.open_ahead``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.backends.webgpu.webgpu_backend import BACKEND, WebGpuBackend

__all__ = ["BACKEND", "WebGpuBackend"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlx.backends.webgpu import webgpu_backend

    return getattr(webgpu_backend, name)

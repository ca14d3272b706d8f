"""The WebGPU backend: graphs as WGSL compute kernels through wgpu (Vulkan, Metal, D3D12)."""

from rlx.backends.webgpu.backend import BACKEND, WebGpuBackend

__all__ = ["BACKEND", "WebGpuBackend"]

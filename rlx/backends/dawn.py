"""The backend ``dawn``: the adapters and kernels of WebGPU, through Dawn."""

from __future__ import annotations

from rlx.backends.webgpu.webgpu_backend import WebGpuBackend

BACKEND = WebGpuBackend("dawn")

"""The WebGPU backend: WGSL kernels on any GPU that wgpu reaches."""

from rlx.backends.webgpu.backend import BACKEND

__all__ = ["BACKEND"]

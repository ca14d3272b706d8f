"""The WebGPU backend: graphs as WGSL compute kernels through wgpu (Vulkan, Metal, D3D12).

What looks for adapters is small, and is imported without the rest: see ``rlx.open_ahead``.
"""

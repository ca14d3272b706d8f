"""The C types that wgpu-py asks cffi for, parsed together: one by one they are most of a cold start.

cffi parses the text of a type together with the names of all types that it knows, some hundreds of lines for wgpu, in 10 ms and
more; then it keeps the result. A function that has pointers to them all for its parameters is one such text.
"""

from __future__ import annotations

import contextlib
from typing import Any

# Spelled as in wgpu-py. Types that another release spells differently are parsed by wgpu-py itself.
OBJECTS = (
    "WGPUStringView *", "WGPUInstanceDescriptor *", "WGPUAdapterInfo *", "WGPUChainedStruct *",
    "WGPUChainedStruct * ", "WGPUNativeLimits *", "WGPULimits *", "WGPUQueueDescriptor *",
    "WGPUDeviceExtras *", "WGPUDeviceLostCallbackInfo *", "WGPUUncapturedErrorCallbackInfo *",
    "WGPUDeviceDescriptor *", "WGPURequestDeviceCallbackInfo *", "WGPUBufferDescriptor *",
    "WGPUBufferBindingLayout *", "WGPUBindGroupLayoutEntry *", "WGPUBindGroupLayoutDescriptor *",
    "WGPUPipelineLayoutDescriptor *", "WGPUBindGroupEntry *", "WGPUBindGroupDescriptor *",
    "WGPUShaderSourceWGSL *", "WGPUShaderModuleDescriptor *", "WGPUComputeState *",
    "WGPUComputePipelineDescriptor *", "WGPUStringView", "WGPUCommandEncoderDescriptor",
    "WGPUCommandBufferDescriptor", "WGPUComputePassDescriptor", "WGPUFuture",
    "WGPUBufferMapCallbackInfo", "WGPUPopErrorScopeCallbackInfo", "WGPUQuerySetDescriptor *",
    "WGPUCommandEncoderDescriptor *", "WGPUCommandBufferDescriptor *", "WGPUComputePassDescriptor *",
    "uintptr_t", "uint8_t *",
)  # fmt: skip
ARRAYS = (
    "WGPUAdapter[]", "char []", "char[]", "uint8_t []", "WGPUFeatureName[]",
    "WGPUBindGroupLayoutEntry[]", "WGPUBindGroupLayout[]", "WGPUBindGroupEntry[]",
)  # fmt: skip
CALLBACKS = (
    "void(WGPULogLevel, WGPUStringView, void *)",
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
)


def parse_together(ffi: Any) -> int:
    """Parses all types that are not parsed yet. Does nothing with unknown versions of cffi or wgpu.

    Args:
        ffi: The ``FFI`` of wgpu-py.

    Returns:
        How many types are ready that were not.
    """
    ready = getattr(ffi, "_parsed_types", None)
    if not isinstance(ready, dict):
        return 0
    texts: dict[str, str] = {}
    for text in (*OBJECTS, *ARRAYS, *CALLBACKS):
        if text in ready:
            continue
        if text in ARRAYS:
            texts[text] = f"{text[: text.index('[')]} (*)[]"
        elif text in CALLBACKS:
            texts[text] = text.replace("(", "(**)(", 1)
        else:
            texts[text] = f"{text} *"
    # Any failure means another version of cffi or wgpu, which then parses its types one by one.
    with contextlib.suppress(Exception):
        pointers = ffi.typeof(f"void(*)({', '.join(texts.values())})").args
        for text, pointer in zip(texts, pointers, strict=True):
            ready[text] = (pointer.item, text in CALLBACKS)
        return len(texts)
    return 0

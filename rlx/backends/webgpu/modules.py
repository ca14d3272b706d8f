"""Shader modules, with the driver's run-time checks or without them.

Kernels keep to their own bounds and their loops end, which the tests prove with sentinels and with the checks on. wgpu-py has
no call for modules without them, so the function of wgpu-native is called through wgpu-py's own binding.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

from rlx import flags

# naga has subgroups without being asked for them, and refuses this line of standard WGSL.
_NOT_ASKED = "enable subgroups;\n"

# Releases of wgpu-py that this was written for: it uses private functions of their bindings.
_KNOWN = ("0.32.",)


@functools.cache
def _binding() -> Any:
    """Returns wgpu-py's binding; None for a binding that rlx does not know."""
    import wgpu
    from wgpu.backends.wgpu_native import _api

    known = wgpu.__version__.startswith(_KNOWN)
    if known and hasattr(_api.libf, "wgpuDeviceCreateShaderModuleTrusted"):
        return _api
    warnings.warn(
        f"wgpu {wgpu.__version__} is not known to rlx: shaders keep their run-time checks",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def for_naga(code: str) -> str:
    """A standard WGSL text as naga takes it, with all lines where they were."""
    return code.replace(_NOT_ASKED, "\n", 1)


def shader_module(device: Any, label: str, code: str) -> Any:
    """A module of a device.

    Args:
        device: The wgpu device.
        label: Its name in messages of the driver.
        code: WGSL.

    Raises:
        wgpu.GPUError: The source is refused.
    """
    code = for_naga(code)
    api = None if flags.SHADER_CHECKS.get() else _binding()
    if api is None:
        return device.create_shader_module(label=label, code=code)
    ffi, lib = api.ffi, api.lib
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    # Keep a reference: the C call reads these bytes.
    texts = [ffi.new("char[]", text.encode()) for text in (code, label)]
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    for field, text in ((source.code, texts[0]), (descriptor.label, texts[1])):
        field.data, field.length = text, len(text) - 1
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    handle = api.libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0)
    return api.GPUShaderModule(label, handle, device)

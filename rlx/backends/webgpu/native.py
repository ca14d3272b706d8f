"""wgpu-native's functions as addresses, for the C code that runs submissions."""

from __future__ import annotations

import functools
import warnings
from typing import Any

# The C declarations in cython_src/webgpu_run.h are those of this release, which wgpu 0.32 carries.
_KNOWN = (29, 0)


@functools.cache
def binding() -> tuple[Any, Any, Any] | None:
    """wgpu-py's cffi interface, its library as addresses, and the C path; None where that can't be."""
    from wgpu.backends import wgpu_native

    try:
        from rlx._ext import webgpu_hot

        ffi, lib = wgpu_native.ffi, wgpu_native.lib
        if wgpu_native.lib_version_info[:2] != _KNOWN:
            raise RuntimeError(f"wgpu-native {wgpu_native.lib_version_info} is not known to rlx")
        for name, size in webgpu_hot.SIZES.items():
            if ffi.sizeof(name) != size:
                raise RuntimeError(f"{name} has {ffi.sizeof(name)} bytes, not {size}")
        functions = [ffi.addressof(lib, name) for name in webgpu_hot.FUNCTIONS]
        api = webgpu_hot.Api([int(ffi.cast("uintptr_t", one)) for one in functions])
    except (ImportError, AttributeError, RuntimeError) as error:
        warnings.warn(
            f"{error}: runs on the GPU go through wgpu-py's Python calls, which cost more",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return ffi, webgpu_hot, api

"""A library's functions as addresses, for the C code that runs submissions."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Mapping
from typing import Any

# Releases whose C declarations are those of cython_src/webgpu_run.h: of wgpu-native, which wgpu 0.32 carries, and of
# wgpudawn, which carries Dawn.
_NATIVE, _DAWN = (29, 0), (0, 32)


@functools.cache
def binding() -> tuple[Any, Any, Any] | None:
    """wgpu-py's cffi interface, the module of the C path, and wgpu-native for it; None where that can't be."""
    from wgpu.backends import wgpu_native

    try:
        from rlx._ext import webgpu_hot

        if wgpu_native.lib_version_info[:2] != _NATIVE:
            raise RuntimeError(f"wgpu-native {wgpu_native.lib_version_info} is not known to rlx")
        ffi, lib = wgpu_native.ffi, wgpu_native.lib
        return ffi, webgpu_hot, _api("wgpu", ffi, lib, webgpu_hot.SIZES, 0)
    except (ImportError, AttributeError, RuntimeError) as error:
        _warn(error, "wgpu-py")
        return None


@functools.cache
def dawn_binding() -> tuple[Any, Any, Any] | None:
    """The same for wgpudawn and Dawn."""
    try:
        from rlx._ext import webgpu_hot

        version = importlib.import_module("wgpudawn").version_info
        if version[:2] != _DAWN:
            raise RuntimeError(f"wgpudawn {version} is not known to rlx")
        dawn = importlib.import_module("wgpudawn.backends.dawn")
        ffi, lib = dawn.ffi, dawn.lib
        sizes = {**webgpu_hot.SIZES, **webgpu_hot.DAWN_SIZES}
        helpers = importlib.import_module("wgpudawn.backends.dawn._helpers")
        instance = int(ffi.cast("uintptr_t", helpers.get_wgpu_instance()))
        return ffi, webgpu_hot, _api("dawn", ffi, lib, sizes, instance)
    except (ImportError, AttributeError, RuntimeError) as error:
        _warn(error, "wgpudawn")
        return None


def _api(name: str, ffi: Any, lib: Any, sizes: Mapping[str, int], instance: int) -> Any:
    """A library for the C path.

    Raises:
        RuntimeError: It is another one than the C code was written for.
        AttributeError: It lacks a function or a number.
    """
    from rlx._ext import webgpu_hot

    for struct, size in sizes.items():
        if ffi.sizeof(struct) != size:
            raise RuntimeError(f"{struct} has {ffi.sizeof(struct)} bytes, not {size}")
    for number, value in webgpu_hot.NUMBERS.items():
        if int(getattr(lib, number)) != value:
            raise RuntimeError(f"{number} is {int(getattr(lib, number))}, not {value}")
    absent = webgpu_hot.ABSENT[name]
    addresses = [
        0 if function in absent else int(ffi.cast("uintptr_t", ffi.addressof(lib, function)))
        for function in webgpu_hot.FUNCTIONS
    ]
    return webgpu_hot.Api(name, addresses, instance)


def _warn(error: Exception, package: str) -> None:
    warnings.warn(
        f"{error}: runs on the GPU go through {package}'s Python calls, which cost more",
        RuntimeWarning,
        stacklevel=3,
    )

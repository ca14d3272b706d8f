"""Dawn, the WebGPU of Chromium, through the package wgpudawn, which has the API of wgpu-py.

Nothing here imports wgpudawn until a device of it is asked for.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

from rlx import flags
from rlx.backends.webgpu.diagnose import first_failure, missing_kernels
from rlx.backends.webgpu.provider import Provider
from rlx.errors import DeviceUnavailableError, install_line
from rlx.ir.fragments import Fragment
from rlx.ir.spans import phase

_BACKEND = "wgpudawn.backends.dawn"
_HINT = install_line(".[dawn]")
# Asked of the instance before there is one: features that are not in the standard yet, and f16 on NVIDIA.
_INSTANCE_TOGGLES = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
# Checks to switch off: the kernels keep to their own bounds and write workgroup memory before they read it.
# Dawn's validation of calls stays, and integer division by zero, which elementwise kernels may do, stays defined.
_UNCHECKED = ("disable_robustness", "disable_workgroup_init")
# Dawn rounds the times of kernels to some 65 us, so that web pages can't tell what others compute.
_ROUNDED = ("timestamp_quantization",)
# Parts of WGSL, by WebGPU's names for them, that kernels for matrix units are written with.
_WORDS = ("BufferView", "SubgroupId")


class Dawn(Provider):
    """See ``Provider``."""

    name = "dawn"
    package = "wgpudawn"
    native = _BACKEND
    own_names: Mapping[str, str] = {
        "shader-f16": "shader-f16",
        "timestamp-query": "timestamp-query",
        "subgroup": "subgroups",
        "subgroup-size-control": "subgroup-size-control",
        "chromium-experimental-subgroup-matrix": "chromium-experimental-subgroup-matrix",
    }
    # Threads may then use one device at the same time.
    needed = ("implicit-device-synchronization",)
    checks_by_device = True

    def missing(self) -> str | None:
        """See ``Provider``."""
        return missing_kernels() or _without_dawn()

    def version(self) -> str:
        """See ``Provider``."""
        try:
            return f"wgpudawn {version_of(self.package)}"
        except PackageNotFoundError:
            missing = self.missing()  # None in a frozen program that has no metadata of packages
            if missing is not None:
                raise DeviceUnavailableError(missing) from None
            return f"wgpudawn {self.module().__version__}"

    def listed(self) -> tuple[Any, ...]:
        """See ``Provider``."""
        with phase("wgpudawn"):
            module = self.module()
            _ask_instance()
        with phase("adapters"):
            return tuple(module.gpu.enumerate_adapters_sync())

    def fragments(self, adapter: Any) -> tuple[Fragment, ...]:
        """See ``Provider``."""
        if "chromium-experimental-subgroup-matrix" not in adapter.features or not _speaks(_WORDS):
            return ()
        properties = _extras().get_adapter_properties(adapter)
        return tuple(
            Fragment(
                str(item["component_type"]),
                str(item["result_component_type"]),
                *(int(item[key]) for key in ("m", "n", "k")),
                *(int(item[key]) for key in ("min_subgroup_size", "max_subgroup_size")),
            )
            for item in properties.get("subgroup_matrix_configs", ())
        )

    def opened(self, adapter: Any, features: Collection[str], limits: Mapping[str, int]) -> Any:
        """See ``Provider``. An adapter of Dawn gives a single device, so it is asked for anew."""
        same = [item for item in self.listed() if dict(item.info) == dict(adapter.info)]
        extras, toggles = _extras(), () if flags.SHADER_CHECKS.get() else _UNCHECKED
        known = extras.all_toggles()
        return extras.request_device_sync(
            (same or [adapter])[0],
            label="rlx",
            required_features=list(features),
            required_limits=dict(limits),
            enable_toggles=[name for name in toggles if name in known],
            disable_toggles=[name for name in _ROUNDED if name in known],
        )

    def shader_module(self, device: Any, label: str, code: str) -> Any:
        """See ``Provider``. The checks are the device's."""
        return device.create_shader_module(label=label, code=code)

    @contextmanager
    def reporting(self, device: Any) -> Iterator[None]:
        """See ``Provider``. A scope belongs to its thread; without one an error is raised in whichever asks next."""
        for kind in ("validation", "out-of-memory"):
            device.push_error_scope(kind)
        try:
            yield
        finally:
            results = [device.pop_error_scope_async().sync_wait() for _ in range(2)]
        for error in results:
            if error is not None:
                raise error

    def lost(self, device: Any) -> bool:
        """See ``Provider``."""
        dawn = importlib.import_module(_BACKEND)
        helpers = importlib.import_module(f"{_BACKEND}._helpers")
        asked = dawn.ffi.new("WGPUFutureWaitInfo *")
        asked.future = dawn.lib.wgpuDeviceGetLostFuture(device._internal)
        dawn.lib.wgpuInstanceWaitAny(helpers.get_wgpu_instance(), 1, asked, 0)
        return bool(asked.completed)

    def timestamp_period(self, queue: Any) -> float:
        """See ``Provider``. Dawn converts ticks to nanoseconds itself."""
        return 1.0

    def binding(self) -> tuple[Any, Any, Any] | None:
        """See ``Provider``."""
        from rlx.backends.webgpu.native import dawn_binding

        return dawn_binding()


@functools.cache
def _without_dawn() -> str | None:
    package = partial(importlib.import_module, "wgpudawn"), "the package wgpudawn is not installed"
    library = partial(importlib.import_module, _BACKEND)
    what = "the library of the package wgpudawn can't be loaded"
    return first_failure((package, (library, what)), _HINT)


def _extras() -> Any:
    return importlib.import_module(f"{_BACKEND}.extras")


def _speaks(words: tuple[str, ...]) -> bool:
    """Returns whether this release of Dawn supports the optional WGSL features requested from its instance."""
    _ask_instance()
    lib = importlib.import_module(_BACKEND).lib
    instance = importlib.import_module(f"{_BACKEND}._helpers").get_wgpu_instance()
    has = getattr(lib, "wgpuInstanceHasWGSLLanguageFeature", None)
    numbers = [getattr(lib, f"WGPUWGSLLanguageFeatureName_{word}", None) for word in words]
    return has is not None and all(n is not None and has(instance, n) for n in numbers)


def _ask_instance() -> None:
    """Asks Dawn's instance for features that are not in the standard yet, unless the program has made one already."""
    helpers, extras = importlib.import_module(f"{_BACKEND}._helpers"), _extras()
    if getattr(helpers, "_the_instance", None) is not None:
        return
    known = extras.all_toggles()
    lacking = [name for name in _INSTANCE_TOGGLES if name not in known]
    if lacking:
        warnings.warn(
            f"this wgpudawn lacks {', '.join(lacking)}: kernels that need them are not used",
            RuntimeWarning,
            stacklevel=2,
        )
    extras.set_instance_extras(enable_toggles=[n for n in _INSTANCE_TOGGLES if n in known])


PROVIDER = Dawn()

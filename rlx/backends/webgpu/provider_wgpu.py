"""wgpu-native through wgpu-py: the default WebGPU library of rlx."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rlx.backends.webgpu import diagnose
from rlx.backends.webgpu.provider import Provider
from rlx.ir.spans import phase


class WgpuNative(Provider):
    """See ``Provider``. wgpu-py raises each error where it is made."""

    name = "wgpu"
    package = "wgpu"
    native = "wgpu.backends.wgpu_native"
    own_names: Mapping[str, str] = {
        "shader-f16": "shader-f16",
        "timestamp-query": "timestamp-query",
        "subgroup": "subgroup",
    }

    def missing(self) -> str | None:
        """See ``Provider``."""
        return diagnose.missing_part()

    def version(self) -> str:
        """See ``Provider``."""
        return str(self.module().__version__)

    def listed(self) -> tuple[Any, ...]:
        """See ``Provider``."""
        from rlx.backends.webgpu.ctypes_known import parse_together

        with phase("wgpu"):
            # Imported here: without cffi there is no wgpu.
            from rlx.backends.webgpu.c_types import import_native

            parse_together(import_native().ffi)
            import wgpu
        with phase("adapters"):
            return tuple(wgpu.gpu.enumerate_adapters_sync())

    def opened(self, adapter: Any, features: Collection[str], limits: Mapping[str, int]) -> Any:
        """See ``Provider``."""
        return adapter.request_device_sync(
            label="rlx", required_features=list(features), required_limits=dict(limits)
        )

    def shader_module(self, device: Any, label: str, code: str) -> Any:
        """See ``Provider``."""
        from rlx.backends.webgpu.modules import shader_module

        return shader_module(device, label, code)

    def timestamp_period(self, queue: Any) -> float:
        """See ``Provider``."""
        from wgpu.backends import wgpu_native

        return float(wgpu_native.lib.wgpuQueueGetTimestampPeriod(queue._internal))

    def binding(self) -> tuple[Any, Any, Any] | None:
        """See ``Provider``."""
        from rlx.backends.webgpu.native import binding

        return binding()


PROVIDER = WgpuNative()

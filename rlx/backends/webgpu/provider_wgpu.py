"""wgpu-native through wgpu-py: the default WebGPU library of rlx."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

from rlx.backends.webgpu import diagnose
from rlx.ir.fragments import Fragment
from rlx.ir.spans import phase


class WgpuNative:
    """See ``Provider``."""

    name = "wgpu"
    package = "wgpu"
    own_names: Mapping[str, str] = {
        "shader-f16": "shader-f16",
        "timestamp-query": "timestamp-query",
        "subgroup": "subgroup",
    }
    needed: tuple[str, ...] = ()
    checks_by_device = False

    def missing(self) -> str | None:
        """See ``Provider``."""
        return diagnose.missing_part()

    def module(self) -> ModuleType:
        """See ``Provider``."""
        return importlib.import_module(self.package)

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

    def fragments(self, adapter: Any) -> tuple[Fragment, ...]:
        """See ``Provider``."""
        return ()

    def opened(self, adapter: Any, features: Collection[str], limits: Mapping[str, int]) -> Any:
        """See ``Provider``."""
        return adapter.request_device_sync(
            label="rlx", required_features=list(features), required_limits=dict(limits)
        )

    def owns(self, handle: object) -> bool:
        """See ``Provider``."""
        native = sys.modules.get("wgpu.backends.wgpu_native")
        return native is not None and isinstance(handle, native.GPUDevice)

    def shader_module(self, device: Any, label: str, code: str) -> Any:
        """See ``Provider``."""
        from rlx.backends.webgpu.modules import shader_module

        return shader_module(device, label, code)

    def reporting(self, device: Any) -> AbstractContextManager[None]:
        """See ``Provider``. wgpu-py raises each error where it is made."""
        return nullcontext()

    def lost(self, device: Any) -> bool:
        """See ``Provider``."""
        return False

    def timestamp_period(self, queue: Any) -> float:
        """See ``Provider``."""
        from wgpu.backends import wgpu_native

        return float(wgpu_native.lib.wgpuQueueGetTimestampPeriod(queue._internal))

    def binding(self) -> tuple[Any, Any, Any] | None:
        """See ``Provider``."""
        from rlx.backends.webgpu.native import binding

        return binding()

    def keep_objects(self) -> None:
        """See ``Provider``."""
        native = sys.modules.get("wgpu.backends.wgpu_native")
        if native is None:
            return
        from wgpu.backends.wgpu_native._api import GPUObjectBase

        for kind in (GPUObjectBase, native.GPUAdapter, native.GPUDevice):
            kind._release = _keep


def _keep(thing: object) -> None:
    """Stands for the release of one of wgpu's objects."""


PROVIDER = WgpuNative()

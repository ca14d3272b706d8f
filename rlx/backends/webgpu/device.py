"""Adapters, and one open device for each with its cache of pipelines."""

from __future__ import annotations

from functools import cache
from typing import Any

import wgpu

from rlx import flags
from rlx.backends.base import DeviceInfo
from rlx.errors import DeviceUnavailableError, describe

_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroups-per-dimension",
    "min-storage-buffer-offset-alignment",
)
# What the WebGPU specification guarantees, for testing against weak adapters.
_DEFAULT_LIMITS = {
    "max-buffer-size": 268435456,
    "max-storage-buffer-binding-size": 134217728,
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroups-per-dimension": 65535,
    "min-storage-buffer-offset-alignment": 256,
}
_FEATURES = ("shader-f16", "subgroup", "timestamp-query")


@cache
def adapters() -> tuple[Any, ...]:
    """The adapters, real ones first; OpenGL only where there is nothing else."""
    try:
        found = list(wgpu.gpu.enumerate_adapters_sync())
    except Exception:
        # No loader, no driver, no display: wgpu raises many kinds; to us it is "no adapter".
        return ()
    native = [a for a in found if a.info["backend_type"] != "OpenGL"] or found
    return tuple(sorted(native, key=lambda a: a.info["adapter_type"] == "CPU"))


def limits_of(adapter: Any) -> dict[str, int]:
    """The limits that a device of this adapter gets."""
    if flags.WEBGPU_DEFAULT_LIMITS.get():
        return dict(_DEFAULT_LIMITS)
    return {name: int(adapter.limits[name]) for name in _LIMITS}


def infos() -> list[DeviceInfo]:
    """One record per adapter."""
    return [
        DeviceInfo(
            "webgpu",
            at,
            adapter.info["device"] or adapter.info["description"],
            adapter.info["backend_type"],
            adapter.info["description"],
            adapter.info["adapter_type"] == "CPU",
            limits_of(adapter),
            frozenset(name for name in _FEATURES if name in adapter.features),
        )
        for at, adapter in enumerate(adapters())
    ]


class OpenDevice:
    """A wgpu device and what was made on it; shared by every graph on that adapter."""

    def __init__(self, adapter: Any) -> None:
        wanted = [name for name in _FEATURES if name in adapter.features]
        self.limits = limits_of(adapter)
        try:
            self.device = adapter.request_device_sync(
                required_features=wanted, required_limits=self.limits
            )
        except Exception as error:
            raise DeviceUnavailableError(
                describe(
                    "the adapter gave no device",
                    where=adapter.info["device"],
                    got=f"{type(error).__name__}: {error}",
                    expected=f"limits {self.limits}",
                )
            ) from error
        self.queue = self.device.queue
        self._layouts: dict[tuple[str, ...], Any] = {}
        self._pipelines: dict[tuple[str, tuple[str, ...]], tuple[Any, Any]] = {}

    def buffer(self, nbytes: int, usage: int, label: str) -> Any:
        """A zeroed buffer."""
        return self.device.create_buffer(size=nbytes, usage=usage, label=label)

    def pipeline(self, source: str, access: tuple[str, ...], label: str) -> tuple[Any, Any]:
        """The pipeline of a kernel's text, and the layout of its bind group."""
        key = (source, access)
        if key not in self._pipelines:
            layout = self._layout(access)
            module = self.device.create_shader_module(code=source, label=label)
            pipeline = self.device.create_compute_pipeline(
                label=label,
                layout=self.device.create_pipeline_layout(bind_group_layouts=[layout], label=label),
                compute={"module": module, "entry_point": "main"},
            )
            self._pipelines[key] = (pipeline, layout)
        return self._pipelines[key]

    def _layout(self, access: tuple[str, ...]) -> Any:
        if access not in self._layouts:
            kinds = {"read": "read-only-storage", "read_write": "storage"}
            self._layouts[access] = self.device.create_bind_group_layout(
                label="-".join(access),
                entries=[
                    {
                        "binding": at,
                        "visibility": wgpu.ShaderStage.COMPUTE,
                        "buffer": {"type": kinds[name]},
                    }
                    for at, name in enumerate(access)
                ],
            )
        return self._layouts[access]


@cache
def open_device(index: int) -> OpenDevice:
    """The open device of an adapter."""
    return OpenDevice(adapters()[index])

"""The devices present under their display names, with their known speeds."""

from __future__ import annotations

from rlx.backends.base import DeviceInfo
from rlx.backends.registry import backend
from rlx.cost.model import BackendCostModel, WebGpuCostModel, default_model
from rlx.dataclasses import dataclass
from rlx.device.names import Device, available_devices, info_of


@dataclass(frozen=True)
class DeviceDescription:
    """One device as a table shows it."""

    device: Device
    label: str
    adapter: str
    api: str
    driver: str
    software: bool


def describe_devices() -> list[DeviceDescription]:
    """Every device present, as people name it."""
    results = []
    for device in available_devices():
        info = info_of(device)
        kind = "software" if info.software else info.kind if info.kind != "cpu" else ""
        label = f"{info.adapter} ({kind})" if kind else info.adapter
        results.append(
            DeviceDescription(device, label, info.adapter, info.api, info.driver, info.software)
        )
    return results


def cost_model(device: Device, info: DeviceInfo) -> BackendCostModel:
    """Returns the figures of a device: measured, else its defaults.

    A plug-in states its own; a plug-in without figures gets a GPU's defaults.
    """
    runs_on = backend(device.backend)
    if not runs_on.is_built_in:
        return runs_on.figures(info) or default_model(device, software=info.software)
    return WebGpuCostModel(device, software=info.software)

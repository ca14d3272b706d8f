"""Devices: their names, which are here, and which one a graph should run on."""

from rlx.device.choose import Choice, DeviceDescription, choose, describe_devices
from rlx.device.names import (
    Device,
    available_devices,
    info_of,
    infos,
    is_available,
    parse_device_list,
)

__all__ = [
    "Choice",
    "Device",
    "DeviceDescription",
    "available_devices",
    "choose",
    "describe_devices",
    "info_of",
    "infos",
    "is_available",
    "parse_device_list",
]

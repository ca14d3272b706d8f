"""Devices: their names, which are here, and which one a graph should run on."""

from rlx.device.candidates import DeviceCandidate
from rlx.device.choose import Choice, DeviceDescription, choose, describe_devices
from rlx.device.names import (
    Device,
    available_devices,
    host_sync_op_kinds,
    info_of,
    infos,
    is_available,
    parse_device_list,
)
from rlx.device.policy import Benchmark, DevicePolicy

__all__ = [
    "Benchmark",
    "Choice",
    "Device",
    "DeviceCandidate",
    "DeviceDescription",
    "DevicePolicy",
    "available_devices",
    "choose",
    "describe_devices",
    "host_sync_op_kinds",
    "info_of",
    "infos",
    "is_available",
    "parse_device_list",
]

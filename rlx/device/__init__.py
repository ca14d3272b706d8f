"""Devices: their names, which are here, and what is known of their speed."""

from rlx.device.candidates import DeviceCandidate
from rlx.device.figures import DeviceDescription, cost_model, describe_devices
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
    "Device",
    "DeviceCandidate",
    "DeviceDescription",
    "DevicePolicy",
    "available_devices",
    "cost_model",
    "describe_devices",
    "host_sync_op_kinds",
    "info_of",
    "infos",
    "is_available",
    "parse_device_list",
]

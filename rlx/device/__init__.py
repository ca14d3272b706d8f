"""Devices: their names, and their known speeds."""

from typing import TYPE_CHECKING

from rlx import lazy_imports

if TYPE_CHECKING:
    from rlx.device.candidates import DeviceCandidate as DeviceCandidate
    from rlx.device.figures import DeviceDescription as DeviceDescription
    from rlx.device.figures import cost_model as cost_model
    from rlx.device.figures import describe_devices as describe_devices
    from rlx.device.names import Device as Device
    from rlx.device.names import available_devices as available_devices
    from rlx.device.names import host_sync_op_kinds as host_sync_op_kinds
    from rlx.device.names import info_of as info_of
    from rlx.device.names import infos as infos
    from rlx.device.names import is_available as is_available
    from rlx.device.names import parse_device_list as parse_device_list
    from rlx.device.policy import Benchmark as Benchmark
    from rlx.device.policy import DevicePolicy as DevicePolicy

_NAMES = {
    "rlx.device.candidates": "DeviceCandidate",
    "rlx.device.figures": "DeviceDescription cost_model describe_devices",
    "rlx.device.names": "Device available_devices host_sync_op_kinds info_of infos is_available parse_device_list",
    "rlx.device.policy": "Benchmark DevicePolicy",
}
_homes = lazy_imports.names_of(__name__, _NAMES)
__all__ = sorted(_homes)

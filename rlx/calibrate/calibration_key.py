"""The identity that measured figures belong to."""

from __future__ import annotations

from rlx.backends.base import DeviceInfo
from rlx.backends.registry import backend
from rlx.cost.calibration import Identity
from rlx.device.names import Device
from rlx.version import __version__


def identity_of(info: DeviceInfo) -> Identity:
    """Returns the identity that figures of a device belong to."""
    return Identity(
        str(Device(info.backend, info.index)),
        info.adapter,
        info.api,
        info.driver,
        backend(info.backend).path(info),
        __version__,
        backend(info.backend).build_id(),
    )

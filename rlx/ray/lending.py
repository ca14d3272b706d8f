"""DeviceLender: which device of a machine each of its worker processes uses."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlx.device.candidates import separate_devices
from rlx.device.names import Device, DeviceLike
from rlx.errors import DeviceUnavailableError, InputError


class Holder(NamedTuple):
    """A process that has a device.

    Attributes:
        pid: Its number.
        born: When it began, in seconds since 1970: numbers are used again.
    """

    pid: int
    born: float


def this_process() -> Holder:
    """Returns this process as a holder of devices."""
    import psutil

    return Holder(os.getpid(), psutil.Process().create_time())


def is_alive(holder: Holder) -> bool:
    """Returns whether a process of this machine still runs."""
    import psutil

    try:
        process = psutil.Process(holder.pid)
        gone = process.status() == psutil.STATUS_ZOMBIE
        return not gone and abs(process.create_time() - holder.born) < 1.0
    except psutil.Error:
        return False


class DeviceLender:
    """Hands out the devices of the machine that it runs on, the least used one first.

    Ray knows nothing of adapters of WebGPU. One lender on each node, an actor (``rlx.ray.lender``), finds them and tells
    each worker process which one to use. A device that a process held is free as soon as that process is gone, however
    it ended.

    Args:
        devices: "all" for the CPU and each GPU once; or some of them.
        alive: Whether a process still runs.

    Raises:
        DeviceUnavailableError: None of the devices is here.

    Example:
        >>> import rlx.ray
        >>> from rlx.ray.lending import this_process
        >>> lender = rlx.ray.DeviceLender(["cpu"])
        >>> lender.lend(this_process())
        'cpu'
    """

    def __init__(
        self,
        devices: str | Sequence[DeviceLike] = "all",
        alive: Callable[[Holder], bool] = is_alive,
    ) -> None:
        self._alive = alive
        self._held: dict[Holder, str] = {}
        here = [str(device) for device in separate_devices()]
        if isinstance(devices, str) and devices != "all":
            raise InputError("devices", got=repr(devices), expected='"all", or a list of devices')
        wanted = (
            here if isinstance(devices, str) else [str(Device.parse(device)) for device in devices]
        )
        self._devices = [device for device in here if device in wanted]
        if not self._devices:
            raise DeviceUnavailableError(
                "none of the devices is on this machine",
                got=", ".join(here),
                expected=", ".join(wanted),
            )

    def devices(self) -> list[str]:
        """The devices, by the names that they have on this machine."""
        return list(self._devices)

    def lend(self, holder: Holder, among: Sequence[str] | None = None) -> str:
        """Lends a device to a process: the device with the fewest holders, GPUs first.

        A process that asks again gets what it has.

        Args:
            holder: The process.
            among: Devices to choose from; None for all.

        Raises:
            DeviceUnavailableError: None of them is on this machine.
        """
        holder = Holder(*holder)
        self._held = {key: device for key, device in self._held.items() if self._alive(key)}
        open_to = [device for device in self._devices if among is None or device in among]
        if not open_to:
            raise DeviceUnavailableError(
                "none of the devices is on this machine",
                got=", ".join(self._devices),
                expected=", ".join(among or ()),
            )
        if self._held.get(holder) not in open_to:
            self._held.pop(holder, None)
            used = Counter(self._held.values())
            self._held[holder] = min(open_to, key=lambda item: (used[item], item == "cpu"))
        return self._held[holder]

    def held(self) -> dict[int, str]:
        """The device of each process that has one and still runs, by its number."""
        return {key.pid: device for key, device in self._held.items() if self._alive(key)}

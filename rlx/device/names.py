"""Device names: the one place that turns ``"vulkan"`` or ``"webgpu:1"`` into a ``Device`` and back."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from rlx.backends.base import DeviceInfo
from rlx.backends.registry import (
    PACKAGES,
    absent,
    adopted,
    backend,
    backend_names,
    devices_of,
    listed_backends,
)
from rlx.cost.io_profile import host_sync_ops
from rlx.dataclasses import dataclass
from rlx.errors import DeviceError, DeviceParseError, DeviceUnavailableError, did_you_mean

if TYPE_CHECKING:
    from wgpu import GPUDevice

# The argument of functions that take one device: a name, or a wgpu device that the program shares.
DeviceLike: TypeAlias = "Device | str | GPUDevice"
# Devices that need a plug-in.
PLUGIN_DEVICES = ("cuda", "rocm", "mlx", "tpu", "ane")
# Canonical backend and, for WebGPU, the graphics API asked for.
_NAMES: dict[str, tuple[str, str]] = {
    **{
        name: (name, "") for name in ("cpu", "webgpu", "dawn", "reference", "null", *PLUGIN_DEVICES)
    },
    **{api: ("webgpu", api) for api in ("vulkan", "metal", "dx12", "opengl")},
}
_ALIASES = {
    "gpu": "webgpu",
    "wgpu": "webgpu",
    "vk": "vulkan",
    "mtl": "metal",
    "directx": "dx12",
    "d3d12": "dx12",
    "gl": "opengl",
}
# APIs as adapters report them, and as device names spell them.
_APIS = {"vulkan": "vulkan", "metal": "metal", "d3d12": "dx12", "opengl": "opengl"}


@dataclass(frozen=True)
class Device:
    """A device by name: a backend, for WebGPU perhaps an API, and a number.

    Attributes:
        backend: cpu, webgpu, dawn, reference, null, or a plug-in's name.
        index: Number among the backend's devices (of that API).
        api: "" for any, else vulkan, metal, dx12 or opengl.
        numbered: Named with its number; a policy takes a name without one for every device of that
            name. It does not count in comparisons.
        handle: The program's own object that is the device: a ``wgpu.GPUDevice`` that rlx uses as well. None for
            a device that rlx opens.

    Example:
        >>> str(Device.parse("VK")), str(Device.parse("gpu:1")), Device.parse("cpu")
        ('vulkan', 'webgpu:1', rlx.Device('cpu'))
    """

    backend: str
    index: int = 0
    api: str = ""
    numbered: bool = field(default=False, compare=False, repr=False)
    handle: Any = field(default=None, repr=False)

    @staticmethod
    def parse(text: DeviceLike) -> Device:
        """Reads a device name: a backend, an API or an alias, then perhaps ``:number``.

        Args:
            text: The name; a ``Device``, which stays as it is; or a ``wgpu.GPUDevice`` of the program.

        Raises:
            DeviceParseError: It is none of them.
            DeviceUnavailableError: A wgpu device that rlx can't share.
        """
        if isinstance(text, Device):
            return text
        if not isinstance(text, str):
            info = adopted(text)
            if info is not None:
                return Device(info.backend, info.index, numbered=True, handle=text)
        name, colon, number = str(text).strip().lower().partition(":")
        name = _ALIASES.get(name, name)
        # The names of plug-ins are asked for last: it takes a while to look for them.
        known = name in _NAMES or name in PACKAGES or name in backend_names()
        if not known or (colon and not _is_number(number)):
            names = {*_NAMES, *_ALIASES, *backend_names()}
            raise DeviceParseError(
                f"not a device: {text!r}",
                expected="a name, or name:number",
                hint=did_you_mean(name, names),
            )
        canonical, api = _NAMES.get(name, (name, ""))
        return Device(canonical, int(number or 0), api, numbered=bool(colon))

    def __reduce__(self) -> tuple[Any, ...]:
        """Devices pickle by name.

        Raises:
            DeviceError: It is a device object of the program.
        """
        if self.handle is not None:
            raise DeviceError(
                f"{str(self)!r} belongs to this process and can't be used in another",
                got=repr(self.handle),
                hint=f"compile for {self.backend!r} by name; rlx then opens a device of its own",
            )
        return Device, (self.backend, self.index, self.api, self.numbered)

    def __str__(self) -> str:
        name = self.api or self.backend
        return f"{name}:{self.index}" if self.index else name

    def __repr__(self) -> str:
        shared = "" if self.handle is None else f", handle={self.handle!r}"
        return f"rlx.Device({str(self)!r}{shared})"


# The device that every machine has. Graphs that no other device can run go here.
HOST_DEVICE = Device("cpu")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def parse_device_list(text: str) -> list[Device]:
    """Devices separated by commas; empty entries are skipped.

    Raises:
        DeviceParseError: An entry is not a device.

    Example:
        >>> [str(d) for d in parse_device_list("gpu, cpu")]
        ['webgpu', 'cpu']
    """
    return [Device.parse(part) for part in text.split(",") if part.strip()]


def infos(device: Device) -> list[DeviceInfo]:
    """The devices that a name may mean, in order.

    Raises:
        DeviceUnavailableError: There is no such backend, or it does not work.
    """
    if device.handle is not None:
        info = adopted(device.handle)
        return [] if info is None else [info]
    result = devices_of(device.backend)
    return [info for info in result if not device.api or _APIS.get(info.api.lower()) == device.api]


def info_of(device: Device) -> DeviceInfo:
    """The device that a name means.

    Raises:
        DeviceUnavailableError: It is not on this machine; says what to install.
    """
    result = infos(device)
    if device.handle is not None and result:
        return result[0]
    if device.index < len(result):
        return result[device.index]
    here = ", ".join(map(str, available_devices()))
    raise DeviceUnavailableError(
        f"device {str(device)!r} is not available",
        got=f"{len(result)} such devices" if result else absent(device.backend),
        expected=f"one of {here}",
        hint="`rlx devices` lists what is here and what is missing",
    )


def available_devices(again: bool = False) -> list[Device]:
    """The devices graphs can run on here: the CPU first, then every WebGPU adapter, then plug-ins.

    A plug-in that does not work has none; ``rlx.GraphDevices.report`` and ``rlx devices`` say why.

    Args:
        again: Looks for devices again. Otherwise the GPUs found by the first call, or after the last loss of a device,
            are returned. Compiled graphs stay on their devices; numbers may mean other GPUs.

    Example:
        >>> import rlx
        >>> rlx.available_devices(again=True)[0]
        rlx.Device('cpu')
    """
    results = []
    # All of them before the first is listed: two backends may share what they find out.
    working = [name for name in listed_backends() if not again or _refreshed(name)]
    for name in working:
        try:
            count = len(devices_of(name))
        except DeviceUnavailableError:
            continue
        results += [Device(name, i, numbered=True) for i in range(count)]
    return results


def _refreshed(name: str) -> bool:
    """Has a backend look again; False for a plug-in that does not work."""
    try:
        backend(name).refresh()
    except DeviceUnavailableError:
        return False
    return True


def is_available(device: DeviceLike) -> bool:
    """Returns whether a graph could be compiled for the device on this machine.

    Raises:
        DeviceParseError: The text is not a device.
    """
    device = Device.parse(device)
    try:
        return device.handle is not None or device.index < len(infos(device))
    except DeviceUnavailableError:
        return False


def host_sync_op_kinds(device: Device | str | None = None) -> frozenset[str]:
    """The op kinds of which a node may make a device wait for the host.

    Args:
        device: A device or its name; None for the conservative set, every kind that does so anywhere.

    Raises:
        DeviceParseError: The text is not a device.
        DeviceUnavailableError: No backend of that name is registered.

    Example:
        >>> sorted(host_sync_op_kinds())
        ['custom', 'log_mel', 'log_mel_backward', 'welch_peaks']
        >>> sorted(host_sync_op_kinds("cpu"))
        []
    """
    if device is None:
        return host_sync_ops(None)
    return host_sync_ops(backend(Device.parse(device).backend).kernel_set)

"""Opening a GPU while a program does other things: its driver takes longer than anything else at the start."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx.device.names import DeviceLike

# Devices that need no driver, and those of plug-ins, which have nothing to do with wgpu.
_WITHOUT_WGPU = ("cpu", "reference", "null", "cuda", "rocm", "mlx", "tpu", "ane")


def open_ahead(device: DeviceLike = "auto") -> None:
    """Begins to open a GPU in a thread, and returns at once.

    A program calls it in its first lines, before it imports other packages, reads files or builds graphs. Whatever
    uses the device later waits for the rest. Nothing fails here: a device that is not there is an error where it is
    used.

    Args:
        device: As for ``rlx.compile``. With "auto" adapters are looked for, and none is opened. Nothing is done
            for a CPU, for devices of plug-ins, and for a ``wgpu.GPUDevice``, which is open.

    Example:
        >>> import rlx
        >>> rlx.open_ahead("webgpu")
    """
    if str(device).partition(":")[0] in _WITHOUT_WGPU or hasattr(device, "queue"):
        return
    # No daemon: a driver that is cut off while it starts may crash the process.
    threading.Thread(target=_open, args=(device,), name="rlx-ahead").start()


def _open(device: Any) -> None:
    from rlx.backends.webgpu.listing import listed
    from rlx.backends.webgpu.provider import forked, provider_of
    from rlx.errors import RlxError

    if forked():
        return
    try:
        # First, with next to nothing of rlx: the driver works while the program's thread imports.
        listed(provider_of(str(device).partition(":")[0]))
        from rlx.backends.registry import backend
        from rlx.device.names import Device, info_of

        if device != "auto":
            info = info_of(Device.parse(device))
            backend(info.backend).open_ahead(info)
    except RlxError:
        pass  # the same error is raised where the device is used

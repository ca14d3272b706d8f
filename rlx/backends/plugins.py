"""Asking backends that others wrote: whatever goes wrong in one becomes a message about that one."""

from __future__ import annotations

from typing import Any

from rlx.backends.base import Capabilities, DeviceInfo
from rlx.backends.registry import backend, plugin_error
from rlx.cost.model import BackendCostModel
from rlx.errors import DeviceUnavailableError, RlxError
from rlx.ir.graph import Graph


def is_built_in(name: str) -> bool:
    """Whether the backend of that name is rlx's own.

    Raises:
        DeviceUnavailableError: There is no such backend, or it does not work.
    """
    return type(backend(name)).__module__.startswith("rlx.")


def devices_of(name: str) -> list[DeviceInfo]:
    """The devices of a backend; empty when it works and there is none.

    Raises:
        DeviceUnavailableError: There is no such backend, or it does not work.
    """
    one = backend(name)
    try:
        found = list(one.devices())
    except Exception as error:  # Whatever a plug-in does wrong stays its own matter.
        raise plugin_error(name, "devices()", error) from error
    for info in found:
        if not isinstance(info, DeviceInfo) or info.backend != name:
            raise plugin_error(name, "devices()", f"gave {info!r}, no rlx.DeviceInfo of {name!r}")
    return found


def absent(name: str) -> str:
    """Why a backend has no devices, and what to install."""
    try:
        devices_of(name)
        return str(backend(name).absent())
    except Exception as error:
        return (
            str(error)
            if isinstance(error, RlxError)
            else str(plugin_error(name, "absent()", error))
        )


def refusal(info: DeviceInfo, graph: Graph) -> str | None:
    """Why a device's backend itself refuses a graph; None when it does not, or is not asked."""
    try:
        found = _asked(info, "refuses", graph)
    except DeviceUnavailableError as error:
        return str(error)
    return None if found is None else str(found)


def figures_of(info: DeviceInfo) -> BackendCostModel | None:
    """A device's figures as its backend states them; None when it states none.

    Raises:
        DeviceUnavailableError: The backend's ``cost_model`` does not work.
    """
    found: BackendCostModel | None = _asked(info, "cost_model")
    return found


def capabilities_of(info: DeviceInfo) -> Capabilities | None:
    """What executables for a device can do, where its backend says so beforehand.

    Raises:
        DeviceUnavailableError: The backend's ``capabilities`` does not work.
    """
    found: Capabilities | None = _asked(info, "capabilities")
    return found


def _asked(info: DeviceInfo, method: str, *args: Any) -> Any:
    """The answer of a method that a backend may lack."""
    asks = getattr(backend(info.backend), method, None)
    try:
        return None if asks is None else asks(info, *args)
    except Exception as error:
        raise plugin_error(info.backend, f"{method}()", error) from error

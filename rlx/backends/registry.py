"""The backends by name: built in, registered by a program, or installed as plug-ins."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from typing import Any

from rlx import flags
from rlx.backends.base import Backend, DeviceInfo
from rlx.backends.plugin_guard import GuardedBackend, plugin_error
from rlx.errors import DeviceUnavailableError, InputError, RlxError, install_line
from rlx.ir.kernel_sets import KERNEL_SETS

# Built-in backends are imported on first use, so that ``import rlx`` needs no driver.
_BUILT_IN = {
    "cpu": "rlx.backends.cpu.cpu_backend",
    "webgpu": "rlx.backends.webgpu.webgpu_backend",
    "dawn": "rlx.backends.dawn",
    "reference": "rlx.backends.reference",
    "null": "rlx.backends.null",
}
# For developers: the definition of correct results, and a compile without a device. Never picked for users.
_FOR_DEVELOPERS = ("reference", "null")
# Second ways to the same hardware. One is listed once somebody has asked for it: to start it takes a while.
_ON_REQUEST = ("dawn",)
# The argument of pip in a checkout of rlx, for a backend with a package of its own.
PACKAGES = {
    "cuda": "plugins/rlx_xla[cuda]",
    "rocm": "plugins/rlx_xla[rocm]",
    "tpu": "plugins/rlx_xla[tpu]",
    "xla": "plugins/rlx_xla",
    "mlx": "plugins/rlx_mlx",
}
_requested: set[str] = set()
_loaded: dict[str, GuardedBackend] = {}
# Error messages of plug-ins that failed to import. Each is tried once.
_broken: dict[str, str] = {}


def register_backend(backend: Backend) -> None:
    """Adds a backend under its name, in place of one of that name.

    Args:
        backend: The backend. Installed packages can also name one in the entry-point group
            ``rlx.backends``.

    Raises:
        InputError: It is no ``rlx.Backend``, or has a kernel set that does not exist.
    """
    fault = _fault(backend)
    if fault:
        raise InputError(fault, got=repr(backend), expected="a rlx.Backend")
    _loaded[backend.name] = GuardedBackend(backend)
    flags.renew()
    _broken.pop(backend.name, None)


def _fault(backend: object) -> str | None:
    """Returns why an object is no backend; None where it is one."""
    if isinstance(backend, type):
        return f"the class {backend.__name__} is not a backend; an instance of it may be"
    if not isinstance(backend, Backend):
        return f"{type(backend).__name__} does not inherit from rlx.Backend"
    if type(backend).load is Backend.load and type(backend).lower is Backend.lower:
        return "a backend without load or lower"
    name, kernel_set = getattr(backend, "name", None), backend.kernel_set
    if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
        return f"{name!r} is no name for a backend: a lower-case word"
    if kernel_set and kernel_set not in KERNEL_SETS:
        known = ("", *KERNEL_SETS)
        return f"backend {name!r} wants the kernel set {kernel_set!r}, which is not one of {known}"
    return None


def backend_names() -> list[str]:
    """Names of all backends: built in, registered, or installed as plug-ins."""
    return sorted({*_BUILT_IN, *_loaded, *_entry_points()})


def listed_backends() -> list[str]:
    """Names of the backends that users run graphs on, in the order of tables: the CPU, GPUs, plug-ins.

    Those that are second ways to the same hardware are among them once they were asked for: see ``request``.
    """
    ours = list(_BUILT_IN)
    hidden = {*_FOR_DEVELOPERS, *_ON_REQUEST} - _requested
    names = [name for name in backend_names() if name not in hidden]
    return sorted(names, key=lambda name: (ours.index(name) if name in ours else len(ours), name))


def request(name: str) -> None:
    """Lists a backend from now on, since the program asked for it."""
    if name in _ON_REQUEST:
        _requested.add(name)


def request_all() -> None:
    """Has every backend listed from now on."""
    _requested.update(_ON_REQUEST)


def unasked() -> list[str]:
    """Returns the backends that are unlisted until the program asks for them."""
    return [name for name in _ON_REQUEST if name not in _requested]


def is_second_way(name: str) -> bool:
    """Returns whether a backend only shows hardware that another backend shows as well."""
    return name in _ON_REQUEST


def backend(name: str) -> GuardedBackend:
    """Returns the backend of that name.

    Raises:
        DeviceUnavailableError: None is registered, or its package does not work.
    """
    if name not in _loaded:
        if name in _BUILT_IN:
            register_backend(importlib.import_module(_BUILT_IN[name]).BACKEND)
        elif name in (plugins := _entry_points()):
            _load_plugin(name, plugins[name])
        else:
            raise DeviceUnavailableError(
                f"no backend for {name!r} is installed",
                got=name,
                expected=f"one of {', '.join(_working())}",
                hint=how_to_install(name),
            )
    return _loaded[name]


def how_to_install(name: str) -> str:
    """Returns where a missing backend can be installed from."""
    place = PACKAGES.get(name)
    if place is None:
        return "a package with an entry point in the group rlx.backends brings one, or rlx.register_backend"
    return install_line(place)


def _working() -> list[str]:
    """The listed backends that have a device here."""
    results = []
    for name in listed_backends():
        try:
            results += [name] if list(backend(name).devices()) else []
        except Exception:  # what does not work is not to be had
            continue
    return results


def _load_plugin(name: str, points: Sequence[Any]) -> None:
    """Imports and registers a plug-in.

    Raises:
        DeviceUnavailableError: That fails; the second time without another try.
    """
    if name not in _broken:
        try:
            result = _chosen(name, points).load()
            if getattr(result, "name", name) != name:
                raise InputError(f"its backend is named {result.name!r}")
            register_backend(result)
            return
        # SystemExit too: a package that exits on import must not end this process.
        except (Exception, SystemExit) as error:
            claimed = "; ".join(f"{point.value} of {_package(point)}" for point in points)
            _broken[name] = str(plugin_error(name, f"import ({claimed})", error))
    raise DeviceUnavailableError(_broken[name])


def _chosen(name: str, points: Sequence[Any]) -> Any:
    """The entry point of a name: the only one, or that of the package that ``RLX_PLUGINS`` names.

    Raises:
        InputError: Several packages claim the name, and none of them was chosen.
    """
    wanted = flags.PLUGINS.get().get(name)
    if wanted is None:
        if len(points) == 1:
            return points[0]
        packages = " or ".join(sorted(f"{name}={_name_of(point)}" for point in points))
        raise InputError(f"{len(points)} packages claim this name; set RLX_PLUGINS to {packages}")
    for point in points:
        if _name_of(point) == wanted:
            return point
    raise InputError(f"RLX_PLUGINS names the package {wanted!r}, which has no such backend")


def _name_of(point: Any) -> str:
    """The name of an entry point's package, as package indexes write it."""
    dist = getattr(point, "dist", None)
    return re.sub(r"[-_.]+", "-", dist.name).lower() if dist is not None else "unknown"


def _package(point: Any) -> str:
    dist = getattr(point, "dist", None)
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown package"


def devices_of(name: str) -> list[DeviceInfo]:
    """Returns the devices of a backend, and lists it from now on.

    Raises:
        DeviceUnavailableError: There is no such backend, or it does not work.
    """
    result = backend(name)
    request(name)
    return result.devices()


def absent(name: str) -> str:
    """Returns the reason why a backend has no devices, with the package to install."""
    try:
        devices_of(name)
        return str(backend(name).plain.absent())
    except Exception as error:
        if isinstance(error, RlxError):
            return str(error)
        return str(plugin_error(name, "absent()", error))


# Backends that run on a device object of another library that the program hands over.
_ADOPTING = ("webgpu", "dawn")


def adopted(handle: object) -> DeviceInfo | None:
    """Returns a device object of the program as a device; None where it stands for none.

    Raises:
        DeviceUnavailableError: The device can't be shared.
    """
    for name in _ADOPTING:
        info = backend(name).plain.adopted(handle)
        if info is not None:
            return info
    return None


# Cached: it reads the metadata of all installed packages, which takes longer than a small compile.
@functools.cache
def _entry_points() -> dict[str, tuple[Any, ...]]:
    from importlib.metadata import entry_points

    results: dict[str, tuple[Any, ...]] = {}
    for point in entry_points(group="rlx.backends"):
        if point.name not in _BUILT_IN:
            results[point.name] = (*results.get(point.name, ()), point)
    return results

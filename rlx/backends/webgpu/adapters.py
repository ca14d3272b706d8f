"""The GPU adapters of this machine: each GPU through its best API first, then through other APIs."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from rlx import flags
from rlx.backends.base import DeviceInfo
from rlx.backends.executable import Capabilities
from rlx.backends.webgpu.diagnose import has_hardware, is_loadable, missing_part
from rlx.backends.webgpu.listing import forget, listed
from rlx.backends.webgpu.provider import Provider, forked, provider, provider_of
from rlx.errors import DeviceUnavailableError
from rlx.ir.fragments import Fragment
from rlx.ir.spans import phase

# The defaults of the WebGPU specification (table "Limits"): what every adapter has.
DEFAULT_LIMITS = {
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroups-per-dimension": 65535,
    "min-storage-buffer-offset-alignment": 256,
    "max-storage-buffer-binding-size": 134217728,
    "max-storage-buffers-per-shader-stage": 8,
    "max-buffer-size": 268435456,
}
# The optional features that kernels use, as DeviceInfo.features calls them.
FEATURES = (
    "shader-f16",
    "timestamp-query",
    "subgroup",
    "subgroup-size-control",
    "chromium-experimental-subgroup-matrix",
)
_MATRICES = "chromium-experimental-subgroup-matrix"
ABSENT = (
    "no WebGPU adapter was found; a GPU needs its vendor's Vulkan driver, and without a GPU "
    "`apt-get install -y mesa-vulkan-drivers libvulkan1` gives one that runs on the CPU"
)


# Kinds of adapters by WebGPU's names for them.
_KINDS = {
    "IntegratedGPU": "integrated",
    "DiscreteGPU": "discrete",
    "VirtualGPU": "virtual",
    "CPU": "software",
}


@functools.cache
def adapters(library: Provider) -> tuple[Any, ...]:
    """The adapters of a library in use; OpenGL ones only where there is no other. Never raises."""
    with phase("adapters"):  # that another thread may be asking for
        result = listed(library)
    # OpenGL shows the same hardware a second time, with lower limits.
    real = [adapter for adapter in result if adapter.info["backend_type"] != "OpenGL"]
    chosen = real or result
    # Hardware comes before software adapters, so that device 0 is a GPU where there is one. A GPU that a second
    # API shows again comes last, so that the first numbers count distinct GPUs.
    order = {
        id(adapter): (seen_before(i, chosen), adapter.info["adapter_type"] == "CPU")
        for i, adapter in enumerate(chosen)
    }
    return tuple(sorted(chosen, key=lambda adapter: order[id(adapter)]))


def look_again() -> None:
    """Forgets the adapters: the next call of ``adapters`` looks for them again."""
    forget()
    adapters.cache_clear()
    flags.renew()


def adapter_of(info: DeviceInfo) -> Any:
    """The adapter of a device. Its number may be another one by now.

    Raises:
        DeviceUnavailableError: It is not there any more.
    """
    wanted = info.api, (info.vendor_id, info.device_id, info.adapter)
    result = adapters(provider_of(info.backend))
    same = [i for i, item in enumerate(result) if (_api(item), _identity(item)) == wanted]
    if not same:
        raise DeviceUnavailableError(
            f"{info.adapter} is not on this machine any more",
            got=", ".join(item.info["device"] for item in result) or "no adapter",
            hint="plug it in, or choose another of rlx.available_devices()",
        )
    return result[info.index if info.index in same else same[0]]


def seen_before(index: int, adapters: Sequence[Any]) -> bool:
    """Returns whether an earlier adapter is the same hardware through another API.

    D3D12 and Vulkan may both show one card; the name and PCI ids identify it. Identical cards are told apart by their
    number within the API.
    """
    adapter = adapters[index]
    before = [other for other in adapters[:index] if _identity(other) == _identity(adapter)]
    number = sum(1 for other in before if _api(other) == _api(adapter))
    apis = {_api(other) for other in before} - {_api(adapter)}
    return any(sum(1 for other in before if _api(other) == api) > number for api in apis)


def _api(adapter: Any) -> str:
    return str(adapter.info["backend_type"])


def _identity(adapter: Any) -> tuple[Any, ...]:
    info = adapter.info
    return info["vendor_id"], info["device_id"], info["device"]


def limits_of(adapter: Any) -> dict[str, int]:
    """The limits to request for a device of this adapter, or those that a device has."""
    if flags.WEBGPU_DEFAULT_LIMITS.get():
        return dict(DEFAULT_LIMITS)
    has = adapter.limits
    return {name: int(has.get(name, default)) for name, default in DEFAULT_LIMITS.items()}


def features_of(library: Provider, adapter: Any) -> tuple[str, ...]:
    """The optional features that rlx knows and the adapter, or the device, has."""
    own = library.own_names
    return tuple(name for name in FEATURES if own.get(name) in adapter.features)


def device_infos(backend: str) -> list[DeviceInfo]:
    """A ``DeviceInfo`` for each adapter of a backend. Never raises."""
    library = provider_of(backend)
    if forked() or library.missing() is not None:
        return []
    result = enumerate(adapters(library))
    return [_info(backend, library, i, adapter, adapter) for i, adapter in result]


def shared_info(backend: str, device: Any) -> DeviceInfo:
    """The ``DeviceInfo`` of a wgpu device that the program made: its adapter, the limits and features that it has.

    Its number is that of the adapter, or one more than there are if rlx does not list that adapter.
    """
    library = provider_of(backend)
    known = [(_api(adapter), _identity(adapter)) for adapter in adapters(library)]
    own = _api(device.adapter), _identity(device.adapter)
    index = known.index(own) if own in known else len(known)
    return replace(_info(backend, library, index, device.adapter, device), handle=device)


def _info(backend: str, library: Provider, index: int, adapter: Any, has: Any) -> DeviceInfo:
    """An adapter with the limits and features that it, or a device of it, has."""
    info, features = adapter.info, frozenset(features_of(library, has))
    return DeviceInfo(
        backend,
        index,
        info["device"],
        api=info["backend_type"],
        driver=info["description"],
        software=info["adapter_type"] == "CPU",
        limits=limits_of(has),
        features=features,
        vendor_id=int(info["vendor_id"]),
        device_id=int(info["device_id"]),
        kind=_KINDS.get(info["adapter_type"], ""),
        fragments=_fragments(library, adapter, features),
    )


def _fragments(library: Provider, adapter: Any, features: Collection[str]) -> tuple[Fragment, ...]:
    """Returns the matrix multiplications that the adapter's matrix units offer.

    A device within the default limits has none.
    """
    if _MATRICES not in features or flags.WEBGPU_DEFAULT_LIMITS.get():
        return ()
    return library.fragments(adapter)


def unusable(backend: str) -> str | None:
    """Explains why this installation can't use a GPU of this machine, and what to do; None where nothing is wrong.

    A missing Dawn is no problem unless it was asked for.
    """
    if backend == "dawn" or forked():
        return None
    if provider_of(backend).name != "wgpu":
        return provider_of(backend).missing()
    part = missing_part()
    if part is None:
        return None
    return part if (adapters(provider("wgpu")) if is_loadable() else has_hardware()) else None


def capabilities_with(library: Provider, features: Collection[str]) -> Capabilities:
    """Returns the capabilities of executables on a device of a library with these features."""
    return Capabilities(
        f16="shader-f16" in features,
        device_timestamps="timestamp-query" in features,
        can_be_lost=True,
        sized_programs=True,
        kernel_variants=True,
        optional_features=tuple(name for name in FEATURES if name in library.own_names),
        gpu_buffers=True,
    )

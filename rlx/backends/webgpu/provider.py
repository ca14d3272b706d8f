"""The differences of the two WebGPU libraries: wgpu-native through wgpu-py, and Dawn through wgpudawn.

Both packages have one API, so most of this backend works with either.

Neither works after ``os.fork``: a driver's threads and locks don't come along, and a child that calls the driver of its parent
hangs for good. It gets a typed error instead, and frees nothing. Where the parent had not used WebGPU yet, the child may.
"""

from __future__ import annotations

import importlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, ClassVar

from rlx import flags
from rlx.errors import DeviceUnavailableError
from rlx.ir.fragments import Fragment


class Provider(ABC):
    """One library.

    Attributes:
        name: Its usual name.
        package: The Python package.
        native: Its module that calls the library.
        own_names: The optional features that rlx uses, by rlx's name for each, with the library's.
        needed: Features without which a device can't be used here.
        checks_by_device: Whether ``RLX_SHADER_CHECKS`` is a matter of the device, not of each shader.
    """

    name: str
    package: str
    native: str
    own_names: Mapping[str, str]
    needed: tuple[str, ...] = ()
    checks_by_device = False

    @abstractmethod
    def missing(self) -> str | None:
        """Explains which part of the library is missing or unloadable, and what to do; None if it is complete."""

    def module(self) -> ModuleType:
        """The package, imported, with its errors and flags."""
        return importlib.import_module(self.package)

    @abstractmethod
    def version(self) -> str:
        """The release of the package, and of what it brings, without starting it.

        Raises:
            DeviceUnavailableError: The package is not installed.
        """

    @abstractmethod
    def listed(self) -> tuple[Any, ...]:
        """Its adapters.

        Raises:
            Exception: Whatever a missing or broken driver makes of it.
        """

    def fragments(self, adapter: Any) -> tuple[Fragment, ...]:
        """The matrices that an adapter's subgroups multiply."""
        return ()

    @abstractmethod
    def opened(self, adapter: Any, features: Collection[str], limits: Mapping[str, int]) -> Any:
        """A new device of an adapter.

        Args:
            adapter: The adapter.
            features: The features that the device gets, in the library's own names.
            limits: The limits that the device gets.

        Raises:
            Exception: Whatever the driver says.
        """

    def owns(self, handle: object) -> bool:
        """Returns whether an object is a device of this library; the library need not be imported for that."""
        native = sys.modules.get(self.native)
        return native is not None and isinstance(handle, native.GPUDevice)

    @abstractmethod
    def shader_module(self, device: Any, label: str, code: str) -> Any:
        """A module of a device, without run-time checks unless ``RLX_SHADER_CHECKS`` asks for them.

        Raises:
            Exception: The source is refused.
        """

    def reporting(self, device: Any) -> AbstractContextManager[None]:
        """A block whose calls raise their own errors, whatever other threads do on the device."""
        return nullcontext()

    def lost(self, device: Any) -> bool:
        """Returns whether a device is known to be lost; False for a library whose calls report the loss themselves."""
        return False

    @abstractmethod
    def timestamp_period(self, queue: Any) -> float:
        """Nanoseconds between two ticks of a queue's clock."""

    @abstractmethod
    def binding(self) -> tuple[Any, Any, Any] | None:
        """Its cffi interface, the module of the C path, and its functions for that; None where Python makes the calls."""

    def keep_objects(self) -> None:
        """In a process that was forked: frees nothing any more."""
        native = sys.modules.get(self.native)
        if native is None:
            return
        api = importlib.import_module(f"{self.native}._api")
        for kind in (api.GPUObjectBase, native.GPUAdapter, native.GPUDevice):
            kind._release = _keep


def _keep(thing: object) -> None:
    """Stands for the release of one of a library's objects."""


# Where each is, by the value of RLX_WEBGPU.
_MODULES = {
    "wgpu": "rlx.backends.webgpu.provider_wgpu",
    "dawn": "rlx.backends.webgpu.provider_dawn",
}


def provider(name: str) -> Provider:
    """The library of a name: "wgpu" or "dawn". Nothing of it is imported yet."""
    result: Provider = importlib.import_module(_MODULES[name]).PROVIDER
    return result


def provider_of(backend: str) -> Provider:
    """Returns the library of a backend: Dawn for "dawn", the library named by ``RLX_WEBGPU`` for "webgpu"."""
    return provider("dawn" if backend == "dawn" else flags.WEBGPU.get())


FORKED = (
    "this process was forked from one that used WebGPU, whose driver does not survive that; "
    'start it with multiprocessing.get_context("spawn"), or fork before WebGPU is used'
)


class _State:
    """The libraries that were used in this process, and whether one was used in the parent before a fork."""

    used: ClassVar[set[str]] = set()
    dead = False


def mark_used(library: str) -> None:
    """Notes that WebGPU is used in this process.

    Args:
        library: The name of its ``Provider``.
    """
    _State.used.add(library)


def forked() -> bool:
    """Returns whether WebGPU is unusable because the parent process used it before the fork."""
    return _State.dead


def check_not_forked() -> None:
    """Refuses the use of WebGPU in a process that was forked from one that used it.

    Raises:
        DeviceUnavailableError: It is one.
    """
    if _State.dead:
        raise DeviceUnavailableError(
            "WebGPU can't be used in a forked process", got=f"pid {os.getpid()}", hint=FORKED
        )


def _in_child() -> None:
    if not _State.used or _State.dead:
        return
    _State.dead = True
    from rlx._ext import webgpu_hot

    webgpu_hot.stop_all()
    # The objects belong to the parent process. Freeing them would take driver locks that nobody can release.
    for name in _State.used:
        provider(name).keep_objects()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

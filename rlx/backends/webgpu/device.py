"""One wgpu device per adapter, and the pipelines made on it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from rlx import flags
from rlx.backends.base import DeviceInfo
from rlx.backends.webgpu.adapters import adapter_of, capabilities_with, features_of, look_again
from rlx.backends.webgpu.dispatch import UNIFORM, Dispatch
from rlx.backends.webgpu.provider import check_not_forked, forked, provider_of
from rlx.errors import CompileError, DeviceLostError, DeviceMemoryError, DeviceUnavailableError
from rlx.ir.spans import checkpoint, progress
from rlx.locks import Lock
from rlx.lru import ON_DEVICES, Lru

_ACCESS = {"read": "read-only-storage", "read_write": "storage", UNIFORM: "uniform"}

# Pipelines that a device keeps after the graphs that used them are gone; ``RLX_GPU_CACHE_BYTES`` bounds their memory.
MAX_PIPELINES = 1024
# The memory of a pipeline in a driver, and for each byte of its WGSL. No driver reports it; these are from the growth of a process
# on lavapipe, which compiles to machine code: 0.27 MB for texts of 0.8 kB, 0.6 MB for texts of 5 kB.
_PIPELINE_BYTES, _BYTES_A_BYTE = 224 << 10, 72

# Threads that make pipelines at once.
_MAKERS = 8

# How long a wait for the GPU polls before it sleeps, in ns: longer than most runs of a real-time loop.
SPIN_NS = 1_000_000


class GpuDevice:
    """A wgpu device with its caches.

    Args:
        info: The device. One with a handle belongs to the program, which shares it: it is used as it is, and
            is never destroyed here.

    Attributes:
        device: The wgpu device.
        provider: The library that it is of.
        queue: Its queue.
        capabilities: The abilities of executables on it.
        limits: The limits it was asked for.
        spin_ns: How long a run asks it whether it is done before it sleeps. Waking up costs more
            than a small run; a software adapter needs the processor itself.
        shared: Whether it belongs to the program.
        lost: Whether it was found to be lost.
        shared_params: The params that programs of one graph share, by the graph, their values and types.

    Raises:
        DeviceUnavailableError: The driver gives none, or the adapter is not there any more.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self.shared, self.lost = info.handle is not None, False
        self.limits, self.provider = dict(info.limits), provider_of(info.backend)
        self.device: Any = info.handle if self.shared else _opened(info)
        self.queue: Any = self.device.queue
        self.capabilities = capabilities_with(
            self.provider, features_of(self.provider, self.device)
        )
        self.spin_ns = 0 if info.software else SPIN_NS
        # Every pipeline that an executable holds (weak), and the ones used most recently.
        self._pipelines: WeakValueDictionary[tuple[str, bool], Any] = WeakValueDictionary()
        self._recent: Lru[tuple[str, bool], Any] = Lru(MAX_PIPELINES, flags.GPU_CACHE_BYTES.get())
        ON_DEVICES.add(self._recent)
        self._being_made: dict[tuple[str, bool], tuple[Future[Any], int]] = {}
        self.shared_params: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._lock = Lock()
        self._loading = threading.local()

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # Modules may be gone by then: ``finalizing`` is asked first, and is a default for that reason.
        # It ends with the last graph on it, once it is forgotten. wgpu-py's device refers to itself, as its
        # queue does, so that the driver's would stay until Python's garbage collector comes by; and
        # drivers give a limited number of devices.
        device = None if self.shared else getattr(self, "device", None)
        if device is not None and not finalizing() and not forked():
            device.destroy()
            # Where the garbage collector takes both together, wgpu-py's device may have let go of its queue already.
            device._device = None
            if (queue := getattr(self, "queue", None)) is not None:
                queue._device = None

    def buffer(self, label: str, size: int, *usages: str, mapped: bool = False) -> Any:
        """A buffer.

        Args:
            label: Its name in messages of the driver.
            size: Bytes.
            usages: Names of ``wgpu.BufferUsage``.
            mapped: Whether it starts out mapped.

        Raises:
            DeviceMemoryError: The device has no room for it.
            DeviceLostError: The device is gone.
        """
        wgpu = self.provider.module()
        check_not_forked()
        usage = 0
        for name in usages:
            usage |= int(getattr(wgpu.BufferUsage, name))
        results: list[Any] = getattr(self._loading, "made", [])
        try:
            with self.provider.reporting(self.device):
                result = self.device.create_buffer(
                    label=label, size=size, usage=usage, mapped_at_creation=mapped
                )
        except wgpu.GPUOutOfMemoryError as error:
            raise DeviceMemoryError(
                f"no room for buffer {label!r}",
                got=f"{error}, after {sum(item.size for item in results)} bytes for this graph",
                expected=f"{size} bytes more",
                hint="use smaller batches, close other graphs, or use the CPU",
            ) from error
        except wgpu.GPUError as error:
            raise DeviceLostError(
                f"buffer {label!r} can't be made", got=error, hint="cg.recover()"
            ) from error
        if self.provider.lost(self.device):
            what = f"buffer {label!r} can't be made"
            raise DeviceLostError(what, got="the device is lost", hint="cg.recover()")
        results.append(result)
        return result

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Frees the buffers made inside when it fails."""
        results: list[Any] = []
        self._loading.made = results
        try:
            yield
        except BaseException:
            for buffer in results:
                buffer.destroy()
            raise
        finally:
            del self._loading.made

    def pipelines(self, dispatches: Iterable[Dispatch]) -> list[Any]:
        """The pipelines of dispatches: one per source, compiled in parallel since drivers are slow.

        Raises:
            CompileError: The driver refuses a source.
        """
        wanted = list(dispatches)
        with self._lock:
            checked = flags.SHADER_CHECKS.get()
            missing = {
                item.source: item
                for item in wanted
                if (item.source, checked) not in self._pipelines
            }
        # A program that embeds rlx has work of its own for one of the processors.
        workers = min(len(missing), _MAKERS, (os.cpu_count() or 1) - 1)
        if workers > 1:
            with ThreadPoolExecutor(workers, "rlx-pipelines") as pool:
                try:
                    return self._told(pool.map(self._pipeline, missing.values()), missing, wanted)
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        return self._told(map(self._pipeline, missing.values()), missing, wanted)

    def _told(self, making: Iterable[Any], missing: Sized, wanted: list[Dispatch]) -> list[Any]:
        """The pipelines of dispatches, once those that are missing are made, one after the other."""
        results = []  # kept while they are looked up: the device alone holds only those used last
        for item in making:
            results.append(item)
            progress(len(results) / len(missing), "pipelines")
        outputs = []
        for dispatch in wanted:
            checkpoint()
            outputs.append(self._pipeline(dispatch))
        return outputs

    def _pipeline(self, dispatch: Dispatch) -> Any:
        key, me = (dispatch.source, flags.SHADER_CHECKS.get()), threading.get_ident()
        with self._lock:
            result = self._pipelines.get(key)
            maker, by = self._being_made.get(key, (None, 0))
            if result is None and maker is None:
                own = Future[Any]()
                self._being_made[key] = own, me
        if result is None and by == me:
            # A signal handler compiles what this thread was about to make.
            return self._make(dispatch)
        if result is None and maker is not None:
            result = maker.result()
        elif result is None:
            try:
                result = self._make(dispatch)
                own.set_result(result)
            except BaseException as error:
                own.set_exception(error)
                raise
            finally:
                with self._lock:
                    if result is not None:
                        self._pipelines[key] = result
                    del self._being_made[key]
        with self._lock:
            self._recent.put(key, result, _PIPELINE_BYTES + _BYTES_A_BYTE * len(dispatch.source))
        return result

    def _make(self, dispatch: Dispatch) -> Any:
        try:
            layout = self._layout(dispatch.access)[1]
            with self.provider.reporting(self.device):
                module = self.provider.shader_module(self.device, dispatch.label, dispatch.source)
                return self.device.create_compute_pipeline(
                    label=dispatch.label,
                    layout=layout,
                    compute={"module": module, "entry_point": "main"},
                )
        except Exception as error:
            numbered = enumerate(dispatch.source.splitlines(), start=1)
            text = "\n".join(f"{number:4} {line}" for number, line in numbered)
            raise CompileError(
                f"the WGSL of kernel {dispatch.label} was refused",
                where=dispatch.call.node.where(),
                got=f"{error}\n{text}",
            ) from error

    def _layout(self, access: tuple[str, ...]) -> tuple[Any, Any]:
        # Explicit, since an automatic layout leaves out bindings that the shader ends up not using.
        with self._lock:
            if access not in self._layouts:
                self._layouts[access] = self._new_layout(access)
            return self._layouts[access]

    def _new_layout(self, access: tuple[str, ...]) -> tuple[Any, Any]:
        entries = [
            {
                "binding": i,
                "visibility": self.provider.module().ShaderStage.COMPUTE,
                "buffer": {"type": _ACCESS[mode]},
            }
            for i, mode in enumerate(access)
        ]
        bindings = self.device.create_bind_group_layout(label="rlx", entries=entries)
        layout = self.device.create_pipeline_layout(label="rlx", bind_group_layouts=[bindings])
        return bindings, layout

    def bind(self, dispatch: Dispatch, resources: list[tuple[Any, int, int]]) -> Any:
        """A bind group of ``(buffer, offset, size)`` pieces."""
        entries = [
            {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for i, (buffer, offset, size) in enumerate(resources)
        ]
        layout = self._layout(dispatch.access)[0]
        with self.provider.reporting(self.device):
            return self.device.create_bind_group(
                label=dispatch.label, layout=layout, entries=entries
            )


def _opened(info: DeviceInfo) -> Any:
    """A new wgpu device."""
    adapter, library = adapter_of(info), provider_of(info.backend)
    lacking = [name for name in library.needed if name not in adapter.features]
    if lacking:
        raise DeviceUnavailableError(
            f"{info.adapter} can't be used through {library.version()}",
            got=f"no {', '.join(lacking)}",
            hint=f"use the release of {library.package} that rlx was made for, or another device",
        )
    own = [library.own_names[name] for name in features_of(library, adapter)]
    try:
        return library.opened(adapter, [*own, *library.needed], info.limits)
    except Exception as error:
        raise DeviceUnavailableError(f"{info.adapter} can't be opened", got=error) from error


_devices: dict[tuple[Any, ...], GpuDevice] = {}
# Devices of the program, by the ``id`` of the wgpu device, for as long as something of rlx is on them.
_shared: WeakValueDictionary[int, GpuDevice] = WeakValueDictionary()
_devices_lock = Lock()


def gpu_device(info: DeviceInfo) -> GpuDevice:
    """The device of an adapter, shared by all users with the same limits; or the program's own.

    Raises:
        DeviceUnavailableError: The driver gives none, or the program's own was lost.
    """
    check_not_forked()
    with _devices_lock:
        if info.handle is not None:
            return _of_program(info)
        key = _key(info)
        if key not in _devices:
            _devices[key] = GpuDevice(info)
        return _devices[key]


def _of_program(info: DeviceInfo) -> GpuDevice:
    result = _shared.get(id(info.handle))
    if result is None:
        result = _shared[id(info.handle)] = GpuDevice(info)
    if result.lost:
        raise DeviceUnavailableError(
            f"the program's wgpu device on {info.adapter} is lost",
            hint="rlx can't open it again: make a new wgpu device, and compile the graph for that",
        )
    return result


def open_ahead(info: DeviceInfo) -> None:
    """Starts opening a device in a background thread. ``gpu_device`` waits for it, or raises its error.

    Raises:
        DeviceUnavailableError: The process was forked.
    """
    check_not_forked()
    if info.handle is None and _key(info) not in _devices:
        pool = ThreadPoolExecutor(1, "rlx-device")
        pool.submit(gpu_device, info)
        pool.shutdown(wait=False)


def _key(info: DeviceInfo) -> tuple[Any, ...]:
    library = provider_of(info.backend)
    checks = library.checks_by_device and flags.SHADER_CHECKS.get()
    return (library.name, checks, info.index, *sorted(info.limits.items()))


def forget(gpu: GpuDevice) -> None:
    """Forgets a lost device, so that the next ``gpu_device`` opens a new one.

    The GPU may have been unplugged, so adapters are looked for anew. What belongs to the program stays lost.
    """
    gpu.lost = True
    look_again()
    with _devices_lock:
        for key in [key for key, device in _devices.items() if device is gpu]:
            del _devices[key]

"""Loads a schedule for a GPU: renders its kernels, makes pipelines and buffers."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from rlx import flags
from rlx.backends.base import Backend, CompileOptions, DeviceInfo
from rlx.backends.executable import Capabilities
from rlx.backends.webgpu.adapters import (
    ABSENT,
    capabilities_with,
    device_infos,
    look_again,
    shared_info,
    unusable,
)
from rlx.backends.webgpu.device import GpuDevice, forget, gpu_device, open_ahead
from rlx.backends.webgpu.dispatch import Dispatch
from rlx.backends.webgpu.provider import (
    FORKED,
    Provider,
    check_not_forked,
    forked,
    provider,
    provider_of,
)
from rlx.backends.webgpu.webgpu_executable import WebGpuExecutable
from rlx.backends.webgpu.weight_buffers import ConstantBuffers
from rlx.dataclasses import dataclass
from rlx.errors import DeviceLostError, DeviceUnavailableError
from rlx.ir.graph import Graph
from rlx.ir.plan import KernelCall, MemoryPlan, Schedule
from rlx.ir.spans import phase

if TYPE_CHECKING:
    from rlx.backends.webgpu.sized_kernels import SizedKernels


class WebGpuBackend(Backend):
    """Every adapter that a library of WebGPU finds.

    Args:
        name: "webgpu", of the library that ``RLX_WEBGPU`` names, or "dawn".
    """

    kernel_set = "webgpu"

    def __init__(self, name: str = "webgpu") -> None:
        self.name = name

    def devices(self) -> list[DeviceInfo]:
        """The adapters present, hardware first. Never raises."""
        return device_infos(self.name)

    def open_ahead(self, info: DeviceInfo) -> None:
        """Begins to open a device, which takes drivers a tenth of a second and more."""
        open_ahead(info)

    def refresh(self) -> None:
        """Looks for adapters again: GPUs may be added and removed."""
        look_again()

    def adopted(self, handle: object) -> DeviceInfo | None:
        """A wgpu device of the program as a device of rlx; None where the object is none of this backend's.

        Raises:
            DeviceUnavailableError: rlx can't share the device, or this process was forked.
        """
        library = provider_of(self.name)
        if not library.owns(handle):
            _refuse_others(handle, library)
            return None
        check_not_forked()
        return shared_info(self.name, handle)

    def absent(self) -> str:
        """Why there is no adapter: what to install, what is missing, or that the process was forked."""
        return FORKED if forked() else provider_of(self.name).missing() or ABSENT

    def unusable(self) -> str | None:
        """Names the missing part that keeps this installation from using a GPU; None where nothing is missing."""
        return unusable(self.name)

    def capabilities(self, info: DeviceInfo) -> Capabilities:
        """Returns the capabilities of this backend's executables."""
        return capabilities_with(provider_of(info.backend), info.features)

    def build_id(self) -> str:
        """The library and its version: its compiler translates the WGSL."""
        return provider_of(self.name).version()

    def path(self, info: DeviceInfo) -> str:
        """The environment switches that affect how kernels are compiled and submitted."""
        switched = (flags.WEBGPU_HOT, flags.SHADER_CHECKS, flags.WEBGPU_DEFAULT_LIMITS)
        return " ".join(f"{flag.name}={int(flag.get())}" for flag in switched)

    def lower(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> WebGpuProgram:
        """Renders the kernels.

        Raises:
            CompileError: A kernel's file does not fit its call, or it binds more buffers than the device allows.
            KernelLimitError: Loops of kernels are too long for a GPU.
            UnknownSizeError: A kernel needs a size as a number.
        """
        from rlx.backends.webgpu.codegen import rendered

        assert schedule is not None
        # "auto" has chosen this device just now: it opens while the kernels are rendered.
        open_ahead(info)
        if plan is None:
            return _sized(info, schedule, options)
        return WebGpuProgram(schedule, plan, rendered(info, schedule, plan))


@dataclass(frozen=True, eq=False)
class WebGpuProgram:
    """The rendered kernels of a schedule.

    Attributes:
        schedule: The schedule.
        plan: Where its values live.
        work: The steps of a run in order: dispatches, and calls on the host.
        sized: The kernels of a schedule with dims; None without dims.
    """

    schedule: Schedule
    plan: MemoryPlan
    work: tuple[Dispatch | KernelCall, ...]
    sized: SizedKernels | None = None

    @property
    def nbytes(self) -> int:
        """Characters of all distinct kernel sources."""
        return sum(map(len, {item.source for item in self.work if isinstance(item, Dispatch)}))

    def pack(self) -> None:
        """Nothing: kernels are rendered from the schedule. WGSL from a file could access any memory."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> WebGpuExecutable:
        """Makes pipelines, buffers and bind groups.

        Raises:
            CompileError: A kernel does not compile.
            DeviceMemoryError: A buffer is above the device's limits.
        """
        with phase("device"):
            gpu = gpu_device(info)
        try:
            return self._loaded(gpu, options)
        except DeviceLostError:
            # The device was lost before this load and nobody had noticed: try once more on a new one.
            forget(gpu)
        # A lost device is part of a reference cycle, and drivers give a limited number of devices.
        del gpu
        gc.collect()  # frees nothing of a device that belongs to the program
        return self._loaded(gpu_device(info), options)

    def _loaded(self, gpu: GpuDevice, options: CompileOptions) -> WebGpuExecutable:
        with phase("allocate"), gpu.all_or_nothing():
            fixed = ConstantBuffers(gpu, self.schedule, options)
            if self.sized is not None:
                from rlx.backends.webgpu.sized_webgpu_executable import SizedWebGpuExecutable

                return SizedWebGpuExecutable(gpu, self.sized, fixed)
            return WebGpuExecutable(gpu, self.schedule, self.plan, self.work, fixed)


def _sized(info: DeviceInfo, schedule: Schedule, options: CompileOptions) -> WebGpuProgram:
    """The program of a schedule with dims."""
    from rlx.backends.webgpu.sized_kernels import SizedKernels

    assert schedule.sizes is not None, "a schedule without dims has a plan"
    alignment = max(options.arena_alignment, info.limits["min-storage-buffer-offset-alignment"])
    kernels = SizedKernels(schedule, schedule.sizes, info, alignment)
    return WebGpuProgram(kernels.static(schedule.sizes), kernels.arena, kernels.work, kernels)


def _refuse_others(handle: object, library: Provider) -> None:
    """Refuses a device of a library that no backend uses now; other objects are ignored."""
    kinds = (sys.modules.get(name) for name in ("wgpu", "wgpudawn"))
    kind = next((m for m in kinds if m is not None and isinstance(handle, m.GPUDevice)), None)
    if kind is None or provider("dawn").owns(handle):
        return
    raise DeviceUnavailableError(
        "a wgpu device that rlx can't share",
        got=f"{type(handle).__module__}.{type(handle).__qualname__}",
        expected=f"a device made by {library.package}",
        hint=f"RLX_WEBGPU is {flags.WEBGPU.get()!r}",
    )


BACKEND = WebGpuBackend()

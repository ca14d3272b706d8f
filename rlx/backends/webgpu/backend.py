"""Loads a schedule for a GPU: renders its kernels, makes pipelines and buffers."""

from __future__ import annotations

from rlx.backends.base import Capabilities, CompileOptions, DeviceInfo, KernelLimitError
from rlx.backends.webgpu import forked
from rlx.backends.webgpu.adapters import ABSENT, device_infos
from rlx.backends.webgpu.buffers import Fixed
from rlx.backends.webgpu.device import GpuDevice, forget, gpu_device, gpu_device_soon
from rlx.backends.webgpu.dispatch import Dispatch, lower
from rlx.backends.webgpu.executable import WebGpuExecutable, capabilities_with
from rlx.backends.webgpu.trips import TOO_MANY
from rlx.errors import CompileError, DeviceLostError, describe
from rlx.ir.graph import Graph, Node
from rlx.ir.plan import HOST, Call, MemoryPlan, Schedule
from rlx.ir.spans import phase


class WebGpuBackend:
    """Every adapter that wgpu finds."""

    name = "webgpu"
    kernel_set = "webgpu"

    def devices(self) -> list[DeviceInfo]:
        """The adapters present, hardware first. Never raises."""
        return device_infos()

    def absent(self) -> str:
        """What to install, or that the process was forked."""
        return forked.ABSENT if forked.dead() else ABSENT

    def capabilities(self, info: DeviceInfo) -> Capabilities:
        """What its executables can do."""
        return capabilities_with(info.features)

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> WebGpuExecutable:
        """Makes everything that runs need.

        Raises:
            CompileError: A kernel does not compile, or binds more buffers than the device allows.
            KernelLimitError: Loops of kernels are too long for a GPU.
            DeviceMemoryError: A buffer is above the device's limits.
        """
        assert schedule is not None
        assert plan is not None
        # Drivers take a tenth of a second for a device: the kernels are rendered meanwhile.
        device = gpu_device_soon(info)
        per_dimension = info.limits["max-compute-workgroups-per-dimension"]
        # A loop repeats its calls; each is lowered once.
        lowered: dict[int, Dispatch | Call | None] = {}
        too_long: dict[Node, str] = {}
        with phase("render"):
            for at, call in enumerate(schedule.calls):
                if id(call) in lowered:
                    continue
                if call.kernel != HOST and at not in schedule.rendered:
                    schedule.rendered[at] = lower(call, per_dimension)
                one = call if call.kernel == HOST else schedule.rendered[at]
                if isinstance(one, Dispatch):
                    _check_bindings(one, info.limits["max-storage-buffers-per-shader-stage"])
                    if one.excess:
                        too_long[call.node] = "its loops are longer than a GPU may run"
                lowered[id(call)] = one
        if too_long:
            raise _too_long(too_long)
        found = (lowered[id(call)] for call in schedule.calls)
        work = [one for one in found if one is not None]
        with phase("device"):
            gpu = device()
        try:
            return _loaded(gpu, schedule, plan, work, options)
        except DeviceLostError:
            # It went before, and nothing had noticed: whatever is compiled next gets a new one.
            forget(gpu)
        return _loaded(gpu_device(info), schedule, plan, work, options)


def _loaded(
    gpu: GpuDevice,
    schedule: Schedule,
    plan: MemoryPlan,
    work: list[Dispatch | Call],
    options: CompileOptions,
) -> WebGpuExecutable:
    with phase("allocate"), gpu.all_or_nothing():
        fixed = Fixed(gpu, schedule, options.max_iterations)
        return WebGpuExecutable(gpu, schedule, plan, work, fixed)


def _too_long(reasons: dict[Node, str]) -> KernelLimitError:
    first = next(iter(reasons))
    return KernelLimitError(
        describe(
            f"the loops of {len(reasons)} nodes are longer than a GPU may run",
            where=first.where(),
            expected=f"fewer than {TOO_MANY} trips in each kernel",
            hint="compile for the CPU, or cut the axis into parts",
        ),
        reasons,
    )


def _check_bindings(dispatch: Dispatch, limit: int) -> None:
    if len(dispatch.values) > limit:
        raise CompileError(
            describe(
                f"kernel {dispatch.label} binds more buffers than the device allows",
                where=dispatch.call.node.where(),
                got=len(dispatch.values),
                expected=f"at most {limit} (max-storage-buffers-per-shader-stage)",
                hint="compile with CompileOptions(fuse=False)",
            )
        )


BACKEND = WebGpuBackend()

"""A schedule with dims loaded on a GPU: the same dispatches for all sizes, which read sizes from a buffer."""

from __future__ import annotations

from typing import Any

from rlx._ext.program import SizeSteps
from rlx.backends.executable import Binding
from rlx.backends.sized_schedule import Sizes
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.sized_kernels import SizedKernels, with_room
from rlx.backends.webgpu.webgpu_executable import WebGpuExecutable
from rlx.backends.webgpu.weight_buffers import ConstantBuffers
from rlx.errors import DeviceMemoryError


class SizedWebGpuExecutable(WebGpuExecutable):
    """See ``WebGpuExecutable``. There is memory for sizes up to some; larger ones take another executable.

    Args:
        gpu: The device.
        kernels: The kernels, for some sizes and with memory for larger ones.
        constants: Params and constants, and the programs of the host.
    """

    def __init__(self, gpu: GpuDevice, kernels: SizedKernels, constants: ConstantBuffers) -> None:
        self._sized = kernels
        buffer = gpu.buffer("sizes", kernels.sizes_nbytes, "UNIFORM", "COPY_DST")
        self._bound = kernels.bound(buffer)
        static = kernels.static(kernels.sizes)
        super().__init__(gpu, static, kernels.arena, kernels.work, constants, self._bound)

    @property
    def sizes(self) -> Sizes:
        """The sizes that runs without arguments compute for."""
        return dict(zip(self._sized.names, self._bound.sizes.now, strict=True))

    def program(self, guards: SizeSteps | None) -> Any:
        """Returns the compiled calls of its runs, which take the sizes of their arrays where guards hold."""
        if guards is not None:
            self._bound.sizes.set_guards(guards)
        return super().program(guards)

    def fits(self, sizes: Sizes) -> bool:
        """Returns whether there is memory for some sizes."""
        return self._sized.fits(sizes)

    def resize(self, sizes: Sizes) -> None:
        """Has later runs compute for other sizes, for which there is memory. The values of inputs and outputs are lost."""
        self._drain()
        self._host.views.resize(tuple(sizes[name] for name in self._sized.names))
        if self._factory.recording is not None:
            self._record(self._builder.binding)

    def _record(self, binding: Binding) -> None:
        self._sized.sizes = dict(self.sizes)
        with self._sized.estimating():
            super()._record(binding)

    def grown(self, sizes: Sizes) -> SizedWebGpuExecutable:
        """Returns an executable with memory for some sizes, and half as much again if there is, and the same weights.

        Raises:
            DeviceMemoryError: The device has no room for these sizes.
        """
        try:
            return self._again(self._sized.more(sizes))
        except DeviceMemoryError:
            most = {name: max(self._sized.most[name], size) for name, size in sizes.items()}
            return self._again(self._sized.again(sizes, most))

    def clone(self) -> SizedWebGpuExecutable:
        """Returns the same dispatches on a new arena."""
        most = with_room(self._sized.schedule, self.sizes)
        return self._again(self._sized.again(self.sizes, most))

    def _again(self, kernels: SizedKernels) -> SizedWebGpuExecutable:
        with self._gpu.all_or_nothing():
            return SizedWebGpuExecutable(self._gpu, kernels, self._constants)

    def close(self) -> None:
        """Frees the arena; params go with the last clone."""
        super().close()
        self._bound.buffer.destroy()

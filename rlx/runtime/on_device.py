"""Runs that take inputs from buffers of a GPU and leave their outputs in such buffers, for other work there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.backends.base import GpuBuffer
from rlx.errors import CompileError, describe
from rlx.runtime.inputs import Inputs
from rlx.runtime.loaded import Loaded, Part
from rlx.runtime.owning import owned


class OnDevice(Part):
    """The part of ``CompiledGraph`` that shares its values with other work on the GPU.

    Args:
        loaded: The graph.
        inputs: Takes named inputs.
    """

    __slots__ = ("_inputs",)

    def __init__(self, loaded: Loaded, inputs: Inputs) -> None:
        super().__init__(loaded)
        self._inputs = inputs

    @owned
    def run_gpu(self, inputs: Mapping[str, Any] | Any = None) -> None:
        """Enqueues a run that leaves its outputs on the GPU, and returns without waiting for it.

        It computes from what ``input_buffers`` hold, and writes to ``output_buffers``; nothing is read back. The
        GPU does what is submitted to one queue in the order of the submissions: the run sees what was submitted
        before this call, and work that is submitted after it returns sees the run's outputs, until the next
        run of this graph overwrites them. ``sync_pending`` waits for it. Parts that run on the host (``host_fallbacks``) are waited
        for. Handles, feeds and the active extent count as in other runs.

        To use the buffers, a program compiles for a wgpu device of its own:
        ``rlx.compile(graph, device=wgpu_device)``. rlx never destroys that device. Where it is lost,
        ``recover`` raises ``DeviceUnavailableError``.

        Args:
            inputs: Inputs that are uploaded first, by name, as ``run`` takes them; None for none. The arrays may
                change once this returns.

        Raises:
            CompileError: The device is no GPU that rlx runs on through WebGPU.
            UnknownNameError: A name that is not an input.
            InputError: An array does not fit, or a param was never set.
            DeviceLostError: The device is gone.

        Example:
            >>> import rlx, wgpu
            >>> adapters = wgpu.gpu.enumerate_adapters_sync()
            >>> device = adapters[0].request_device_sync()
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (4,)) + 1.0])
            >>> with rlx.compile(g, device=device) as cg:
            ...     cg.run_gpu({"x": [1, 2, 3, 4]})
            ...     buffer, offset, nbytes = cg.output_buffers[0]
            ...     list(device.queue.read_buffer(buffer, offset, nbytes).cast("f"))
            [2.0, 3.0, 4.0, 5.0]
        """
        self._there()
        given = [] if inputs is None else self._inputs.some(inputs)
        self._loaded.complete()
        executable: Any = self._loaded.executable
        executable.run_on_device(given)

    def buffers(self, which: int) -> tuple[GpuBuffer, ...]:
        """Where the inputs (0) or the outputs (1) stand.

        Raises:
            CompileError: The device is no GPU that rlx runs on through WebGPU.
            ClosedError: The graph is closed.
        """
        self._there()
        executable: Any = self._loaded.executable
        found: tuple[GpuBuffer, ...] = executable.gpu_buffers[which]
        return found

    def _there(self) -> None:
        loaded = self._loaded
        loaded.open()
        if not loaded.capabilities.gpu_buffers:
            device = loaded.target.device
            hint = "rlx.compile(graph, device=wgpu_device), or run and run_slots, which bring arrays back"
            raise CompileError(describe(f"{device} keeps values in no GPU buffers", hint=hint))

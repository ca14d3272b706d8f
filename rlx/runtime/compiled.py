"""CompiledGraph: a graph loaded on a device, and every way of running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlx.backends.executable import Capabilities, GpuBuffer, Moved, RunDict, RunSlots
from rlx.compiler.choice import Choice
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.lowered_module import LoweredModule
from rlx.compiler.target import Target
from rlx.errors import CompileError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.spans import Span
from rlx.locks import Lock
from rlx.runtime.closing import Closing
from rlx.runtime.io_binding import IoBindingMethods
from rlx.runtime.moe import MoeMethods
from rlx.runtime.params import ParamMethods
from rlx.runtime.profiling import ProfilingMethods, record_all_runs
from rlx.runtime.recovery import RecoveryMethods
from rlx.runtime.run import QueuedRuns, RunMethods, choose_calls, close
from rlx.runtime.state import RuntimeState

if TYPE_CHECKING:
    from rlx.runtime.executor import CallQueue

# Held while the queue of a graph is made.
_QUEUES = Lock()


class _SlotsByClass(type):
    """The type of ``CompiledGraph``. Its attribute ``run_slots`` is the function ``rlx.run_slots``.

    Each graph keeps a compiled function in a slot of that name, and slots have no docstrings.
    """

    @property
    def run_slots(cls) -> Callable[..., tuple[Array, ...]]:
        """``rlx.run_slots``."""
        return run_slots


class CompiledGraph(
    RunMethods,
    QueuedRuns,
    IoBindingMethods,
    ParamMethods,
    ProfilingMethods,
    RecoveryMethods,
    MoeMethods,
    Closing,
    metaclass=_SlotsByClass,
):
    """A graph compiled for one device. Made by ``rlx.compile`` or ``Session.compile``.

    One call at a time uses it, from the first read of its arguments to the last copy of its results. A
    second one raises ``BusyError`` at once: a call from another thread, or one from inside the first (a
    signal handler, a custom operation, ``__array__`` of an argument). Different graphs run in parallel;
    ``clone`` makes one for another thread.

    It pickles by content: the graph, the device's name, options, params and handles as they are now. It is compiled again
    where it is read, for a device of that name. Inputs that are no handles, and ``input_views``, are not part of it. A
    graph on a ``wgpu.GPUDevice`` of the program raises ``DeviceError``, and a closed one ``ClosedError``.

    Attributes:
        device: The device it runs on.
        choice: The reason for the device, and the estimates of all devices if "auto" chose.
        run_slots: ``run_slots(*arrays)`` takes every input in declaration order and returns the
            same preallocated read-only views at every call; the next run overwrites them. Without
            arguments it computes from ``input_views``. Arguments count for their call alone. It allocates nothing,
            looks nothing up and runs no Python loop; the CPU reads contiguous arrays of the right
            dtype where they are. Others are converted as ``run`` does. Raises ``InputError`` for a wrong count or shape, a dtype or
            value that does not convert, or a param that was never set, ``BusyError`` where another
            call is under way.
        capabilities: The abilities of this device's executable.
    """

    __slots__ = (
        "__weakref__",
        "_phases",
        "_queue",
        "_run_dict",
        "_state",
        "_totals",
        "capabilities",
        "choice",
        "device",
        "run_slots",
    )

    run_slots: RunSlots
    _run_dict: RunDict

    def __init__(
        self,
        graph: Graph,
        target: Target,
        loaded: LoadedGraph,
        missing: set[str],
        values: dict[str, Array],
        phases: Sequence[Span] = (),
        choice: Choice | None = None,
    ) -> None:
        self.device = target.device
        self.choice = choice or Choice(target.device, "the device of another executable", {}, {})
        self.capabilities: Capabilities = loaded.executable.capabilities
        self._queue: CallQueue[list[Array]] | None = None
        self._phases = tuple(phases)
        self._state = RuntimeState(self, graph, target, loaded, missing, values)
        choose_calls(self._state)
        self._totals = record_all_runs(self._state) if target.options.profile else None

    def __call__(self, **inputs: Any) -> list[Array]:
        """``cg(x=..., y=...)`` is ``cg.run({"x": ..., "y": ...})``."""
        return self.run(inputs)

    @property
    def host_fallbacks(self) -> tuple[str, ...]:
        """Ops that run on the host since the device has no kernel for them, each with the reason.

        Every such place costs a read-back and an upload.
        """
        lowered = self._state.lowered
        return tuple(text for part in lowered.segments or (lowered,) for text in _hosted(part))

    @property
    def active_extent(self) -> tuple[int, int] | None:
        """The argument of the last ``set_active_extent``; None where all rows are computed."""
        extent = self._state.binding.extent
        return None if extent is None else (extent.actual, extent.upper)

    @property
    def bytes_moved(self) -> Moved:
        """Bytes that runs have moved so far: ``(uploaded, read_back, copied)``, params apart.

        On the CPU nothing moves.
        """
        return self._state.executable.moved()

    @property
    def input_views(self) -> tuple[Array, ...]:
        """Writable arrays, one per input: fill them, then call ``run_slots()``.

        They are zeros at first. Runs on named inputs and arguments of ``run_slots`` leave them as they are. The
        view of an input with a handle holds the value that the handle was bound to.
        """
        return self._state.executable.input_views

    @property
    def input_buffers(self) -> tuple[GpuBuffer, ...]:
        """``(wgpu.GPUBuffer, offset, nbytes)`` of each input on the GPU, from which ``run_gpu`` computes.

        Elements are stored as in NumPy. Work on the same wgpu device may write there. Other runs upload the
        inputs that are no handles, and so overwrite them. The buffers stay until ``close``; ``recover`` and
        ``set_moe_resident_experts`` make new ones.

        Raises:
            CompileError: The device is no GPU that rlx runs on through WebGPU.
        """
        return self._gpu_buffers(0)

    @property
    def output_buffers(self) -> tuple[GpuBuffer, ...]:
        """``(wgpu.GPUBuffer, offset, nbytes)`` of each output on the GPU, after any kind of run.

        The buffer may be bound as storage (read only: other values are next to this one) and copied from; on a
        wgpu device of the program also as vertices, indices, uniform values and arguments of draws. It stays
        until ``close``, as ``input_buffers`` do.

        Raises:
            CompileError: The device is no GPU that rlx runs on through WebGPU.
        """
        return self._gpu_buffers(1)

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """``(byte offset, element count)`` of each output in the memory at ``arena_ptr``."""
        return self._state.executable.output_slots[: len(self._state.outputs)]

    @property
    def arena_ptr(self) -> int:
        """Address of the host memory that holds the outputs; it stays until ``close``.

        Raises:
            CompileError: This device keeps no such memory.
        """
        if not self.capabilities.arena_ptr:
            raise CompileError(f"{self.device} has no arena in host memory", hint="use run_slots")
        return self._state.executable.arena()

    def clone(self) -> CompiledGraph:
        """An independent executable, for another thread, that shares the params.

        Any thread may ask for one, also while this one runs.
        """
        state = self._state
        while True:
            state.check_open()
            loaded = LoadedGraph(state.lowered, state.executable.clone(), state.precomputed)
            settings = state.extents, state.splits, state.routers, state.placement
            if loaded.lowered is state.lowered:
                break
            loaded.executable.close()  # experts were placed meanwhile
        clone = CompiledGraph(
            state.graph,
            state.target,
            loaded,
            state.missing,
            state.values,
            self._phases,
            self.choice,
        )
        copy = clone._state
        copy.extents, copy.splits, copy.routers, copy.placement = settings
        choose_calls(copy)
        return clone

    # --- without waiting ---------------------------------------------------------------------------

    def _queued(self) -> CallQueue[list[Array]]:
        self._state.check_open()
        from rlx.runtime.executor import CallQueue

        with _QUEUES:
            if self._queue is None or self._queue.forked:
                self._queue = CallQueue(1, self._state.what)
            return self._queue

    def warm(self) -> None:
        """Does the work of a first run in advance: threads, memory, and the first use of the driver.

        It runs the graph once on ``input_views``. While params are missing it does nothing.

        Raises:
            BusyError: A call is under way.
            DeviceLostError: The device is gone.
        """
        if not self._state.missing:
            self.run_slots()

    # --- explaining --------------------------------------------------------------------------------

    def as_text(self, stage: str = "fused") -> str:
        """Returns the compiled graph as text, at one stage of the compiler.

        Args:
            stage: "graph" as built, "fused" with every change taken or refused and why,
                "schedule", "memory", or "kernels".

        Raises:
            UnknownNameError: There is no such stage.
        """
        from rlx.runtime.dump import text_of

        return text_of(self._state, stage)

    def memory(self) -> dict[str, int]:
        """Bytes held: ``arena``, ``params``, ``staging`` and their sum ``peak``."""
        state = self._state
        precomputed = state.precomputed.nbytes
        return state.executable.memory() | ({"prepared": precomputed} if precomputed else {})

    # --- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Frees device memory; running afterwards raises. Closing twice does nothing.

        Raises:
            BusyError: A call is under way, in another thread or further up in this one.
        """
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
        if not self._state.closed:
            self._state.lock.call(close, self._state)

    @property
    def closed(self) -> bool:
        """True if ``close`` was called."""
        return self._state.closed

    def __repr__(self) -> str:
        return self._state.what


def run_slots(compiled: CompiledGraph, *arrays: Any) -> tuple[Array, ...]:
    """``compiled.run_slots(*arrays)`` as a function.

    Args:
        compiled: The compiled graph.
        *arrays: Every input in declaration order, or none to compute from ``input_views``.

    Returns:
        The same read-only views at every call.
    """
    return compiled.run_slots(*arrays)


def _hosted(lowered: LoweredModule) -> Sequence[str]:
    """The ops of a lowered graph that run on the host, each with the reason."""
    if lowered.schedule is not None:
        return lowered.schedule.host_fallbacks()
    nodes = lowered.graph.nodes
    return [f"{nodes[i].where()}: {reason}" for i, reason in lowered.hosted.items()]

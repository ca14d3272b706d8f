"""CompiledGraph: a graph loaded on a device, and every way of running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.backends.base import Capabilities, Executable, GpuBuffer, Moved, show
from rlx.compiler.choice import Choice
from rlx.compiler.lowered import Lowered
from rlx.compiler.target import Target
from rlx.errors import CompileError, describe
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.spans import Span
from rlx.locks import Lock
from rlx.runtime.active_rows import ActiveRows
from rlx.runtime.handles import Handles
from rlx.runtime.inputs import Inputs
from rlx.runtime.loaded import Loaded, part
from rlx.runtime.observed import Observed
from rlx.runtime.on_device import OnDevice
from rlx.runtime.params import Params
from rlx.runtime.queued import MOST_PENDING, Calls
from rlx.runtime.recovery import Recovery
from rlx.runtime.residency import Experts
from rlx.runtime.runs import Runs

if TYPE_CHECKING:
    from concurrent.futures import Future

# Held while the queue of a graph is made.
_QUEUES = Lock()


class _SlotsByClass(type):
    """The type of ``CompiledGraph``: its ``run_slots``, asked of the class, is the function of that name.

    Each graph keeps a compiled function in a slot of that name, and slots have no docstrings.
    """

    @property
    def run_slots(cls) -> Callable[..., tuple[Array, ...]]:
        """``rlx.run_slots``."""
        return run_slots


class CompiledGraph(metaclass=_SlotsByClass):
    """A graph compiled for one device. Made by ``rlx.compile`` or ``Session.compile``.

    One call at a time uses it, from the first read of its arguments to the last copy of its results. A
    second one raises ``BusyError`` at once: a call from another thread, or one from inside the first (a
    signal handler, a custom operation, ``__array__`` of an argument). Different graphs run in parallel;
    ``clone`` makes one for another thread.

    Attributes:
        device: The device it runs on.
        choice: Why: the device, the reason, and the estimates of all devices if "auto" chose.
        run_slots: ``run_slots(*arrays)`` takes every input in declaration order and returns the
            same preallocated read-only views at every call; the next run overwrites them. Without
            arguments it computes from ``input_views``: what you wrote there, or the inputs of the last
            run by name. Arguments of ``run_slots`` count for that call alone. It allocates nothing,
            looks nothing up and runs no Python loop; the CPU reads contiguous arrays of the right
            dtype where they are. Others are converted as ``run`` does. Raises ``InputError`` for a wrong count or shape, a dtype or
            value that does not convert, or a param that was never set, ``BusyError`` where another
            call is under way.
        capabilities: What this device's executable can do.
    """

    __slots__ = (
        "__weakref__",
        "_experts",
        "_handles",
        "_loaded",
        "_observed",
        "_on_device",
        "_params",
        "_queue",
        "_recovery",
        "_rows",
        "_runs",
        "capabilities",
        "choice",
        "device",
        "run_slots",
    )

    run_slots: Callable[..., tuple[Array, ...]]

    def __init__(
        self,
        graph: Graph,
        target: Target,
        lowered: Lowered,
        executable: Executable,
        missing: set[str],
        values: dict[str, Array],
        phases: Sequence[Span] = (),
        choice: Choice | None = None,
    ) -> None:
        self.device = target.device
        self.choice = choice or Choice(target.device, "the device of another executable", {}, {})
        self._queue: Calls[list[Array]] | None = None
        self.capabilities: Capabilities = executable.capabilities
        loaded = Loaded(self, graph, target, lowered, executable, values, missing)
        self._loaded = loaded
        inputs = Inputs(loaded)
        self._params = Params(loaded)
        self._runs = Runs(loaded, inputs)
        self._on_device = OnDevice(loaded, inputs)
        self._rows = ActiveRows(loaded)
        self._handles = Handles(loaded, self._runs)
        self._observed = Observed(loaded, inputs, tuple(phases))
        self._recovery = Recovery(loaded, self._observed)
        self._experts = Experts(loaded, self._recovery)

    set_param = part("_params", Params.set_param)
    set_params = part("_params", Params.set_params)
    set_param_typed = part("_params", Params.set_param_typed)

    run = part("_runs", Runs.run)
    run_raw = part("_runs", Runs.run_raw)
    run_typed = part("_runs", Runs.run_typed)
    run_read_outputs = part("_runs", Runs.run_read_outputs)
    read_output_row = part("_runs", Runs.read_output_row)
    run_pipelined = part("_runs", Runs.run_pipelined)
    commit_no_wait = part("_runs", Runs.commit_no_wait)
    sync_pending = part("_runs", Runs.sync_pending)

    run_gpu = part("_on_device", OnDevice.run_gpu)

    set_active_extent = part("_rows", ActiveRows.set_active_extent)

    bind_handle = part("_handles", Handles.bind_handle)
    read_handle = part("_handles", Handles.read_handle)
    bind_gpu_handle = part("_handles", Handles.bind_gpu_handle)
    has_gpu_handle = part("_handles", Handles.has_gpu_handle)
    read_gpu_handle = part("_handles", Handles.read_gpu_handle)
    set_gpu_handle_feed = part("_handles", Handles.set_gpu_handle_feed)
    run_feed_gpu_handle = part("_handles", Handles.run_feed_gpu_handle)

    trace = part("_observed", Observed.trace)
    profile = part("_observed", Observed.profile)
    cost = part("_observed", Observed.cost)

    recover = part("_recovery", Recovery.recover)

    set_moe_resident_experts = part("_experts", Experts.set_moe_resident_experts)
    set_moe_resident_experts_per_layer = part(
        "_experts", Experts.set_moe_resident_experts_per_layer
    )
    enable_moe_topk_capture = part("_experts", Experts.enable_moe_topk_capture)
    take_moe_topk_capture = part("_experts", Experts.take_moe_topk_capture)
    take_moe_residency_stats = part("_experts", Experts.take_moe_residency_stats)

    def __call__(self, **inputs: Any) -> list[Array]:
        """``cg(x=..., y=...)`` is ``cg.run({"x": ..., "y": ...})``."""
        return self.run(inputs)

    @property
    def host_fallbacks(self) -> tuple[str, ...]:
        """Ops that run on the host for want of a kernel on the device, each with the reason.

        Every such place costs a read-back and an upload.
        """
        lowered = self._loaded.lowered
        if lowered.schedule is not None:
            return lowered.schedule.host_fallbacks()
        nodes = lowered.graph.nodes
        return tuple(f"{nodes[at].where()}: {reason}" for at, reason in lowered.hosted.items())

    @property
    def active_extent(self) -> tuple[int, int] | None:
        """What ``set_active_extent`` was last given; None where all rows are computed."""
        extent = self._loaded.extent
        return None if extent is None else (extent.actual, extent.upper)

    @property
    def bytes_moved(self) -> Moved:
        """Bytes that runs have moved so far: ``(uploaded, read_back, copied)``, params apart.

        On the CPU nothing moves.
        """
        return self._loaded.executable.bytes_moved

    @property
    def input_views(self) -> tuple[Array, ...]:
        """Writable arrays, one per input: fill them, then call ``run_slots()``.

        They are zeros at first. ``run`` and the other ways of running named inputs write to them;
        arguments of ``run_slots`` leave them as they are. The view of an input with a handle holds what
        the handle was bound to.
        """
        show(self._loaded.executable, "inputs")
        return self._loaded.executable.input_views

    @property
    def input_buffers(self) -> tuple[GpuBuffer, ...]:
        """``(wgpu.GPUBuffer, offset, nbytes)`` of each input on the GPU: what ``run_gpu`` computes from.

        Elements are stored as in NumPy. Work on the same wgpu device may write there. Other runs upload the
        inputs that are no handles, and so overwrite them. The buffers stay until ``close``; ``recover`` and
        ``set_moe_resident_experts`` make new ones.

        Raises:
            CompileError: The device is no GPU that rlx runs on through WebGPU.
        """
        return self._on_device.buffers(0)

    @property
    def output_buffers(self) -> tuple[GpuBuffer, ...]:
        """``(wgpu.GPUBuffer, offset, nbytes)`` of each output on the GPU, after any kind of run.

        The buffer may be bound as storage (read only: other values are next to this one) and copied from; on a
        wgpu device of the program also as vertices, indices, uniform values and arguments of draws. It stays
        until ``close``, as ``input_buffers`` do.

        Raises:
            CompileError: The device is no GPU that rlx runs on through WebGPU.
        """
        return self._on_device.buffers(1)

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """``(byte offset, element count)`` of each output in the memory at ``arena_ptr``."""
        return self._loaded.executable.output_slots

    @property
    def arena_ptr(self) -> int:
        """Address of the host memory that holds the outputs; it stays until ``close``.

        Raises:
            CompileError: This device keeps no such memory.
        """
        if not self.capabilities.arena_ptr:
            raise CompileError(
                describe(f"{self.device} keeps no arena in host memory", hint="use run_slots")
            )
        show(self._loaded.executable, "outputs")
        return self._loaded.executable.arena_ptr

    def clone(self) -> CompiledGraph:
        """An independent executable, for another thread, that shares the params.

        Any thread may ask for one, also while this one runs.
        """
        loaded = self._loaded
        while True:
            loaded.open()
            lowered, extents = loaded.lowered, loaded.extents
            placement, wrap = loaded.placement, loaded.wrap
            executable = loaded.executable.clone()
            if lowered is loaded.lowered and placement is loaded.placement:
                break
            executable.close()  # experts were placed meanwhile
        found = CompiledGraph(
            loaded.graph,
            loaded.target,
            lowered,
            executable,
            loaded.missing,
            loaded.values,
            self._observed.phases,
            self.choice,
        )
        told = found._loaded
        told.extents, told.placement, told.wrap = extents, placement, wrap
        return found

    # --- without waiting ---------------------------------------------------------------------------

    async def run_async(
        self, inputs: Mapping[str, Any] | Any, max_pending: int = MOST_PENDING
    ) -> list[Array]:
        """``run`` for asyncio: it runs in another thread, and the event loop goes on.

        Calls run one after the other. Arrays are read when their turn comes: leave them as they are until then.
        A task that is cancelled takes its call out of the queue; one that runs already is made to the end, and its
        results are dropped.

        Args:
            inputs: As ``run`` takes them.
            max_pending: While so many calls wait or run, this one waits before it joins them.

        Raises:
            RlxError: As ``run``.
        """
        queue = self._queued()
        found: list[Array] = await queue.run(queue.of(self.run, inputs), max_pending)
        return found

    def submit(
        self, inputs: Mapping[str, Any] | Any, max_pending: int = MOST_PENDING
    ) -> Future[list[Array]]:
        """``run`` in another thread, after the calls that were submitted before.

        Args:
            inputs: As ``run`` takes them. Arrays are read when their turn comes.
            max_pending: While so many calls wait or run, this one waits.

        Returns:
            A future of the outputs. To cancel it takes the call out of the queue.

        Raises:
            InputError: It is closed, or ``max_pending`` is no whole number from 1 on.
            BusyError: The queue is full, and this is its thread: a callback of a future, or a custom operation.

        Example:
            >>> import rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (2,)) + 1.0])
            >>> with rlx.compile(g, device="cpu") as cg:
            ...     future = cg.submit({"x": [1, 2]})
            ...     future.result()[0].tolist()
            [2.0, 3.0]
        """
        queue = self._queued()
        return queue.submit(queue.of(self.run, inputs), max_pending)

    def _queued(self) -> Calls[list[Array]]:
        self._loaded.open()
        with _QUEUES:
            if self._queue is None or self._queue.forked:
                self._queue = Calls(1, self._loaded.what)
            return self._queue

    def warm(self) -> None:
        """Makes everything that a first run would make: threads, memory, what the driver does on first use.

        It runs the graph once on zeros, or on what ``input_views`` hold. Params that are not set yet are no obstacle:
        without them nothing is run.

        Raises:
            BusyError: A call is under way.
            DeviceLostError: The device is gone.
        """
        if not self._loaded.missing:
            self.run_slots()

    # --- explaining --------------------------------------------------------------------------------

    def as_text(self, stage: str = "fused") -> str:
        """What was compiled, at one stage of the compiler.

        Args:
            stage: "graph" as built, "fused" with every change taken or refused and why,
                "schedule", "memory", or "kernels".

        Raises:
            UnknownNameError: There is no such stage.
        """
        from rlx.runtime.explained import text_of

        return text_of(self._loaded, stage)

    def memory(self) -> dict[str, int]:
        """Bytes held: ``arena``, ``params``, ``staging`` and their sum ``peak``."""
        return self._loaded.executable.memory()

    # --- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Frees device memory; running afterwards raises. Closing twice does nothing.

        Raises:
            BusyError: A call is under way, in another thread or further up in this one.
        """
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
        if not self._loaded.closed:
            self._loaded.owner.call(self._loaded.close)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._loaded.closed

    def __enter__(self) -> CompiledGraph:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles by content: the graph, the device's name, options, params and handles as they are now.

        Where it is read, it is compiled again, for a device of that name. Inputs that are no handles, and
        ``input_views``, are not part of it.

        Raises:
            DeviceError: The device is one of the program (a ``wgpu.GPUDevice``).
            ClosedError: It is closed.
        """
        from rlx.runtime.pickled import Pickled, restored

        return restored, tuple(Pickled(self._loaded).state())

    def __repr__(self) -> str:
        return self._loaded.what


def run_slots(compiled: CompiledGraph, *arrays: Any) -> tuple[Array, ...]:
    """``compiled.run_slots(*arrays)`` as a function.

    Args:
        compiled: What to run.
        *arrays: Every input in declaration order, or none to compute from ``input_views``.

    Returns:
        The same read-only views at every call.
    """
    return compiled.run_slots(*arrays)

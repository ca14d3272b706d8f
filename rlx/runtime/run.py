"""Runs of a graph: functions over ``bind``, ``submit`` and ``wait`` of its executable, and the methods that call them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx._ext.program import Program
from rlx.backends.arguments import as_array, check_args, check_slots
from rlx.backends.executable import Done, Executable, Pending, RunDict, RunSlots
from rlx.errors import ClosedError, CompileError, InputError, listed
from rlx.ir.dtype import DType, DTypeLike
from rlx.ir.opdef import Array
from rlx.runtime import MAX_PENDING
from rlx.runtime.bind_inputs import bind_all, bind_batches, bind_some
from rlx.runtime.convert import from_bytes
from rlx.runtime.exclusive import exclusive
from rlx.runtime.state import RuntimeState

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rlx.runtime.executor import CallQueue

# --- functions: their callers hold the lock --------------------------------------------------------


def start(
    state: RuntimeState, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
) -> Pending:
    """Submits a run; see ``Executable.submit``. Outputs of routers come back as well."""
    return state.executable.submit(arrays, (*outputs, *state.routers), fresh)


def finish(state: RuntimeState, pending: Pending, count: int) -> list[Array]:
    """Waits for a run and returns its outputs, without those that the caller did not ask for."""
    arrays = pending.wait()
    if state.placement is not None and state.routers:
        state.placement.count(arrays[count:], state.binding.extent, len(state.outputs))
    return arrays[:count]


def execute(
    state: RuntimeState,
    name: str,
    arrays: Sequence[Array | None],
    outputs: Sequence[int],
    fresh: bool,
) -> list[Array]:
    """Makes a run and returns its outputs.

    Args:
        state: The graph.
        name: Name of the call in traces.
        arrays: See ``Executable.submit``, as the others.
        outputs: See there.
        fresh: See there.
    """
    if state.was_incomplete:
        choose_calls(state)  # a clone has set the last param
    with state.span(name, runs=1):
        return finish(state, start(state, arrays, outputs, fresh), len(outputs))


def rebind(state: RuntimeState, **changes: Any) -> None:
    """Changes settings of later runs: fields of ``Binding``. After an error the old ones stay."""
    binding = state.binding._replace(**changes)
    state.executable.bind(binding)
    state.use_binding(binding)
    choose_calls(state)


def choose_calls(state: RuntimeState) -> None:
    """Sets the calls that are made most often: compiled ones where that is possible."""
    key = id(state.executable), state.is_watched()
    run_slots = state.uncompiled.get(key)
    if run_slots is None:
        run_slots = state.uncompiled[key] = _uncompiled(state, state.executable)
    state.choose_calls((run_slots, _needs_conversion))


def _uncompiled(state: RuntimeState, executable: Executable) -> RunSlots:
    """Returns the ``run_slots`` of an executable without a compiled one, or of a graph that is watched."""

    def run_slots(*arrays: Any) -> tuple[Array, ...]:
        if state.executable is not executable:
            hint = "cg.run_slots is another function since cg.recover()"
            raise ClosedError("this run_slots belongs to a closed executable", hint=hint)
        return state.lock.call(_run_slots, state, arrays)

    run_slots.__doc__ = Program.run_slots_locked.__doc__
    return run_slots


def close(state: RuntimeState) -> None:
    """Frees the executable; every later call is refused."""
    state.closed = True
    state.pending.clear()
    choose_calls(state)
    state.lock.close()
    state.executable.close()


def _needs_conversion(inputs: Any) -> None:
    """The ``run_dict`` of graphs without a compiled one: every run takes the general way."""
    return None


def _run_slots(state: RuntimeState, arrays: Sequence[Any]) -> tuple[Array, ...]:
    state.check_params()
    if state.was_incomplete:
        choose_calls(state)  # a clone has set the last param
    if state.sized is not None and arrays:
        check_slots(arrays, len(state.arguments))
        arrays = [as_array(array) for array in arrays]
        shapes = {i: array.shape for i, array in zip(state.arguments, arrays, strict=True)}
        state.sized.resize(state.sized.sizes_of(shapes))
    views = state.argument_views()
    with state.span("run", runs=1):
        bound = check_args(arrays, views) if arrays else views
        finish(state, start(state, bound, state.outputs, False), len(state.outputs))
    return state.output_views()


def _run(state: RuntimeState, inputs: Any) -> list[Array]:
    return execute(state, "run", bind_all(state, inputs), state.outputs, True)


def _check_gpu_buffers(state: RuntimeState) -> None:
    """Refuses devices that share no GPU buffers.

    Raises:
        CompileError: This is one.
        ClosedError: The graph is closed.
    """
    state.check_open()
    if not state.executable.capabilities.gpu_buffers:
        device = state.target.device
        hint = (
            "rlx.compile(graph, device=wgpu_device), or run and run_slots, which bring arrays back"
        )
        raise CompileError(f"{device} has no values in GPU buffers", hint=hint)


# --- methods -----------------------------------------------------------------------------------------


class QueuedRuns:
    """Runs in other threads, of graphs and of models."""

    __slots__ = ()
    run: Callable[[Mapping[str, Any] | Any], list[Array]]
    _queued: Callable[[], CallQueue[list[Array]]]

    async def run_async(
        self, inputs: Mapping[str, Any] | Any, max_pending: int = MAX_PENDING
    ) -> list[Array]:
        """``run`` for asyncio: it runs in another thread, and the event loop goes on.

        Calls of a graph run one after the other, those of a model side by side in a few threads. Arrays are read when
        their turn comes: leave them as they are until then. A task that is cancelled takes its call out of the queue. A
        running call is not interrupted; its results are dropped.

        Args:
            inputs: As ``run`` takes them.
            max_pending: While so many calls wait or run, this one waits before it joins them.

        Raises:
            RlxError: As ``run``.
        """
        queue = self._queued()
        outputs: list[Array] = await queue.run(queue.of(self.run, inputs), max_pending)
        return outputs

    def submit(
        self, inputs: Mapping[str, Any] | Any, max_pending: int = MAX_PENDING
    ) -> Future[list[Array]]:
        """``run`` in another thread, begun after the calls that were submitted before.

        Args:
            inputs: As ``run`` takes them. Arrays are read when their turn comes.
            max_pending: While so many calls wait or run, this one waits.

        Returns:
            A future of the outputs. To cancel it takes the call out of the queue.

        Raises:
            InputError: It is closed, or ``max_pending`` is no whole number from 1 on.
            BusyError: The queue is full, and this is one of its threads: a callback of a future, or a custom operation.

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


class RunMethods:
    """The methods of ``CompiledGraph`` that run it."""

    __slots__ = ()
    _state: RuntimeState
    _run_dict: RunDict

    def run(self, inputs: Mapping[str, Any] | Any) -> list[Array]:
        """Runs on named inputs and returns fresh arrays, one per output.

        A value of another dtype is converted by NumPy's casting rule "same_kind": to the same kind of number, or
        from integers to floats. Floats are rounded. Values that the dtype can't hold are errors.

        ``input_views`` stay as they are.

        Args:
            inputs: One array per input of the graph, by name. A graph that takes one input may be given its
                array alone.

        Returns:
            The outputs, which later runs leave alone.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: An input is missing or has the wrong shape, a dtype that does not convert, a finite
                number that would become infinite, or an integer that would be rounded; or a param was never
                set.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (2,)) + 1.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> cg.run({"x": np.zeros(2, np.float32)})
            [array([1., 1.], dtype=float32)]
            >>> cg.run([0.5, 1.5])
            [array([1.5, 2.5], dtype=float32)]
        """
        outputs = self._run_dict(inputs)
        if outputs is None:
            outputs = self._state.lock.call(_run, self._state, inputs)
        return outputs

    @exclusive
    def run_raw(self, inputs: Mapping[str, Any] | Any) -> list[Array]:
        """Runs on named inputs and returns read-only views, valid until the next run.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: See ``run``.
        """
        state = self._state
        return execute(state, "run", bind_all(state, inputs), state.outputs, False)

    @exclusive
    def run_read_outputs(
        self, inputs: Mapping[str, Any], indices: Iterable[int] | None = None
    ) -> list[Array]:
        """Runs and reads back only the chosen outputs; the others never leave the device.

        Args:
            inputs: One array per input that is no handle.
            indices: Numbers of outputs; all of them by default.

        Returns:
            Fresh arrays in the order of ``indices``.

        Raises:
            InputError: There is no such output; or see ``run``.
        """
        state = self._state
        outputs = state.outputs if indices is None else [state.output(i) for i in indices]
        return execute(state, "run_read_outputs", bind_all(state, inputs), outputs, True)

    @exclusive
    def enqueue(
        self, inputs: Mapping[str, Any] | Any, indices: Iterable[int] | None = None
    ) -> Pending:
        """Submits a run and returns without waiting for it; later ones may be submitted before it is over.

        Args:
            inputs: As ``run`` takes them. They may be reused at once.
            indices: Numbers of the outputs that come back; all of them by default.

        Returns:
            The run: its ``wait()`` returns fresh arrays in the order of ``indices``.

        Raises:
            InputError: There is no such output; or see ``run``.

        Example:
            >>> import rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (2,)) + 1.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> runs = [cg.enqueue([n, n]) for n in range(3)]
            >>> [run.wait()[0].tolist() for run in runs]
            [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
        """
        state = self._state
        outputs = state.outputs if indices is None else [state.output(i) for i in indices]
        arrays = bind_all(state, inputs)
        if state.routers:  # a run has to be over before its choices of experts are counted
            return Done(execute(state, "enqueue", arrays, outputs, True))
        with state.span("enqueue", runs=1):
            return start(state, arrays, outputs, True)

    @exclusive
    def read_output_row(self, out_idx: int, row: int) -> Array:
        """Returns one row of an output of the last run, without reading the rest.

        Args:
            out_idx: Number of the output.
            row: Position along its first axis; counts from the end when negative.

        Raises:
            InputError: There is no such output or row.
        """
        state = self._state
        state.check_open()
        output = state.output(out_idx)
        shape = state.executable.output_views[output].shape
        if not shape or not -shape[0] <= row < shape[0]:
            raise InputError("no such row", got=row, expected=f"a row of {shape}")
        with state.span("read_output_row"):
            return state.executable.read_row(output, row % shape[0])

    @exclusive
    def commit_no_wait(self, inputs: Mapping[str, Any] | Any) -> None:
        """Enqueues a run and returns; ``sync_pending`` waits for it. Inputs may be reused at once.

        Raises:
            InputError: See ``run``.
        """
        state = self._state
        arrays = bind_all(state, inputs)
        if state.routers:  # a run has to be over before its choices of experts are counted
            execute(state, "commit_no_wait", arrays, state.outputs, False)
            return
        with state.span("commit_no_wait", runs=1):
            state.pending["views"] = start(state, arrays, state.outputs, False)

    @exclusive
    def sync_pending(self) -> None:
        """Waits for every run that was enqueued, also by ``run_gpu``.

        The outputs are then those of the last ``commit_no_wait``.
        """
        state = self._state
        state.check_open()
        with state.span("sync_pending"):
            for pending in state.pending.values():
                pending.wait()
        state.pending.clear()

    @exclusive
    def run_pipelined(self, list_of_inputs: Sequence[Mapping[str, Any]]) -> list[list[Array]]:
        """Makes many runs and waits once, at the end.

        Args:
            list_of_inputs: One set of named inputs per run.

        Returns:
            Every run's outputs, as fresh arrays.

        Raises:
            InputError: See ``run``; nothing has run then.
        """
        state = self._state
        arrays = bind_batches(state, list_of_inputs)
        with state.span("run_pipelined", runs=len(arrays)):
            started = [start(state, array, state.outputs, True) for array in arrays]
            return [finish(state, pending, len(state.outputs)) for pending in started]

    @exclusive
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
        state = self._state
        _check_gpu_buffers(state)
        arrays = bind_some(state, {} if inputs is None else inputs)
        if state.routers or state.binding.recorder is not None:
            execute(state, "run_gpu", arrays, (), False)
            return
        state.pending["device"] = start(state, arrays, (), False)

    def run_typed(
        self, inputs: Sequence[tuple[str, bytes, DTypeLike]]
    ) -> list[tuple[bytes, DType]]:
        """Takes raw bytes and returns raw bytes. Dims have the values of the last run, or of ``set_sizes``.

        Args:
            inputs: ``(name, bytes, dtype)`` of every input that is no handle.

        Returns:
            ``(bytes, dtype)`` of every output, in its declared dtype.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: The bytes are too few or too many; or see ``run``.
        """
        graph, names = self._state.graph, [name for name, _, _ in inputs]
        types = self._state.input_types({})
        positions = [self._state.input(name) for name in names]
        if len(set(names)) < len(names):
            raise InputError("an input is given twice", got=listed(names))
        outputs = self.run(
            {
                name: from_bytes(graph.named(name), data, dtype, types[i])
                for i, (name, data, dtype) in zip(positions, inputs, strict=True)
            }
        )
        dtypes = [node.dtype for node in graph.outputs]
        return [(array.tobytes(), dtype) for array, dtype in zip(outputs, dtypes, strict=True)]

    def _gpu_buffers(self, which: int) -> tuple[Any, ...]:
        """Returns the GPU buffers of the inputs (0) or the outputs (1) that the caller knows."""
        _check_gpu_buffers(self._state)
        buffers = self._state.executable.gpu_buffers()[which]
        return buffers[: len(self._state.outputs)] if which else buffers

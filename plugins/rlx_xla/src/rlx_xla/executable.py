"""A graph on a device of JAX: weights and handles stay there, and a run is one call of a compiled function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from rlx.plugin import (
    Binding,
    Capabilities,
    CompileOptions,
    DeviceInfo,
    DeviceLostError,
    DeviceMemoryError,
    DynamicRows,
    GpuBuffer,
    InputError,
    Moved,
    RunDict,
    RunSlots,
    TryLock,
    as_input,
    check_slots,
)
from rlx_xla.engine import devices_of, jax, wide_types
from rlx_xla.pinned import PinnedArrays, fetched, put
from rlx_xla.program import Compilation, ExecutableKey
from rlx_xla.trace import stored_dtype

CAPABILITIES = Capabilities(
    arena_ptr=False,
    zero_copy_inputs=True,
    allocates=True,
    precisions=("f32", "tf32", "bf16", "f16"),
    prepared_params=True,
)
Array = np.ndarray[Any, Any]


class XlaExecutable:
    """One loaded graph.

    Args:
        program: The program of the graph.
        device: JAX's device.
        held: Its weights.
    """

    capabilities = CAPABILITIES
    output_slots: tuple[tuple[int, int], ...] = ()

    def __init__(self, program: Compilation, device: Any, held: PinnedArrays) -> None:
        self._program, self._device, self._held = program, device, held
        self._inputs, self._outputs = program.inputs, program.graph.outputs
        self.input_views = tuple(np.zeros(node.shape, node.dtype.numpy) for node in self._inputs)
        self._results = [np.zeros(node.shape, node.dtype.numpy) for node in self._outputs]
        self.output_views = tuple(_read_only(array) for array in self._results)
        self._resident: dict[int, Any] = {}
        self._feeds: list[tuple[int, int]] = []
        self._extent: DynamicRows | None = None
        self._rows: tuple[int, int] | None = None
        self._last: list[Any] = []
        self._moved = [0, 0]
        self._result_bytes = sum(array.nbytes for array in self._results)
        self._stored = [stored_dtype(node.dtype) for node in self._inputs]
        self._narrow = [
            node.dtype.numpy != dtype
            for node, dtype in zip(self._inputs, self._stored, strict=True)
        ]
        self._as_they_are = all(
            stored_dtype(node.dtype) == node.dtype.numpy for node in self._outputs
        )
        self._expect()
        self._choose()

    def _expect(self) -> None:
        """Records the inputs that a call passes, and the arrays that fit them unchanged."""
        self._given = tuple(
            index for index in range(len(self._inputs)) if index not in self._resident
        )
        views = [self.input_views[index] for index in self._given]
        self._fitting = [(view.dtype, view.shape) for view in views]
        self._given_bytes = sum(view.nbytes for view in views)

    def _choose(self) -> None:
        """Compiles the code for the present settings."""
        cudnn = self._program.platform == "cuda"
        key = ExecutableKey(self._device, self._rows, self._program.donated(self._feeds), cudnn)
        code = self._program.code(key)
        self._code, self._call = code, code.run
        self._around: Callable[[], Any] = wide_types if code.wide else nullcontext
        self._plain = not (self._feeds or self._rows or any(self._narrow) or code.wide)
        self._plain &= self._program.options.max_iterations is None

    # --- runs ---------------------------------------------------------------------------------------

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs, and refreshes the output views."""
        arguments = self._arguments(arrays) if arrays else self._from_views()
        self._read_back(self._start(arguments))
        return self.output_views

    # The work of Python in a call counts beside the few dozen microseconds that JAX takes for one: arrays that fit as
    # they are, and results that are stored as they come, are told by one comparison each.

    def _start(self, arguments: Sequence[Any], copied: bool = False) -> list[Any]:
        """Begins a run on all inputs; returns JAX's outputs."""
        if copied:
            arguments = [
                item.copy() if isinstance(item, np.ndarray) else item for item in arguments
            ]
        # XLA records a program's kernels as one CUDA graph, with the addresses of its memory. While earlier outputs are
        # held, new ones lie elsewhere, and every run has to change the graph.
        self._last = []
        try:
            if self._plain:
                result = self._call(self._held.arrays, *arguments)
            else:
                result = self._with_state(arguments)
        except Exception as error:
            told = _told(error)
            if told is error:
                raise
            raise told from error
        self._last = result
        return result  # type: ignore[no-any-return]

    def _with_state(self, arguments: Sequence[Any]) -> list[Any]:
        """The call where handles, feeds, fewer rows, or types that NumPy lacks are in play."""
        call = [
            self._cut(index, self._as_stored(index, item)) for index, item in enumerate(arguments)
        ]
        with self._around():
            results = list(self._call(self._held.arrays, *call))
        if self._program.options.max_iterations is not None and int(results.pop()) < 0:
            raise InputError(
                "the loops of a run make more trips than allowed",
                hint="CompileOptions(max_iterations=...) sets the bound",
            )
        for index, output in self._feeds:
            self._resident[index] = self._joined(self._resident[index], results[output])
        return results

    def _as_stored(self, index: int, item: Any) -> Any:
        return (
            item.view(self._stored[index])
            if self._narrow[index] and isinstance(item, np.ndarray)
            else item
        )

    def _cut(self, index: int, item: Any) -> Any:
        """An input on the rows that are computed."""
        if self._rows is None or self._extent is None or index not in self._extent.inputs:
            return item
        return item[: self._rows[0]]

    def _joined(self, whole: Any, part: Any) -> Any:
        """A handle that takes an output, which may have fewer rows."""
        if whole.shape == part.shape:
            return part
        with wide_types():
            return whole.at[: part.shape[0]].set(part)

    def _arguments(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Arguments of a run: NumPy's as they are, JAX's and those of DLPack on the device."""
        if len(arrays) != len(self._fitting):
            check_slots(arrays, len(self._fitting))
        for value, (dtype, shape) in zip(arrays, self._fitting, strict=True):
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                arrays = self._converted(arrays)
                break
        else:
            self._moved[0] += self._given_bytes
        if not self._resident:
            return arrays
        results = {**self._resident, **dict(zip(self._given, arrays, strict=True))}
        return [results[index] for index in range(len(self._inputs))]

    def _converted(self, arrays: Sequence[Any]) -> list[Any]:
        """Arguments of which one at least is no array of NumPy that fits as it is."""
        return [
            self._other(value, index, position)
            for position, (index, value) in enumerate(zip(self._given, arrays, strict=True))
        ]

    def _other(self, value: Any, index: int, position: int) -> Any:
        """An argument on JAX's device, or as an array of NumPy that fits."""
        placed = on_device(value, self._device)
        if placed is None:
            array = as_input(value, self.input_views[index], position)
            self._moved[0] += array.nbytes
            return array
        if placed.shape != self._inputs[index].shape or placed.dtype != self._stored[index]:
            raise InputError(
                f"input {position} does not fit",
                got=f"{placed.dtype}{list(placed.shape)} on the device",
                expected=str(self._inputs[index].type),
                hint="convert it on the device, or pass a NumPy array",
            )
        return placed

    def _from_views(self) -> list[Any]:
        self._moved[0] += self._given_bytes
        return [self._resident.get(index, view) for index, view in enumerate(self.input_views)]

    def _read_back(self, results: Sequence[Any], chosen: Sequence[int] | None = None) -> None:
        """Brings outputs to their views; waits for them."""
        if chosen is None and self._as_they_are and self._rows is None:
            for item, target in zip(results, self._results, strict=True):
                target[...] = np.asarray(item)
            self._moved[1] += self._result_bytes
            return
        for index in range(len(self._results)) if chosen is None else chosen:
            array, target = np.asarray(results[index]), self._results[index]
            if array.dtype != target.dtype:
                array = array.view(target.dtype)
            if array.shape == target.shape:
                target[...] = array
            else:
                target[: array.shape[0]] = array
            self._moved[1] += array.nbytes

    def submit(self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool) -> XlaRun:
        """Begins a run. JAX may read the arguments later, so they are copied."""
        views = [self.input_views[index] for index in self._given]
        arguments = [
            view if array is None else array for array, view in zip(arrays, views, strict=True)
        ]
        return XlaRun(self, self._start(self._arguments(arguments), copied=True), outputs, fresh)

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict]:
        """See ``rlx.Executable``. Arguments on JAX's device stay there, and no argument is copied."""

        def run_slots(*arrays: Any) -> tuple[Array, ...]:
            return lock.call(self.run_slots, *arrays)

        def run_dict(inputs: Any) -> list[Array] | None:
            return lock.call(self._run_dict, names, inputs)

        return run_slots, run_dict

    def _run_dict(self, names: tuple[str, ...], inputs: Any) -> list[Array] | None:
        if type(inputs) is not dict or len(inputs) != len(self._given):
            return None
        arrays = [inputs.get(names[index]) for index in self._given]
        for array, (dtype, shape) in zip(arrays, self._fitting, strict=True):
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
        return self.taken(self._start(self._arguments(arrays)), range(len(self._outputs)), True)

    def taken(self, arrays: Sequence[Any], outputs: Sequence[int], fresh: bool) -> list[Array]:
        """Waits for outputs of a run and returns them.

        Args:
            arrays: All outputs, as JAX has them.
            outputs: Positions of the requested outputs.
            fresh: Whether they are copied; otherwise they are views.
        """
        if fresh and self._rows is None:
            self._moved[1] += sum(self._results[index].nbytes for index in outputs)
            return [np.array(fetched(arrays[index], self._outputs[index])) for index in outputs]
        self._read_back(arrays, outputs)
        views = [self.output_views[index] for index in outputs]
        return [view.copy() for view in views] if fresh else views

    def read_row(self, output: int, row: int) -> Array:
        """One row of an output of the last run."""
        if not self._last:
            retained: Array = self.output_views[output][row].copy()
            return retained
        with wide_types():
            result = self._last[output][row]
        self._moved[1] += result.nbytes
        row_array: Array = np.array(fetched(result, self._outputs[output]))
        return row_array

    def run_on_device(self, *arrays: Any) -> tuple[Any, ...]:
        """Runs, and gives JAX's arrays: nothing is read back. They have ``__dlpack__``.

        They belong to the caller: an output that feeds a handle is copied, since the next run reuses the handle's
        memory.
        """
        # On the processor JAX reads the caller's memory, maybe after this call.
        arguments = self._arguments(arrays) if arrays else self._from_views()
        result = self._start(arguments, copied=self._program.platform == "cpu")
        donated = self._program.donated(self._feeds)
        taken = {output for index, output in self._feeds if index in donated}
        return tuple(item.copy() if index in taken else item for index, item in enumerate(result))

    # --- what stays between runs --------------------------------------------------------------------

    def moved(self) -> Moved:
        """Returns the bytes of inputs and outputs so far."""
        return Moved(self._moved[0], self._moved[1], 0)

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Uploads several weights."""
        self._held.set(values)

    def read_param(self, name: str) -> Array:
        """Returns the weight in its stored form."""
        return self._held.get(name)

    def write_input(self, index: int, array: Array) -> None:
        """Puts an array into an input's own memory, on the device as well."""
        self.input_views[index][...] = array
        if index in self._resident:
            self._resident[index] = self._put(index)

    def _put(self, index: int) -> Any:
        self._moved[0] += self.input_views[index].nbytes
        return put(self.input_views[index].copy(), self._inputs[index], self._device)

    def read_input(self, index: int) -> Array:
        """Returns the contents of an input's own memory."""
        if index in self._resident:
            return fetched(self._resident[index], self._inputs[index]).copy()
        return self.input_views[index].copy()

    def bind(self, binding: Binding) -> None:
        """See ``rlx.Executable``. Fewer rows are as many as the next power of two has; a feed takes no copy."""
        before = self._resident, self._feeds, self._extent, self._rows
        extent, resident = binding.extent, self._resident
        try:
            self._resident = {
                index: resident[index] if index in resident else self._put(index)
                for index in binding.residents
            }
            self._feeds, self._extent = list(binding.feeds), extent
            self._rows = None if extent is None else self._program.bucket(extent)
            self._expect()
            self._choose()
        except BaseException:
            self._resident, self._feeds, self._extent, self._rows = before
            self._expect()
            raise

    def arena(self) -> int:
        """Returns 0: outputs have no fixed address."""
        return 0

    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Returns none of WebGPU."""
        return (), ()

    def clone(self) -> XlaExecutable:
        """Another one with the same code and weights."""
        return XlaExecutable(self._program, self._device, self._held)

    def memory(self) -> dict[str, int]:
        """Bytes: the arena is what a run takes for inputs, outputs and temporaries."""
        views = sum(array.nbytes for array in (*self.input_views, *self._results))
        arena, params = views + self._code.temporary, self._held.nbytes
        return {"arena": arena, "params": params, "staging": views, "peak": arena + params}

    def kernels(self) -> str:
        """The program as XLA optimised it."""
        return str(self._code.compiled.as_text())

    def discard_device(self) -> None:
        """Does nothing: JAX can't open a device anew in one process."""

    def close(self) -> None:
        """Drops its arrays on the device."""
        self._resident, self._last = {}, []
        self._held = _CLOSED


class XlaRun:
    """A run that was begun; see ``rlx.plugin.Pending``.

    Args:
        executable: Began it.
        arrays: Its outputs, as JAX has them.
        outputs: Positions of the requested outputs.
        fresh: Whether they are copied.
    """

    def __init__(
        self, executable: XlaExecutable, arrays: list[Any], outputs: Sequence[int], fresh: bool
    ) -> None:
        self._executable, self._arrays, self._outputs = executable, arrays, outputs
        self._fresh, self._taken = fresh, list[Array]()
        self._waiting = True

    def wait(self) -> list[Array]:
        """Waits for the run and returns the outputs."""
        if self._waiting:
            self._taken = self._executable.taken(self._arrays, self._outputs, self._fresh)
            self._waiting, self._arrays = False, []
        return self._taken


class _Closed(PinnedArrays):
    """The weights of an executable that is closed."""

    def __init__(self) -> None:
        self.arrays = []


_CLOSED = _Closed()


def on_device(value: Any, device: Any) -> Any:
    """A value that is on JAX's device already, without a copy; None for any other."""
    if not isinstance(value, jax().Array):
        if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
            return None
        kind, index = value.__dlpack_device__()
        if int(kind) in _HOST_MEMORY or index != device.local_hardware_id:
            return None
        value = jax().dlpack.from_dlpack(value)
    return value if value.devices() == {device} else jax().device_put(value, device)


# DLPack's kinds of devices whose memory NumPy reads: the processor's, and that which is pinned for CUDA and ROCm.
_HOST_MEMORY = (1, 3, 11)


def _told(error: Exception) -> Exception:
    """An error of JAX as one of rlx."""
    text = str(error)
    if isinstance(error, InputError):
        return error
    if "RESOURCE_EXHAUSTED" in text:
        return DeviceMemoryError("the device has no room for a run", got=text.splitlines()[0])
    if "DEVICE_LOST" in text or "CUDA_ERROR" in text or "INTERNAL: Failed" in text:
        return DeviceLostError("XLA lost its device", got=text.splitlines()[0])
    return error


def _read_only(array: Array) -> Array:
    view = array.view()
    view.setflags(write=False)
    return view


class XlaProgram(Compilation):
    """A graph that devices take."""

    def pack(self) -> None:
        """Nothing is decided before it is loaded; XLA's executables are in a cache of JAX."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> XlaExecutable:
        """Takes memory on a device."""
        device = devices_of(self.platform)[info.index]
        return XlaExecutable(self, device, PinnedArrays(self, device))

"""A graph in MLX: weights and handles stay in its arrays, and a run is one call of a compiled function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.plugin import (
    Binding,
    Capabilities,
    CompileOptions,
    DeviceInfo,
    DType,
    DynamicRows,
    GpuBuffer,
    Graph,
    Moved,
    Node,
    TryLock,
    check_args,
    dynamic_rows_of,
)
from rlx_mlx.engine import mlx
from rlx_mlx.hand import replace_references
from rlx_mlx.trace import as_stored, outputs_of

CAPABILITIES = Capabilities(arena_ptr=False, prepared_params=True, allocates=True)
Array = np.ndarray[Any, Any]


class MlxProgram:
    """A graph, and MLX's functions of it.

    Args:
        graph: The graph after the passes.
    """

    nbytes = 0

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs = [graph.named(name) for name in graph.input_names]
        self._functions: dict[tuple[int, int] | None, Any] = {}
        replace_references()

    def pack(self) -> None:
        """Nothing is decided before it is loaded."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> MlxExecutable:
        """Takes memory."""
        return MlxExecutable(self, {})

    def rows(self, extent: DynamicRows) -> tuple[int, int] | None:
        """The number of rows that serves an extent, and of how many; None for all of them."""
        rows = 1 << max(extent.actual - 1, 0).bit_length()
        key = (rows, extent.upper)
        if extent.graph is None or rows >= extent.upper:
            return None
        if key not in self._functions:
            graph = dynamic_rows_of(self.graph, *key).graph
            if graph is None:
                return None
            self._functions[key] = self._build(graph)
        return key

    def function(self, rows: tuple[int, int] | None) -> Any:
        """The function on so many rows."""
        if rows not in self._functions:
            self._functions[rows] = self._build(self.graph)
        return self._functions[rows]

    def _build(self, graph: Graph) -> Any:
        def run(params: dict[str, Any], inputs: list[Any]) -> list[Any]:
            arguments = dict(zip(graph.input_names, inputs, strict=True))
            return outputs_of(graph, {**params, **arguments})

        # On the processor MLX joins kernels by a C++ compiler, which need not be there, and takes a second for each.
        return mlx().compile(run) if mlx().metal.is_available() else run


class MlxExecutable:
    """One loaded graph.

    Args:
        program: The program of the graph.
        params: Its weights as MLX arrays, which clones share.
    """

    capabilities = CAPABILITIES
    output_slots: tuple[tuple[int, int], ...] = ()

    def __init__(self, program: MlxProgram, params: dict[str, dict[str, Any]]) -> None:
        self._program, self._shared = program, params
        graph = program.graph
        if "held" not in params:
            names = (graph.named(name) for name in graph.param_names)
            params["held"] = {
                node.name: as_stored(np.zeros(node.shape, node.dtype.numpy), node.dtype)
                for node in names
            }
        self._outputs = graph.outputs
        self.input_views = tuple(np.zeros(node.shape, node.dtype.numpy) for node in program.inputs)
        self._results = [np.zeros(node.shape, node.dtype.numpy) for node in self._outputs]
        self.output_views = tuple(_read_only(array) for array in self._results)
        self._given = list(range(len(program.inputs)))
        self._resident: dict[int, Any] = {}
        self._feeds: list[tuple[int, int]] = []
        self._extent: DynamicRows | None = None
        self._rows: tuple[int, int] | None = None
        self._last: list[Any] = []

    # --- runs ---------------------------------------------------------------------------------------

    def submit(self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool) -> MlxRun:
        """Begins a run; MLX has copies of the arguments."""
        values: list[Any] = list(self.input_views)
        for index, array in zip(self._given, arrays, strict=True):
            if array is not None:
                values[index] = array
        return MlxRun(self, self._start(values), outputs, fresh)

    def taken(self, arrays: Sequence[Any], outputs: Sequence[int], fresh: bool) -> list[Array]:
        """Waits for outputs of a run and returns them.

        Args:
            arrays: All outputs, as MLX has them.
            outputs: Positions of the requested outputs.
            fresh: Whether they are copied; otherwise they are views.
        """
        self._read_back(arrays, outputs)
        views = [self.output_views[index] for index in outputs]
        return [view.copy() for view in views] if fresh else views

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> None:
        """Returns None: nothing is compiled."""

    def _start(self, values: Sequence[Any]) -> list[Any]:
        """Begins a run on all inputs; returns MLX's outputs."""
        inputs = [self._input(index, value) for index, value in enumerate(values)]
        results = list(self._program.function(self._rows)(self._shared["held"], inputs))
        mlx().async_eval(results)
        for index, output in self._feeds:
            whole, part = self._resident[index], results[output]
            if whole.shape == part.shape:
                self._resident[index] = part
            else:
                self._resident[index] = mlx().concatenate([part, whole[part.shape[0] :]])
        self._last = results
        return results

    def _input(self, index: int, value: Any) -> Any:
        result = self._resident.get(index)
        if result is None:
            result = as_stored(value, self._program.inputs[index].dtype)
        if self._rows is not None and self._extent is not None and index in self._extent.inputs:
            return result[: self._rows[0]]
        return result

    def _read_back(self, results: Sequence[Any], chosen: Sequence[int]) -> None:
        for index in chosen:
            array, target = fetched(results[index], self._outputs[index]), self._results[index]
            if array.shape == target.shape:
                target[...] = array
            else:
                target[: array.shape[0]] = array

    def read_row(self, output: int, row: int) -> Array:
        """One row of an output of the last run."""
        if not self._last:
            retained: Array = self.output_views[output][row].copy()
            return retained
        return np.array(fetched(self._last[output][row], self._outputs[output]))

    def run_on_device(self, *arrays: Any) -> tuple[Any, ...]:
        """Runs, and returns MLX's arrays."""
        values: list[Any] = list(self.input_views)
        if arrays:
            views = [self.input_views[index] for index in self._given]
            for index, array in zip(self._given, check_args(arrays, views), strict=True):
                values[index] = array
        return tuple(self._start(values))

    # --- what stays between runs --------------------------------------------------------------------

    def moved(self) -> Moved:
        """Returns zeros: memory is shared, and nothing moves."""
        return Moved(0, 0, 0)

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Takes several weights; a run sees all new ones or none."""
        graph = self._program.graph
        new = {name: as_stored(array, graph.named(name).dtype) for name, array in values.items()}
        self._shared["held"] = {**self._shared["held"], **new}

    def read_param(self, name: str) -> Array:
        """Returns the weight in its stored form."""
        return np.array(fetched(self._shared["held"][name], self._program.graph.named(name)))

    def write_input(self, index: int, array: Array) -> None:
        """Puts an array into an input's own memory."""
        self.input_views[index][...] = array
        if index in self._resident:
            self._resident[index] = self._input_of_view(index)

    def _input_of_view(self, index: int) -> Any:
        return as_stored(self.input_views[index], self._program.inputs[index].dtype)

    def read_input(self, index: int) -> Array:
        """Returns the contents of an input's own memory."""
        if index in self._resident:
            return np.array(fetched(self._resident[index], self._program.inputs[index]))
        return self.input_views[index].copy()

    def bind(self, binding: Binding) -> None:
        """See ``rlx.Executable``. Fewer rows are as many as the next power of two has."""
        extent = binding.extent
        rows = None if extent is None else self._program.rows(extent)
        known = self._resident
        self._resident = {
            index: known[index] if index in known else self._input_of_view(index)
            for index in binding.residents
        }
        self._given = list(binding.arguments(len(self.input_views)))
        self._feeds, self._extent, self._rows = list(binding.feeds), extent, rows

    def arena(self) -> int:
        """Returns 0: outputs have no fixed address."""
        return 0

    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Returns none of WebGPU."""
        return (), ()

    def clone(self) -> MlxExecutable:
        """Another one with the same functions and weights."""
        return MlxExecutable(self._program, self._shared)

    def memory(self) -> dict[str, int]:
        """Returns the bytes of permanent memory; MLX allocates temporaries during runs."""
        views = sum(array.nbytes for array in (*self.input_views, *self._results))
        params = sum(int(array.nbytes) for array in self._shared["held"].values())
        return {"arena": 2 * views, "params": params, "staging": views, "peak": 2 * views + params}

    def kernels(self) -> str:
        """The operations; MLX shows no kernels."""
        return "\n".join(f"mlx: {node.op}" for node in self._program.graph.nodes)

    def discard_device(self) -> None:
        """Does nothing: MLX opens no device anew."""

    def close(self) -> None:
        """Drops its arrays."""
        self._resident, self._last, self._shared = {}, [], {"held": {}}


class MlxRun:
    """A run that was begun; see ``rlx.plugin.Pending``.

    Args:
        executable: Began it.
        arrays: Its outputs, as MLX has them.
        outputs: Positions of the requested outputs.
        fresh: Whether they are copied.
    """

    def __init__(
        self, executable: MlxExecutable, arrays: list[Any], outputs: Sequence[int], fresh: bool
    ) -> None:
        self._executable, self._arrays, self._outputs = executable, arrays, outputs
        self._fresh = fresh
        self._taken: list[Array] | None = None

    def wait(self) -> list[Array]:
        """Waits for the run and returns the outputs."""
        if self._taken is None:
            self._taken = self._executable.taken(self._arrays, self._outputs, self._fresh)
        return self._taken


def fetched(array: Any, node: Node) -> Array:
    """An array of MLX in the storage of rlx; maybe MLX's own memory."""
    core = mlx()
    if node.dtype is DType.F64:
        return np.asarray(array).view(np.float64)
    return np.asarray(array.view(core.uint16) if node.dtype is DType.BF16 else array)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.setflags(write=False)
    return view

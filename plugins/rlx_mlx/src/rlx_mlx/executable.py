"""A graph in MLX: weights and handles stay in its arrays, and a run is one call of a compiled function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.plugin import (
    Capabilities,
    CompileOptions,
    DeviceInfo,
    DType,
    Extent,
    Graph,
    Moved,
    Node,
    extent_of,
    taken,
)
from rlx_mlx.engine import mlx
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

    def pack(self) -> None:
        """Nothing is decided before it is loaded."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> MlxExecutable:
        """Takes memory."""
        return MlxExecutable(self, {})

    def rows(self, extent: Extent) -> tuple[int, int] | None:
        """The number of rows that serves an extent, and of how many; None for all of them."""
        rows = 1 << max(extent.actual - 1, 0).bit_length()
        key = (rows, extent.upper)
        if extent.graph is None or rows >= extent.upper:
            return None
        if key not in self._functions:
            graph = extent_of(self.graph, *key).graph
            if graph is None:
                return None
            self._functions[key] = self._made(graph)
        return key

    def function(self, rows: tuple[int, int] | None) -> Any:
        """The function on so many rows."""
        if rows not in self._functions:
            self._functions[rows] = self._made(self.graph)
        return self._functions[rows]

    def _made(self, graph: Graph) -> Any:
        def run(params: dict[str, Any], inputs: list[Any]) -> list[Any]:
            given = dict(zip(graph.input_names, inputs, strict=True))
            return outputs_of(graph, {**params, **given})

        # On the processor MLX joins kernels by a C++ compiler, which need not be there, and takes a second for each.
        return mlx().compile(run) if mlx().metal.is_available() else run


class MlxExecutable:
    """One loaded graph.

    Args:
        program: What it runs.
        params: Its weights as MLX arrays, which clones share.
    """

    capabilities = CAPABILITIES
    output_slots: tuple[tuple[int, int], ...] = ()
    arena_ptr = 0

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
        self._extent: Extent | None = None
        self._rows: tuple[int, int] | None = None
        self._last: list[Any] = []

    # --- runs ---------------------------------------------------------------------------------------

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs, and refreshes the output views."""
        self._read_back(self._start(arrays), range(len(self._results)))
        return self.output_views

    def _start(self, arrays: Sequence[Any]) -> list[Any]:
        """Begins a run; gives MLX's outputs."""
        values: list[Any] = list(self.input_views)
        if arrays:
            views = [self.input_views[at] for at in self._given]
            for at, array in zip(self._given, taken(arrays, views, ()), strict=True):
                values[at] = array
        inputs = [self._input(at, value) for at, value in enumerate(values)]
        found = list(self._program.function(self._rows)(self._shared["held"], inputs))
        mlx().async_eval(found)
        for at, output in self._feeds:
            whole, part = self._resident[at], found[output]
            if whole.shape == part.shape:
                self._resident[at] = part
            else:
                self._resident[at] = mlx().concatenate([part, whole[part.shape[0] :]])
        self._last = found
        return found

    def _input(self, at: int, value: Any) -> Any:
        found = self._resident.get(at)
        if found is None:
            found = as_stored(value, self._program.inputs[at].dtype)
        if self._rows is not None and self._extent is not None and at in self._extent.inputs:
            return found[: self._rows[0]]
        return found

    def _read_back(self, found: Sequence[Any], chosen: Sequence[int]) -> None:
        for at in chosen:
            array, target = fetched(found[at], self._outputs[at]), self._results[at]
            if array.shape == target.shape:
                target[...] = array
            else:
                target[: array.shape[0]] = array

    def run_outputs(self, indices: Sequence[int]) -> list[Array]:
        """Runs on the input views, and brings back these outputs."""
        self._read_back(self._start(()), indices)
        return [self.output_views[at] for at in indices]

    def read_row(self, output: int, row: int) -> Array:
        """One row of an output of the last run."""
        if not self._last:
            kept: Array = self.output_views[output][row].copy()
            return kept
        return np.array(fetched(self._last[output][row], self._outputs[output]))

    def run_on_device(self, *arrays: Any) -> tuple[Any, ...]:
        """Runs, and gives MLX's arrays."""
        return tuple(self._start(arrays))

    def submit(self) -> None:
        """Begins a run; MLX has copies of the input views."""
        self._start(())

    def wait(self) -> None:
        """Waits for the last run that was begun."""
        if self._last:
            self._read_back(self._last, range(len(self._results)))

    def run_many(self, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """All runs are begun before the first result is waited for."""
        found = []
        for outputs in [self._start(arrays) for arrays in sets]:
            self._read_back(outputs, range(len(self._results)))
            found.append([view.copy() for view in self.output_views])
        return found

    # --- what stays between runs --------------------------------------------------------------------

    @property
    def bytes_moved(self) -> Moved:
        """Memory is shared: nothing moves."""
        return Moved(0, 0, 0)

    def set_param(self, name: str, array: Array) -> None:
        """Takes a weight."""
        self.set_params({name: array})

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Takes several weights; a run sees all new ones or none."""
        graph = self._program.graph
        new = {name: as_stored(array, graph.named(name).dtype) for name, array in values.items()}
        self._shared["held"] = {**self._shared["held"], **new}

    def read_param(self, name: str) -> Array:
        """The weight as it is held."""
        return np.array(fetched(self._shared["held"][name], self._program.graph.named(name)))

    def write_input(self, index: int, array: Array) -> None:
        """Puts an array into an input's own memory."""
        self.input_views[index][...] = array
        if index in self._resident:
            self._resident[index] = self._input_of_view(index)

    def _input_of_view(self, index: int) -> Any:
        return as_stored(self.input_views[index], self._program.inputs[index].dtype)

    def read_input(self, index: int) -> Array:
        """What stands in an input's own memory."""
        if index in self._resident:
            return np.array(fetched(self._resident[index], self._program.inputs[index]))
        return self.input_views[index].copy()

    def set_resident(self, indices: Sequence[int]) -> None:
        """Inputs that stay in MLX's arrays."""
        known = self._resident
        self._resident = {
            at: known[at] if at in known else self._input_of_view(at) for at in indices
        }
        self._given = [at for at in range(len(self.input_views)) if at not in self._resident]

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """After each run these inputs take these outputs."""
        self._feeds = list(pairs)

    def set_extent(self, extent: Extent | None) -> None:
        """Later runs compute as many rows as the next power of two has, or all."""
        self._extent = extent
        self._rows = None if extent is None else self._program.rows(extent)

    def clone(self) -> MlxExecutable:
        """Another one with the same functions and weights."""
        return MlxExecutable(self._program, self._shared)

    def memory(self) -> dict[str, int]:
        """Bytes of what stays; MLX allocates temporaries as it goes."""
        views = sum(array.nbytes for array in (*self.input_views, *self._results))
        params = sum(int(array.nbytes) for array in self._shared["held"].values())
        return {"arena": 2 * views, "params": params, "staging": views, "peak": 2 * views + params}

    def kernels(self) -> str:
        """The operations; MLX shows no kernels."""
        return "\n".join(f"mlx: {node.op}" for node in self._program.graph.nodes)

    def abandon(self) -> None:
        """MLX opens no device anew."""

    def close(self) -> None:
        """Lets go of what it holds."""
        self._resident, self._last, self._shared = {}, [], {"held": {}}


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

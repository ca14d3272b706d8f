"""The reference backend: every node by its NumPy reference. Slow, and the meaning of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.backends.arguments import taken
from rlx.backends.base import Capabilities, CompileOptions, DeviceInfo, HostMemory
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ops.control import trips_of_a_run
from rlx.ops.interpret import interpret
from rlx.passes.extent import Extent


class ReferenceExecutable(HostMemory):
    """Interprets a graph node by node."""

    capabilities = Capabilities(arena_ptr=False)
    output_slots: tuple[tuple[int, int], ...] = ()
    arena_ptr = 0

    def __init__(
        self, graph: Graph, params: dict[str, Array], max_iterations: int | None = None
    ) -> None:
        self._max_iterations = max_iterations
        self._graph = graph
        self._fewer: Graph | None = None
        self._params = params
        declared = [node for node in graph.nodes if node.op == "input"]
        self._inputs = {node.name: np.zeros(node.shape, node.dtype.numpy) for node in declared}
        self._outputs = [np.zeros(node.shape, node.dtype.numpy) for node in graph.outputs]
        self.input_views = tuple(self._inputs.values())
        self.output_views = tuple(_read_only(array) for array in self._outputs)
        self._given = list(range(len(self.input_views)))
        self._feeds: list[tuple[int, int]] = []

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """Interprets the graph on the arguments, or on ``input_views`` without any."""
        graph, inputs = self._graph, dict(self._inputs)
        if arrays:
            views = [self.input_views[which] for which in self._given]
            names = list(inputs)
            for which, array in zip(self._given, taken(arrays, views, ()), strict=True):
                inputs[names[which]] = array
        if self._fewer is not None:
            graph = self._fewer
            inputs = {name: array[_of(graph.named(name), array)] for name, array in inputs.items()}
        with trips_of_a_run(self._max_iterations):
            results = interpret(graph, {**inputs, **self._params})
        for node, target, result in zip(graph.outputs, self._outputs, results, strict=True):
            target[_of(node, target)] = result
        for which, output in self._feeds:
            self.input_views[which][...] = self.output_views[output]
        return self.output_views

    def set_resident(self, indices: Sequence[int]) -> None:
        """Inputs that ``run_slots`` takes no argument for."""
        self._given = [at for at in range(len(self.input_views)) if at not in indices]

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Inputs that take an output after each run."""
        self._feeds = list(pairs)

    def set_extent(self, extent: Extent | None) -> None:
        """Fewer rows are another graph, on the beginnings of the arrays."""
        self._fewer = None if extent is None else extent.graph

    def set_param(self, name: str, array: Array) -> None:
        """Keeps a copy of the weight."""
        self._params[name] = np.array(array)

    def read_param(self, name: str) -> Array:
        """A copy of the weight."""
        return self._params[name].copy()

    def clone(self) -> ReferenceExecutable:
        """Another interpreter of the same graph and params."""
        return ReferenceExecutable(self._graph, self._params, self._max_iterations)

    def memory(self) -> dict[str, int]:
        """NumPy allocates as it goes; only what stays is counted."""
        held = sum(array.nbytes for array in (*self.input_views, *self._outputs))
        params = sum(array.nbytes for array in self._params.values())
        return {"arena": held, "params": params, "staging": 0, "peak": held + params}

    def kernels(self) -> str:
        """Every op by its reference."""
        names = sorted({node.op for node in self._graph.nodes})
        return "\n".join(f"numpy reference of {name}" for name in names)

    def close(self) -> None:
        """Nothing is held outside Python."""


def _of(node: Node, array: Array) -> Any:
    """The beginning of an array that a node on fewer rows stands for."""
    return slice(node.shape[0]) if node.shape != array.shape else ...


def _read_only(array: Array) -> Array:
    view = array.view()
    view.setflags(write=False)
    return view


class ReferenceBackend:
    """NumPy as a device."""

    name = "reference"
    kernel_set = ""

    def devices(self) -> list[DeviceInfo]:
        """There is always one."""
        return [DeviceInfo("reference", 0, "NumPy", driver=np.__version__)]

    def absent(self) -> str:
        """It never is."""
        return ""

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> ReferenceExecutable:
        """Keeps the graph."""
        return ReferenceExecutable(graph, {}, options.max_iterations)


BACKEND = ReferenceBackend()

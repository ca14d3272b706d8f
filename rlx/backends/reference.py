"""The reference backend: every node by its NumPy reference. Slow, and the meaning of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends.base import Backend, CompileOptions, DeviceInfo
from rlx.backends.executable import Capabilities, HostExecutable
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ops.interpret import interpret, trips_of_a_run


class ReferenceExecutable(HostExecutable):
    """Interprets a graph node by node.

    Args:
        graph: The graph.
        params: Values of its params by name, which clones share.
        max_iterations: Trips that the loops of a run make at most, all together; None for no bound.
    """

    def __init__(
        self, graph: Graph, params: dict[str, Array], max_iterations: int | None = None
    ) -> None:
        inputs = [graph.named(name) for name in graph.input_names]
        super().__init__(
            [node.type for node in inputs],
            [node.type for node in graph.outputs],
            Capabilities(arena_ptr=False),
        )
        self._graph, self._params, self._max_iterations = graph, params, max_iterations

    def compute(self, inputs: Sequence[Array], targets: Sequence[Array]) -> None:
        """Interprets the graph. Fewer rows are another graph, on the beginnings of the arrays."""
        extent = self.binding.extent
        graph = (extent and extent.graph) or self._graph
        named = {
            name: array[_part(graph.named(name), array)]
            for name, array in zip(self._graph.input_names, inputs, strict=True)
        }
        with trips_of_a_run(self._max_iterations):
            results = interpret(graph, {**named, **self._params})
        for node, target, result in zip(graph.outputs, targets, results, strict=True):
            target[_part(node, target)] = result

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Keeps copies of weights."""
        self._params.update({name: np.array(array) for name, array in values.items()})

    def read_param(self, name: str) -> Array:
        """Returns a copy of the weight."""
        return self._params[name].copy()

    def clone(self) -> ReferenceExecutable:
        """Returns another interpreter of the same graph and params."""
        return type(self)(self._graph, self._params, self._max_iterations)

    def memory(self) -> dict[str, int]:
        """Counts the arrays that stay. NumPy allocates others as it goes."""
        stored = sum(array.nbytes for array in (*self.input_views, *self.output_views))
        params = sum(array.nbytes for array in self._params.values())
        return {"arena": stored, "params": params, "staging": 0, "peak": stored + params}

    def kernels(self) -> str:
        """Lists every op by its reference."""
        names = sorted({node.op for node in self._graph.nodes})
        return "\n".join(f"numpy reference of {name}" for name in names)


def _part(node: Node, array: Array) -> Any:
    """The beginning of an array that a node on fewer rows stands for."""
    return slice(node.shape[0]) if node.shape != array.shape else ...


class ReferenceBackend(Backend):
    """NumPy as a device."""

    name = "reference"

    def devices(self) -> list[DeviceInfo]:
        """Returns the one device."""
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

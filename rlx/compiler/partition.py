"""Partitions of a graph for a backend without kernel set that can't run some nodes: those run on the host.

Partitions run one after the other. A value that another partition reads goes through host memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx.backends.base import CompileOptions, DeviceInfo, Program
from rlx.backends.executable import Capabilities, Executable, HostExecutable
from rlx.backends.plugin_guard import GuardedBackend
from rlx.dataclasses import dataclass
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array
from rlx.ops.placeholders import LEAVES
from rlx.passes.schedule import extract


@dataclass(frozen=True, eq=False)
class Partition:
    """Some nodes of a graph, as a graph of their own.

    Attributes:
        graph: The nodes. Values of other partitions are inputs named "value:" and a number; so are, on the host,
            params.
        reads: By input in order, the id of its node of the whole graph.
        writes: By output in order, likewise.
        on_host: Whether it runs on the host.
        program: The backend's program; None on the host.
    """

    graph: Graph
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    on_host: bool
    program: Program | None = None


def partition(graph: Graph, hosted: Mapping[int, str]) -> list[Partition]:
    """Partitions a graph between the device and the host, in the order of running.

    Args:
        graph: The graph.
        hosted: The nodes that run on the host, by id.
    """
    stages = _stages(graph, hosted)
    readers: dict[int, set[int]] = {}
    for node in graph.nodes:
        for operand in node.inputs:
            if node.id in stages:
                readers.setdefault(operand.id, set()).add(stages[node.id])
    outputs = {node.id for node in graph.outputs}
    results = []
    for stage in sorted(set(stages.values())):
        inside = [node for node in graph.nodes if stages.get(node.id) == stage]
        wanted = [
            node
            for node in inside
            if len(node.types) == 1
            and (node.id in outputs or readers.get(node.id, set()) - {stage})
        ]
        if wanted:
            results.append(_partition(graph, inside, wanted, bool(stage % 2)))
    return results


def _stages(graph: Graph, hosted: Mapping[int, str]) -> dict[int, int]:
    """The stage of every node that is computed: even ones are the device's, odd ones the host's."""
    results: dict[int, int] = {}
    for node in graph.nodes:
        if node.op in LEAVES:
            continue
        after = max(
            (results[operand.id] for operand in node.inputs if operand.id in results), default=0
        )
        on_host = node.id in hosted
        if node.op == PART:
            results[node.id] = results[node.inputs[0].id]
        else:
            results[node.id] = after if after % 2 == on_host else after + 1
    return results


def _partition(
    graph: Graph, inside: Sequence[Node], wanted: Sequence[Node], on_host: bool
) -> Partition:
    name = f"{graph.name}, on the host" if on_host else graph.name
    new, reads = extract(name, inside, wanted, "value:{}", params=not on_host)
    ids = [tuple(node.id for node in nodes) for nodes in (reads, wanted)]
    return Partition(new, ids[0], ids[1], on_host)


@dataclass(frozen=True, eq=False)
class PartitionedProgram:
    """The programs of all partitions.

    Attributes:
        graph: The whole graph.
        backend: The backend that loads the partitions of the device.
        partitions: The partitions, in order.
    """

    graph: Graph
    backend: GuardedBackend
    partitions: tuple[Partition, ...]

    @property
    def nbytes(self) -> int:
        """The sum of its partitions."""
        return sum(item.program.nbytes for item in self.partitions if item.program is not None)

    def pack(self) -> None:
        """Returns None: nothing is kept in files."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> Executable:
        """Loads every partition where it runs."""
        from rlx.backends.host import compile_host

        loaded = [
            compile_host(item.graph, options)
            if item.program is None
            else self.backend.executable(item.program, info, item.graph, options)
            for item in self.partitions
        ]
        return PartitionedExecutable(self, loaded, {})


class PartitionedExecutable(HostExecutable):
    """The executables of all partitions, run one after the other.

    Args:
        program: The partitions.
        loaded: An executable for each.
        params: Values of params that a partition on the host reads, or that are outputs; clones share them.
    """

    def __init__(
        self, program: PartitionedProgram, loaded: Sequence[Executable], params: dict[str, Array]
    ) -> None:
        graph = program.graph
        self._inputs = [graph.named(name) for name in graph.input_names]
        super().__init__(
            [node.type for node in self._inputs],
            [node.type for node in graph.outputs],
            Capabilities(arena_ptr=False, allocates=True),
        )
        self._program, self._loaded, self._params = program, loaded, params
        self._constants = {
            node.id: np.asarray(node.attrs["value"])
            for node in graph.outputs
            if node.op == "constant"
        }
        read = {i: graph.nodes[i] for item in program.partitions for i in item.reads}
        stored = {
            node.name: node for node in (*read.values(), *graph.outputs) if node.op == "param"
        }
        for name, node in stored.items():
            params.setdefault(name, np.zeros(node.shape, node.dtype.numpy))
        self._param_names = {node.id: name for name, node in stored.items()}

    def compute(self, inputs: Sequence[Array], targets: Sequence[Array]) -> None:
        """Runs the partitions. All rows are computed, also with an active extent."""
        values = {node.id: array for node, array in zip(self._inputs, inputs, strict=True)}
        values |= self._constants
        values |= {i: self._params[name] for i, name in self._param_names.items()}
        for item, executable in zip(self._program.partitions, self._loaded, strict=True):
            arrays = [np.asarray(values[i], order="C") for i in item.reads]
            pending = executable.submit(arrays, range(len(item.writes)), False)
            values.update(zip(item.writes, pending.wait(), strict=True))
        for target, node in zip(targets, self._program.graph.outputs, strict=True):
            target[...] = values[node.id]

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Gives weights to every partition that reads them."""
        for name in values.keys() & self._params.keys():
            self._params[name] = np.array(values[name])
        for item, executable in zip(self._program.partitions, self._loaded, strict=True):
            names = () if item.on_host else values.keys() & set(item.graph.param_names)
            if names:
                executable.set_params({name: values[name] for name in names})

    def read_param(self, name: str) -> Array:
        """Returns a copy of the weight."""
        if name in self._params:
            return self._params[name].copy()
        for item, executable in zip(self._program.partitions, self._loaded, strict=True):
            if not item.on_host and name in item.graph.param_names:
                return executable.read_param(name)
        node = self._program.graph.named(name)
        return np.zeros(node.shape, node.dtype.numpy)

    def clone(self) -> PartitionedExecutable:
        """Returns the same on memory of its own; params are shared."""
        return PartitionedExecutable(
            self._program, [item.clone() for item in self._loaded], self._params
        )

    def memory(self) -> dict[str, int]:
        """Returns the sums of the partitions."""
        own = sum(array.nbytes for array in (*self.input_views, *self.output_views))
        params = sum(array.nbytes for array in self._params.values())
        sums = {"arena": own, "params": params, "staging": 0}
        for item in self._loaded:
            memory = item.memory()
            for key in sums:
                sums[key] += memory[key]
        return {**sums, "peak": sums["arena"] + sums["params"]}

    def kernels(self) -> str:
        """Lists those of each partition."""
        return "\n".join(
            f"# {'host' if part.on_host else 'device'}\n{item.kernels()}"
            for part, item in zip(self._program.partitions, self._loaded, strict=True)
        )

    def close(self) -> None:
        """Closes the partitions."""
        for item in self._loaded:
            item.close()

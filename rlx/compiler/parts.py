"""A graph in parts, where a backend that takes graphs whole can't run some of its nodes: those run on the host.

The parts run one after the other. A value that another part reads goes through host memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends.arguments import taken
from rlx.backends.base import (
    Capabilities,
    CompileOptions,
    DeviceInfo,
    Executable,
    HostMemory,
    Program,
    set_params,
)
from rlx.dataclasses import dataclass
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array
from rlx.ops.leaves import LEAVES
from rlx.passes.extent import Extent


@dataclass(frozen=True, eq=False)
class Part:
    """Some nodes of a graph, as a graph of their own.

    Attributes:
        graph: The nodes. What it reads of other parts are inputs named "value:" and a number; so are, on the host,
            params.
        reads: By input in order, the id of the node of the whole graph that it stands for.
        writes: By output in order, likewise.
        on_host: Whether it runs on the host.
        program: What the backend made of it; None on the host.
    """

    graph: Graph
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    on_host: bool
    program: Program | None = None


def parted(graph: Graph, hosted: Mapping[int, str]) -> list[Part]:
    """Cuts a graph into parts of the device and of the host, in the order in which they run.

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
    found = []
    for stage in sorted(set(stages.values())):
        inside = [node for node in graph.nodes if stages.get(node.id) == stage]
        wanted = [
            node
            for node in inside
            if len(node.types) == 1
            and (node.id in outputs or readers.get(node.id, set()) - {stage})
        ]
        if wanted:
            found.append(_part(graph, inside, wanted, bool(stage % 2)))
    return found


def _stages(graph: Graph, hosted: Mapping[int, str]) -> dict[int, int]:
    """The stage of every node that is computed: even ones are the device's, odd ones the host's."""
    found: dict[int, int] = {}
    for node in graph.nodes:
        if node.op in LEAVES:
            continue
        after = max(
            (found[operand.id] for operand in node.inputs if operand.id in found), default=0
        )
        on_host = node.id in hosted
        if node.op == PART:
            found[node.id] = found[node.inputs[0].id]
        else:
            found[node.id] = after if after % 2 == on_host else after + 1
    return found


def _part(graph: Graph, inside: Sequence[Node], wanted: Sequence[Node], on_host: bool) -> Part:
    new = Graph(f"{graph.name}, on the host" if on_host else graph.name)
    made: dict[int, Node] = {}
    reads: list[int] = []

    def operand(node: Node) -> Node:
        if node.id not in made:
            if node.op == "constant":
                made[node.id] = new.constant(node.attrs["value"], node.dtype)
            elif node.op == "param" and not on_host:
                made[node.id] = new.param(node.name, node.shape, node.dtype)
            else:
                reads.append(node.id)
                made[node.id] = new.input(f"value:{node.id}", node.shape, node.dtype)
        return made[node.id]

    for node in inside:
        operands = [operand(one) for one in node.inputs]
        made[node.id] = new.add_node(node.opdef, operands, dict(node.attrs), node.name)
        made[node.id].source = node.source
    new.set_outputs([made[node.id] for node in wanted])
    return Part(new, tuple(reads), tuple(node.id for node in wanted), on_host)


@dataclass(frozen=True, eq=False)
class PartedProgram:
    """The programs of all parts.

    Attributes:
        graph: The whole graph.
        parts: Its parts, in order.
    """

    graph: Graph
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        """Those of its parts."""
        return sum(part.program.nbytes for part in self.parts if part.program is not None)

    def pack(self) -> None:
        """Nothing is kept in files."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> Executable:
        """Loads every part where it runs."""
        from rlx.backends.host import compile_host
        from rlx.backends.plugins import executable_of

        loaded = [
            compile_host(part.graph, options)
            if part.program is None
            else executable_of(part.program, info, part.graph, options)
            for part in self.parts
        ]
        return PartedExecutable(self, loaded, {})


class PartedExecutable(HostMemory):
    """The executables of all parts, run one after the other.

    Args:
        program: The parts.
        loaded: An executable for each.
        params: Values of params that a part on the host reads, or that are outputs; clones share them.
    """

    output_slots: tuple[tuple[int, int], ...] = ()
    arena_ptr = 0

    def __init__(
        self, program: PartedProgram, loaded: Sequence[Executable], params: dict[str, Array]
    ) -> None:
        self._program, self._loaded, self._params = program, loaded, params
        graph = program.graph
        self.capabilities = Capabilities(arena_ptr=False, allocates=True)
        self._inputs = [graph.named(name) for name in graph.input_names]
        self.input_views = tuple(np.zeros(node.shape, node.dtype.numpy) for node in self._inputs)
        self._outputs = [np.zeros(node.shape, node.dtype.numpy) for node in graph.outputs]
        self.output_views = tuple(_read_only(array) for array in self._outputs)
        self._given = list(range(len(self._inputs)))
        self._feeds: list[tuple[int, int]] = []
        self._constants = {
            node.id: np.asarray(node.attrs["value"])
            for node in graph.outputs
            if node.op == "constant"
        }
        by_id = {
            node.id: node
            for part in program.parts
            for node in [graph.nodes[at] for at in part.reads]
        }
        kept = {node.name: node for node in (*by_id.values(), *graph.outputs) if node.op == "param"}
        for name, node in kept.items():
            params.setdefault(name, np.zeros(node.shape, node.dtype.numpy))
        self._kept = {node.id: name for name, node in kept.items()}

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs the parts on the arguments, or on ``input_views`` without any."""
        inputs = list(self.input_views)
        if arrays:
            views = [self.input_views[at] for at in self._given]
            for at, array in zip(self._given, taken(arrays, views, ()), strict=True):
                inputs[at] = array
        values = {node.id: array for node, array in zip(self._inputs, inputs, strict=True)}
        values |= self._constants
        values |= {at: self._params[name] for at, name in self._kept.items()}
        for part, executable in zip(self._program.parts, self._loaded, strict=True):
            found = executable.run_slots(*(values[at] for at in part.reads))
            values.update(zip(part.writes, found, strict=True))
        for target, node in zip(self._outputs, self._program.graph.outputs, strict=True):
            target[...] = values[node.id]
        for at, output in self._feeds:
            self.input_views[at][...] = self.output_views[output]
        return self.output_views

    def set_resident(self, indices: Sequence[int]) -> None:
        """Inputs that ``run_slots`` takes no argument for."""
        self._given = [at for at in range(len(self._inputs)) if at not in indices]

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Inputs that take an output after each run."""
        self._feeds = list(pairs)

    def set_extent(self, extent: Extent | None) -> None:
        """All rows are computed; those past the extent are unspecified."""

    def set_param(self, name: str, array: Array) -> None:
        """Gives a weight to every part that reads it."""
        if name in self._params:
            self._params[name] = np.array(array)
        for part, executable in zip(self._program.parts, self._loaded, strict=True):
            if not part.on_host and name in part.graph.param_names:
                set_params(executable, {name: array})

    def read_param(self, name: str) -> Array:
        """The weight as it is held."""
        if name in self._params:
            return self._params[name].copy()
        for part, executable in zip(self._program.parts, self._loaded, strict=True):
            if not part.on_host and name in part.graph.param_names:
                return executable.read_param(name)
        node = self._program.graph.named(name)
        return np.zeros(node.shape, node.dtype.numpy)

    def clone(self) -> PartedExecutable:
        """The same on memory of its own; params are shared."""
        return PartedExecutable(self._program, [one.clone() for one in self._loaded], self._params)

    def memory(self) -> dict[str, int]:
        """The sums of the parts."""
        own = sum(array.nbytes for array in (*self.input_views, *self._outputs))
        found = {
            "arena": own,
            "params": sum(array.nbytes for array in self._params.values()),
            "staging": 0,
        }
        for one in self._loaded:
            memory = one.memory()
            for key in found:
                found[key] += memory[key]
        return {**found, "peak": found["arena"] + found["params"]}

    def kernels(self) -> str:
        """Those of each part."""
        return "\n".join(
            f"# {'host' if part.on_host else 'device'}\n{one.kernels()}"
            for part, one in zip(self._program.parts, self._loaded, strict=True)
        )

    def close(self) -> None:
        """Closes the parts."""
        for one in self._loaded:
            one.close()


def _read_only(array: Array) -> Array:
    view = array.view()
    view.setflags(write=False)
    return view

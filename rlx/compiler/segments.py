"""Segments of a graph: parts that run one after the other, cut where the graph computes a size that later nodes need.

The sizes that a segment needs are there when it begins. Its inputs show them: the axes of values, or of arrays without
elements that are made for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import GraphError
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.input_sizes import made_dims, names_of, show_sizes
from rlx.ir.rewrite import is_beginning
from rlx.ir.shape import HOST_CONTROL, READ_SIZE, same_size
from rlx.ir.states import states_of
from rlx.ops.placeholders import LEAVES
from rlx.sizes import Assumptions, Dim, Guard, Size


class SizeRead(NamedTuple):
    """A dim whose value is read before a segment runs.

    Attributes:
        dim: The dim.
        node: The id of the node that computes it.
        where: That node in messages.
    """

    dim: Dim
    node: int
    where: str


class ShownSize(NamedTuple):
    """A dim that a result of a loop or a branch shows.

    Attributes:
        name: Its name.
        result: The number of the result.
        axis: The axis.
    """

    name: str
    result: int
    axis: int


class Control(NamedTuple):
    """A loop or a branch, which runs before its segment.

    Attributes:
        op: "loop" or "branch".
        attrs: Its attributes.
        operands: The ids of its operands.
        results: By result, the ids of the nodes that are it.
        shown: The dims that its results show.
    """

    op: str
    attrs: Mapping[str, Any]
    operands: tuple[int, ...]
    results: tuple[tuple[int, ...], ...]
    shown: tuple[ShownSize, ...]


class Prefix(NamedTuple):
    """A node that is the beginning of another one's value.

    Attributes:
        node: Its id.
        source: The id of the other one.
        length: The entries of axis 0 that it has.
    """

    node: int
    source: int
    length: Size


class Segment(NamedTuple):
    """Some nodes of a graph as a graph of their own.

    Attributes:
        graph: The nodes. None where everything is known without a run.
        reads: By input, the id of its node of the whole graph; or the name of a dim, which an array of shape (size, 0)
            shows.
        writes: By output, the id of its node.
        sizes: The dims that are read before it runs.
        guards: The assumptions of the graph's builders that can be checked then.
        prefixes: The nodes that take no run, with it.
        controls: Loops and branches that run after that, before the graph.
        ahead: Whether the host computes it, ahead of the device.
        made: By the names of the dims that the graph makes, the nodes that compute them, for messages.
    """

    graph: Graph | None
    reads: tuple[int | str, ...]
    writes: tuple[int, ...]
    sizes: tuple[SizeRead, ...]
    guards: tuple[Guard, ...]
    prefixes: tuple[Prefix, ...]
    controls: tuple[Control, ...]
    ahead: bool
    made: Mapping[str, str]


def cut(graph: Graph, ahead: frozenset[int] = frozenset()) -> list[Segment]:
    """Cuts a graph that reads sizes.

    Args:
        graph: A verified graph with ``read_size`` nodes; it is not changed.
        ahead: The ids of nodes that the host computes ahead of the device; see ``rlx.compiler.host_sizes.on_host``.

    Raises:
        GraphError: A node has a dim that is read behind it.
    """
    return _Cut(graph, ahead).segments()


class _Cut:
    """The levels of the nodes of a graph: the number of the segment that computes each."""

    def __init__(self, graph: Graph, ahead: frozenset[int]) -> None:
        self._graph, self._ahead = graph, ahead
        # The levels that the host computes come first. How many there are is known once all of them have been placed.
        self._first = 0
        if ahead:
            self._place_all()
            computed = (i for i in ahead if not self._is_leaf(graph.nodes[i]))
            self._first = 1 + max((self._level[i] for i in computed), default=-1)
        self._place_all()

    def _place_all(self) -> None:
        graph = self._graph
        # The level from which on a dim is known, and the level of each node.
        self._known = {name: 0 for name in graph.dims}
        self._level: dict[int, int] = {}
        self._sizes: list[list[SizeRead]] = [[]]
        self._prefixes: dict[int, Prefix] = {}
        self._controls: dict[int, Control] = {}
        self._made = made_dims(graph)
        unread = set(self._made)
        for node in graph.nodes:
            names = names_of(node)
            if node.op in HOST_CONTROL:
                unread -= {name for name, maker in self._made.items() if maker is node}
            if not unread.isdisjoint(names) and node.op != READ_SIZE:
                name = min(unread.intersection(names))
                raise GraphError(
                    f"dim {name!r} is read behind a node that has it", where=node.where()
                )
            if node.op == READ_SIZE:
                unread.discard(_dim_of(node).name)
            self._place(node, names)
        # One segment makes all updates of a state.
        self._updates: set[int] = set()
        for state in states_of(graph):
            update, level = state.last, self._level[state.last.id]
            self._updates.add(update.id)
            while update is not state.input:
                self._level[update.id] = level
                update = update.inputs[0]

    def _place(self, node: Node, names: frozenset[str]) -> None:
        if node.op in LEAVES or node.fixed:
            self._level[node.id] = 0
            return
        operands = max((self._level[operand.id] for operand in node.inputs), default=0)
        if node.op == READ_SIZE:
            (operand,) = node.inputs
            level = operands + (operand.op != "input")
            self._known[_dim_of(node).name] = self._level[node.id] = level
            self._sizes += [[] for _ in range(level + 1 - len(self._sizes))]
            self._sizes[level].append(SizeRead(_dim_of(node), operand.id, node.where()))
            return
        level = max([operands, *(self._known[name] for name in names)])
        maker = node.inputs[0] if node.op == PART else node
        if maker.id not in self._ahead:
            level = max(level, self._first)
        if node.op in HOST_CONTROL:
            self._place_control(node, level)
            return
        self._level[node.id] = level
        if node.op == PART and node.inputs[0].op in HOST_CONTROL:
            control = self._controls[node.inputs[0].id]
            listed = list(control.results)
            listed[node.attrs["index"]] += (node.id,)
            self._controls[node.inputs[0].id] = control._replace(results=tuple(listed))
            return
        prefix = _prefix(node)
        if prefix is not None and (level > operands or node.inputs[0].op in LEAVES):
            self._prefixes[node.id] = prefix

    def _place_control(self, node: Node, level: int) -> None:
        """Places a loop or a branch behind the segments that compute its operands."""
        computed = any(operand.op != "input" for operand in node.inputs)
        self._level[node.id] = level = level + computed
        shown = []
        for name in (name for name, maker in self._made.items() if maker is node):
            self._known[name] = level
            shown.append(_shown_in(name, node))
        first = (node.id,) if len(node.types) == 1 else ()
        results = (first,) + ((),) * (len(node.types) - 1)
        operands = tuple(operand.id for operand in node.inputs)
        self._controls[node.id] = Control(node.op, node.attrs, operands, results, tuple(shown))

    def _is_made(self, node: Node) -> bool:
        """Returns whether a node's value is there without a graph that computes it."""
        part = node.op == PART and node.inputs[0].id in self._controls
        return part or node.id in self._controls or node.id in self._prefixes

    def segments(self) -> list[Segment]:
        """Returns the segments in the order of running."""
        graph, levels = self._graph, self._level
        last = max([len(self._sizes) - 1, *levels.values()])
        wanted = self._wanted(last)
        results, checked = [], set[Guard]()
        every = list(graph.assumptions.guards) if graph.assumptions is not None else []
        # The node whose value, or whose result, a dim is.
        made = {
            name: (maker.inputs[0] if maker.op == READ_SIZE else maker).where()
            for name, maker in self._made.items()
        }
        for level in range(last + 1):
            inside = [
                node
                for node in graph.nodes
                if levels.get(node.id) == level
                and not self._is_leaf(node)
                and not self._is_made(node)
            ]
            guards = [
                guard
                for guard in every
                if guard not in checked
                and all(self._known[name] <= level for name in guard.names())
            ]
            checked.update(guards)
            whole: Graph | None = None
            reads: tuple[int | str, ...] = ()
            if wanted[level] or any(node.id in self._updates for node in inside):
                whole, reads = _Part(graph, self._outside(inside)).made(inside, wanted[level])
            sizes = tuple(self._sizes[level]) if level < len(self._sizes) else ()
            prefixes = [each for i, each in self._prefixes.items() if levels[i] == level]
            controls = [each for i, each in self._controls.items() if levels[i] == level]
            writes = tuple(node.id for node in wanted[level])
            parts = sizes, tuple(guards), tuple(prefixes), tuple(controls)
            results.append(Segment(whole, reads, writes, *parts, level < self._first, made))
        return results

    def _outside(self, inside: Iterable[Node]) -> frozenset[int]:
        """The ids of the nodes whose values a segment takes from others."""
        own = {node.id for node in inside}
        return frozenset(
            node.id
            for node in self._graph.nodes
            if node.op == "input" or not (node.id in own or self._is_leaf(node))
        )

    def _is_leaf(self, node: Node) -> bool:
        """Returns whether each segment that reads a node makes it anew."""
        return node.fixed or node.op in (*LEAVES, READ_SIZE)

    def _wanted(self, last: int) -> list[list[Node]]:
        """By level, the nodes whose values others read, or the caller."""
        graph, levels = self._graph, self._level
        read = {item.node for sizes in self._sizes for item in sizes}
        read |= {prefix.source for prefix in self._prefixes.values()}
        read |= {i for control in self._controls.values() for i in control.operands}
        # Outputs that are no inputs, and fixed sizes, come out of the first segment.
        read |= {node.id for node in graph.outputs}
        leaves = {i for i in read if self._is_leaf(graph.nodes[i])}
        for node in graph.nodes:
            if not self._is_leaf(node) and not self._is_made(node):
                read |= {i.id for i in node.inputs if levels[i.id] < levels[node.id]}
        results: list[list[Node]] = [[] for _ in range(last + 1)]
        for node in graph.nodes:
            made = not self._is_leaf(node) or (node.id in leaves and node.op != "input")
            if node.id in read and made and not self._is_made(node) and len(node.types) == 1:
                results[levels[node.id]].append(node)
        return results


class _Part:
    """Makes the graph of a segment.

    Args:
        whole: The whole graph.
        outside: Ids of nodes whose values it is given.
    """

    def __init__(self, whole: Graph, outside: frozenset[int]) -> None:
        self._whole, self._outside = whole, outside
        self._new = Graph(whole.name)
        if whole.assumptions is not None:
            self._new.assumptions = Assumptions(whole.assumptions.hints, joins=True)
        self._made: dict[int, Node] = {}
        self._reads: list[int | str] = []

    def made(
        self, inside: Sequence[Node], wanted: Sequence[Node]
    ) -> tuple[Graph, tuple[int | str, ...]]:
        """Returns the graph, and what it reads."""
        for node in inside:
            self._node(node)
        outputs = [self._node(node) for node in wanted]
        new = self._new
        # A segment that only updates states has one output, which nobody reads.
        outputs = outputs or [new.constant(np.int64(0))]
        self._reads += [dim.name for dim in show_sizes(new, self._whole.dims)]
        if not new.dims:
            new.assumptions = None
        new.set_outputs(outputs)
        return new, tuple(self._reads)

    def _node(self, node: Node) -> Node:
        if node.id in self._made:
            return self._made[node.id]
        new = self._new
        if node.op == "input":
            result = new.stand_in("input", node.name, node)
            self._reads.append(node.id)
        elif node.op == "param":
            result = new.stand_in("param", node.name, node)
        elif node.op == READ_SIZE:
            result = new.as_node(node.attrs["size"], node.dtype, where=READ_SIZE)
        elif node.id in self._outside:
            result = new.stand_in("input", f"value:{node.id}", node)
            self._reads.append(node.id)
        else:
            operands = [self._node(operand) for operand in node.inputs]
            attrs = node.given or node.attrs
            result = new.add_node(node.opdef, operands, attrs, node.name, node.source)
        self._made[node.id] = result
        return result


def _prefix(node: Node) -> Prefix | None:
    """A node as the beginning of its operand's value; None where it is something else."""
    if not is_beginning(node) or node.attrs["axis"] != 0:
        return None
    operand = node.inputs[0]
    return Prefix(node.id, operand.id, node.attrs["length"]) if not operand.fixed else None


def _dim_of(node: Node) -> Dim:
    (dim,) = (d for name, d in node.graph.dims.items() if name in node.attrs["size"].names())
    return dim


def _shown_in(name: str, node: Node) -> ShownSize:
    """The axis of a result that is a dim.

    Raises:
        GraphError: None is.
    """
    for result, type in enumerate(node.types):
        for axis, size in enumerate(type.shape):
            if same_size(size, node.graph.dims[name]):
                return ShownSize(name, result, axis)
    raise GraphError(f"[{node.op}] no result shows the size of dim {name!r}", where=node.where())

"""Loops and branches whose results have sizes that a run decides: the host runs their subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.elements import BOOL, INT64
from rlx.importers.onnx.ops.subgraphs import captured, separate
from rlx.importers.onnx.schema import GraphDef, ValueInfo
from rlx.importers.onnx.values import GraphSite, OnnxValue, RefusedError
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.input_sizes import show_sizes
from rlx.ir.shape import Shape, as_size, same_size
from rlx.sizes import Assumptions, Dim, SizeExpr, deciding

# How often a body is lowered to find which sizes of its state change.
_TRIES = 8


class _Subgraph:
    """A subgraph that may compute sizes.

    Args:
        call: The node.
        graph: The subgraph.
        inputs: What stands for its inputs.
        around: Values of the graph around it that it reads.
        name: The beginning of the names of its dims.
        shapes: Other shapes of inputs, by number.
        hints: Usual values of its dims, by name.

    Attributes:
        graph: The graph, whose outputs are set by ``finished``.
        nodes: Its inputs.
        values: What it gives.
        results: The nodes of that.
    """

    def __init__(
        self,
        call: OnnxCall,
        graph: GraphDef,
        inputs: Sequence[OnnxValue],
        around: dict[str, OnnxValue],
        name: str,
        shapes: Mapping[int, Shape] = MappingProxyType({}),
        hints: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        inner, outer = Graph(graph.name or "subgraph"), call.g
        known = {} if outer.assumptions is None else outer.assumptions.hints
        inner.assumptions = Assumptions({**known, **hints})
        inner.size_names = name
        site = GraphSite(inner, params=False)
        with deciding(inner.assumptions):
            _, self.nodes, _, self.values = separate(call, graph, inputs, around, site, shapes)
        self.graph = inner
        self.results = [site.node(value) for value in self.values]

    def keep(self, index: int, shape: Shape, info: ValueInfo) -> dict[str, int]:
        """Has a result keep sizes of a shape that the file declares for it: a run checks them.

        Returns:
            The values that its dims have then.
        """
        kept: dict[str, int] = {}
        kind = info.type.tensor if info.type is not None else None
        listed = kind.shape.dims if kind is not None and kind.shape is not None else ()
        result, assumptions = self.results[index], self.graph.assumptions
        if len(listed) != len(shape) or len(shape) != len(result.shape) or assumptions is None:
            return kept
        sizes = list(result.shape)
        for axis, (dim, wanted) in enumerate(zip(listed, shape, strict=True)):
            size = sizes[axis]
            if isinstance(size, SizeExpr) and dim.value == wanted and len(size.names()) == 1:
                kept[next(iter(size.names()))] = wanted
                sizes[axis] = wanted
        # Sizes are decided by other values as long as the subgraph was not lowered for these.
        if kept and kept.items() <= assumptions.hints.items():
            with deciding(assumptions):
                self.results[index] = self.graph.reshape(result, tuple(sizes))
        return kept

    def finished(self, results: Sequence[Node], dims: Mapping[str, Dim]) -> tuple[Dim, ...]:
        """Sets the outputs. Returns the dims of the graph around it that its last inputs show."""
        self.graph.set_outputs(results)
        shown = tuple(show_sizes(self.graph, dims))
        if not self.graph.dims:
            self.graph.assumptions = None
        return shown


class _Results:
    """The shapes of results in the graph around a subgraph.

    Args:
        g: That graph.
        name: The beginning of the names of their dims.
    """

    def __init__(self, g: Graph, name: str) -> None:
        self._g, self._name, self._count = g, name, 0

    def size(self, size: Any) -> Any:
        """A size that a subgraph says: the same where the graph around it knows it, else a dim of its own."""
        if isinstance(size, int) or size.names() <= self._g.dims.keys():
            return size
        return self.dim()

    def dim(self) -> Dim:
        """A dim that no other result has."""
        self._count += 1
        return Dim(f"{self._name}_{self._count}")


def _made(
    g: Graph, op: str, operands: Sequence[Node], attrs: dict[str, Any], like: Sequence[OnnxValue]
) -> list[OnnxValue]:
    """The results of a new node, of the element types of other values."""
    node = g.add_node(op, operands, attrs)
    count = len(node.types)
    parts = [g.add_node(PART, [node], {"index": i}) for i in range(count)] if count > 1 else [node]
    return [OnnxValue(value.element, node=part) for value, part in zip(like, parts, strict=True)]


def loop(
    call: OnnxCall, body: GraphDef, state: Sequence[OnnxValue], limit: Node, going: Node
) -> list[OnnxValue]:
    """A loop whose trips, or the sizes of whose state, are known as it runs.

    Args:
        call: The node.
        body: The body.
        state: The state at the start.
        limit: The largest number of trips, an i64 scalar.
        going: Whether there is a first one, a bool scalar.

    Raises:
        RefusedError: The state changes its type or its rank.
    """
    g, around = call.g, captured(call, (body,))
    name = f"{g.size_names}_{len(g.nodes)}"
    trip, always = OnnxValue(INT64, np.array(0)), OnnxValue(BOOL, np.array(True))
    begins = [call.site.node(value) for value in state]
    changing: dict[tuple[int, int], Dim] = {}
    hints: dict[str, int] = {}
    for _ in range(_TRIES):
        shapes: dict[int, Shape] = {
            i + 2: tuple(as_size(changing.get((i, a), n)) for a, n in enumerate(node.shape))
            for i, node in enumerate(begins)
        }
        inner = _Subgraph(call, body, [trip, always, *state], around, name, shapes, hints)
        before = len(changing)
        kept: dict[str, int] = {}
        for i in range(len(state)):
            kept |= inner.keep(i + 1, begins[i].shape, body.outputs[i + 1])
        if not kept.items() <= hints.items():
            hints |= kept
            continue
        old, new = inner.nodes[2 : len(state) + 2], inner.results[1 : len(state) + 1]
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
                raise RefusedError(f"state that changes from {a.type} to {b.type}")
            for axis, pair in enumerate(zip(a.shape, b.shape, strict=True)):
                if not same_size(*pair) and (i, axis) not in changing:
                    changing[i, axis] = Dim(f"{name}_state{i}_{axis}")
        if len(changing) == before:
            break
    else:
        raise RefusedError("state whose sizes change in ever other ways")
    results = [inner.graph.reshape(inner.results[0], ()), *inner.results[1:]]
    declared, trips = _Results(g, f"{name}_result"), Dim(f"{name}_trips")
    types: list[Any] = []
    for i, node in enumerate(begins):
        sizes = enumerate(node.shape)
        types.append(
            (tuple(declared.dim() if (i, a) in changing else n for a, n in sizes), node.dtype)
        )
    rows = results[len(state) + 1 :]
    types += [((trips, *map(declared.size, node.shape)), node.dtype) for node in rows]
    shown = inner.finished(results, g.dims)
    operands = [limit, going, *begins, *(call.site.node(value) for value in around.values())]
    attrs = {"body": inner.graph, "state": len(state), "shown": shown, "results": tuple(types)}
    return _made(g, "loop", operands, attrs, inner.values[1:])


def branch(call: OnnxCall, then: GraphDef, other: GraphDef) -> list[OnnxValue]:
    """The results of one of two subgraphs, which may give other sizes.

    Raises:
        RefusedError: They give other types or ranks.
    """
    g, around = call.g, captured(call, (then, other))
    name = f"{g.size_names}_{len(g.nodes)}"
    sides = [_Subgraph(call, x, [], around, f"{name}_{i}") for i, x in enumerate((then, other))]
    declared = _Results(g, f"{name}_result")
    types: list[Any] = []
    for a, b in zip(sides[0].results, sides[1].results, strict=True):
        if a.dtype is not b.dtype or len(a.shape) != len(b.shape):
            raise RefusedError(f"branches that give {a.type} and {b.type}")
        pairs = zip(a.shape, b.shape, strict=True)
        sizes = [declared.size(m) if same_size(m, n) else declared.dim() for m, n in pairs]
        types.append((tuple(sizes), a.dtype))
    # Both take the same sizes.
    shown = {dim.name: dim for side in sides for dim in side.finished(side.results, g.dims)}
    for side in sides:
        for dim in shown.values():
            if not side.graph.has(f"size:{dim.name}"):
                side.graph.input(f"size:{dim.name}", (dim, 0), "u8")
    condition = g.reshape(call.x(0), ())
    operands = [condition, *(call.site.node(value) for value in around.values())]
    attrs = {
        "then_graph": sides[0].graph,
        "else_graph": sides[1].graph,
        "shown": tuple(shown.values()),
        "results": tuple(types),
    }
    return _made(g, "branch", operands, attrs, sides[0].values)

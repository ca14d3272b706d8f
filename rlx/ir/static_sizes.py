"""Puts values in the place of the dims of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.errors import MALFORMED, GraphError, RlxError, SizesError
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import READ_SIZE
from rlx.sizes import Guard, SizeExpr, bound, current
from rlx.sizes import polynomial as poly
from rlx.sizes.guards import ZERO


def with_sizes(graph: Graph, values: Mapping[str, int]) -> Graph:
    """Returns the graph for values of its dims, or of some of them. Inference decides anew.

    Args:
        graph: A graph with dims; it is not changed.
        values: Values of dims. With values of all of them its builders' assumptions are checked.

    Raises:
        SizesError: Its builders assumed something of the dims that does not hold.
        GraphError: An operation does not take these sizes.

    Example:
        >>> import rlx
        >>> g = Graph()
        >>> g.set_outputs([g.input("x", (rlx.Dim("n"), 2)) + 1.0])
        >>> with_sizes(g, {"n": 3}).outputs[0].shape
        (3, 2)
    """
    return _bound(graph, values, {})


def inferred_anew(graph: Graph) -> Graph:
    """Returns a graph with dims on which inference decided anew, by the assumptions under way.

    Args:
        graph: A graph with dims; it is not changed.

    Raises:
        GraphError: An operation does not take the hints of these assumptions.
    """
    return _bound(graph, {}, {})


def usual(graph: Graph) -> Graph:
    """Returns the graph for the hints of the assumptions under way, or for usual values of its dims.

    A graph without dims is returned as it is.
    """
    if graph.assumptions is None:
        return graph
    hints = {**graph.assumptions.hints, **getattr(current(), "hints", {})}
    return with_sizes(graph, {name: hints[name] for name in graph.dims})


def _bound(graph: Graph, values: Mapping[str, int], known: dict[Graph, Graph]) -> Graph:
    """The graph with values in place of dims; without values inferred anew."""
    if graph in known:
        return known[graph]
    if values and graph.dims.keys() <= values.keys():
        check_guards(graph, values)
    result = known[graph] = Graph(graph.name)
    result.param_values = dict(graph.param_values)
    nodes: dict[int, Node] = {}

    def fixed(value: Any) -> Any:
        if isinstance(value, SizeExpr):
            return bound(value, values) if values else value
        if isinstance(value, tuple):
            return tuple(map(fixed, value))
        return _bound(value, values, known) if isinstance(value, Graph) else value

    for node in graph.nodes:
        inputs = [nodes[operand.id] for operand in node.inputs]
        attrs = {name: fixed(value) for name, value in (node.given or node.attrs).items()}
        if node.op in ("input", "param"):
            add = result.input if node.op == "input" else result.param
            nodes[node.id] = add(node.name, attrs["shape"], attrs["dtype"])
        elif node.op in ("size", READ_SIZE) and not isinstance(attrs["size"], SizeExpr):
            nodes[node.id] = result.constant(attrs["size"], "i64")
        else:
            nodes[node.id] = _added(result, node, inputs, attrs)
    result.outputs = tuple(nodes[node.id] for node in graph.outputs)
    return result


def _added(graph: Graph, node: Node, inputs: list[Node], attrs: dict[str, Any]) -> Node:
    """Adds a node of the graph with dims to that of some sizes.

    Raises:
        GraphError: The operation does not take them.
    """
    try:
        return graph.add_node(node.opdef, inputs, attrs, node.name, node.source)
    except MALFORMED as error:
        if isinstance(error, RlxError | MemoryError) or node.op == "custom":
            raise
        what = f"[{node.op}] the operation does not take these sizes"
        raise GraphError(what, where=node.where(), got=error) from error


def check_guards(graph: Graph, values: Mapping[str, int]) -> None:
    """Checks what the builders of a graph assumed.

    Raises:
        SizesError: It does not hold.
    """
    for guard in () if graph.assumptions is None else graph.assumptions.guards:
        if not guard.holds(values):
            sizes = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise SizesError(
                f"graph {graph.name!r} was built for other sizes",
                got=sizes,
                expected=str(guard),
                hint="build the graph for these sizes, or compare no size while it is built",
            )


def equal_to(graph: Graph, fixed: Mapping[str, int]) -> list[Guard]:
    """Returns guards that dims have these values."""
    return [
        Guard(poly.add(graph.dims[name].terms, poly.constant(-value)), ZERO)
        for name, value in fixed.items()
    ]


def with_values(graph: Graph, fixed: Mapping[str, int]) -> list[Guard]:
    """Returns the guards of a graph's builders, with values in the place of some dims. Those of these dims alone hold."""
    guards = () if graph.assumptions is None else graph.assumptions.guards
    bound = (Guard(poly.bind(guard.terms, fixed), guard.relation) for guard in guards)
    return [guard for guard in bound if poly.number_of(guard.terms) is None]

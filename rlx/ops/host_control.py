"""Loops and branches whose results have sizes that a run decides: the host makes their trips.

A subgraph is compiled as any graph is: it may compute sizes itself, and its inputs and outputs may have dims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import GraphError
from rlx.ir.dtype import ALL
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array, TensorType
from rlx.ops.declare import op


def _declared(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    """The types that the attributes say: dims that are not of the operands are those of the results."""
    # A branch does not pass its condition on.
    count = len(types) - ("then_graph" in attrs)
    for graph in (value for value in attrs.values() if isinstance(value, Graph)):
        if len(graph.input_names) != count + len(attrs["shown"]):
            raise GraphError(
                f"subgraph {graph.name!r} does not take the operands",
                got=f"{len(graph.input_names)} inputs",
                expected=f"{count}, and {len(attrs['shown'])} that show sizes",
            )
    return tuple(TensorType(shape, dtype) for shape, dtype in attrs["results"])


@op(free=("xs",), infer=_declared, dtypes=ALL, internal=True)
def loop(*xs: Array, body: Graph, state: int, shown: Any, results: Any) -> Any:
    """State that a subgraph changes, also in its sizes, and what it gives in each trip.

    Args:
        xs: The largest number of trips (i64), whether there is a first one (bool), the state, and values that each trip
            reads.
        body: The number of the trip, whether it goes on, the state and the other values; to whether it goes on, the state,
            and what is stacked.
        state: How many values are state.
        shown: Dims of the graph around it that the last inputs of the body show, as arrays of shape (size, 0).
        results: Shapes and dtypes of the results: the state, then what is stacked.
    """
    raise NotImplementedError("the compiler makes a segment of it")


@op(free=("cond", "xs"), infer=_declared, dtypes=ALL, internal=True)
def branch(
    cond: Array, *xs: Array, then_graph: Graph, else_graph: Graph, shown: Any, results: Any
) -> Any:
    """The results of one of two subgraphs, which may give other sizes.

    Args:
        cond: A bool scalar.
        xs: Operands of both.
        then_graph: Taken where it is true.
        else_graph: Taken where it is false.
        shown: See ``loop``.
        results: Shapes and dtypes of the results.
    """
    raise NotImplementedError("the compiler makes a segment of it")

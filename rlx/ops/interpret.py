"""A graph by the references of its nodes: the meaning of every backend, and of subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TypeVar

from rlx.errors import InputError
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array
from rlx.ops.declare import evaluate
from rlx.resource_limits import during

T = TypeVar("T")
# Trips that references may still make in this run, in a list of one; None for no bound.
_TRIPS: ContextVar[list[int] | None] = ContextVar("trips", default=None)


def interpret(graph: Graph, leaves: Mapping[str, Array]) -> list[Array]:
    """Computes the outputs of a verified graph in order, from each input and param by name, in its storage dtype."""
    values = results_of(graph.nodes, lambda node: leaves[node.name], evaluate)
    return [values[node.id][0] for node in graph.outputs]


def results_of(
    nodes: Iterable[Node],
    leaf: Callable[[Node], T],
    compute: Callable[[Node, list[T]], tuple[T, ...]],
) -> dict[int, tuple[T, ...]]:
    """The results of nodes by id, whatever stands for arrays.

    Args:
        nodes: The nodes, each after its operands.
        leaf: Returns what stands for an input or a param.
        compute: Returns the results of any other node from its operands.
    """
    values: dict[int, tuple[T, ...]] = {}
    for node in nodes:
        operands = [values[operand.id] for operand in node.inputs]
        if node.op in ("input", "param"):
            values[node.id] = (leaf(node),)
        elif node.op == PART:
            values[node.id] = (operands[0][node.attrs["index"]],)
        else:
            values[node.id] = compute(node, [results[0] for results in operands])
    return values


def trips_of_a_run(limit: int | None) -> AbstractContextManager[None]:
    """Bounds the trips that the references of loops make inside, all together."""
    return during(_TRIPS, None if limit is None else [limit])


def count_trip() -> None:
    """Counts a trip of a loop that a reference makes; more than are allowed are an error."""
    left = _TRIPS.get()
    if left is None:
        return
    left[0] -= 1
    if left[0] < 0:
        raise InputError(
            "the loops of a run make more trips than allowed",
            hint="CompileOptions(max_iterations=...) sets the bound",
        )

"""Branches and loops over subgraphs, by XLA's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from rlx.ir.graph import Graph
from rlx_xla.loop_bounds import count_trip, counted, trips_left
from rlx_xla.trace import outputs_of, stored_dtype
from rlx_xla.values import XlaTracedArray, lifted


def _as_tuple(xs: Any) -> tuple[Any, ...]:
    return tuple(x.raw if isinstance(x, XlaTracedArray) else x for x in xs)


def _body(graph: Graph, arrays: Any) -> tuple[Any, ...]:
    # Every result is an array of its own dtype, also one that is a constant.
    return tuple(
        item if hasattr(item, "aval") else jnp.asarray(item)
        for item in outputs_of(graph, dict(zip(graph.input_names, arrays, strict=True)))
    )


def _results(result: Any) -> tuple[XlaTracedArray, ...]:
    return tuple(XlaTracedArray(item) for item in result)


def if_(cond: Any, then_graph: Graph, else_graph: Graph, *xs: Any) -> Any:
    """Only the branch that is taken is computed."""
    sides = [counted(partial(_body, graph)) for graph in (then_graph, else_graph)]
    left, arrays = trips_left(), _traced_operands(then_graph, xs)
    trips, result = lax.cond(jnp.asarray(lifted(cond)), *sides, left, arrays)
    trips_left(trips)
    return _results(result)


def while_(cond_graph: Graph, body_graph: Graph, *xs: Any, max_trips: int | None = None) -> Any:
    """A loop for as long as a subgraph says so."""

    def goes_on(state: Any) -> Any:
        position, left, values = state
        again = _body(cond_graph, values)[0]
        again = again if max_trips is None else again & (position < max_trips)
        return again if left is None else again & (left >= 0)

    def step(state: Any) -> Any:
        position, left, values = state
        left, result = counted(partial(_body, body_graph))(count_trip(left), values)
        return position + 1, left, result

    start = jnp.int64(0), trips_left(), _traced_operands(body_graph, xs)
    _, left, result = lax.while_loop(goes_on, step, start)
    trips_left(left)
    return _results(result)


def scan(body_graph: Graph, carried: int, *xs: Any, reverse: bool = False) -> Any:
    """A loop along the first axis of sequences."""

    def step(state: Any, rows: Any) -> Any:
        left, values = state
        left, result = counted(partial(_body, body_graph))(count_trip(left), (*values, *rows))
        return (left, result[:carried]), result[carried:]

    names = body_graph.input_names
    start = tuple(_typed(body_graph.named(n), x) for n, x in zip(names, _as_tuple(xs[:carried])))
    rows = tuple(jnp.asarray(x) for x in _as_tuple(xs[carried:]))
    rows = tuple(x.astype(_dtype(body_graph.named(n))) for n, x in zip(names[carried:], rows))
    (left, state), stacked = lax.scan(step, (trips_left(), start), rows, reverse=reverse)
    trips_left(left)
    return _results((*state, *stacked))


def _dtype(node: Any) -> Any:
    return stored_dtype(node.dtype)


def _typed(node: Any, value: Any) -> Any:
    return jnp.asarray(value).astype(_dtype(node)).reshape(node.shape)


def _traced_operands(graph: Graph, xs: Any) -> tuple[Any, ...]:
    """Operands of a subgraph in the dtypes that it declares."""
    return tuple(
        _typed(graph.named(n), x) for n, x in zip(graph.input_names, _as_tuple(xs), strict=True)
    )


RECORDS = {"if_": if_, "while_": while_, "scan": scan}

"""Subgraphs of a node: written out in the graph around them, or made graphs of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx.errors import GraphError, ImportModelError, UnknownSizeError
from rlx.importers.onnx.call import OnnxCall, known_node
from rlx.importers.onnx.elements import Element
from rlx.importers.onnx.node_order import free_names
from rlx.importers.onnx.schema import GraphDef
from rlx.importers.onnx.values import (
    GraphSite,
    Held,
    MissingError,
    OnnxValue,
    RefusedError,
    SequenceItems,
)
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import Shape, as_axis
from rlx.sizes import Assumptions, current, deciding


def known_bool(call: OnnxCall, stored: Held) -> bool | None:
    """A condition, or None where it depends on what runs compute."""
    if not isinstance(stored, OnnxValue):
        raise ImportModelError("a condition that is no tensor")
    if stored.sizes is not None and stored.sizes.size == 1:
        return bool(stored.sizes.ravel()[0])
    if stored.array is None:
        assert stored.node is not None
        if not stored.node.fixed:
            return None
        stored.array = known_node(stored.node)
    if stored.array.size != 1:
        raise ImportModelError(f"a condition of shape {stored.array.shape}")
    return bool(stored.array.ravel()[0])


def written_out(call: OnnxCall, graph: GraphDef, arguments: Sequence[Held]) -> list[Held]:
    """A subgraph's outputs, its nodes added to the graph around it."""
    if len(graph.inputs) != len(arguments):
        raise ImportModelError(
            f"a subgraph of {len(graph.inputs)} inputs is given {len(arguments)}"
        )
    scope = call.scope.inner()
    for info, value in zip(graph.inputs, arguments, strict=True):
        scope.define(info.name, value)
    return call.lowering.body(graph, scope, call.site)


def captured(call: OnnxCall, graphs: Sequence[GraphDef]) -> dict[str, OnnxValue]:
    """The computed values around them that subgraphs read, by name.

    Raises:
        MissingError: One of them was not imported.
    """
    names = set().union(*(free_names(graph) for graph in graphs))
    results: dict[str, OnnxValue] = {}
    for name in sorted(names):
        stored = call.scope.find(name)
        if isinstance(stored, OnnxValue) and _passed_in(stored):
            results[name] = stored
    return results


def _passed_in(value: OnnxValue) -> bool:
    """Returns whether a subgraph takes a value as an input: a computed value, or a weight, which is not copied."""
    if value.sizes is not None:
        return False
    if value.node is not None or value.array is None:
        return True
    return value.array.size > 64 and value.element.dtype is not None


def separate(
    call: OnnxCall,
    graph: GraphDef,
    inputs: Sequence[OnnxValue],
    around: dict[str, OnnxValue],
    site: GraphSite | None = None,
    shapes: Mapping[int, Shape] = MappingProxyType({}),
) -> tuple[Graph, list[Node], GraphSite, list[OnnxValue]]:
    """A subgraph as a graph of its own, whose inputs are of the types of ``inputs``, and then those of ``around``.

    Args:
        call: The node with the subgraph.
        graph: The subgraph.
        inputs: What stands for its inputs.
        around: Values of the graph around it that it reads.
        site: A graph without nodes; by default one for a backend, which can't compute sizes.
        shapes: Other shapes of inputs, by number.

    Returns:
        The graph without outputs set, its inputs, its site, and the values of the subgraph's outputs.

    Raises:
        RefusedError: It can't stand alone.
    """
    if len(graph.inputs) != len(inputs):
        raise ImportModelError(f"a subgraph of {len(graph.inputs)} inputs is given {len(inputs)}")
    if site is None:
        site = GraphSite(Graph(graph.name or "subgraph"), params=False)
        site.graph.may_compute_sizes = False
    inner = site.graph
    inner.computed_dims = call.g.computed_dims
    # A name of the subgraph's own hides the same name of the graph around it.
    outside = call.scope.inner()
    scope = outside.inner()
    nodes = []
    own = [(scope, info.name, value) for info, value in zip(graph.inputs, inputs, strict=True)]
    pairs = [*own, *((outside, name, value) for name, value in around.items())]
    for i, (holder, name, value) in enumerate(pairs):
        outer = call.site.node(value)
        node = inner.input(f"x{i}", shapes.get(i, outer.shape), outer.dtype)
        nodes.append(node)
        holder.define(name, OnnxValue(value.element, node=node))
    return inner, nodes, site, tensors(call.lowering.body(graph, scope, site))


def tensors(
    stored: Sequence[Held], otherwise: str = "a subgraph that gives a sequence or an optional"
) -> list[OnnxValue]:
    """Values that have to be tensors.

    Raises:
        RefusedError: One is none: ``otherwise``.
    """
    results = [value for value in stored if isinstance(value, OnnxValue)]
    if len(results) != len(stored):
        raise RefusedError(otherwise)
    return results


def made_up_kinds(
    call: OnnxCall, graph: GraphDef, arguments: Sequence[Held]
) -> list[tuple[Element, Shape]]:
    """Types and shapes of a subgraph's outputs, found by lowering it for zeros in the place of values.

    Axes of no entries are made up too, since some operators refuse them: one entry and two entries tell what each
    size of a result would be for none.

    Raises:
        RefusedError: An output is no tensor, or its rank depends on the sizes.
    """
    first, two = (_made_up_outputs(call, graph, arguments, size) for size in (1, 2))
    if any(len(a.shape) != len(b.shape) for a, b in zip(first, two, strict=True)):
        raise RefusedError("results whose rank depends on sizes")
    return [
        (a.element, tuple(max(2 * p - q, 0) for p, q in zip(a.shape, b.shape, strict=True)))
        for a, b in zip(first, two, strict=True)
    ]


def _made_up_outputs(
    call: OnnxCall, graph: GraphDef, args: Sequence[Held], size: int
) -> list[OnnxValue]:
    outside = call.scope.inner()
    for name, value in captured(call, (graph,)).items():
        outside.define(name, _zeros(value, size))
    scope = outside.inner()
    for info, item in zip(graph.inputs, args, strict=True):
        scope.define(info.name, _zeros(item, size))
    made_up, known = Graph("made up"), call.g.assumptions
    made_up.assumptions = Assumptions({} if known is None else known.hints)
    with deciding(made_up.assumptions):
        return tensors(call.lowering.body(graph, scope, GraphSite(made_up)))


def _zeros(stored: Held, size: int) -> Any:
    """Zeros of the shape of a value, with ``size`` entries along its empty axes."""
    if isinstance(stored, SequenceItems):
        return SequenceItems(_zeros(item, size) for item in stored)
    if not isinstance(stored, OnnxValue):
        return stored
    shape = tuple(entries or size for entries in stored.shape)
    return OnnxValue(stored.element, np.broadcast_to(np.zeros((), stored.element.numpy), shape))


@contextmanager
def attempt(call: OnnxCall) -> Iterator[None]:
    """Undoes the effects of a failed lowering inside the ``with``, and raises its error as a ``RefusedError``."""
    lowering = call.lowering
    problems = {key: replace(problem) for key, problem in lowering.problems.items()}
    needs = set(lowering.needs)
    assumptions = current()
    try:
        with nullcontext() if assumptions is None else assumptions.undone_by_errors():
            yield
        if lowering.needs != needs:
            raise RefusedError("a shape within depends on what is computed")
    except UnknownSizeError:
        raise
    except (RefusedError, MissingError, GraphError, ImportModelError) as error:
        # Also a branch that makes no sense for these shapes: it may be the one that is not taken.
        lowering.problems, lowering.needs = problems, needs
        raise RefusedError(str(error)) from None


def stacked(call: OnnxCall, values: Sequence[Held], axis: int = 0) -> OnnxValue:
    """Values of one type joined along a new axis."""
    tensors = [value for value in values if isinstance(value, OnnxValue)]
    if not tensors or len(tensors) != len(values):
        raise RefusedError("a sequence without tensors, whose type nothing tells")
    element = tensors[0].element
    axis = as_axis(axis, len(tensors[0].shape) + 1, where="axis")
    if all(value.array is not None for value in tensors):
        arrays = [value.array for value in tensors if value.array is not None]
        return OnnxValue(element, np.stack(arrays, axis))
    g = call.g
    nodes = [g.unsqueeze(call.site.node(value), (axis,)) for value in tensors]
    return OnnxValue(element, node=nodes[0] if len(nodes) == 1 else g.concat(nodes, axis))

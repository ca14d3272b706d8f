"""Finds out whether a model's weights lie in its own file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx.importers.onnx.schema import Attribute, GraphDef, NodeDef, TensorProto
from rlx.importers.onnx.source import ModelSource
from rlx.importers.onnx.tensors import EXTERNAL


def has_external(source: ModelSource) -> bool:
    """Returns whether a model has weights in other files."""
    return any(tensor.location == EXTERNAL for tensor in _tensors(source))


def _tensors(source: ModelSource) -> Iterator[TensorProto]:
    """Every tensor of a model."""
    yield from _of_graph(source.graph)
    for function in source.model.functions:
        yield from _of_nodes(function.nodes)
        yield from _of_attributes(function.defaults)


def _of_graph(graph: GraphDef) -> Iterator[TensorProto]:
    yield from graph.initializers
    yield from _of_nodes(graph.nodes)


def _of_nodes(nodes: Sequence[NodeDef]) -> Iterator[TensorProto]:
    for node in nodes:
        yield from _of_attributes(node.attributes)


def _of_attributes(attributes: Sequence[Attribute]) -> Iterator[TensorProto]:
    for attribute in attributes:
        if attribute.t is not None:
            yield attribute.t
        yield from attribute.tensors
        for graph in [*attribute.graphs, *([attribute.g] if attribute.g else [])]:
            yield from _of_graph(graph)

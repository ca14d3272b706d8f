"""Graphs as JSON values: an exact round trip, constants and attached params included."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from rlx.errors import MALFORMED, GraphError
from rlx.ir.attributes import check_attributes
from rlx.ir.dtype import DType, stored_array
from rlx.ir.opdef import Array
from rlx.ir.view import GraphView, NodeView
from rlx.sizes import SizeExpr
from rlx.sizes.as_data import guard_from, guard_to, size_from, size_to

FORMAT = 1
# Subgraphs within subgraphs, in graphs that come out of files.
MAX_NESTED = 16


class Growing(GraphView, Protocol):
    """A graph that is being read: what ``rlx.ir.graph.Graph`` has for adding nodes."""

    first_hints: Mapping[str, int]

    @property
    def param_values(self) -> dict[str, Array]:
        """Values of params."""

    def input(self, name: str, shape: Any, dtype: Any) -> NodeView:
        """Adds an input."""

    def param(self, name: str, shape: Any, dtype: Any) -> NodeView:
        """Adds a param."""

    def add_node(
        self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], name: str
    ) -> NodeView:
        """Adds a node."""

    def set_outputs(self, nodes: Sequence[Any]) -> None:
        """Declares the outputs."""

    def named(self, name: str) -> NodeView:
        """The input or param of that name."""

    def verify(self) -> None:
        """Checks the graph."""


G = TypeVar("G", bound=Growing)


def to_json(graph: GraphView) -> str:
    """The graph as text; see ``Graph.to_json``."""
    return json.dumps(to_data(graph, _as_text))


def from_json(make: Callable[[str], G], text: str) -> G:
    """Reads the text of ``to_json``; every node is inferred and checked again.

    Args:
        make: Makes an empty graph of a name.
        text: The text.

    Raises:
        GraphError: The text is not such a graph.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(error) from None
    return from_data(make, data)


def to_data(
    graph: GraphView, stored: Callable[[Array], Any], values: bool = True
) -> dict[str, Any]:
    """The graph as JSON values; ``stored`` represents an array as ``{"$array": ...}``, or by its place elsewhere."""
    attached = graph.param_values if values else {}
    guards = [] if graph.assumptions is None else [guard_to(g) for g in graph.assumptions.guards]
    return {
        "rlx_graph": FORMAT,
        "name": graph.name,
        "nodes": [
            {
                "op": node.op,
                "name": node.name,
                "inputs": [operand.id for operand in node.inputs],
                "attrs": {key: _encode(value, stored) for key, value in node.attrs.items()},
                **_given(node, stored),
            }
            for node in graph.nodes
        ],
        "outputs": [node.id for node in graph.outputs],
        "param_values": {
            name: _encode(np.asarray(value), stored) for name, value in attached.items()
        },
        **({"guards": guards} if guards else {}),
        **({} if graph.assumptions is None else {"hints": dict(graph.assumptions.hints)}),
    }


def _given(node: NodeView, stored: Callable[[Array], Any]) -> dict[str, Any]:
    """The attributes that a node was given, where inference made others of them for the sizes that it assumed."""
    changed = {
        key: _encode(value, stored)
        for key, value in (node.given or {}).items()
        if value is not node.attrs[key]
    }
    return {"given": changed} if changed else {}


def parted(graph: GraphView, values: bool = True) -> tuple[dict[str, Any], list[Array]]:
    """The graph as JSON values and the arrays that these name; ``joined`` puts them together.

    Raises:
        GraphError: It has no outputs yet.
    """
    if not graph.outputs:
        raise GraphError(
            f"graph {graph.name!r} has no outputs yet", hint="g.set_outputs([...]) first"
        )
    arrays: list[Array] = []

    def reference(array: Array) -> dict[str, int]:
        arrays.append(np.asarray(array, order="C"))
        return {"$at": len(arrays) - 1}

    return to_data(graph, reference, values), arrays


def joined(make: Callable[[str], G], data: dict[str, Any], arrays: Sequence[Array]) -> G:
    """The graph that ``parted`` took apart. Arrays are not copied; the graph does not write to them.

    Raises:
        GraphError: The data is not such a graph.
    """
    views = [array.view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return from_data(make, data, views)


def node_of(graph: GraphView, number: int) -> NodeView:
    """A node by its number."""
    return graph.nodes[number]


def from_data(
    make: Callable[[str], G], data: Any, arrays: Sequence[Array] = (), inside: int = 0
) -> G:
    """Reads the data of ``to_data``; every node is inferred and checked again.

    ``make`` makes an empty graph of a name. ``{"$at": number}`` stands for one of ``arrays``.

    Raises:
        GraphError: The data is not such a graph.
    """
    try:
        if inside > MAX_NESTED:
            raise ValueError(f"subgraphs in subgraphs, more than {MAX_NESTED} deep")
        if data["rlx_graph"] != FORMAT:
            raise ValueError(f"format {data['rlx_graph']!r}, this release reads {FORMAT}")
        graph = make(data["name"])
        graph.first_hints = dict(data.get("hints", {}))
        for item in data["nodes"]:
            attrs = {
                key: _decode(make, value, arrays, inside) for key, value in item["attrs"].items()
            }
            if item["op"] in ("input", "param"):
                add = graph.input if item["op"] == "input" else graph.param
                add(item["name"], attrs["shape"], attrs["dtype"])
            else:
                inputs = [_at(graph, i) for i in item["inputs"]]
                given = {
                    key: _decode(make, value, arrays, inside)
                    for key, value in item.get("given", {}).items()
                }
                node = graph.add_node(item["op"], inputs, {**attrs, **given}, item["name"])
                with graph.inferring():
                    check_attributes(node, attrs)
        graph.set_outputs([_at(graph, i) for i in data["outputs"]])
        for name, value in data["param_values"].items():
            array, node = _decode(make, value, arrays, inside), graph.named(name)
            if (
                node.op != "param"
                or not isinstance(array, np.ndarray)
                or array.shape != node.types[0].shape
            ):
                raise ValueError(f"{name!r} can't hold {array!r:.60}")
            graph.param_values[name] = array
        guards = {guard_from(guard): None for guard in data.get("guards", ())}
        if guards and graph.assumptions is not None:
            graph.assumptions.guards |= guards
    except GraphError:
        raise
    except MALFORMED as error:
        raise _refused(error) from None
    graph.verify()
    return graph


def _refused(error: Exception) -> GraphError:
    return GraphError(
        "not a graph written by Graph.to_json", got=f"{type(error).__name__}: {error}"
    )


def _at(graph: GraphView, index: Any) -> Any:
    return graph.nodes[_index(index, len(graph.nodes))]


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"index {value!r} is not below {count}")
    return value


def _as_text(array: Array) -> Any:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"$array": data, "shape": list(array.shape), "dtype": array.dtype.str}


def _encode(value: Any, stored: Callable[[Array], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return stored(value)
    if isinstance(value, DType):
        return {"$dtype": value.value}
    if isinstance(value, GraphView):
        return {"$graph": to_data(value, stored)}
    if isinstance(value, tuple):
        return [_encode(item, stored) for item in value]
    if isinstance(value, SizeExpr):
        return {"$size": size_to(value)}
    return value


def _decode(make: Callable[[str], G], value: Any, arrays: Sequence[Array], inside: int) -> Any:
    if isinstance(value, dict):
        if "$dtype" in value:
            return DType.parse(value["$dtype"])
        if "$size" in value:
            return size_from(value["$size"])
        if "$graph" in value:
            inner = value["$graph"]
            # A graph may stand within another as text, too.
            data = json.loads(inner) if isinstance(inner, str) else inner
            return from_data(make, data, arrays, inside + 1)
        if "$at" in value:
            return arrays[_index(value["$at"], len(arrays))]
        raw = base64.b64decode(value["$array"], validate=True)
        return stored_array(raw, value["dtype"], value["shape"])
    if isinstance(value, list):
        return tuple(_decode(make, item, arrays, inside) for item in value)
    return value

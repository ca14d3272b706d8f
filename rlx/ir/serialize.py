"""Graphs as JSON values: an exact round trip, constants and attached params included."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import MALFORMED, GraphError, describe
from rlx.ir.attributes import check_attributes
from rlx.ir.dtype import DType, stored_array
from rlx.ir.graph import MOST_NESTED, Graph
from rlx.ir.opdef import Array

FORMAT = 1


def to_json(graph: Graph) -> str:
    """The graph as text; see ``Graph.to_json``."""
    return json.dumps(to_data(graph, _as_text))


def from_json(text: str) -> Graph:
    """Reads what ``to_json`` wrote; every node is inferred and checked again.

    Raises:
        GraphError: The text is not such a graph.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(error) from None
    return from_data(data)


def to_data(graph: Graph, held: Callable[[Array], Any]) -> dict[str, Any]:
    """The graph as JSON values.

    Args:
        graph: The graph.
        held: What stands for an array: ``{"$array": ...}`` with its bytes, or its place elsewhere.
    """
    return {
        "rlx_graph": FORMAT,
        "name": graph.name,
        "nodes": [
            {
                "op": node.op,
                "name": node.name,
                "inputs": [operand.id for operand in node.inputs],
                "attrs": {key: _encode(value, held) for key, value in node.attrs.items()},
            }
            for node in graph.nodes
        ],
        "outputs": [node.id for node in graph.outputs],
        "param_values": {
            name: _encode(np.asarray(value), held) for name, value in graph.param_values.items()
        },
    }


def from_data(data: Any, arrays: Sequence[Array] = (), inside: int = 0) -> Graph:
    """Reads what ``to_data`` made; every node is inferred and checked again.

    Args:
        data: JSON values.
        arrays: What ``{"$at": number}`` stands for.
        inside: How many graphs it stands in.

    Raises:
        GraphError: The data is not such a graph.
    """
    try:
        if inside > MOST_NESTED:
            raise ValueError(f"subgraphs in subgraphs, more than {MOST_NESTED} deep")
        if data["rlx_graph"] != FORMAT:
            raise ValueError(f"format {data['rlx_graph']!r}, this release reads {FORMAT}")
        graph = Graph(data["name"])
        for item in data["nodes"]:
            attrs = {key: _decode(value, arrays, inside) for key, value in item["attrs"].items()}
            if item["op"] in ("input", "param"):
                make = graph.input if item["op"] == "input" else graph.param
                make(item["name"], attrs["shape"], attrs["dtype"])
            else:
                inputs = [_at(graph, index) for index in item["inputs"]]
                check_attributes(graph.add_node(item["op"], inputs, attrs, item["name"]), attrs)
        graph.set_outputs([_at(graph, index) for index in data["outputs"]])
        for name, value in data["param_values"].items():
            array, node = _decode(value, arrays, inside), graph.named(name)
            if node.op != "param" or not isinstance(array, np.ndarray) or array.shape != node.shape:
                raise ValueError(f"{name!r} has no value such as {array!r:.60}")
            graph.param_values[name] = array
    except GraphError:
        raise
    except MALFORMED as error:
        raise _refused(error) from None
    graph.verify()
    return graph


def _refused(error: Exception) -> GraphError:
    return GraphError(
        describe("not a graph written by Graph.to_json", got=f"{type(error).__name__}: {error}")
    )


def _at(graph: Graph, index: Any) -> Any:
    return graph.nodes[_index(index, len(graph.nodes))]


def _index(value: Any, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"index {value!r} is not below {count}")
    return value


def _as_text(array: Array) -> Any:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"$array": data, "shape": list(array.shape), "dtype": array.dtype.str}


def _encode(value: Any, held: Callable[[Array], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return held(value)
    if isinstance(value, DType):
        return {"$dtype": value.value}
    if isinstance(value, Graph):
        return {"$graph": to_data(value, held)}
    if isinstance(value, tuple):
        return [_encode(item, held) for item in value]
    return value


def _decode(value: Any, arrays: Sequence[Array], inside: int) -> Any:
    if isinstance(value, dict):
        if "$dtype" in value:
            return DType.parse(value["$dtype"])
        if "$graph" in value:
            inner = value["$graph"]
            # A graph may stand within another as text, too.
            data = json.loads(inner) if isinstance(inner, str) else inner
            return from_data(data, arrays, inside + 1)
        if "$at" in value:
            return arrays[_index(value["$at"], len(arrays))]
        raw = base64.b64decode(value["$array"], validate=True)
        return stored_array(raw, value["dtype"], value["shape"])
    if isinstance(value, list):
        return tuple(_decode(item, arrays, inside) for item in value)
    return value

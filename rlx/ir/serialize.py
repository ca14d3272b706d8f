"""Graphs as JSON: an exact round trip, constants and attached params included."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from rlx.errors import GraphError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph

FORMAT = 1


def to_json(graph: Graph) -> str:
    """The graph as text; see ``Graph.to_json``."""
    return json.dumps(
        {
            "rlx_graph": FORMAT,
            "name": graph.name,
            "nodes": [
                {
                    "op": node.op,
                    "name": node.name,
                    "inputs": [operand.id for operand in node.inputs],
                    "attrs": {key: _encode(value) for key, value in node.attrs.items()},
                }
                for node in graph.nodes
            ],
            "outputs": [node.id for node in graph.outputs],
            "param_values": {name: _encode(value) for name, value in graph.param_values.items()},
        }
    )


def from_json(text: str) -> Graph:
    """Reads what ``to_json`` wrote; every node is inferred and checked again.

    Raises:
        GraphError: The text is not such a graph.
    """
    try:
        data = json.loads(text)
        if data["rlx_graph"] != FORMAT:
            raise ValueError(f"format {data['rlx_graph']!r}, this release reads {FORMAT}")
        graph = Graph(data["name"])
        for item in data["nodes"]:
            attrs = {key: _decode(value) for key, value in item["attrs"].items()}
            if item["op"] in ("input", "param"):
                make = graph.input if item["op"] == "input" else graph.param
                make(item["name"], attrs["shape"], attrs["dtype"])
            else:
                inputs = [_at(graph, index) for index in item["inputs"]]
                graph.add_node(item["op"], inputs, attrs, item["name"])
        graph.set_outputs([_at(graph, index) for index in data["outputs"]])
        graph.param_values = {name: _decode(value) for name, value in data["param_values"].items()}
    except GraphError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GraphError(
            describe("not a graph written by Graph.to_json", got=f"{type(error).__name__}: {error}")
        ) from None
    graph.verify()
    return graph


def _at(graph: Graph, index: Any) -> Any:
    if not isinstance(index, int) or not 0 <= index < len(graph.nodes):
        raise ValueError(f"node index {index!r} out of range")
    return graph.nodes[index]


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"$array": data, "shape": list(value.shape), "dtype": value.dtype.str}
    if isinstance(value, DType):
        return {"$dtype": value.value}
    if isinstance(value, Graph):
        return {"$graph": to_json(value)}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if "$dtype" in value:
            return DType.parse(value["$dtype"])
        if "$graph" in value:
            return from_json(value["$graph"])
        raw = base64.b64decode(value["$array"], validate=True)
        array = np.frombuffer(raw, np.dtype(value["dtype"])).reshape(value["shape"])
        return array
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    return value

"""``rlx devices --graph FILE``: what every device would make of a graph, and what is in its way."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from rlx.device.candidates import DeviceCandidate
from rlx.device.policy import DevicePolicy
from rlx.errors import ImportModelError, RlxError, describe
from rlx.ir.graph import Graph
from rlx.runtime.graph_devices import GraphDevices


def load_graph(path: str) -> Graph:
    """The graph in a file that ``g.to_json()`` wrote.

    Args:
        path: The file.

    Raises:
        ImportModelError: It holds no graph.
        OSError: It can't be read.
    """
    try:
        return Graph.from_json(Path(path).read_text(encoding="utf-8"))
    except (RlxError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ImportModelError(
            describe(
                f"{path} holds no graph",
                got=f"{type(error).__name__}: {error}",
                expected="what g.to_json() gives",
            )
        ) from error


def report(path: str, as_json: bool) -> list[dict[str, object]]:
    """Rows for the table, or with every field for JSON.

    Args:
        path: The file with the graph.
        as_json: Every field, numbers as numbers.

    Raises:
        RlxError: The file holds no legal graph, or the environment names no device.
        OSError: The file can't be read.
    """
    graph = load_graph(path)
    rows = GraphDevices(graph, DevicePolicy.from_env()).report()
    return [_fields(row) if as_json else _cells(row) for row in rows]


def _fields(row: DeviceCandidate) -> dict[str, object]:
    found = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    capabilities = row.capabilities and dataclasses.asdict(row.capabilities)
    same_as = None if row.same_as is None else str(row.same_as)
    named = {"device": str(row.device), "capabilities": capabilities, "same_as": same_as}
    # JSON has no infinity, which a plug-in's figures may come to.
    finite = row.estimate_ns is not None and math.isfinite(row.estimate_ns)
    return {**found, **named, "estimate_ns": row.estimate_ns if finite else None}


def _cells(row: DeviceCandidate) -> dict[str, object]:
    estimate = "-" if row.estimate_ns is None else f"{row.estimate_ns / 1e3:,.1f} us"
    return {
        "device": str(row.device),
        "what it is": row.label,
        "estimate": estimate,
        "": "recommended" if row.recommended else "",
        "in its way": row.blocker or "",
    }

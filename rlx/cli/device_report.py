"""``rlx devices --graph FILE``: which devices can run a graph, with reasons for the others."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math

from rlx.cli import screen
from rlx.device.candidates import DeviceCandidate
from rlx.device.policy import DevicePolicy
from rlx.model_files import load_graph
from rlx.serving.graph_devices import GraphDevices


def run(args: argparse.Namespace) -> int:
    """Prints the report of the graph in ``args.graph``.

    Raises:
        RlxError: The file holds no legal graph, or the environment names no device.
        OSError: The file can't be read.
    """
    rows = GraphDevices(load_graph(args.graph), DevicePolicy.from_env()).report()
    if args.json:
        print(json.dumps([_fields(row) for row in rows], indent=2))
        return 0
    headings = ("device", "what it is", "estimate", "", "in its way")
    screen.Screen().print(screen.columns(args.graph, headings, map(_cells, rows)))
    return 0


def _fields(row: DeviceCandidate) -> dict[str, object]:
    results = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    capabilities = row.capabilities and dataclasses.asdict(row.capabilities)
    same_as = None if row.same_as is None else str(row.same_as)
    named = {"device": str(row.device), "capabilities": capabilities, "same_as": same_as}
    # JSON has no infinity, which a plug-in's figures may come to.
    finite = row.estimate_ns is not None and math.isfinite(row.estimate_ns)
    return {**results, **named, "estimate_ns": row.estimate_ns if finite else None}


def _cells(row: DeviceCandidate) -> tuple[str, ...]:
    estimate = "-" if row.estimate_ns is None else f"{row.estimate_ns / 1e3:,.1f} us"
    recommended = "recommended" if row.recommended else ""
    return str(row.device), row.label, estimate, recommended, row.blocker or ""

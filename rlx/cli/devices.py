"""``rlx devices``: lists devices, their speeds, their best use, and missing parts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from functools import partial
from typing import Any

import rlx
from rlx.backends.base import DeviceInfo
from rlx.backends.registry import absent, backend, how_to_install, listed_backends, request_all
from rlx.cli import screen
from rlx.cost.calibration import FASTEST_TRANSFER, Calibration
from rlx.cost.model import BackendCostModel
from rlx.cost.store import remeasure, stored
from rlx.device.candidates import DeviceCandidate
from rlx.device.figures import cost_model, describe_devices
from rlx.device.names import PLUGIN_DEVICES, info_of
from rlx.device.policy import DevicePolicy
from rlx.errors import first_line, one_line
from rlx.model_files import load_graph
from rlx.serving.graph_devices import GraphDevices

# The purpose of an adapter's features.
_WORTH = {
    "shader-f16": 'precision="f16"',
    "timestamp-query": "cg.profile() and kernels in cg.trace()",
    "subgroup": "sums within a group of threads without shared memory",
    "subgroup-size-control": "kernels for groups of threads of one size",
    "chromium-experimental-subgroup-matrix": "products of small matrices in one step",
}
# Limits that decide what fits, and how tables call them.
_LIMITS = {"max-buffer-size": "largest buffer", "max-storage-buffer-binding-size": "largest tensor"}
# Square products that are tried for where a device begins to be worth it.
_SIZES = tuple(1 << i for i in range(4, 14))


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    command.add_argument(
        "--graph", metavar="FILE", help="tell which devices can run a graph (JSON)"
    )
    command.add_argument(
        "--calibrate", action="store_true", help="measure every device now, two to ten seconds each"
    )


def run(args: argparse.Namespace) -> int:
    """Lists the devices, or tells which of them can run a graph."""
    request_all()
    if args.graph:
        return _report(args)
    if args.calibrate:
        _calibrate(quiet=args.json)
    rows, missing = _rows(), _missing()
    if args.json:
        print(json.dumps({"devices": rows, "missing": missing}, indent=2))
    else:
        _print(rows, missing)
    return 0


def _report(args: argparse.Namespace) -> int:
    """Prints the report of the graph in ``args.graph``.

    Raises:
        RlxError: The file holds no legal graph, or the environment names no device.
        OSError: The file can't be read.
    """
    rows = GraphDevices(load_graph(args.graph), DevicePolicy.from_env()).report()
    if args.json:
        print(json.dumps([_row_fields(row) for row in rows], indent=2))
        return 0
    headings = ("device", "what it is", "estimate", "", "in its way")
    screen.Screen().print(screen.columns(args.graph, headings, map(_row_cells, rows)))
    return 0


def _row_fields(row: DeviceCandidate) -> dict[str, object]:
    results = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    capabilities = row.capabilities and dataclasses.asdict(row.capabilities)
    same_as = None if row.same_as is None else str(row.same_as)
    named = {"device": str(row.device), "capabilities": capabilities, "same_as": same_as}
    # JSON has no infinity, which a plug-in's figures may come to.
    finite = row.estimate_ns is not None and math.isfinite(row.estimate_ns)
    return {**results, **named, "estimate_ns": row.estimate_ns if finite else None}


def _row_cells(row: DeviceCandidate) -> tuple[str, ...]:
    estimate = "-" if row.estimate_ns is None else f"{row.estimate_ns / 1e3:,.1f} us"
    recommended = "recommended" if row.recommended else ""
    return str(row.device), row.label, estimate, recommended, row.blocker or ""


def _calibrate(quiet: bool) -> None:
    """Measures every device, with a bar for each on standard error if that is a terminal."""
    with screen.Bars(quiet) as bars:
        for device in rlx.available_devices():
            if not backend(device.backend).is_built_in:
                screen.say(f"rlx devices: the plug-in of {device} states its figures", error=True)
                continue
            try:
                remeasure(device, partial(bars.show, bars.add(str(device))))
            except rlx.RlxError as error:
                # The other devices are still worth knowing.
                text = f"rlx devices: {device} could not be measured: {first_line(error)}"
                screen.say(text, error=True)


def _rows() -> list[dict[str, Any]]:
    """Everything about each device, as JSON takes it."""
    rows = []
    host: BackendCostModel | None = None
    for device in describe_devices():
        info = info_of(device.device)
        figures, stated = stored(device.device), _states_figures(info)
        model = cost_model(device.device, info)
        host = host or model
        rows.append(
            {
                "device": str(device.device),
                "adapter": device.adapter,
                "api": device.api,
                "driver": device.driver,
                "software": device.software,
                "features": sorted(info.features),
                "limits": dict(info.limits),
                "calibration": figures.to_json() if figures else None,
                "measured": "stated by its plug-in" if stated else _measured(figures),
                "recommended": _recommended(
                    device.device, info, model, host, stated or figures is not None
                ),
                "lacks": _lacks(info),
            }
        )
    return rows


def _states_figures(info: DeviceInfo) -> bool:
    """Returns whether a plug-in states figures of its own for a device, so that none are measured."""
    try:
        return backend(info.backend).figures(info) is not None
    except rlx.DeviceError:
        return False


def _measured(figures: Calibration | None) -> str:
    if figures is None:
        return "not measured; rlx devices --calibrate does"
    size, speed = max(figures.matmul_gflops["f32"].items())
    results = [
        f"run {_time(figures.roundtrip_ns)}, kernel {_time(figures.dispatch_ns)}",
        f"copy {figures.copy_gb_per_s:,.1f} GB/s",
        f"matmul {size}: {speed:,.1f} GFLOP/s",
    ]
    if not figures.unified_memory:
        up, down = figures.upload_gb_per_s, figures.readback_gb_per_s
        results.append(f"upload {_speed(up)}, read-back {_speed(down)}")
        results.append(f"part on the host {_time(figures.host_thunk_ns)}")
    return "\n".join(results)


def _speed(gb_per_s: float) -> str:
    """A transfer's speed; a difference of noisy times tells none from a bound on."""
    fast = gb_per_s > 0.99 * FASTEST_TRANSFER
    return "faster than can be told" if fast else f"{gb_per_s:,.1f} GB/s"


def _time(ns: float) -> str:
    return (
        f"{ns:,.0f} ns"
        if ns < 1e3
        else f"{ns / 1e3:,.1f} us"
        if ns < 1e6
        else f"{ns / 1e6:,.1f} ms"
    )


def _recommended(
    device: rlx.Device,
    info: DeviceInfo,
    model: BackendCostModel,
    host: BackendCostModel,
    measured: bool,
) -> str:
    """Describes the best use of a device, by the known figures."""
    guess = "" if measured else " (by default figures)"
    if model is host:
        return "small graphs, f64"
    for size in _SIZES:
        g = rlx.Graph()
        g.set_outputs([g.input("x", (size, size)) @ g.param("w", (size, size))])
        if rlx.estimate_graph_cost(g, model) < rlx.estimate_graph_cost(g, host):
            return f"graphs like a product of {size} x {size} and larger{guess}"
    if info.software:
        return "checking results; the CPU itself is faster"
    return f"graphs with more work than a product of {_SIZES[-1]} x {_SIZES[-1]}{guess}"


def _lacks(info: DeviceInfo) -> list[str]:
    try:
        wanted = backend(info.backend).capabilities(info).optional_features
    except rlx.DeviceError:
        return []  # a plug-in that can't say
    return [f"{n}: no {_WORTH.get(n, 'such feature')}" for n in wanted if n not in info.features]


def _missing() -> list[str]:
    """Lists missing devices, with the packages that would add them."""
    here = {device.backend for device in rlx.available_devices()}
    names = listed_backends()
    results = [f"{name}: {one_line(absent(name))}" for name in names if name not in here]
    absentees = [name for name in PLUGIN_DEVICES if name not in names]
    return [*results, *(f"{name}: no plug-in; {how_to_install(name)}" for name in absentees)]


def _print(rows: list[dict[str, Any]], missing: list[str]) -> None:
    lines = []
    for row in rows:
        software = ["in software, on the CPU"] if row["software"] else []
        limits = [
            f"{text} {row['limits'][name] / 2**20:,.0f} MiB"
            for name, text in _LIMITS.items()
            if name in row["limits"]
        ]
        lines.append(
            [
                row["device"],
                [row["adapter"], f"{row['api']}, {row['driver']}", *software],
                [", ".join(row["features"]), *limits, *row["lacks"]],
                row["measured"].split("\n"),
                row["recommended"],
            ]
        )
    headings = ("device", "adapter", "features and limits", "measured", "recommended for")
    screen.Screen().print(screen.columns("devices", headings, lines, rule=True))
    for line in missing:
        screen.say(f"missing: {line}")

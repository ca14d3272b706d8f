"""The cost model of each device, and what a graph is estimated to take on one."""

from __future__ import annotations

import math

from rlx.backends.base import DeviceInfo, backend
from rlx.backends.plugins import figures_of
from rlx.cost import BackendCostModel, CpuCostModel, WebGpuCostModel, estimate_graph_cost
from rlx.device.names import Device
from rlx.ir.graph import Graph
from rlx.passes.schedule import host_nodes


def cost_model(device: Device, info: DeviceInfo) -> BackendCostModel:
    """The cost model of a device; a plug-in's own, or that of a GPU where it has none."""
    if device.backend == "cpu":
        return CpuCostModel()
    return figures_of(info) or WebGpuCostModel(device, software=info.software)


def estimate_ns(graph: Graph, device: Device, info: DeviceInfo) -> float:
    """Estimated nanoseconds of one run.

    Args:
        graph: A graph that the device can run.
        device: The device.
        info: The device as it was found.
    """
    model, kernel_set = cost_model(device, info), backend(device.backend).kernel_set
    cuts = len(host_nodes(graph, kernel_set)) if kernel_set not in ("", "cpu") else 0
    # A node that runs on the host cuts the schedule: one more round trip.
    found = estimate_graph_cost(graph, model) + cuts * model.roundtrip_overhead_ns()
    # A plug-in's figures may be anything; what is no number is not a reason to be picked.
    return math.inf if math.isnan(found) else found

"""What a graph costs on a device: numbers in, numbers out."""

from rlx.cost.model import (
    BackendCostModel,
    CpuCostModel,
    NodeCost,
    RooflineModel,
    WebGpuCostModel,
    estimate_graph_cost,
    node_costs,
    pick_best_device,
)

__all__ = [
    "BackendCostModel",
    "CpuCostModel",
    "NodeCost",
    "RooflineModel",
    "WebGpuCostModel",
    "estimate_graph_cost",
    "node_costs",
    "pick_best_device",
]

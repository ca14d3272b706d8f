"""What a graph costs on a device: numbers in, numbers out."""

from rlx.cost.gate import FusionBenefit, IoFusionGate, fusion_benefit
from rlx.cost.io_profile import (
    GraphIoOptions,
    GraphIoProfile,
    host_sync_ops,
    profile_graph_io,
    profile_graph_io_outputs,
)
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
    "FusionBenefit",
    "GraphIoOptions",
    "GraphIoProfile",
    "IoFusionGate",
    "NodeCost",
    "RooflineModel",
    "WebGpuCostModel",
    "estimate_graph_cost",
    "fusion_benefit",
    "host_sync_ops",
    "node_costs",
    "pick_best_device",
    "profile_graph_io",
    "profile_graph_io_outputs",
]

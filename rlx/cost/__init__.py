"""What a graph costs on a device: numbers in, numbers out."""

from rlx.cost.background import wait_for_figures
from rlx.cost.calibration import Calibration
from rlx.cost.curve import Curve
from rlx.cost.estimate import (
    GraphCost,
    Lowering,
    NodeCost,
    estimate_graph_cost,
    graph_cost,
    node_costs,
    pick_best_device,
)
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
    CalibratedModel,
    CpuCostModel,
    DetailedCostModel,
    RooflineModel,
    WebGpuCostModel,
    default_model,
)

__all__ = [
    "BackendCostModel",
    "CalibratedModel",
    "Calibration",
    "CpuCostModel",
    "Curve",
    "DetailedCostModel",
    "FusionBenefit",
    "GraphCost",
    "GraphIoOptions",
    "GraphIoProfile",
    "IoFusionGate",
    "Lowering",
    "NodeCost",
    "RooflineModel",
    "WebGpuCostModel",
    "default_model",
    "estimate_graph_cost",
    "fusion_benefit",
    "graph_cost",
    "host_sync_ops",
    "node_costs",
    "pick_best_device",
    "profile_graph_io",
    "profile_graph_io_outputs",
    "wait_for_figures",
]

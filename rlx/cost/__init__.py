"""Estimates the cost of a graph on a device, from numbers alone."""

from typing import TYPE_CHECKING

from rlx import lazy_imports

if TYPE_CHECKING:
    from rlx.cost.background import wait_for_figures as wait_for_figures
    from rlx.cost.calibration import Calibration as Calibration
    from rlx.cost.curve import Curve as Curve
    from rlx.cost.estimate import GraphCost as GraphCost
    from rlx.cost.estimate import Lowering as Lowering
    from rlx.cost.estimate import NodeCost as NodeCost
    from rlx.cost.estimate import estimate_graph_cost as estimate_graph_cost
    from rlx.cost.estimate import graph_cost as graph_cost
    from rlx.cost.estimate import node_costs as node_costs
    from rlx.cost.estimate import pick_best_device as pick_best_device
    from rlx.cost.gate import FusionBenefit as FusionBenefit
    from rlx.cost.gate import IoFusionGate as IoFusionGate
    from rlx.cost.gate import fusion_benefit as fusion_benefit
    from rlx.cost.io_profile import GraphIoOptions as GraphIoOptions
    from rlx.cost.io_profile import GraphIoProfile as GraphIoProfile
    from rlx.cost.io_profile import host_sync_ops as host_sync_ops
    from rlx.cost.io_profile import profile_graph_io as profile_graph_io
    from rlx.cost.io_profile import profile_graph_io_outputs as profile_graph_io_outputs
    from rlx.cost.model import BackendCostModel as BackendCostModel
    from rlx.cost.model import CalibratedModel as CalibratedModel
    from rlx.cost.model import CpuCostModel as CpuCostModel
    from rlx.cost.model import DetailedCostModel as DetailedCostModel
    from rlx.cost.model import RooflineModel as RooflineModel
    from rlx.cost.model import WebGpuCostModel as WebGpuCostModel
    from rlx.cost.model import default_model as default_model

_NAMES = {
    "rlx.cost.background": "wait_for_figures",
    "rlx.cost.calibration": "Calibration",
    "rlx.cost.curve": "Curve",
    "rlx.cost.estimate": "GraphCost Lowering NodeCost estimate_graph_cost graph_cost node_costs pick_best_device",
    "rlx.cost.gate": "FusionBenefit IoFusionGate fusion_benefit",
    "rlx.cost.io_profile": "GraphIoOptions GraphIoProfile host_sync_ops profile_graph_io profile_graph_io_outputs",
    "rlx.cost.model": "BackendCostModel CalibratedModel CpuCostModel DetailedCostModel RooflineModel WebGpuCostModel default_model",
}
_homes = lazy_imports.names_of(__name__, _NAMES)
__all__ = sorted(_homes)

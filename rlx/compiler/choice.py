"""The device picked for a graph, and why."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rlx.dataclasses import dataclass
from rlx.device.names import Device

if TYPE_CHECKING:
    from rlx.compiler.lowered_module import LoweredModule
    from rlx.cost.estimate import GraphCost


@dataclass(frozen=True)
class Choice:
    """The device picked for a graph.

    Attributes:
        device: The pick.
        reason: One sentence.
        estimates: Estimated nanoseconds per run of every device that can run the graph.
        blocked: Why the others can't.
        costs: The estimates part by part.
        lowered: The lowered graph for each device, for the compile that follows.
    """

    device: Device
    reason: str
    estimates: dict[Device, float]
    blocked: dict[Device, str]
    costs: dict[Device, GraphCost] = field(default_factory=dict, repr=False)
    lowered: dict[Device, LoweredModule] = field(default_factory=dict, repr=False)

"""The device that passes specialise for, and the gate of every fusion: does it pay on that device?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from rlx.cost.gate import IoFusionGate, fusion_benefit
from rlx.cost.io_profile import GraphIoOptions, profile_graph_io
from rlx.dataclasses import dataclass
from rlx.ir.graph import Graph, Node
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.notes import Note
from rlx.sizes import hinted


class Weighed(NamedTuple):
    """The estimated benefit of a fusion.

    Attributes:
        taken: Whether it pays.
        saved: The saving, as notes say it.
    """

    taken: bool
    saved: str

    def note(self, what: str, node: Node) -> Note:
        """The note of a fusion ``what`` that ends in ``node``, for ``as_text("fused")``."""
        return Note.of(
            "fuse", f"{'took' if self.taken else 'refused'} {what} at ", node, self.saved
        )


@dataclass(frozen=True)
class Specialisation:
    """A device as passes see it.

    Attributes:
        kernel_set: Its kernels.
        gate: Its figures, and the least gain that is worth a fusion.
    """

    kernel_set: str
    gate: IoFusionGate

    @classmethod
    def of(cls, kernel_set: str, gate: IoFusionGate | None) -> Specialisation:
        """A device; without a gate, the defaults of its kind, where any gain is taken."""
        if gate is None:
            on_host = not kernel_set or KERNEL_SETS[kernel_set].on_host
            kind = IoFusionGate.cpu() if on_host else IoFusionGate.webgpu()
            gate = replace(kind, min_gain_ns=0.0)
        return cls(kernel_set, gate)

    def taking_all(self) -> Specialisation:
        """The same device, where every fusion is taken."""
        return replace(self, gate=replace(self.gate, min_gain_ns=-math.inf))

    def weigh(self, before: Graph, after: Graph) -> Weighed:
        """Weighs a fusion: does it pay, and why?

        Args:
            before: The part of the graph that it replaces.
            after: The replacement.
        """
        options = GraphIoOptions(kernel_set=self.kernel_set)
        benefit = fusion_benefit(
            profile_graph_io(before, options), profile_graph_io(after, options)
        )
        score = self.gate.score_ns(benefit)
        taken = score >= self.gate.min_gain_ns
        syncs = benefit.sync_points_saved
        saved = (
            f": saves {benefit.launches_saved} kernels, "
            + (f"{syncs} sync points, " if syncs else "")
            + f"{benefit.device_traffic_bytes_saved} bytes of traffic: {hinted(score):,.0f} ns"
            + ("" if taken else f" of the {self.gate.min_gain_ns:,.0f} ns that are worth it")
        )
        return Weighed(taken, saved)

"""The device that passes specialise for, and the gate of every fusion: does it pay on that device?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rlx.cost.gate import IoFusionGate, fusion_benefit
from rlx.cost.io_profile import GraphIoOptions, profile_graph_io
from rlx.ir.graph import Graph, Node
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.notes import Note


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

    def admits(self, what: str, node: Node, before: Graph, after: Graph, notes: list[Note]) -> bool:
        """Whether a fusion pays; the notes get its numbers either way.

        Args:
            what: The fusion.
            node: The node that it ends in.
            before: The part of the graph that it replaces.
            after: What it puts there.
            notes: Where its note goes, for ``as_text("fused")``.
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
            + f"{benefit.device_traffic_bytes_saved} bytes of traffic: {score:,.0f} ns"
            + ("" if taken else f" of the {self.gate.min_gain_ns:,.0f} ns that are worth it")
        )
        verdict = "took" if taken else "refused"
        notes.append(Note.of("fuse", f"{verdict} {what} at ", node, saved))
        return taken

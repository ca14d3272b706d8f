"""The roofline cost model: nanoseconds per run of a graph on a device, from a few figures.

Estimate = round trip + sum over nodes of max(flops / speed, bytes / bandwidth) + dispatch, plus the
transfers of inputs and outputs where memory is not shared. Leaves and views cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from rlx.ir.graph import Graph, Node

# Views of the cost model: moved for free or folded into their reader.
FREE = frozenset({"input", "param", "constant", "reshape"})


class BackendCostModel(Protocol):
    """The figures of one device. Bandwidths are bytes per nanosecond, which is GB/s."""

    @property
    def device(self) -> Any:
        """What the figures describe."""

    @property
    def unified_memory(self) -> bool:
        """Whether host and device share memory."""

    def sgemm_gflops(self, m: int, k: int, n: int) -> float:
        """Speed of a product of that size in GFLOP/s (1e9 flop/s)."""

    def dispatch_overhead_ns(self) -> float:
        """Cost of one kernel call."""

    def roundtrip_overhead_ns(self) -> float:
        """Cost of submitting and waiting once."""

    def memory_bw(self) -> float:
        """Device memory bandwidth."""

    def host_readback_bw(self) -> float:
        """Bandwidth from the device to the host."""

    def host_upload_bw(self) -> float:
        """Bandwidth from the host to the device."""

    def num_threads(self) -> int:
        """Parallel workers."""


@dataclass(frozen=True)
class RooflineModel:
    """Fixed figures; calibration will fill them in per machine.

    Attributes:
        device: What it describes.
        gflops: Arithmetic speed in 1e9 flop/s.
        dispatch_ns: One kernel call.
        roundtrip_ns: One submit and wait.
        bandwidth: Memory bandwidth in bytes per ns.
        upload_bandwidth: Host to device.
        readback_bandwidth: Device to host.
        unified_memory: Host and device share memory.
        threads: Parallel workers.
    """

    device: Any
    gflops: float
    dispatch_ns: float
    roundtrip_ns: float
    bandwidth: float
    upload_bandwidth: float
    readback_bandwidth: float
    unified_memory: bool
    threads: int = 1

    def sgemm_gflops(self, m: int, k: int, n: int) -> float:
        """The same at every size, until calibrated."""
        return self.gflops

    def dispatch_overhead_ns(self) -> float:
        """See ``dispatch_ns``."""
        return self.dispatch_ns

    def roundtrip_overhead_ns(self) -> float:
        """See ``roundtrip_ns``."""
        return self.roundtrip_ns

    def memory_bw(self) -> float:
        """See ``bandwidth``."""
        return self.bandwidth

    def host_readback_bw(self) -> float:
        """See ``readback_bandwidth``."""
        return self.readback_bandwidth

    def host_upload_bw(self) -> float:
        """See ``upload_bandwidth``."""
        return self.upload_bandwidth

    def num_threads(self) -> int:
        """See ``threads``."""
        return self.threads


def CpuCostModel() -> RooflineModel:  # noqa: N802 - named as a type in the public API
    """Defaults of the CPU: 200 GFLOP/s, 300 ns a call, 3 us a run, 30 GB/s."""
    return RooflineModel("cpu", 200.0, 300.0, 3_000.0, 30.0, 30.0, 30.0, unified_memory=True)


def WebGpuCostModel(device: Any, *, software: bool = False) -> RooflineModel:  # noqa: N802
    """Defaults of a GPU: 2,500 GFLOP/s, 5 us a dispatch, 80 us a run, 120 GB/s.

    A software adapter is taken as slower than the CPU until it is measured.
    """
    if software:
        return RooflineModel(device, 20.0, 20_000.0, 400_000.0, 5.0, 5.0, 5.0, unified_memory=False)
    return RooflineModel(
        device, 2_500.0, 5_000.0, 80_000.0, 120.0, 12.0, 12.0, unified_memory=False
    )


@dataclass(frozen=True)
class NodeCost:
    """One node's estimate: what it computes, what it moves, and which of the two binds."""

    node: Node
    flops: float
    nbytes: int
    ns: float
    bound: str

    def __str__(self) -> str:
        return (
            f"%{self.node.id} {self.node.op}: {self.ns:,.0f} ns, {self.bound} bound "
            f"({self.flops:,.0f} flop, {self.nbytes:,} B)"
        )


def node_costs(graph: Graph, model: BackendCostModel) -> list[NodeCost]:
    """The estimate of every node that runs.

    Args:
        graph: The graph as it will run, after fusion.
        model: The device's figures.
    """
    costs = []
    for node in graph.nodes:
        if node.op in FREE:
            continue
        flops = float(node.opdef.flops(node))
        nbytes = node.type.nbytes + sum(operand.type.nbytes for operand in node.inputs)
        m, n = (node.shape[-2:] if len(node.shape) > 1 else (1, node.type.size)) or (1, 1)
        k = node.inputs[0].shape[-1] if node.inputs and node.inputs[0].shape else 1
        compute = flops / max(model.sgemm_gflops(m, k, n), 1e-9)
        traffic = nbytes / max(model.memory_bw(), 1e-9)
        dispatch = model.dispatch_overhead_ns()
        slowest = max(compute, traffic)
        bound = "dispatch" if dispatch > slowest else "compute" if compute > traffic else "memory"
        costs.append(NodeCost(node, flops, nbytes, slowest + dispatch, bound))
    return costs


def estimate_graph_cost(graph: Graph, model: BackendCostModel) -> float:
    """Estimated nanoseconds of one run.

    Args:
        graph: The graph as it will run.
        model: The device's figures.
    """
    total = model.roundtrip_overhead_ns() + math.fsum(c.ns for c in node_costs(graph, model))
    if not model.unified_memory:
        inputs = sum(node.type.nbytes for node in graph.nodes if node.op == "input")
        outputs = sum(node.type.nbytes for node in graph.outputs)
        total += inputs / max(model.host_upload_bw(), 1e-9)
        total += outputs / max(model.host_readback_bw(), 1e-9)
    return total


def pick_best_device(graph: Graph, models: Iterable[BackendCostModel]) -> Any:
    """The device of the model with the least estimate; "cpu" when there is none or all are infinite."""
    ranked = [(estimate_graph_cost(graph, model), model) for model in models]
    finite = [pair for pair in ranked if math.isfinite(pair[0])]
    return min(finite, key=lambda pair: pair[0])[1].device if finite else "cpu"

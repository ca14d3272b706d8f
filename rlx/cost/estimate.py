"""Estimates the cost of a run of a graph, node by node, from a device's figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from rlx.cost.dependency_chain import serial_steps
from rlx.cost.model import BackendCostModel, DetailedCostModel
from rlx.cost.op_classes import (
    CONTROL,
    FREE,
    JOINED,
    KINDS,
    ROWED,
    SIZED,
    more_rows,
    nested,
    product_size,
    traffic,
    work_of,
)
from rlx.dataclasses import dataclass
from rlx.ir.graph import Graph, Node
from rlx.ir.static_sizes import usual


@dataclass(frozen=True)
class Lowering:
    """Facts about a graph that only compiling finds out.

    Attributes:
        dispatches: Kernel calls of a node by its id; 1 for those that are not listed.
        hosted: Nodes that run on the host inside a graph on a GPU, by id.
        cuts: How often the run stops for them.
        cut_bytes: Bytes that come back for them, and that go up after them.
        host: The figures of the CPU that computes them.
    """

    dispatches: Mapping[int, int] = field(default_factory=dict)
    hosted: frozenset[int] = frozenset()
    cuts: int = 0
    cut_bytes: tuple[int, int] = (0, 0)
    host: BackendCostModel | None = None


_PLAIN = Lowering()


@dataclass(frozen=True)
class NodeCost:
    """One node's estimate.

    Attributes:
        node: The node.
        flops: Floating-point operations.
        nbytes: Bytes read and written.
        ns: Estimated time.
        bound: The part that takes most of it: "compute", "memory", "dispatch", or "host" for a node that the
            host computes inside a graph on a GPU.
    """

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


@dataclass(frozen=True)
class GraphCost:
    """A run's estimate, in nanoseconds, part by part.

    Attributes:
        roundtrip_ns: Submitting and waiting.
        upload_ns: Inputs to the device.
        readback_ns: Outputs to the host.
        host_ns: Stopping for parts on the host, and their transfers.
        nodes: Each node that runs.
    """

    roundtrip_ns: float
    upload_ns: float
    readback_ns: float
    host_ns: float
    nodes: tuple[NodeCost, ...]

    @property
    def ns(self) -> float:
        """All of it."""
        parts = (self.roundtrip_ns, self.upload_ns, self.readback_ns, self.host_ns)
        return math.fsum((*parts, *(node.ns for node in self.nodes)))


def node_costs(
    graph: Graph, model: BackendCostModel, lowering: Lowering = _PLAIN
) -> list[NodeCost]:
    """The estimate of every node that runs.

    Args:
        graph: The graph as it will run, after fusion.
        model: The device's figures.
        lowering: The known facts about its kernels.
    """
    device = _Figures(model)
    host = _Figures(lowering.host) if lowering.host is not None else device
    return [_node(node, device, host, lowering) for node in graph.nodes if node.op not in FREE]


def graph_cost(graph: Graph, model: BackendCostModel, lowering: Lowering = _PLAIN) -> GraphCost:
    """The estimate of one run, part by part.

    Args:
        graph: The graph as it will run, after fusion.
        model: The device's figures.
        lowering: The known facts about its kernels.
    """
    graph = usual(graph)
    inputs = sum(node.type.nbytes for node in graph.nodes if node.op == "input")
    outputs = sum(node.type.nbytes for node in dict.fromkeys(graph.outputs))
    down, up = lowering.cut_bytes
    device = _Figures(model)
    return GraphCost(
        model.roundtrip_overhead_ns(),
        device.upload_ns(inputs),
        device.readback_ns(outputs),
        lowering.cuts * device.thunk_ns() + device.readback_ns(down) + device.upload_ns(up),
        tuple(node_costs(graph, model, lowering)),
    )


def estimate_graph_cost(graph: Graph, model: BackendCostModel) -> float:
    """Estimated nanoseconds of one run.

    Args:
        graph: The graph as it will run; one with dims is taken at usual sizes.
        model: The device's figures.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (4, 4)) @ g.input("w", (4, 4))])
        >>> rlx.estimate_graph_cost(g, rlx.cost.CpuCostModel()) > 0
        True
    """
    return graph_cost(graph, model).ns


def pick_best_device(graph: Graph, models: Iterable[BackendCostModel]) -> Any:
    """The device of the model with the least estimate; "cpu" when there is none or all are infinite.

    Args:
        graph: The graph as it will run.
        models: The figures of the devices that it could run on.
    """
    ranked = [(estimate_graph_cost(graph, model), model) for model in models]
    finite = [pair for pair in ranked if math.isfinite(pair[0])]
    return min(finite, key=lambda pair: pair[0])[1].device if finite else "cpu"


class _Figures:
    """A model's times: stated by a model that knows more than peaks, or computed from the peaks."""

    def __init__(self, model: BackendCostModel) -> None:
        self.model = model
        # Asked once: looking for every member takes longer than estimating a node.
        self._detailed = model if isinstance(model, DetailedCostModel) else None
        self.dispatch_ns = model.dispatch_overhead_ns()

    def thunk_ns(self) -> float:
        result = self._detailed
        return result.host_thunk_ns() if result else self.model.roundtrip_overhead_ns()

    def upload_ns(self, nbytes: int) -> float:
        if self._detailed:
            return self._detailed.upload_ns(nbytes)
        bandwidth = self.model.host_upload_bw()
        return 0.0 if self.model.unified_memory else nbytes / max(bandwidth, 1e-9)

    def readback_ns(self, nbytes: int) -> float:
        if self._detailed:
            return self._detailed.readback_ns(nbytes)
        bandwidth = self.model.host_readback_bw()
        return 0.0 if self.model.unified_memory else nbytes / max(bandwidth, 1e-9)

    def node_ns(self, node: Node, flops: float, nbytes: int) -> tuple[float, float]:
        """Time of a node's arithmetic, and of its memory."""
        model = self._detailed
        if model is None:
            compute = flops / max(self.model.sgemm_gflops(*_plain_size(node)), 1e-9)
            return compute, nbytes / max(self.model.memory_bw(), 1e-9)
        if node.op in SIZED:
            return model.product_ns(str(node.dtype), *product_size(node)), model.copy_ns(nbytes)
        work = work_of(node)
        rows = {kind: more_rows(node) for kind in work if kind in ROWED}
        steps = serial_steps(node)
        spent = math.fsum(
            model.kernel_ns(kind, amount, rows.get(kind, 0.0), steps.get(kind, 0.0))
            for kind, amount in work.items()
        )
        # Nodes that only move bytes have measured figures: they are bound by memory, at their own speed.
        if any(KINDS[kind].moves for kind in work):
            return 0.0, max(spent, model.copy_ns(nbytes))
        return spent, model.copy_ns(nbytes)


def _node(node: Node, device: _Figures, host: _Figures, lowering: Lowering) -> NodeCost:
    on_host = node.id in lowering.hosted
    figures, calls = (host, 1) if on_host else (device, lowering.dispatches.get(node.id, 1))
    flops, nbytes = float(node.opdef.flops(node)), traffic(node)
    if node.op in CONTROL:
        ns = math.fsum(
            times * math.fsum(cost.ns for cost in node_costs(graph, figures.model))
            for graph, times in nested(node)
        )
        return NodeCost(node, flops, nbytes, ns, "host" if on_host else "compute")
    compute, memory = figures.node_ns(node, flops, nbytes)
    dispatch, slowest = calls * figures.dispatch_ns, max(compute, memory)
    bound = "dispatch" if dispatch > slowest else "compute" if compute > memory else "memory"
    return NodeCost(node, flops, nbytes, slowest + dispatch, "host" if on_host else bound)


def _plain_size(node: Node) -> tuple[int, int, int]:
    if node.op in JOINED:
        return product_size(node)[1:]
    m, n = (node.shape[-2:] if len(node.shape) > 1 else (1, node.type.size)) or (1, 1)
    k = node.inputs[0].shape[-1] if node.inputs and node.inputs[0].shape else 1
    return m, k, n

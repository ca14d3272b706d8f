"""Mixtures of experts: which layers a graph has, and the same graph with some experts kept on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import GraphError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.rewrite import Rewriter

# Ops that may stand between a router's choice and the products that use it: they do not change the choice.
_PASSED = ("cast", "reshape")


@dataclass(frozen=True)
class Layer:
    """The products of one mixture: those that use the same choice of experts.

    Attributes:
        routing: The node that chooses: an expert for every row.
        products: ``grouped_matmul`` nodes.
        experts: How many there are.
    """

    routing: Node
    products: tuple[Node, ...]
    experts: int


@dataclass(frozen=True)
class ExpertSplit:
    """The places of a weight's experts.

    Attributes:
        resident: Name of the param that holds those on the device; "" when there are none.
        host: Name of the param that holds the others; "" when there are none.
        mask: bool per expert: whether it is on the device.
    """

    resident: str
    host: str
    mask: Array


def expert_layers(graph: Graph) -> list[Layer]:
    """The mixtures of experts of a graph, in order."""
    results: dict[tuple[int, int], list[Node]] = {}
    for node in graph.nodes:
        if node.op == "grouped_matmul":
            routing = node.inputs[2]
            while routing.op in _PASSED:
                routing = routing.inputs[0]
            results.setdefault((routing.id, node.inputs[1].shape[0]), []).append(node)
    return [
        Layer(graph.nodes[key], tuple(products), experts)
        for (key, experts), products in results.items()
    ]


def with_routing(graph: Graph) -> Graph:
    """The graph with one more output per layer: the experts that were chosen, i32."""
    rewriter = Rewriter(graph)
    rewriter.keep_all(graph.nodes)
    chosen = [
        rewriter.new.add_node("cast", [rewriter[layer.routing]], {"dtype": DType.I32})
        for layer in expert_layers(graph)
    ]
    new = rewriter.finish()
    new.outputs = (*new.outputs, *chosen)
    return new


def place_experts(graph: Graph, masks: Sequence[Array]) -> tuple[Graph, dict[str, ExpertSplit]]:
    """The graph with the weights of some experts on the host.

    A product becomes two: one on the device, with the experts there, and one on the host. Each row takes the result of
    the product that has its expert.

    Returns:
        The new graph, and by name of a weight where its experts are.

    Raises:
        GraphError: The weights of a layer are not params, or are used by something else as well.
    """
    chosen: dict[int, Array] = {}
    for layer, mask in zip(expert_layers(graph), masks, strict=True):
        if not mask.all():
            chosen.update((product.id, mask) for product in layer.products)
    splits: dict[str, ExpertSplit] = {}
    for product in (graph.nodes[i] for i in chosen):
        weight, mask = product.inputs[1], chosen[product.id]
        if weight.op != "param" or _shared(graph, weight, chosen, mask):
            raise GraphError(
                "the experts can't be split between devices",
                where=product.where(),
                got=f"weights {weight.name!r} from {weight.op}",
                expected="a param that only products of one layer use",
            )
        splits[weight.name] = ExpertSplit(
            f"{weight.name}.resident" if mask.any() else "", f"{weight.name}.host", mask
        )

    rewriter = Rewriter(graph)
    weights: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op == "param" and node.name in splits:
            split, (_, *rest) = splits[node.name], node.shape
            counts = {split.resident: int(split.mask.sum()), split.host: int((~split.mask).sum())}
            for name, count in counts.items():
                if name:
                    weights[name] = rewriter.new.param(name, (count, *rest), node.dtype)
        elif node.id in chosen:
            x, idx = rewriter[node.inputs[0]], rewriter[node.inputs[2]]
            product = _placed(rewriter.new, x, idx, splits[node.inputs[1].name], weights)
            product.source = node.source
            rewriter.replace(node, product)
        else:
            rewriter.keep(node)
    return rewriter.finish(), splits


def _shared(graph: Graph, weight: Node, chosen: Mapping[int, Array], mask: Array) -> bool:
    readers = [node for node in graph.nodes if any(item is weight for item in node.inputs)]
    returned = any(output is weight for output in graph.outputs)
    return returned or any(chosen.get(node.id) is not mask for node in readers)


def _placed(g: Graph, x: Node, idx: Node, split: ExpertSplit, weights: Mapping[str, Node]) -> Node:
    mask = split.mask
    # An expert's number among those of its side; the other side's are negative.
    here = np.where(mask, np.cumsum(mask) - 1, -1).astype(np.int32)
    there = np.where(mask, -1, np.cumsum(~mask) - 1).astype(np.int32)
    hosted = g.add_node(
        "partial_grouped_matmul",
        [x, weights[split.host], g.gather(g.constant(there), idx, axis=0)],
        name="experts on the host",
    )
    if not split.resident:
        return hosted
    pos = g.gather(g.constant(here), idx, axis=0)
    resident = g.grouped_matmul(x, weights[split.resident], g.maximum(pos, np.int32(0)))
    on_device: Node = g.reshape(g.ge(pos, np.int32(0)), (*pos.shape, 1))
    return g.where(on_device, resident, hosted)

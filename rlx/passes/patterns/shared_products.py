"""Matrix products that share their left operand: gates, and several results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlx.abi.products import ACTIVATIONS
from rlx.ir.graph import Graph, Node
from rlx.ops.products.gated_matmul import MAX_PARTS
from rlx.passes.patterns.match import Build, Match, MatchSite, either_way, is_widened, joined_node

# Products of which several can be one kernel.
PRODUCTS = ("matmul", "fused_matmul_bias_act")


class _Linear(NamedTuple):
    """x @ w, or x @ w + bias, and the nodes that compute it."""

    x: Node
    w: Node
    bias: tuple[Node, ...]
    inside: tuple[Node, ...]


def _linear(node: Node) -> _Linear | None:
    if node.op == "matmul":
        x, w = node.inputs
        return _Linear(x, w, (), (node,)) if len(w.shape) == 2 else None
    if node.op != "add":
        return None
    for product, bias in either_way(node):
        result = _linear(product) if product.op == "matmul" and product is not bias else None
        if result and product.shape == node.shape and bias.shape == node.shape[-1:]:
            return result._replace(bias=(bias,), inside=(product, node))
    return None


# --- one product is the gate of the other --------------------------------------------------------------


def gated(node: Node, site: MatchSite) -> Match | None:
    """act(x @ wg + bg) * (x @ wu + bu) with both biases or none, and any activation.

    A silu may also be written as s * sigmoid(s).
    """
    for first, other in either_way(node):
        act, source, between = activation(first)
        gate, up = _linear(source), _linear(other)
        if not act or gate is None or up is None or source is other:
            continue
        if gate.x is not up.x or len(gate.bias) != len(up.bias) or source.shape != other.shape:
            continue
        widened = is_widened(gate.w) or is_widened(up.w)
        if widened and site.kernels.on_host and site.fuses("half_weights"):
            continue  # products by weights in 16 bits read half the bytes
        inside = sorted((*gate.inside, *between, *up.inside), key=lambda result: result.id)
        if site.private(inside, node) and not any(site.blocked(item) for item in inside):
            operands = (gate.x, gate.w, up.w, *gate.bias, *up.bias)
            replacement = joined_node("gated_product", operands, {"act": act}, node.name)
            return Match((*inside, node), replacement)
    return None


def activation(node: Node) -> tuple[str, Node, tuple[Node, ...]]:
    """Returns the activation that a node is the last of, its operand, and its nodes; "" for none."""
    if node.op in ACTIVATIONS:
        return node.op, node.inputs[0], (node,)
    if node.op == "mul":
        for sigmoid, x in either_way(node):
            if sigmoid.op == "sigmoid" and sigmoid.inputs[0] is x:
                return "silu", x, (sigmoid, node)
    return "", node, ()


# --- several results -----------------------------------------------------------------------------------


def shared(node: Node, site: MatchSite) -> Match | None:
    """Up to 3 products of one input by weights that depend on no input: q, k and v.

    They have the same activation, and all of them a bias or none. On a CPU one kernel is called for
    each of them anyway.
    """
    form = _form(node)
    if not site.fuses("joined_products") or form is None:
        return None
    readers = {reader.id: reader for reader in site.readers(node.inputs[0])}
    alike = [item for i, item in sorted(readers.items()) if _form(item) == form]
    alike = [item for item in alike if not site.blocked(item)]
    place = next(i for i, item in enumerate(alike) if item is node)
    if place % MAX_PARTS != MAX_PARTS - 1 and node is not alike[-1]:
        return None  # the pattern is found at the last product of the group
    group = alike[place // MAX_PARTS * MAX_PARTS : place + 1]
    return Match(tuple(group), _shared(group), tuple(group)) if len(group) > 1 else None


def _form(node: Node) -> tuple[int, str, int] | None:
    """Returns the key that products in one kernel share: the left operand, the activation, a bias or none."""
    if node.op not in PRODUCTS:
        return None
    x, w, *bias = node.inputs
    if len(w.shape) != 2 or not all(item.fixed for item in (w, *bias)):
        return None
    return x.id, node.attrs.get("act", "none"), len(bias)


def _shared(group: Sequence[Node]) -> Build:
    x = group[0].inputs[0]
    biases = [item.inputs[2] for item in group if len(item.inputs) > 2]

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        operands = [indices[x.id]]
        if biases:
            operands.append(_joined(g, [indices[bias.id] for bias in biases]))
        operands += [indices[item.inputs[1].id] for item in group]
        act = group[0].attrs.get("act", "none")
        attrs = {"act": act, "present": ("bias",) if biases else ()}
        return g.add_node("shared_products", operands, attrs, group[-1].name)

    return build


def _joined(g: Graph, biases: Sequence[Node]) -> Node:
    """The biases one after the other; of constants a constant, for those no run has to join."""
    if all(bias.op == "constant" for bias in biases):
        return g.constant(np.concatenate([b.attrs["value"] for b in biases]), biases[0].dtype)
    return g.concat(list(biases), axis=0)

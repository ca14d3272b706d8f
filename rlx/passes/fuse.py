"""Fusion: matrix product with bias and activation; chains of elementwise operations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ir.dtype import WIDER
from rlx.ir.graph import Graph, Node
from rlx.ir.rewrite import Rewriter, users
from rlx.ops.linalg import ACTIVATIONS
from rlx.passes.legalize import blocked

# With the output, a region stays within WebGPU's default of 8 storage buffers.
REGION_INPUTS = 7
REGION_STEPS = 32


def fuse_matmul(graph: Graph, notes: list[str], kernel_set: str) -> Graph:
    """act(x @ w + bias) becomes one ``fused_matmul_bias_act``."""
    readers = users(graph)
    outputs = {node.id for node in graph.outputs}

    def only_user(node: Node) -> Node | None:
        uses = readers[node.id]
        return uses[0] if len(uses) == 1 and node.id not in outputs else None

    # Keyed by the node that the fused one stands for; the members inside it vanish.
    fused: dict[int, tuple[Node, Node, str]] = {}
    inside: set[int] = set()
    for product in graph.nodes:
        if (
            product.op != "matmul"
            or len(product.inputs[1].shape) != 2
            or blocked(product, kernel_set)
        ):
            continue
        add = only_user(product)
        if add is None or add.op != "add" or len(product.inputs[0].shape) < 2:
            continue
        bias = add.inputs[1] if add.inputs[0] is product else add.inputs[0]
        if bias is product or bias.shape != product.shape[-1:] or add.shape != product.shape:
            notes.append(
                f"fuse_matmul: left {product.where()} and {add.where()}, "
                f"{bias.shape} is not a bias of {product.shape}"
            )
            continue
        last, act = add, "none"
        activation = only_user(add)
        if activation is not None and activation.op in ACTIVATIONS:
            last, act = activation, activation.op
        fused[last.id] = (product, bias, act)
        inside.update(node.id for node in (product, add, last))
        notes.append(
            f"fuse_matmul: took {product.where()}, saves {2 if act != 'none' else 1} kernels"
        )

    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.id in fused:
            product, bias, act = fused[node.id]
            operands = [rewriter[n] for n in (*product.inputs, bias)]
            new = rewriter.new.add_node("fused_matmul_bias_act", operands, {"act": act}, node.name)
            new.source = product.source
            rewriter.replace(node, new)
        elif node.id not in inside:
            rewriter.keep(node)
    return rewriter.finish()


def fuse_elementwise(graph: Graph, notes: list[str], kernel_set: str) -> Graph:
    """Chains of elementwise nodes of one size become regions: one pass over memory each."""
    readers = users(graph)
    outputs = {node.id for node in graph.outputs}
    region_of: dict[int, int] = {}
    regions: dict[int, list[Node]] = {}
    # From the last node up: when a node is reached, all its readers have found their region.
    for node in reversed(graph.nodes):
        if not node.opdef.elementwise or blocked(node, kernel_set):
            continue
        homes = {region_of.get(reader.id, -1) for reader in readers[node.id]}
        home = homes.pop() if len(homes) == 1 and node.id not in outputs else -1
        root = graph.nodes[home] if home >= 0 else None
        if root is not None and root.shape == node.shape:
            members = [*regions[home], node]
            if len(_operands(members)) <= REGION_INPUTS and len(members) <= REGION_STEPS:
                regions[home] = members
                region_of[node.id] = home
                continue
            notes.append(f"fuse_elementwise: left {node.where()} outside, the region is full")
        regions[node.id] = [node]
        region_of[node.id] = node.id

    rewriter = Rewriter(graph)
    for node in graph.nodes:
        home = region_of.get(node.id, -1)
        literals = home >= 0 and any(_literal(o) for m in regions[home] for o in m.inputs)
        if home < 0 or (len(regions[home]) == 1 and not literals):
            rewriter.keep(node)
        elif home == node.id:
            members = sorted(regions[home], key=lambda member: member.id)
            inputs, attrs = _region(members)
            new = rewriter.new.add_node(
                "region", [rewriter[operand] for operand in inputs], attrs, node.name
            )
            new.source = node.source
            rewriter.replace(node, new)
            if len(members) > 1:
                names = " ".join(member.op for member in members)
                moved = 2 * sum(member.type.nbytes for member in members[:-1])
                notes.append(
                    f"fuse_elementwise: took {names} at {node.where()}, saves "
                    f"{len(members) - 1} kernels and {moved} bytes of traffic"
                )
    return rewriter.finish()


def _literal(node: Node) -> bool:
    """A finite scalar constant is written into the program instead of being read from memory."""
    if node.op != "constant" or node.type.size != 1 or node.shape != ():
        return False
    if node.dtype in WIDER:  # held in a narrow type, whose casts would need loops of their own
        return False
    return bool(np.isfinite(node.attrs["value"])) and math.isfinite(float(node.attrs["value"]))


def _operands(members: list[Node]) -> list[Node]:
    inside = {member.id for member in members}
    found: dict[int, Node] = {}
    for member in members:
        for operand in member.inputs:
            if operand.id not in inside and not _literal(operand):
                found.setdefault(operand.id, operand)
    return list(found.values())


def _region(members: list[Node]) -> tuple[list[Node], dict[str, Any]]:
    inputs = _operands(members)
    if not inputs:
        # A region of literals alone still needs an operand to take its shape from.
        inputs = [members[0].inputs[0]]
    number = {node.id: at for at, node in enumerate(inputs)}
    program: list[Any] = []
    for member in members:
        for operand in member.inputs:
            if operand.id not in number:
                number[operand.id] = len(inputs) + len(program)
                value = operand.attrs["value"].item()
                program.append(("literal", (), operand.dtype, value))
        refs = tuple(number[operand.id] for operand in member.inputs)
        number[member.id] = len(inputs) + len(program)
        program.append((member.op, refs, member.dtype, None))
    return inputs, {"program": tuple(program)}

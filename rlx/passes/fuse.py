"""Fusion of chains of elementwise operations: one pass over memory each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ir.dtype import WIDER
from rlx.ir.graph import Graph, Node
from rlx.ir.notes import Note
from rlx.ir.rewrite import Rewriter, users
from rlx.passes.fusion_gate import Specialisation, Weighed
from rlx.passes.legalize import blocked

# With the output, a region stays within WebGPU's default of 8 storage buffers.
REGION_INPUTS = 7
REGION_STEPS = 32


def fuse_elementwise(graph: Graph, notes: list[Note], target: Specialisation) -> Graph:
    """Chains of elementwise nodes of one size become regions: one pass over memory each."""
    kernel_set = target.kernel_set
    readers = users(graph)
    outputs = {node.id for node in graph.outputs}
    region_of: dict[int, int] = {}
    regions: dict[int, list[Node]] = {}
    # From the last node to the first: every reader of a node has its region before the node.
    for node in reversed(graph.nodes):
        if not node.opdef.elementwise or blocked(node, kernel_set):
            continue
        homes = {region_of.get(reader.id, -1) for reader in readers[node.id]}
        home = homes.pop() if len(homes) == 1 and node.id not in outputs else -1
        root = graph.nodes[home] if home >= 0 else None
        # A cast that is broadcast, such as that of a weight in 16 bits, is less work than a pass of its own.
        if root is not None and (root.shape == node.shape or node.op == "cast"):
            members = [*regions[home], node]
            if len(_operands(members)) <= REGION_INPUTS and len(members) <= REGION_STEPS:
                regions[home] = members
                region_of[node.id] = home
                continue
            said = " outside, the region is full"
            notes.append(Note.of("fuse_elementwise", "left ", node, said))
        regions[node.id] = [node]
        region_of[node.id] = node.id

    weighed: dict[Any, Weighed] = {}
    for home, nodes in list(regions.items()):
        members = sorted(nodes, key=lambda member: member.id)
        if len(members) > 1 and not _admitted(members, target, notes, weighed):
            del regions[home]
            for member in members:
                regions[member.id] = [member]
                region_of[member.id] = member.id

    if not regions:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        home = region_of.get(node.id, -1)
        literals = home >= 0 and any(_literal(o) for m in regions[home] for o in m.inputs)
        if home < 0 or (len(regions[home]) == 1 and not literals):
            rewriter.keep(node)
        elif home == node.id:
            members = sorted(regions[home], key=lambda member: member.id)
            inputs, attrs = _region(members)
            operands = [rewriter[operand] for operand in inputs]
            new = rewriter.new.add_node("region", operands, attrs, node.name, node.source)
            rewriter.replace(node, new)
    return rewriter.finish()


def _admitted(
    members: list[Node], target: Specialisation, notes: list[Note], weighed: dict[Any, Weighed]
) -> bool:
    """Returns whether a region pays; equal regions are weighed once."""
    inputs, attrs = _region(members)
    # In text 0.0 and -0.0 differ, and so do 1 and True.
    key = repr(attrs), members[-1].shape, *(operand.type for operand in inputs)
    if key not in weighed:
        weighed[key] = _weigh(members, inputs, attrs, target)
    names = " ".join(member.op for member in members)
    notes.append(weighed[key].note(names, members[-1]))
    return weighed[key].taken


def _weigh(
    members: list[Node], inputs: list[Node], attrs: dict[str, Any], target: Specialisation
) -> Weighed:
    before, after = Graph("nodes"), Graph("region")
    indices = {node.id: before.stand_in("input", f"v{node.id}", node) for node in inputs}
    for member in members:
        for operand in member.inputs:
            if operand.id not in indices:  # a number that is written into the program
                indices[operand.id] = before.constant(operand.attrs["value"], operand.dtype)
        operands = [indices[operand.id] for operand in member.inputs]
        indices[member.id] = before.add_node(member.opdef, operands, member.attrs)
    before.set_outputs(indices[members[-1].id])
    operands = [after.stand_in("input", f"v{node.id}", node) for node in inputs]
    after.set_outputs(after.add_node("region", operands, attrs))
    return target.weigh(before, after)


def _literal(node: Node) -> bool:
    """A finite scalar constant is written into the program instead of being read from memory."""
    if node.op != "constant" or node.type.size != 1 or node.shape != ():
        return False
    if node.dtype in WIDER:  # held in a narrow type, whose casts would need loops of their own
        return False
    return bool(np.isfinite(node.attrs["value"])) and math.isfinite(float(node.attrs["value"]))


def _operands(members: list[Node]) -> list[Node]:
    inside = {member.id for member in members}
    results: dict[int, Node] = {}
    for member in members:
        for operand in member.inputs:
            if operand.id not in inside and not _literal(operand):
                results.setdefault(operand.id, operand)
    return list(results.values())


def _region(members: list[Node]) -> tuple[list[Node], dict[str, Any]]:
    inputs = _operands(members)
    if not inputs:
        # A region of literals alone still needs an operand to take its shape from.
        inputs = [members[0].inputs[0]]
    number = {node.id: i for i, node in enumerate(inputs)}
    program: list[Any] = []
    for member in members:
        for operand in member.inputs:
            if operand.id not in number:
                number[operand.id] = len(inputs) + len(program)
                program.append(("literal", (), operand.dtype, operand.attrs["value"].item()))
        refs = tuple(number[operand.id] for operand in member.inputs)
        number[member.id] = len(inputs) + len(program)
        program.append((member.op, refs, member.dtype, None))
    return inputs, {"program": tuple(program)}

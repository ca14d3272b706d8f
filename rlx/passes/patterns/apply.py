"""Applies the table of patterns: finds matches, asks the gate, rewrites."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from rlx.ir.graph import Graph, Node
from rlx.ir.notes import Note
from rlx.ir.rewrite import Rewriter, reached
from rlx.ir.spans import checkpoint
from rlx.passes.fuse import fuse_elementwise
from rlx.passes.fusion_gate import Specialisation, Weighed
from rlx.passes.param_hoist import run_part
from rlx.passes.patterns.match import Match, MatchSite, Pattern
from rlx.passes.patterns.table import PATTERNS


def fuse_patterns(graph: Graph, notes: list[Note], target: Specialisation) -> Graph:
    """Replaces the matches of patterns that pay on the target."""
    site = MatchSite(graph, target.kernel_set)
    for pattern in PATTERNS:
        result = _find(pattern, site, notes, target)
        if result:
            graph = _rewritten(graph, result)
            site = MatchSite(graph, target.kernel_set)
    return graph


def _find(
    pattern: Pattern, site: MatchSite, notes: list[Note], target: Specialisation
) -> list[Match]:
    """Finds the matches of a pattern that pay; no two matches share a node."""
    results: list[Match] = []
    inside: set[int] = set()
    weighed: dict[Any, Weighed] = {}
    checkpoint()
    for node in site.nodes(pattern.ends, pattern.needs):
        if node.id in inside or site.blocked(node):
            continue
        match = pattern.match(node, site)
        if match is None or any(item.id in inside for item in match.inside):
            continue
        also = _needed_elsewhere(match, site)
        form = _form(match, also, site)
        if form not in weighed:
            # Without the nodes of params alone, and with chains fused as they will be.
            parts = [run_part(side(match, also)) for side in (_before, _after)]
            sides = [fuse_elementwise(part, [], target.taking_all()) for part in parts]
            weighed[form] = target.weigh(*sides)
        notes.append(weighed[form].note(pattern.name, node))
        if weighed[form].taken:
            results.append(match)
            inside.update(item.id for item in match.inside)
    return results


def _form(match: Match, also: list[Node], site: MatchSite) -> Any:
    """Returns a key that is equal for matches of one pattern with equal gain: layers of a model repeat themselves."""
    number = {node.id: i for i, node in enumerate((*match.operands, *match.inside))}

    def seen(node: Node) -> Any:
        # In text 0.0 and -0.0 differ, and so do 1 and True; long arrays count by their types.
        attrs = [
            (key, id(value) if isinstance(value, np.ndarray) and value.size > 16 else repr(value))
            for key, value in node.attrs.items()
        ]
        return node.op, node.types, tuple(attrs), site.only(node) is None

    return (
        tuple(
            (operand.types, operand.fixed, operand.op == "constant" and seen(operand))
            for operand in match.operands
        ),
        tuple((seen(item), tuple(number[o.id] for o in item.inputs)) for item in match.inside),
        tuple(number[item.id] for item in (*also, *match.results)),
    )


def _needed_elsewhere(match: Match, site: MatchSite) -> list[Node]:
    """Nodes inside, results apart, that others read or that are outputs."""
    apart = {node.id for node in match.results}
    members = {node.id for node in match.inside}
    return [
        node
        for node in match.inside
        if node.id not in apart
        and (site.is_output(node) or any(reader.id not in members for reader in site.readers(node)))
    ]


def _rewritten(graph: Graph, results: list[Match]) -> Graph:
    """Returns the graph with the matches' replacements in place of their results.

    A match is built when the first of its results is needed, its operands before it.
    """
    match_of = {node.id: match for match in results for node in match.results}
    rewriter = Rewriter(graph)
    done = {node.id for node in graph.nodes if node.op in ("input", "param")}
    rewriter.keep_all(node for node in graph.nodes if node.id in done)
    live = reached(
        graph.outputs,
        lambda node: match_of[node.id].operands if node.id in match_of else node.inputs,
    )
    for node in graph.nodes:
        stack = [node] if node.id in live else []
        while stack:
            top = stack[-1]
            match = match_of.get(top.id)
            waiting = [o for o in (match.operands if match else top.inputs) if o.id not in done]
            if top.id in done or not waiting:
                stack.pop()
            if top.id in done:
                continue
            if waiting:
                stack += waiting
            elif match is None:
                rewriter.keep(top)
                done.add(top.id)
            else:
                _build(match, rewriter)
                done.update(result.id for result in match.results)
    return rewriter.finish()


def _build(match: Match, rewriter: Rewriter) -> None:
    first = len(rewriter.new.nodes)
    result = match.build_nodes(
        rewriter.new, {operand.id: rewriter[operand] for operand in match.operands}
    )
    for node in rewriter.new.nodes[first:]:
        node.source = match.results[-1].source
    for old, new in zip(match.results, result, strict=True):
        rewriter.replace(old, new)


# --- both sides of a match as graphs of their own, for the gate ---------------------------------------


def _before(match: Match, also: list[Node]) -> Graph:
    g = Graph("before")
    pos = _operands(g, match)
    _copy(g, match, {node.id for node in match.inside}, pos)
    g.set_outputs([pos[node.id] for node in (*match.results, *also)])
    return g


def _after(match: Match, also: list[Node]) -> Graph:
    g = Graph("after")
    pos = _operands(g, match)
    result = match.build_nodes(g, pos)
    members = {node.id for node in match.inside}
    needed = reached(also, lambda node: [o for o in node.inputs if o.id in members])
    _copy(g, match, needed, pos)
    g.set_outputs([*result, *(pos[node.id] for node in also)])
    return g


def _operands(g: Graph, match: Match) -> dict[int, Node]:
    return {operand.id: _outside(g, operand) for operand in match.operands}


def _copy(g: Graph, match: Match, wanted: Container[int], indices: dict[int, Node]) -> None:
    for node in match.inside:
        if node.id in wanted:
            indices[node.id] = g.copy_node(node, tuple([indices[o.id] for o in node.inputs]))


def _outside(g: Graph, operand: Node) -> Node:
    if operand.op == "constant":
        return g.constant(operand.attrs["value"], operand.dtype)
    return g.stand_in("param" if operand.fixed else "input", f"v{operand.id}", operand)

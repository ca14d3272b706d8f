"""Splitting: a weight above what a kernel can bind is read in parts, each a param of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rlx.ir.graph import Graph, Node
from rlx.ir.notes import Note
from rlx.ir.opdef import lookup
from rlx.ir.rewrite import Rewriter
from rlx.ops.declare import operand_names


class Cut(NamedTuple):
    """A way to cut a product.

    Attributes:
        operand: The operand that may be too large.
        axis: Its axis that is cut.
        result: The axis of the result along which the parts stand side by side.
    """

    operand: int
    axis: int
    result: int


Pieces = list[tuple[int, int]]
# Products, and which operand is cut. Parts are never cut along the axis that is summed over.
CUTS: dict[str, tuple[Cut, ...]] = {
    "matmul": (Cut(1, -1, -1), Cut(0, -2, -2)),
    "dequant_matmul": (Cut(1, 0, -1),),
}
# The length of every part but the last is a multiple of this, which kernels read at once.
STEP = 64


def split_large(graph: Graph, limit: int, notes: list[Note]) -> Graph:
    """Cuts weights that no kernel can bind whole: products side by side, look-ups one after another.

    What is cut depends on params and constants alone, so that the parts are made when those are set, and a
    run reads parts only. Weights of other operations stay as they are, for the device to refuse.
    """
    large = {node.id for node in graph.nodes if node.fixed and node.type.nbytes > limit}
    if not large:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        result = None if node.fixed else next(_ways(node, large), None)
        if result is None:
            rewriter.keep(node)
            continue
        cut, weight = result
        pieces = _pieces(weight, cut.axis, limit)
        new = (_product if node.op in CUTS else _look_up)(rewriter, node, cut, pieces)
        new.source = node.source
        rewriter.replace(node, new)
        notes.append(
            Note.of(
                "split",
                node,
                f" reads {weight.type.nbytes} bytes of weights in {len(pieces)} parts, "
                f"since a kernel can bind {limit}",
            )
        )
    return rewriter.finish()


def _ways(node: Node, large: set[int]) -> Iterator[tuple[Cut, Node]]:
    """The cuts that a node's large weights allow, with the weight."""
    cuts = CUTS.get(node.op, ())
    if node.op == "gather":
        cuts = (Cut(0, node.attrs["axis"], 0),)
    if node.op == "dequantize_blocks" and "rows" in operand_names(node):
        cuts = (Cut(0, 0, 0),)
    for cut in cuts:
        weight = node.inputs[cut.operand]
        others = [item for i, item in enumerate(node.inputs) if i != cut.operand]
        matrices = node.op != "matmul" or all(len(other.shape) > 1 for other in (weight, *others))
        if weight.id in large and matrices:
            yield cut, weight


def _pieces(weight: Node, axis: int, limit: int) -> list[tuple[int, int]]:
    """Stretches of an axis that a kernel can bind."""
    length = weight.shape[axis]
    each = max(1, length * limit // weight.type.nbytes)
    each -= each % STEP if each > STEP else 0
    return [(low, min(low + each, length)) for low in range(0, length, each)]


def _part(g: Graph, node: Node, axis: int, low: int, high: int) -> Node:
    """A stretch of a weight, in memory of its own."""
    stretch = g.slice(node, [low], [high], [axis % len(node.shape)])
    return g.add_node(lookup("copy"), [stretch], {})


def _product(rewriter: Rewriter, node: Node, cut: Cut, pieces: Pieces) -> Node:
    g = rewriter.new
    operands = [rewriter[item] for item in node.inputs]
    # Scales and zero points have a row for every row of packed weights.
    cuts = {cut.operand, *(range(2, len(operands)) if node.op == "dequant_matmul" else ())}
    results = []
    for low, high in pieces:
        mine = [
            _part(g, operand, cut.axis, low, high) if i in cuts else operand
            for i, operand in enumerate(operands)
        ]
        results.append(g.add_node(node.opdef, mine, node.attrs))
    return g.concat(results, axis=cut.result % len(node.shape))


def _look_up(rewriter: Rewriter, node: Node, cut: Cut, pieces: Pieces) -> Node:
    """Entries of the first part, then those of each other part in the places that are its own."""
    g = rewriter.new
    operands = [rewriter[item] for item in node.inputs]
    table, rows = operands[0], operands[-1]
    axis = cut.axis % len(table.shape)
    if node.op == "gather":
        rows = g.where(g.lt(rows, 0), g.add(rows, table.shape[axis]), rows)
    inner = len(node.shape) - axis - len(rows.shape)
    result: Node | None = None
    for low, high in pieces:
        mine = [_part(g, operand, axis, low, high) for operand in operands[:-1]]
        pos = g.clip(g.sub(rows, low), 0, high - low - 1)
        single = g.add_node(node.opdef, [*mine, pos], node.attrs)
        if result is None:
            result = single
        else:
            here = g.reshape(g.ge(rows, low), (*rows.shape, *[1] * inner))
            result = g.where(here, single, result)
    assert result is not None
    return result

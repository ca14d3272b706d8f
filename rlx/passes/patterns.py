"""Fusion by pattern: a table of small graphs, and the single nodes that compute the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlx.ir.graph import Graph, Node
from rlx.ir.rewrite import Rewriter, users
from rlx.ir.shape import size
from rlx.ops.leaves import LEAVES
from rlx.ops.linalg import ACTIVATIONS
from rlx.passes.gated import Specialisation
from rlx.passes.hoist import hoist
from rlx.passes.legalize import blocked

Build = Callable[[Graph, Mapping[int, Node]], Node]
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d")


@dataclass(frozen=True)
class Match:
    """Where a pattern fits.

    Attributes:
        inside: The nodes that it replaces, the one whose result stays last. Those before it are read by
            nodes inside only.
        build: Adds what computes the same; operands from outside by the id that they had.
    """

    inside: tuple[Node, ...]
    build: Build


class Readers:
    """Who reads what in a graph."""

    def __init__(self, graph: Graph) -> None:
        self._readers = users(graph)
        self._outputs = {node.id for node in graph.outputs}

    def only(self, node: Node) -> Node | None:
        """The one reader of a node that nobody else needs; None otherwise."""
        found = self._readers[node.id]
        return found[0] if len(found) == 1 and node.id not in self._outputs else None


@dataclass(frozen=True)
class Pattern:
    """One row of the table.

    Attributes:
        name: What notes call it.
        match: Where the pattern fits that ends in this node; None where it does not.
    """

    name: str
    match: Callable[[Node, Readers, str], Match | None]


# --- products and convolutions with what follows them --------------------------------------------------


def _product(node: Node, readers: Readers, kernel_set: str) -> Match | None:
    """act(x @ w + bias), or without an activation."""
    act, add = "none", node
    if node.op in ACTIVATIONS:
        act, add = node.op, node.inputs[0]
    if add.op != "add" or (act != "none" and readers.only(add) is not node):
        return None
    for product, bias in (add.inputs, add.inputs[::-1]):
        if product.op != "matmul" or readers.only(product) is not add or bias is product:
            continue
        x, w = product.inputs
        fits = len(x.shape) >= 2 and len(w.shape) == 2 and bias.shape == product.shape[-1:]
        if not fits or add.shape != product.shape or blocked(product, kernel_set):
            continue
        if act == "none":
            following = readers.only(add)
            if following is not None and following.op in ACTIVATIONS:
                return None  # it is found from there, with the activation
        inside = (product, add) if act == "none" else (product, add, node)
        return Match(inside, _fused((x.id, w.id, bias.id), act, node.name))
    return None


def _fused(operands: Sequence[int], act: str, name: str) -> Build:
    return lambda g, at: g.add_node(
        "fused_matmul_bias_act", [at[o] for o in operands], {"act": act}, name
    )


def _turned(node: Node, readers: Readers, kernel_set: str) -> Match | None:
    """X @ y with the last two axes of y exchanged just before."""
    if node.op != "matmul" or len(node.inputs[0].shape) < 2:
        return None
    x, y = node.inputs
    rank = len(y.shape)
    exchange = (*range(rank - 2), rank - 1, rank - 2)
    if y.op != "transpose" or tuple(y.attrs["perm"]) != exchange or _without_inputs(y):
        return None
    if readers.only(y) is not node:
        return None
    (straight,) = y.inputs
    operands = (x.id, straight.id)
    return Match((y, node), lambda g, at: g.add_node("matmul_turned", [at[o] for o in operands]))


def _per_channel(node: Node, conv: Node) -> bool:
    """Whether an operand has one value per channel of a convolution's result, beside it."""
    shape = (1,) * (len(conv.shape) - len(node.shape)) + node.shape
    return size(node.shape) == conv.shape[1] and shape[1] == conv.shape[1]


def _with_bias(g: Graph, conv: Node, x: Node, w: Node, bias: Node) -> Node:
    """The convolution with another weight and bias."""
    attrs = {key: value for key, value in conv.attrs.items() if key not in ("present", "bias")}
    made: Node = getattr(g, conv.op)(x, w, bias=g.reshape(bias, (conv.shape[1],)), **attrs)
    return made


def _conv_bias(node: Node, readers: Readers, kernel_set: str) -> Match | None:
    """conv(x, w) + bias."""
    if node.op != "add":
        return None
    for conv, bias in (node.inputs, node.inputs[::-1]):
        if conv.op not in _CONVOLUTIONS or readers.only(conv) is not node or len(conv.inputs) != 2:
            continue
        if bias is conv or node.shape != conv.shape or not _per_channel(bias, conv):
            continue
        return Match((conv, node), _biased(conv, bias))
    return None


def _biased(conv: Node, bias: Node) -> Build:
    x, w = conv.inputs
    return lambda g, at: _with_bias(g, conv, at[x.id], at[w.id], at[bias.id])


def _conv_affine(node: Node, readers: Readers, kernel_set: str) -> Match | None:
    """conv(x, w, b) * factor + shift with values per channel that depend on no input: a batch norm.

    The weights are multiplied instead: conv(x, w * factor, b * factor + shift).
    """
    if node.op != "fma":
        return None
    conv, factor, shift = node.inputs
    if conv.op not in _CONVOLUTIONS[:3] or readers.only(conv) is not node:
        return None
    fixed = all(_per_channel(o, conv) and _without_inputs(o) for o in (factor, shift))
    if not fixed or node.shape != conv.shape or not all(map(_without_inputs, conv.inputs[1:])):
        return None
    x, w, *bias = conv.inputs

    def build(g: Graph, at: Mapping[int, Node]) -> Node:
        channels = conv.shape[1]
        scale = g.reshape(at[factor.id], (channels,))
        moved = g.reshape(at[shift.id], (channels,))
        if bias:
            moved = g.fma(at[bias[0].id], scale, moved)
        scaled = g.mul(at[w.id], g.reshape(scale, (channels, *(1,) * (len(w.shape) - 1))))
        return _with_bias(g, conv, at[x.id], scaled, moved)

    return Match((conv, node), build)


def _without_inputs(node: Node) -> bool:
    if node.op in ("param", "constant"):
        return True
    return node.op != "input" and bool(node.inputs) and all(map(_without_inputs, node.inputs))


# --- attention -----------------------------------------------------------------------------------------


def _scalar(node: Node) -> float | None:
    """The value of a constant that is one number."""
    if node.op != "constant" or node.type.size != 1:
        return None
    return float(node.attrs["value"].reshape(()))


def _scaled(node: Node) -> tuple[Node, float, tuple[Node, ...]]:
    """A node times a number: what is multiplied, the number, and the nodes that do it."""
    if node.op in ("mul", "div"):
        for value, other in (node.inputs, node.inputs[::-1])[: 2 if node.op == "mul" else 1]:
            number = _scalar(other)
            if (
                number is not None
                and value.shape == node.shape
                and math.isfinite(number)
                and number
            ):
                return value, number if node.op == "mul" else 1 / number, (node,)
    return node, 1.0, ()


def _attention(node: Node, readers: Readers, kernel_set: str) -> Match | None:
    """softmax(scale * q @ k.T + mask) @ v on ``[batch, heads, length, size]``."""
    if node.op != "matmul" or node.inputs[0].op != "softmax":
        return None
    weights, v = node.inputs
    if weights.attrs["axis"] not in (-1, 3) or len(node.shape) != 4 or len(v.shape) != 4:
        return None
    scores, mask, inside = weights.inputs[0], None, [weights, node]
    if scores.op == "add":
        for product, other in (scores.inputs, scores.inputs[::-1]):
            if product.shape == scores.shape and _scaled(product)[0].op == "matmul":
                inside.insert(0, scores)
                scores, mask = product, other
                break
    scores, scale, between = _scaled(scores)
    inside = [*between, *inside]
    if scores.op != "matmul":
        return None
    inside.insert(0, scores)
    q, turned = scores.inputs
    q, factor, between = _scaled(q)
    inside = [*between, *inside]
    if turned.op != "transpose" or tuple(turned.attrs["perm"]) != (0, 1, 3, 2):
        return None
    if readers.only(turned) is scores:
        inside.insert(0, turned)
    (k,) = turned.inputs
    if len(q.shape) != 4 or q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3]:
        return None
    if any(readers.only(one) is None for one in inside[:-1]):
        return None
    operands = [q.id, k.id, v.id]
    attrs = {"kind": "none", "scale": scale * factor}
    if mask is not None:
        if mask.dtype != q.dtype:
            return None
        attrs["kind"] = "bias"

    def build(g: Graph, at: Mapping[int, Node]) -> Node:
        more = {} if mask is None else {"mask": at[mask.id]}
        made: Node = g.attention(*(at[o] for o in operands), **more, **attrs)
        return made

    return Match(tuple(inside), build)


PATTERNS = (
    Pattern("attention", _attention),
    Pattern("convolution and batch norm", _conv_affine),
    Pattern("convolution and bias", _conv_bias),
    Pattern("product, bias and activation", _product),
    Pattern("product and transpose", _turned),
)


# --- how the table is used -------------------------------------------------------------------------------


def fuse_patterns(
    graph: Graph,
    notes: list[str],
    target: Specialisation,
    patterns: Sequence[Pattern] = PATTERNS,
) -> Graph:
    """Replaces what patterns match, where that pays on the target."""
    for pattern in patterns:
        graph = _apply(pattern, graph, notes, target)
    return graph


def _apply(pattern: Pattern, graph: Graph, notes: list[str], target: Specialisation) -> Graph:
    readers = Readers(graph)
    found: dict[int, Match] = {}
    inside: set[int] = set()
    for node in reversed(graph.nodes):
        if node.op in LEAVES or node.id in inside or blocked(node, target.kernel_set):
            continue
        match = pattern.match(node, readers, target.kernel_set)
        if match is None or any(one.id in inside for one in match.inside):
            continue
        before, after = _alone(match, rebuilt=False), _alone(match, rebuilt=True)
        if target.admits(f"{pattern.name} at {node.where()}", before, after, notes):
            found[node.id] = match
            inside.update(one.id for one in match.inside)
    if not found:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.id in found:
            match = found[node.id]
            members = {one.id for one in match.inside}
            read = [o for one in match.inside for o in one.inputs if o.id not in members]
            outside = {operand.id: rewriter[operand] for operand in read}
            first = len(rewriter.new.nodes)
            new = match.build(rewriter.new, outside)
            for made in rewriter.new.nodes[first:]:
                made.source = node.source
            rewriter.replace(node, new)
        elif node.id not in inside:
            rewriter.keep(node)
    return rewriter.finish()


def _alone(match: Match, rebuilt: bool) -> Graph:
    """What a pattern replaces, or what it puts there, as a graph of its own."""
    g = Graph("candidate")
    members = {node.id for node in match.inside}
    at: dict[int, Node] = {}
    for node in match.inside:
        for operand in node.inputs:
            if operand.id not in members and operand.id not in at:
                at[operand.id] = _outside(g, operand)
    if rebuilt:
        g.set_outputs(match.build(g, at))
    else:
        for node in match.inside:
            at[node.id] = g.add_node(node.opdef, [at[o.id] for o in node.inputs], node.attrs)
        g.set_outputs(at[match.inside[-1].id])
    # What depends on params alone costs runs nothing.
    return hoist(g, []).graph


def _outside(g: Graph, operand: Node) -> Node:
    if operand.op == "constant":
        return g.constant(operand.attrs["value"], operand.dtype)
    if operand.op == "param" or _without_inputs(operand):
        return g.param(f"v{operand.id}", operand.shape, operand.dtype)
    return g.input(f"v{operand.id}", operand.shape, operand.dtype)
